// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: allocation, and the order in which a
 * completion queue becomes ready, reachable and armed.
 */
#include <linux/delay.h>

#include "cq_kunit.h"

static struct ib_cq *cqk_alloc(struct kunit *test, int nr_cqe)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = ib_alloc_cq(&dev->ibdev, dev, nr_cqe, 0, cqk_param(test));

	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_alloc_cq: %pe", cq);
	return cq;
}

static void cqk_alloc_free(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = ib_alloc_cq(&dev->ibdev, dev, 7, 1, cqk_param(test));
	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_alloc_cq: %pe", cq);

	KUNIT_EXPECT_PTR_EQ(test, cq->device, &dev->ibdev);
	KUNIT_EXPECT_PTR_EQ(test, cq->cq_context, (void *)dev);
	KUNIT_EXPECT_EQ(test, cq->poll_ctx, cqk_param(test));
	KUNIT_EXPECT_EQ(test, cq->comp_vector, 1u);
	KUNIT_EXPECT_EQ(test, cq->cqe, 7);
	KUNIT_EXPECT_EQ(test, atomic_read(&cq->usecnt), 0);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 0u);
	KUNIT_EXPECT_FALSE(test, cq->shared);
	KUNIT_EXPECT_NOT_NULL(test, cq->wc);
	KUNIT_EXPECT_NOT_NULL(test, cq->comp_handler);
	KUNIT_EXPECT_TRUE(test, cqk_is_ready(to_cqk(cq)));
	KUNIT_EXPECT_NULL(test, cq->uobject);
	KUNIT_EXPECT_NULL(test, cq->dim);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 1);

	ib_free_cq(cq);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_calls), 0);
}

/* Many at once: nothing is shared between CQs that should not be. */
static void cqk_alloc_many(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	enum { N = 64 };
	struct ib_cq **cqs;
	int i;

	cqs = kunit_kcalloc(test, N, sizeof(*cqs), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, cqs);
	for (i = 0; i < N; i++)
		cqs[i] = cqk_alloc(test, i + 1);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), N);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), (u32)N);

	for (i = 0; i < N; i++)
		KUNIT_EXPECT_EQ(test, cqs[i]->cqe, i + 1);
	/* Not in the order of allocation. */
	for (i = 0; i < N; i++)
		ib_free_cq(cqs[(i * 37) % N]);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
}

/*
 * What create_cq finds. Each is a case of its own: they are different defects
 * when they fail.
 */

static void cqk_see_handler(struct cqk_cq *cq)
{
	atomic_set(&cq->dev->mark, READ_ONCE(cq->ibcq.comp_handler) ? 1 : 2);
}

static void cqk_handler_set_in_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.create = cqk_see_handler;
	ib_free_cq(cqk_alloc(test, 1));
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->mark), 1,
			    "comp_handler is NULL in create_cq");
}

static void cqk_see_poller(struct cqk_cq *cq)
{
	bool ready = cqk_is_wq(cq->ibcq.poll_ctx) ?
		     !!READ_ONCE(cq->ibcq.work.func) :
		     READ_ONCE(cq->ibcq.iop.poll) &&
		     READ_ONCE(cq->ibcq.iop.weight) == CQK_BUDGET_SOFTIRQ;

	atomic_set(&cq->dev->mark, ready ? 1 : 2);
}

static void cqk_poller_ready_in_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.create = cqk_see_poller;
	ib_free_cq(cqk_alloc(test, 1));
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->mark), 1,
			    "irq_poll or work item not initialised in create_cq");
}

static void cqk_see_wq(struct cqk_cq *cq)
{
	atomic_set(&cq->dev->mark, READ_ONCE(cq->ibcq.comp_wq) ? 1 : 2);
}

static void cqk_comp_wq_set_in_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.create = cqk_see_wq;
	ib_free_cq(cqk_alloc(test, 1));
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->mark), 1,
			    "comp_wq is NULL in create_cq");
}

static void cqk_see_wq_arm(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	cqk_see_wq(cq);
}

static void cqk_comp_wq_set_before_arm(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	dev->hooks.arm = cqk_see_wq_arm;
	cq = cqk_alloc(test, 1);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->mark), 1,
			    "comp_wq is NULL when the CQ is armed");
	ib_free_cq(cq);
}

static void cqk_see_context(struct cqk_cq *cq)
{
	struct ib_cq *ibcq = &cq->ibcq;
	struct cqk_dev *dev = cq->dev;

	if (ibcq->device == &dev->ibdev && ibcq->cq_context == dev &&
	    ibcq->comp_vector == 0 && ibcq->wc &&
	    ibcq->res.kern_name && !ibcq->res.valid)
		atomic_set(&dev->mark, 1);
}

/* Passed on both implementations: the rest of the object comes first anyway. */
static void cqk_fields_set_in_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.create = cqk_see_context;
	ib_free_cq(cqk_alloc(test, 1));
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->mark), 1);
}

/*
 * Events at every moment of the allocation, with completions that wait, so that
 * the poller has something to do at once.
 */

static void cqk_event_create_hook(struct cqk_cq *cq)
{
	cqk_post_silent(cq, 3);
	local_bh_disable();
	cqk_raise(cq);
	local_bh_enable();
}

static void cqk_event_arm_hook(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	/* In the first arming only: that is the one of the allocation. */
	if (atomic_read(&cq->dev->arm_calls) != 1)
		return;
	cqk_post_silent(cq, 3);
	local_bh_disable();
	cqk_raise(cq);
	local_bh_enable();
}

static void cqk_event_create_ipi_hook(struct cqk_cq *cq)
{
	cqk_post_silent(cq, 3);
	cqk_raise_on(cq, cqk_other_cpu());
}

/* The event was handled: the completions arrive without another event. */
static void cqk_check_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cqk_expect(dev, 3);
	cq = cqk_alloc(test, 16);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->ev_no_handler), 0,
			    "event met a NULL comp_handler");
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&dev->ev_not_ready), 0,
			    "event met a handler that was not ready");
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_called), 1);
	if (atomic_read(&dev->ev_called)) {
		KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
		KUNIT_EXPECT_EQ(test, dev->done, 3ull);
	}
	ib_free_cq(cq);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
}

static void cqk_event_in_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.create = cqk_event_create_hook;
	cqk_check_event(test);
}

static void cqk_event_in_create_other_cpu(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	if (cqk_other_cpu() >= nr_cpu_ids)
		kunit_skip(test, "needs two CPUs");
	dev->hooks.create = cqk_event_create_ipi_hook;
	cqk_check_event(test);
}

/* The device was asked for an event; it has one before the call returns. */
static void cqk_event_in_arm(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->hooks.arm = cqk_event_arm_hook;
	cqk_check_event(test);
}

static void cqk_event_arm_ipi_hook(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	/* Re-arming happens where no interrupt can be sent from. */
	if (atomic_read(&cq->dev->arm_calls) != 1)
		return;
	cqk_post_silent(cq, 3);
	cqk_raise_on(cq, cqk_other_cpu());
}

static void cqk_event_in_arm_other_cpu(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	if (cqk_other_cpu() >= nr_cpu_ids)
		kunit_skip(test, "needs two CPUs");
	dev->hooks.arm = cqk_event_arm_ipi_hook;
	cqk_check_event(test);
}

static void cqk_event_after_arm(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cqk_expect(dev, 3);
	cq = cqk_alloc(test, 16);
	cqk_post(to_cqk(cq), 3);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_called), 1);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	ib_free_cq(cq);
}

/* One CPU allocates and frees, the other raises events for all it can see. */
static void cqk_alloc_under_flood(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int i, rounds = cqk_rounds(2000);
	struct cqk_flood *flood;
	struct ib_cq *cq;
	u64 events;

	flood = cqk_flood_start(test, dev);
	for (i = 0; i < rounds; i++) {
		cq = ib_alloc_cq(&dev->ibdev, dev, 4, 0, cqk_param(test));
		if (IS_ERR(cq))
			break;
		ib_free_cq(cq);
	}
	events = cqk_flood_stop(flood);

	KUNIT_EXPECT_EQ(test, i, rounds);
	KUNIT_EXPECT_GT(test, events, 0ull);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_no_handler), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_not_ready), 0);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
}

/*
 * Arming.
 */

static void cqk_arm_hook(struct cqk_cq *cq, enum ib_cq_notify_flags flags)
{
	/* The device must know the CQ, and its handler must be complete. */
	if (READ_ONCE(cq->dev->target) != cq || !cq->ibcq.comp_handler)
		atomic_inc(&cq->dev->bad);
}

static void cqk_armed_once_after_publication(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	dev->hooks.arm = cqk_arm_hook;
	cq = cqk_alloc(test, 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->bad), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), 1);
	KUNIT_EXPECT_EQ(test, dev->first_arm_flags, (unsigned int)IB_CQ_NEXT_COMP);
	ib_free_cq(cq);
	/* Neither does freeing a CQ arm it. */
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), 1);
}

static void cqk_direct_never_armed(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = ib_alloc_cq(&dev->ibdev, dev, 16, 0, IB_POLL_DIRECT);
	KUNIT_ASSERT_FALSE(test, IS_ERR(cq));
	cqk_expect(dev, 3);
	cqk_post(to_cqk(cq), 3);
	KUNIT_EXPECT_EQ(test, ib_process_cq_direct(cq, -1), 3);
	KUNIT_EXPECT_EQ(test, dev->done, 3ull);
	ib_free_cq(cq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_called), 0);
}

/*
 * Errors.
 */

static void cqk_create_cq_fails(struct kunit *test)
{
	static const int errs[] = { -ENOMEM, -EIO, -EAGAIN, -EOPNOTSUPP };
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int i;

	for (i = 0; i < ARRAY_SIZE(errs); i++) {
		dev->create_err = errs[i];
		cq = ib_alloc_cq(&dev->ibdev, dev, 1, 0, cqk_param(test));
		KUNIT_EXPECT_PTR_EQ(test, (void *)cq, ERR_PTR(errs[i]));
		if (!IS_ERR(cq))
			ib_free_cq(cq);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), (int)ARRAY_SIZE(errs));
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), 0);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);

	dev->create_err = 0;
	ib_free_cq(cqk_alloc(test, 1));
}

/*
 * The device published the CQ, an event came, and then create_cq failed: the
 * poller that the event started must be gone before the memory is.
 */
static void cqk_create_cq_fails_after_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int i, rounds = cqk_rounds(200);
	struct ib_cq *cq;
	void *handler;

	/* Ask a good CQ first: without a handler in create_cq nothing is tested. */
	dev->hooks.create = cqk_see_handler;
	cq = cqk_alloc(test, 1);
	handler = cq->comp_handler;
	ib_free_cq(cq);
	KUNIT_ASSERT_NOT_NULL(test, handler);
	KUNIT_ASSERT_EQ_MSG(test, atomic_read(&dev->mark), 1,
			    "comp_handler is NULL in create_cq: events get lost there");

	atomic_set(&dev->created, 0);
	dev->hooks.create = cqk_event_create_hook;
	dev->create_err = -EIO;
	dev->create_err_late = true;
	for (i = 0; i < rounds; i++) {
		cq = ib_alloc_cq(&dev->ibdev, dev, 1, 0, cqk_param(test));
		KUNIT_ASSERT_PTR_EQ(test, (void *)cq, ERR_PTR(-EIO));
	}
	/* Work that was left queued would run now, on freed memory. */
	msleep(20);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_called), rounds);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
}

static void cqk_unknown_context(struct kunit *test)
{
	static const unsigned int bad[] = { 4, 5, 255, INT_MAX, UINT_MAX };
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		cq = ib_alloc_cq(&dev->ibdev, dev, 1, 0, (enum ib_poll_context)bad[i]);
		KUNIT_EXPECT_PTR_EQ(test, (void *)cq, ERR_PTR(-EINVAL));
		if (!IS_ERR(cq))
			ib_free_cq(cq);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls),
			atomic_read(&dev->destroy_calls));
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), 0);
}

/* Found out before the device is bothered. */
static void cqk_unknown_context_no_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = ib_alloc_cq(&dev->ibdev, dev, 1, 0, (enum ib_poll_context)4);
	KUNIT_EXPECT_TRUE(test, IS_ERR(cq));
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), 0);
}

/* A count that no device can have: the device refuses it, the error comes back. */
static void cqk_bad_nr_cqe(struct kunit *test)
{
	static const int bad[] = { -1, INT_MIN, CQK_MAX_CQE + 1, INT_MAX };
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		cq = ib_alloc_cq(&dev->ibdev, dev, bad[i], 0, cqk_param(test));
		KUNIT_EXPECT_PTR_EQ(test, (void *)cq, ERR_PTR(-EINVAL));
		if (!IS_ERR(cq))
			ib_free_cq(cq);
	}
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
}

/*
 * ib_alloc_cq_any().
 */

static void cqk_any_spreads(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int n, i, prev = -1;
	struct ib_cq *cq;

	dev->ibdev.num_comp_vectors = 8;
	n = min_t(int, 8, num_online_cpus());
	for (i = 0; i < 4 * n; i++) {
		cq = ib_alloc_cq_any(&dev->ibdev, dev, 1, cqk_param(test));
		KUNIT_ASSERT_FALSE(test, IS_ERR(cq));
		KUNIT_EXPECT_LT(test, cq->comp_vector, (unsigned int)n);
		/* Nobody else allocates meanwhile, so it is a round robin. */
		if (prev >= 0)
			KUNIT_EXPECT_EQ(test, (int)cq->comp_vector, (prev + 1) % n);
		prev = cq->comp_vector;
		ib_free_cq(cq);
	}
}

static void cqk_any_without_choice(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int n;

	for (n = 0; n <= 1; n++) {
		dev->ibdev.num_comp_vectors = n;
		cq = ib_alloc_cq_any(&dev->ibdev, dev, 1, cqk_param(test));
		KUNIT_ASSERT_FALSE(test, IS_ERR(cq));
		KUNIT_EXPECT_EQ(test, cq->comp_vector, 0u);
		ib_free_cq(cq);
	}
}

static struct kunit_case cqk_alloc_cases[] = {
	KUNIT_CASE_PARAM(cqk_alloc_free, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_alloc_many, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_handler_set_in_create, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_poller_ready_in_create, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_comp_wq_set_in_create, cqk_ctx_wq_gen_params),
	KUNIT_CASE_PARAM(cqk_comp_wq_set_before_arm, cqk_ctx_wq_gen_params),
	KUNIT_CASE_PARAM(cqk_fields_set_in_create, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_create, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_create_other_cpu, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_arm, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_in_arm_other_cpu, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_event_after_arm, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM_ATTR(cqk_alloc_under_flood, cqk_ctx_event_gen_params, CQK_SLOW),
	KUNIT_CASE_PARAM(cqk_armed_once_after_publication, cqk_ctx_event_gen_params),
	KUNIT_CASE(cqk_direct_never_armed),
	KUNIT_CASE_PARAM(cqk_create_cq_fails, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_create_cq_fails_after_event, cqk_ctx_event_gen_params),
	KUNIT_CASE(cqk_unknown_context),
	KUNIT_CASE(cqk_unknown_context_no_create),
	KUNIT_CASE_PARAM(cqk_bad_nr_cqe, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_any_spreads, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_any_without_choice, cqk_ctx_all_gen_params),
	{}
};

struct kunit_suite cqk_alloc_suite = {
	.name = "ib_cq_alloc",
	.init = cqk_suite_init,
	.exit = cqk_suite_exit,
	.test_cases = cqk_alloc_cases,
};
