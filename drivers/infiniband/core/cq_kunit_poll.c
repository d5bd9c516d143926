// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: delivery of completions.
 */
#include <linux/delay.h>
#include <linux/preempt.h>
#include <linux/sched.h>

#include "cq_kunit.h"

static struct cqk_cq *cqk_alloc(struct kunit *test, enum ib_poll_context ctx)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = ib_alloc_cq(&dev->ibdev, dev, CQK_MAX_CQE, 0, ctx);

	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_alloc_cq: %pe", cq);
	return to_cqk(cq);
}

/*
 * The CQ is armed again as the last act of a poller, after the last completion.
 */
static bool cqk_wait_arms(struct cqk_cq *cq, int n)
{
	unsigned long end = jiffies + CQK_TIMEOUT;

	while (atomic_read(&cq->dev->arm_calls) < n ||
	       atomic_read_acquire(&cq->in_callback)) {
		if (time_after(jiffies, end))
			return false;
		usleep_range(50, 100);
	}
	return true;
}

static void cqk_event_bh(struct cqk_cq *cq)
{
	local_bh_disable();
	cqk_raise(cq);
	local_bh_enable();
}

static void cqk_deliver_in_order(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));
	int i, n = 0;

	/* 0 + 1 + ... + 63 */
	cqk_expect(dev, 2016);
	for (i = 0; i < 64; i++) {
		cqk_post(cq, i);
		n += i;
		if (i % 8 == 0)
			usleep_range(50, 100);
	}
	KUNIT_EXPECT_EQ(test, n, 2016);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	KUNIT_EXPECT_EQ(test, dev->done, 2016ull);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	KUNIT_EXPECT_EQ(test, dev->bad_status, 0ull);
	KUNIT_EXPECT_EQ(test, dev->poll_max, CQK_BATCH);
	ib_free_cq(&cq->ibcq);
	/* Not one more. */
	KUNIT_EXPECT_EQ(test, dev->done, 2016ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_calls), 0);
}

/* A batch that is not full ends the polling, a full one does not. */
static void cqk_batches(struct kunit *test)
{
	static const struct {
		int post;
		int polls;
	} tab[] = {
		{ 1, 1 }, { 15, 1 }, { 16, 2 }, { 17, 2 }, { 31, 2 }, { 32, 3 }, { 40, 3 },
	};
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));
	int i, j;

	for (i = 0; i < ARRAY_SIZE(tab); i++) {
		cqk_expect(dev, tab[i].post);
		cqk_post(cq, tab[i].post);
		KUNIT_ASSERT_TRUE(test, cqk_wait(dev));
		/* One arming at allocation. */
		KUNIT_ASSERT_TRUE(test, cqk_wait_arms(cq, i + 2));
		KUNIT_EXPECT_EQ(test, dev->n_polls, tab[i].polls);
		for (j = 0; j < tab[i].polls; j++)
			KUNIT_EXPECT_EQ(test, dev->poll_log[j], CQK_BATCH);
	}
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), (int)ARRAY_SIZE(tab) + 1);
}

static void cqk_rearm_flags(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));

	cqk_expect(dev, 1);
	cqk_post(cq, 1);
	KUNIT_ASSERT_TRUE(test, cqk_wait(dev));
	KUNIT_ASSERT_TRUE(test, cqk_wait_arms(cq, 2));
	KUNIT_EXPECT_EQ(test, dev->first_arm_flags, (unsigned int)IB_CQ_NEXT_COMP);
	KUNIT_EXPECT_EQ(test, dev->last_arm_flags,
			(unsigned int)(IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS));
	ib_free_cq(&cq->ibcq);
}

/*
 * Budgets: how many runs of the poller it takes, and that the CQ is armed only
 * when it was found empty.
 */
static void cqk_check_budget(struct kunit *test, enum ib_poll_context ctx, int budget)
{
	const struct {
		int post;
		int runs;
	} tab[] = {
		{ budget - 1, 1 },
		/* The budget is used up, so the poller may not say "empty". */
		{ budget, 2 },
		{ budget + 1, 2 },
		{ 2 * budget + 88, 3 },
	};
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, ctx);
	int i;

	cqk_trace_start(test);
	for (i = 0; i < ARRAY_SIZE(tab); i++) {
		int runs = cqk_trace_count(CQK_TRACE_PROCESS);

		cqk_expect(dev, tab[i].post);
		cqk_post(cq, tab[i].post);
		KUNIT_ASSERT_TRUE(test, cqk_wait(dev));
		KUNIT_ASSERT_TRUE(test, cqk_wait_arms(cq, i + 2));
		KUNIT_EXPECT_EQ_MSG(test, cqk_trace_count(CQK_TRACE_PROCESS) - runs,
				    tab[i].runs, "with %d completions", tab[i].post);
		KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), i + 2);
		KUNIT_EXPECT_EQ(test, dev->poll_max, CQK_BATCH);
	}
	cqk_trace_stop();
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
}

static void cqk_budget_softirq(struct kunit *test)
{
	cqk_check_budget(test, IB_POLL_SOFTIRQ, CQK_BUDGET_SOFTIRQ);
}

static void cqk_budget_workqueue(struct kunit *test)
{
	cqk_check_budget(test, cqk_param(test), CQK_BUDGET_WORKQUEUE);
}

static void cqk_direct_batches(struct kunit *test)
{
	static const struct {
		int post;
		int budget;
		int ret;
		int polls;
		int log[4];
	} tab[] = {
		{ 0, -1, 0, 1, { 8 } },
		{ 0, 5, 0, 1, { 5 } },
		{ 3, 0, 0, 1, { 0 } },
		{ 0, -1, 3, 1, { 8 } },		/* What the last one left. */
		{ 8, -1, 8, 2, { 8, 8 } },
		{ 20, -1, 20, 3, { 8, 8, 8 } },
		{ 50, 20, 20, 3, { 8, 8, 4 } },
		{ 0, 8, 8, 1, { 8 } },
		{ 0, 1, 1, 1, { 1 } },
		{ 0, 16, 16, 2, { 8, 8 } },
		{ 0, 100, 5, 1, { 8 } },
	};
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, IB_POLL_DIRECT);
	u64 total = 0;
	int i, j;

	for (i = 0; i < ARRAY_SIZE(tab); i++) {
		cqk_expect(dev, 0);
		cqk_post(cq, tab[i].post);
		KUNIT_EXPECT_EQ_MSG(test, ib_process_cq_direct(&cq->ibcq, tab[i].budget),
				    tab[i].ret, "line %d", i);
		KUNIT_EXPECT_EQ_MSG(test, dev->n_polls, tab[i].polls, "line %d", i);
		for (j = 0; j < tab[i].polls; j++)
			KUNIT_EXPECT_EQ_MSG(test, dev->poll_log[j], tab[i].log[j],
					    "line %d, poll %d", i, j);
		KUNIT_EXPECT_EQ(test, dev->done, (u64)tab[i].ret);
		total += tab[i].ret;
	}
	KUNIT_EXPECT_EQ(test, cq->polled, total);
	KUNIT_EXPECT_EQ(test, cq->posted, total);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
}

/* A budget as large as the type allows is no special case. */
static void cqk_direct_large_budget(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, IB_POLL_DIRECT);

	cqk_expect(dev, 0);
	cqk_post(cq, 100);
	KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, INT_MAX), 100);
	KUNIT_EXPECT_EQ(test, dev->poll_max, CQK_BATCH_DIRECT);
	ib_free_cq(&cq->ibcq);
}

static void cqk_post_when_rearmed(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	/* Between the last poll and the arming: no event tells about these. */
	if (atomic_read(&cq->dev->arm_calls) == 2)
		cqk_post_silent(cq, 5);
}

static void cqk_missed_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));

	dev->hooks.arm = cqk_post_when_rearmed;
	cqk_expect(dev, 8);
	cqk_post(cq, 3);
	KUNIT_EXPECT_TRUE_MSG(test, cqk_wait(dev), "%llu of 8 done", dev->done);
	KUNIT_EXPECT_TRUE(test, cqk_wait_arms(cq, 3));
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_called), 1);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
}

static void cqk_post_more(struct cqk_cq *cq, u64 seq)
{
	if (seq < 99)
		cqk_post_silent(cq, 1);
}

/* Each completion causes the next one, as in a request and response protocol. */
static void cqk_chain(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));

	dev->hooks.done = cqk_post_more;
	cqk_expect(dev, 100);
	cqk_post(cq, 1);
	KUNIT_EXPECT_TRUE_MSG(test, cqk_wait(dev), "%llu of 100 done", dev->done);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
}

static void cqk_event_when_done(struct cqk_cq *cq, u64 seq)
{
	if (seq < 20)
		cqk_post_silent(cq, 1);
	cqk_raise(cq);
}

/* Events for a CQ whose poller is running. */
static void cqk_event_while_polling(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));

	dev->hooks.done = cqk_event_when_done;
	cqk_expect(dev, 40);
	cqk_post(cq, 20);
	KUNIT_EXPECT_TRUE_MSG(test, cqk_wait(dev), "%llu of 40 done", dev->done);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_work), 0);
}

/* An event without a completion is legal and does nothing. */
static void cqk_spurious_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));
	int i;

	cqk_expect(dev, 1);
	for (i = 0; i < 10; i++)
		cqk_event_bh(cq);
	KUNIT_EXPECT_TRUE(test, cqk_wait_arms(cq, 2));
	KUNIT_EXPECT_EQ(test, dev->done, 0ull);
	cqk_post_silent(cq, 1);
	cqk_event_bh(cq);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	ib_free_cq(&cq->ibcq);
}

/* Flushed work requests of a ULP that did not want a callback. */
static void cqk_null_cqe_with_error(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));

	dev->null_cqe_seq = 2;
	dev->null_cqe_status = IB_WC_WR_FLUSH_ERR;
	cqk_expect(dev, 19);
	cqk_post_silent(cq, 20);
	if (cqk_param(test) == IB_POLL_DIRECT)
		KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, -1), 20);
	else
		cqk_event_bh(cq);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	KUNIT_EXPECT_EQ(test, dev->done, 19ull);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
}

/* A device that fails to poll ends the run; what was polled stays done. */
static void cqk_poll_error(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));
	bool direct = cqk_param(test) == IB_POLL_DIRECT;

	dev->poll_err = -EIO;
	cqk_expect(dev, 16);
	cqk_post_silent(cq, 16);
	if (direct) {
		KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, -1), 16);
		KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, -1), 0);
	} else {
		cqk_event_bh(cq);
		KUNIT_EXPECT_TRUE(test, cqk_wait_arms(cq, 2));
	}
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	KUNIT_EXPECT_EQ(test, dev->done, 16ull);

	/* The CQ works again when the device does. */
	dev->poll_err = 0;
	cqk_expect(dev, 4);
	cqk_post(cq, 4);
	if (direct)
		KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, -1), 4);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	ib_free_cq(&cq->ibcq);
}

static void cqk_note_context(struct cqk_cq *cq, u64 seq)
{
	struct cqk_dev *dev = cq->dev;

	if (cqk_is_wq(cq->ibcq.poll_ctx)) {
		if (!in_task() || !(current->flags & PF_WQ_WORKER))
			atomic_inc(&dev->bad);
	} else if (cq->ibcq.poll_ctx == IB_POLL_SOFTIRQ) {
		if (!in_serving_softirq())
			atomic_inc(&dev->bad);
	} else if (!in_task()) {
		atomic_inc(&dev->bad);
	}
	atomic_set(&dev->mark, raw_smp_processor_id());
}

/* Completions are handled in the context that was asked for. */
static void cqk_done_context(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test, cqk_param(test));
	int cpu, i;

	dev->hooks.done = cqk_note_context;
	for (i = 0; i < 20; i++) {
		cpu = cqk_other_cpu();
		if (cpu >= nr_cpu_ids)
			cpu = raw_smp_processor_id();

		cqk_expect(dev, 4);
		cqk_post_silent(cq, 4);
		if (cqk_param(test) == IB_POLL_DIRECT)
			ib_process_cq_direct(&cq->ibcq, -1);
		else
			cqk_raise_on(cq, cpu);
		KUNIT_ASSERT_TRUE(test, cqk_wait(dev));
		/* These two stay on the CPU that took the interrupt. */
		if (cqk_param(test) == IB_POLL_SOFTIRQ ||
		    cqk_param(test) == IB_POLL_WORKQUEUE)
			KUNIT_EXPECT_EQ(test, atomic_read(&dev->mark), cpu);
		/* Or the next event may find the poller still running elsewhere. */
		if (cqk_param(test) != IB_POLL_DIRECT)
			KUNIT_ASSERT_TRUE(test, cqk_wait_arms(cq, i + 2));
		usleep_range(100, 200);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->bad), 0);
	ib_free_cq(&cq->ibcq);
}

static struct kunit_case cqk_poll_cases[] = {
	KUNIT_CASE_PARAM(cqk_deliver_in_order, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_batches, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_rearm_flags, cqk_ctx_event_gen_params),
	KUNIT_CASE(cqk_budget_softirq),
	KUNIT_CASE_PARAM(cqk_budget_workqueue, cqk_ctx_wq_gen_params),
	KUNIT_CASE(cqk_direct_batches),
	KUNIT_CASE(cqk_direct_large_budget),
	KUNIT_CASE_PARAM(cqk_missed_event, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_chain, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_while_polling, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_spurious_event, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_null_cqe_with_error, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_poll_error, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_done_context, cqk_ctx_all_gen_params),
	{}
};

struct kunit_suite cqk_poll_suite = {
	.name = "ib_cq_poll",
	.init = cqk_suite_init,
	.exit = cqk_suite_exit,
	.test_cases = cqk_poll_cases,
};
