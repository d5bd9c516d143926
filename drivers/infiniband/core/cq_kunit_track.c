// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: what others see of a completion queue.
 * That is the resource tracker, the trace events, and interrupt moderation.
 */
#include <linux/delay.h>
#include <linux/dim.h>
#include <linux/kthread.h>
#include <rdma/restrack.h>

#include "cq_kunit.h"

static struct cqk_cq *cqk_alloc(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = ib_alloc_cq(&dev->ibdev, dev, 64, 1, cqk_param(test));

	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_alloc_cq: %pe", cq);
	return to_cqk(cq);
}

static bool cqk_wait_idle(struct cqk_cq *cq, int arms)
{
	unsigned long end = jiffies + CQK_TIMEOUT;

	while (atomic_read(&cq->dev->arm_calls) < arms ||
	       atomic_read_acquire(&cq->in_callback)) {
		if (time_after(jiffies, end))
			return false;
		usleep_range(50, 100);
	}
	return true;
}

/*
 * Resource tracker.
 */

static void cqk_tracked_while_alive(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct rdma_restrack_entry *res;
	struct cqk_cq *cq;
	u32 id;

	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
	cq = cqk_alloc(test);
	id = cq->ibcq.res.id;
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 1u);
	KUNIT_EXPECT_TRUE(test, cq->ibcq.res.valid);
	KUNIT_EXPECT_FALSE(test, cq->ibcq.res.user);
	KUNIT_EXPECT_EQ(test, cq->ibcq.res.type, RDMA_RESTRACK_CQ);
	KUNIT_EXPECT_STREQ(test, cq->ibcq.res.kern_name, KBUILD_MODNAME);

	res = rdma_restrack_get_byid(&dev->ibdev, RDMA_RESTRACK_CQ, id);
	KUNIT_EXPECT_PTR_EQ(test, res, &cq->ibcq.res);
	if (!IS_ERR(res))
		rdma_restrack_put(res);

	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->late_tracked), 0,
			    "still tracked when the device destroyed it");
	res = rdma_restrack_get_byid(&dev->ibdev, RDMA_RESTRACK_CQ, id);
	KUNIT_EXPECT_PTR_EQ(test, (void *)res, ERR_PTR(-ENOENT));
}

static int cqk_free_thread(void *data)
{
	struct cqk_cq *cq = data;
	struct cqk_dev *dev = cq->dev;

	ib_free_cq(&cq->ibcq);
	atomic_set(&dev->mark, 1);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/* A netlink dump looks at the CQ: free waits until it is through. */
static void cqk_tracker_user_delays_free(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct rdma_restrack_entry *res;
	struct task_struct *task;
	struct cqk_cq *cq;
	int i, destroyed;

	cq = cqk_alloc(test);
	res = rdma_restrack_get_byid(&dev->ibdev, RDMA_RESTRACK_CQ, cq->ibcq.res.id);
	KUNIT_ASSERT_FALSE(test, IS_ERR(res));

	task = kthread_run(cqk_free_thread, cq, "cqk_free");
	if (IS_ERR(task)) {
		rdma_restrack_put(res);
		KUNIT_FAIL(test, "no thread");
		return;
	}
	msleep(50);
	destroyed = atomic_read(&dev->destroy_calls);
	rdma_restrack_put(res);
	for (i = 0; i < 2000 && !atomic_read(&dev->mark); i++)
		usleep_range(1000, 2000);
	kthread_stop(task);
	KUNIT_EXPECT_EQ(test, destroyed, 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->mark), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
}

/*
 * Trace events.
 */

static void cqk_trace_life(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *ibcq;
	struct cqk_cq *cq;

	cqk_trace_start(test);
	cq = cqk_alloc(test);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_ALLOC), 1);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_FREE), 0);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_FREE), 1);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_ALLOC_ERROR), 0);

	dev->create_err = -EIO;
	ibcq = ib_alloc_cq(&dev->ibdev, dev, 64, 1, cqk_param(test));
	KUNIT_EXPECT_TRUE(test, IS_ERR(ibcq));
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_ALLOC), 1);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_ALLOC_ERROR), 1);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_FREE), 1);
	cqk_trace_stop();
}

static void cqk_trace_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq;

	cqk_trace_start(test);
	cq = cqk_alloc(test);
	cqk_expect(dev, 20);
	if (cqk_param(test) == IB_POLL_DIRECT) {
		cqk_post(cq, 20);
		ib_process_cq_direct(&cq->ibcq, -1);
		KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_SCHEDULE), 0);
		KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_POLL), 3);
	} else {
		cqk_post(cq, 20);
		KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
		KUNIT_EXPECT_TRUE(test, cqk_wait_idle(cq, 2));
		KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_SCHEDULE), 1);
		KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_POLL), 2);
	}
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_PROCESS), 1);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_RESCHEDULE), 0);
	ib_free_cq(&cq->ibcq);
	cqk_trace_stop();
}

static void cqk_post_when_rearmed(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	if (atomic_read(&cq->dev->arm_calls) == 2)
		cqk_post_silent(cq, 5);
}

static void cqk_trace_missed_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq;

	cqk_trace_start(test);
	cq = cqk_alloc(test);
	dev->hooks.arm = cqk_post_when_rearmed;
	cqk_expect(dev, 8);
	cqk_post(cq, 3);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	KUNIT_EXPECT_TRUE(test, cqk_wait_idle(cq, 3));
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_SCHEDULE), 1);
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_PROCESS), 2);
	/* Only the softirq poller tells that it goes on. */
	KUNIT_EXPECT_EQ(test, cqk_trace_count(CQK_TRACE_RESCHEDULE),
			cqk_param(test) == IB_POLL_SOFTIRQ ? 1 : 0);
	ib_free_cq(&cq->ibcq);
	cqk_trace_stop();
}

/*
 * Interrupt moderation.
 */

static struct cqk_dev *cqk_use_dim(struct kunit *test)
{
	struct cqk_dev *dev = cqk_dev_create(CQK_DIM);

	KUNIT_ASSERT_FALSE(test, IS_ERR(dev));
	cqk_dev_destroy(test->priv);
	test->priv = dev;
	return dev;
}

static void cqk_dim_set_up(struct kunit *test)
{
	struct cqk_dev *dev = cqk_use_dim(test);
	struct cqk_cq *cq = cqk_alloc(test);

	if (cqk_param(test) == IB_POLL_DIRECT) {
		KUNIT_EXPECT_NULL(test, cq->ibcq.dim);
	} else {
		KUNIT_ASSERT_NOT_NULL(test, cq->ibcq.dim);
		KUNIT_EXPECT_PTR_EQ(test, cq->ibcq.dim->priv, (void *)&cq->ibcq);
		KUNIT_EXPECT_NOT_NULL(test, cq->ibcq.dim->work.func);
	}
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);

	/* The device can turn it off. */
	dev->ibdev.use_cq_dim = false;
	cq = cqk_alloc(test);
	KUNIT_EXPECT_NULL(test, cq->ibcq.dim);
	ib_free_cq(&cq->ibcq);
}

/*
 * Load that changes, until moderation does something about it. Returns the
 * number of completions that were caused.
 */
static u64 cqk_dim_load(struct cqk_cq *cq, bool (*stop)(struct cqk_dev *dev))
{
	struct cqk_dev *dev = cq->dev;
	u64 total = 0;
	int i, n;

	for (i = 0; i < 20000 && !stop(dev); i++) {
		/* 70 events with one completion each, then 70 with many. */
		n = (i / 70) % 2 ? 15 : 1;
		cqk_post_silent(cq, n);
		local_bh_disable();
		cqk_raise(cq);
		local_bh_enable();
		total += n;
		usleep_range(20, n == 1 ? 200 : 40);
	}
	return total;
}

static bool cqk_dim_modified(struct cqk_dev *dev)
{
	return atomic_read(&dev->modify_calls);
}

static void cqk_dim_modifies(struct kunit *test)
{
	struct cqk_dev *dev = cqk_use_dim(test);
	struct cqk_cq *cq;
	int i;

	cqk_trace_start(test);
	cq = cqk_alloc(test);
	cqk_expect(dev, 0);
	cqk_dim_load(cq, cqk_dim_modified);
	KUNIT_EXPECT_GT(test, atomic_read(&dev->modify_calls), 0);
	KUNIT_EXPECT_GT(test, cqk_trace_count(CQK_TRACE_MODIFY), 0);
	/* The load function does not wait, the CQ may have more to do. */
	for (i = 0; i < 1000 && cq->polled != cq->posted; i++)
		usleep_range(100, 200);
	KUNIT_EXPECT_EQ(test, cq->polled, cq->posted);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_calls), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_work), 0);
	cqk_trace_stop();
}

static void cqk_modify_slowly(struct cqk_cq *cq)
{
	struct cqk_dev *dev = cq->dev;

	atomic_set(&dev->mark, 1);
	msleep(40);
	if (READ_ONCE(dev->destroying))
		atomic_inc(&dev->bad);
	atomic_set(&dev->mark, 2);
}

static bool cqk_dim_busy(struct cqk_dev *dev)
{
	return atomic_read(&dev->mark);
}

/* Free waits for modify_cq, and none comes afterwards. */
static void cqk_dim_free_waits(struct kunit *test)
{
	struct cqk_dev *dev = cqk_use_dim(test);
	struct cqk_cq *cq = cqk_alloc(test);
	int calls;

	dev->hooks.modify = cqk_modify_slowly;
	cqk_expect(dev, 0);
	cqk_dim_load(cq, cqk_dim_busy);
	KUNIT_EXPECT_GT(test, atomic_read(&dev->mark), 0);

	ib_free_cq(&cq->ibcq);
	calls = atomic_read(&dev->modify_calls);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->mark), 2);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->bad), 0, "destroyed during modify_cq");
	msleep(60);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->modify_calls), calls);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_calls), 0);
}

/* The last lines of the softirq poller use the state of the moderation. */
static void cqk_dim_free_after_drain(struct kunit *test)
{
	struct cqk_dev *dev;
	int i, rounds = cqk_rounds(500);
	struct cqk_cq *cq;
	int cpu;

	if (!cqk_core_is_rust() && cqk_param(test) == IB_POLL_SOFTIRQ)
		kunit_skip(test, "the C core uses freed memory here");

	dev = cqk_use_dim(test);
	for (i = 0; i < rounds; i++) {
		cq = cqk_alloc(test);
		cpu = cqk_other_cpu();
		if (cpu >= nr_cpu_ids)
			cpu = raw_smp_processor_id();
		cqk_expect(dev, 3);
		cqk_post_silent(cq, 3);
		cqk_raise_on(cq, cpu);
		KUNIT_ASSERT_TRUE(test, cqk_wait(dev));
		ib_free_cq(&cq->ibcq);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), rounds);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_calls), 0);
}

static struct kunit_case cqk_track_cases[] = {
	KUNIT_CASE_PARAM(cqk_tracked_while_alive, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_tracker_user_delays_free, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_trace_life, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_trace_event, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_trace_missed_event, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_dim_set_up, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM_ATTR(cqk_dim_modifies, cqk_ctx_event_gen_params, CQK_SLOW),
	KUNIT_CASE_PARAM_ATTR(cqk_dim_free_waits, cqk_ctx_event_gen_params, CQK_SLOW),
	KUNIT_CASE_PARAM_ATTR(cqk_dim_free_after_drain, cqk_ctx_event_gen_params, CQK_SLOW),
	{}
};

struct kunit_suite cqk_track_suite = {
	.name = "ib_cq_track",
	.init = cqk_suite_init,
	.exit = cqk_suite_exit,
	.test_cases = cqk_track_cases,
};
