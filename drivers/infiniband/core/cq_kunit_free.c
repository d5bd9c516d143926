// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: freeing, with and without a device that
 * goes on raising events.
 */
#include <linux/delay.h>
#include <linux/kthread.h>

#include "cq_kunit.h"

static struct cqk_cq *cqk_alloc_on(struct kunit *test, struct cqk_dev *dev,
				   enum ib_poll_context ctx)
{
	struct ib_cq *cq = ib_alloc_cq(&dev->ibdev, dev, 64, 0, ctx);

	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_alloc_cq: %pe", cq);
	return to_cqk(cq);
}

static struct cqk_cq *cqk_alloc(struct kunit *test)
{
	return cqk_alloc_on(test, test->priv, cqk_param(test));
}

/* Where a callback and free are, in cqk_dev.mark. */
enum {
	CQK_IN_CALLBACK = 1,
	CQK_IN_FREE,
	CQK_CALLBACK_OVER,
};

static void cqk_event_bh(struct cqk_cq *cq)
{
	local_bh_disable();
	cqk_raise(cq);
	local_bh_enable();
}

/*
 * A thread on another CPU that raises events for whatever CQ the device has.
 */

struct cqk_flood {
	struct kunit *test;
	struct cqk_dev *dev;
	struct task_struct *task;
	u64 events;
};

static int cqk_flood_thread(void *data)
{
	struct cqk_flood *flood = data;
	unsigned int n = 0;

	while (!kthread_should_stop()) {
		if (cqk_raise_target(flood->dev))
			flood->events++;
		if (++n % 64 == 0)
			cond_resched();
	}
	return 0;
}

static void cqk_flood_action(void *data)
{
	struct cqk_flood *flood = data;

	if (flood->task)
		kthread_stop(flood->task);
	flood->task = NULL;
}

/**
 * cqk_flood_start - start an event storm from another CPU
 * @test: the test, skipped if there is no other CPU
 * @dev: the device
 *
 * Return: handle for cqk_flood_stop(). A test that fails stops it, too.
 */
struct cqk_flood *cqk_flood_start(struct kunit *test, struct cqk_dev *dev)
{
	struct task_struct *task;
	struct cqk_flood *flood;
	int cpu = cqk_other_cpu();

	cqk_skip_chance(test);
	if (cpu >= nr_cpu_ids)
		kunit_skip(test, "needs two CPUs");

	flood = kunit_kzalloc(test, sizeof(*flood), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, flood);
	flood->test = test;
	flood->dev = dev;
	task = kthread_create(cqk_flood_thread, flood, "cqk_flood");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	kthread_bind(task, cpu);
	flood->task = task;
	wake_up_process(task);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, cqk_flood_action, flood));

	/* The caller has to stay off that CPU to be concurrent with it. */
	while (raw_smp_processor_id() == cpu)
		usleep_range(100, 200);
	return flood;
}

/**
 * cqk_flood_stop - stop an event storm
 * @flood: handle from cqk_flood_start()
 *
 * Return: the number of events that found a CQ.
 */
u64 cqk_flood_stop(struct cqk_flood *flood)
{
	kunit_release_action(flood->test, cqk_flood_action, flood);
	return flood->events;
}

/*
 * What free does, and in which order.
 */

static void cqk_check_quiet(struct kunit *test, struct cqk_dev *dev)
{
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->late_work), 0,
			    "work was pending when the CQ was destroyed");
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->late_calls), 0,
			    "the core used the CQ while it was destroyed");
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->late_tracked), 0,
			    "the tracker still knew the CQ");
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
}

static void cqk_check_pre_post(struct kunit *test, unsigned int flags)
{
	struct cqk_dev *dev = cqk_dev_create(flags);
	struct cqk_cq *cq;

	KUNIT_ASSERT_FALSE(test, IS_ERR(dev));
	/* Take the place of the standard device so that exit removes it. */
	cqk_dev_destroy(test->priv);
	test->priv = dev;

	cq = cqk_alloc(test);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->pre_destroy_calls),
			flags & CQK_PRE_POST ? 1 : 0);
	cqk_check_quiet(test, dev);
}

static void cqk_destroyed_once(struct kunit *test)
{
	cqk_check_pre_post(test, 0);
}

static void cqk_pre_and_post_destroy(struct kunit *test)
{
	cqk_check_pre_post(test, CQK_PRE_POST);
}

/* Completions that nobody polled are no reason not to free a CQ. */
static void cqk_free_unpolled(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc(test);

	cqk_expect(dev, 5);
	cqk_post_silent(cq, 5);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, dev->done, 0ull);
	cqk_check_quiet(test, dev);
}

/*
 * A callback of the device or of the consumer that runs when free is called, and
 * goes on until the CQ is destroyed under it or so much time is over. Both sides
 * tell each other where they are, but a busy host can stop either for a while, so
 * it takes some rounds to be sure.
 */
#define CQK_LINGER_MS		50
#define CQK_LINGER_ROUNDS	4

static void cqk_linger(struct cqk_dev *dev)
{
	ktime_t end = ktime_add_ms(ktime_get(), 5000);

	atomic_set(&dev->mark, CQK_IN_CALLBACK);
	while (atomic_read(&dev->mark) != CQK_IN_FREE && ktime_before(ktime_get(), end))
		cpu_relax();

	end = ktime_add_ms(ktime_get(), CQK_LINGER_MS);
	while (ktime_before(ktime_get(), end)) {
		/* Pairs with the release in cqk_end(). */
		if (smp_load_acquire(&dev->destroying)) {
			atomic_inc(&dev->bad);
			break;
		}
		cpu_relax();
	}
	atomic_set(&dev->mark, CQK_CALLBACK_OVER);
}

static void cqk_done_lingers(struct cqk_cq *cq, u64 seq)
{
	cqk_linger(cq->dev);
}

static void cqk_arm_lingers(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	/* Not in the arming of the allocation. */
	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		cqk_linger(cq->dev);
}

static void cqk_check_free_waits(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	unsigned long end;
	struct cqk_cq *cq;
	int i, cpu;

	for (i = 0; i < CQK_LINGER_ROUNDS && !atomic_read(&dev->bad); i++) {
		cpu = cqk_other_cpu();
		if (cpu >= nr_cpu_ids)
			kunit_skip(test, "needs two CPUs");

		atomic_set(&dev->mark, 0);
		WRITE_ONCE(dev->destroying, false);
		cq = cqk_alloc(test);
		cqk_expect(dev, 1);
		cqk_post_silent(cq, 1);
		cqk_raise_on(cq, cpu);
		end = jiffies + CQK_TIMEOUT;
		while (!atomic_read(&dev->mark) && time_before(jiffies, end))
			cond_resched();
		KUNIT_ASSERT_EQ(test, atomic_read(&dev->mark), CQK_IN_CALLBACK);

		atomic_set(&dev->mark, CQK_IN_FREE);
		ib_free_cq(&cq->ibcq);
		KUNIT_EXPECT_EQ(test, atomic_read(&dev->mark), CQK_CALLBACK_OVER);
		KUNIT_EXPECT_EQ(test, dev->done, 1ull);
	}
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->bad), 0,
			    "destroyed while a callback was running");
	cqk_check_quiet(test, dev);
}

/* Free waits for a completion callback that runs on another CPU. */
static void cqk_free_waits_for_done(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.done = cqk_done_lingers;
	cqk_check_free_waits(test);
}

/*
 * The last lines of a poller: it has given up the CQ for scheduling purposes
 * but still arms it. Free has to wait for them.
 */
static void cqk_free_waits_for_tail(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.arm = cqk_arm_lingers;
	cqk_check_free_waits(test);
}

/*
 * Events during free.
 */

static void cqk_event_hook(struct cqk_cq *cq)
{
	int polls;

	cqk_post_silent(cq, 2);
	polls = cq->dev->n_polls;
	cqk_event_bh(cq);
	if (cq->dev->n_polls != polls)
		atomic_inc(&cq->dev->bad);
}

/* An event in pre_destroy_cq comes before the poller is stopped: legal. */
static void cqk_event_in_pre_destroy(struct kunit *test)
{
	struct cqk_dev *dev = cqk_dev_create(CQK_PRE_POST);
	struct cqk_cq *cq;

	KUNIT_ASSERT_FALSE(test, IS_ERR(dev));
	cqk_dev_destroy(test->priv);
	test->priv = dev;

	dev->hooks.pre_destroy = cqk_event_hook;
	cq = cqk_alloc(test);
	cqk_expect(dev, 2);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_called), 1);
	/* All of them or none, but nothing half done. */
	KUNIT_EXPECT_TRUE(test, dev->done == 0 || dev->done == 2);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	cqk_check_quiet(test, dev);
}

/* An event while the device destroys the CQ, after the poller was stopped. */
static void cqk_check_event_in_destroy(struct kunit *test, unsigned int flags)
{
	struct cqk_dev *dev = cqk_dev_create(flags);
	struct cqk_cq *cq;

	KUNIT_ASSERT_FALSE(test, IS_ERR(dev));
	cqk_dev_destroy(test->priv);
	test->priv = dev;

	dev->hooks.destroy = cqk_event_hook;
	cq = cqk_alloc(test);
	cqk_expect(dev, 2);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_not_ready), 0);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->bad), 0,
			    "the event was handled on a dying CQ");
	KUNIT_EXPECT_EQ(test, dev->done, 0ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	cqk_check_quiet(test, dev);
}

static void cqk_event_in_destroy(struct kunit *test)
{
	cqk_check_event_in_destroy(test, 0);
}

static void cqk_event_in_post_destroy(struct kunit *test)
{
	cqk_check_event_in_destroy(test, CQK_PRE_POST);
}

static void cqk_event_ipi_hook(struct cqk_cq *cq)
{
	int polls = cq->dev->n_polls;

	cqk_post_silent(cq, 2);
	cqk_raise_on(cq, cqk_other_cpu());
	/* Long enough for a poller that should not start. */
	usleep_range(2000, 3000);
	if (cq->dev->n_polls != polls)
		atomic_inc(&cq->dev->bad);
}

static void cqk_event_in_destroy_other_cpu(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq;

	if (cqk_other_cpu() >= nr_cpu_ids)
		kunit_skip(test, "needs two CPUs");
	dev->hooks.destroy = cqk_event_ipi_hook;
	cq = cqk_alloc(test);
	cqk_expect(dev, 2);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->bad), 0,
			    "the event was handled on a dying CQ");
	KUNIT_EXPECT_EQ(test, dev->done, 0ull);
	cqk_check_quiet(test, dev);
}

/* The same, many times, with an event storm instead of a single event. */
static void cqk_free_under_flood(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int i, rounds = cqk_rounds(3000);
	struct cqk_flood *flood;
	struct cqk_cq *cq;
	u64 events;

	cqk_expect(dev, 0);
	flood = cqk_flood_start(test, dev);
	for (i = 0; i < rounds; i++) {
		struct ib_cq *ibcq;

		ibcq = ib_alloc_cq(&dev->ibdev, dev, 64, 0, cqk_param(test));
		if (IS_ERR(ibcq))
			break;
		cq = to_cqk(ibcq);
		/* Some rounds leave the poller work, of different length. */
		cqk_post_silent(cq, i % 40);
		if (i % 3 == 1)
			udelay(i % 50);
		ib_free_cq(ibcq);
	}
	events = cqk_flood_stop(flood);
	/* A poller that was left behind would run now, on freed memory. */
	msleep(20);

	KUNIT_EXPECT_EQ(test, i, rounds);
	KUNIT_EXPECT_GT(test, events, 0ull);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), rounds);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_no_handler), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_not_ready), 0);
	cqk_check_quiet(test, dev);
}

/*
 * What a ULP does: wait for the last completion, then free at once. The poller
 * of that completion is in its last lines then.
 */
static void cqk_free_after_drain(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int i, rounds = cqk_rounds(1000);
	struct cqk_cq *cq;
	int cpu;

	if (cqk_param(test) == IB_POLL_SOFTIRQ)
		cqk_skip_chance(test);
	for (i = 0; i < rounds; i++) {
		cq = cqk_alloc(test);
		cpu = cqk_other_cpu();
		if (cpu >= nr_cpu_ids)
			cpu = raw_smp_processor_id();
		cqk_expect(dev, 1 + i % 20);
		cqk_post_silent(cq, 1 + i % 20);
		cqk_raise_on(cq, cpu);
		KUNIT_ASSERT_TRUE(test, cqk_wait(dev));
		ib_free_cq(&cq->ibcq);
	}
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), rounds);
	cqk_check_quiet(test, dev);
}

/* Allocation and freeing on two CPUs at once share no state. */

struct cqk_churn {
	struct cqk_dev *dev;
	enum ib_poll_context ctx;
	int rounds;
	int err;
	struct task_struct *task;
	struct completion done;
};

static int cqk_churn_thread(void *data)
{
	struct cqk_churn *churn = data;
	struct ib_cq *cq;
	int i;

	for (i = 0; i < churn->rounds && !churn->err; i++) {
		cq = ib_alloc_cq(&churn->dev->ibdev, NULL, 1, 0, churn->ctx);
		if (IS_ERR(cq))
			churn->err = PTR_ERR(cq);
		else
			ib_free_cq(cq);
		cond_resched();
	}
	complete(&churn->done);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void cqk_concurrent_churn(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_churn *churn;
	int i, n = 2;

	churn = kunit_kcalloc(test, n, sizeof(*churn), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, churn);
	for (i = 0; i < n; i++) {
		churn[i].dev = dev;
		churn[i].ctx = cqk_param(test);
		churn[i].rounds = cqk_rounds(1000);
		init_completion(&churn[i].done);
		churn[i].task = kthread_run(cqk_churn_thread, &churn[i],
					    "cqk_churn/%d", i);
	}
	for (i = 0; i < n; i++) {
		if (IS_ERR(churn[i].task)) {
			churn[i].err = PTR_ERR(churn[i].task);
		} else {
			wait_for_completion(&churn[i].done);
			kthread_stop(churn[i].task);
		}
		KUNIT_EXPECT_EQ(test, churn[i].err, 0);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), n * cqk_rounds(1000));
	cqk_check_quiet(test, dev);
}

static struct kunit_case cqk_free_cases[] = {
	KUNIT_CASE_PARAM(cqk_destroyed_once, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_pre_and_post_destroy, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_free_unpolled, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_free_waits_for_done, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_free_waits_for_tail, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_pre_destroy, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_destroy, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_post_destroy, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_destroy_other_cpu, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM_ATTR(cqk_free_under_flood, cqk_ctx_event_gen_params, CQK_SLOW),
	KUNIT_CASE_PARAM_ATTR(cqk_free_after_drain, cqk_ctx_event_gen_params, CQK_SLOW),
	KUNIT_CASE_PARAM_ATTR(cqk_concurrent_churn, cqk_ctx_all_gen_params, CQK_SLOW),
	{}
};

struct kunit_suite cqk_free_suite = {
	.name = "ib_cq_free",
	.init = cqk_suite_init,
	.exit = cqk_suite_exit,
	.test_cases = cqk_free_cases,
};
