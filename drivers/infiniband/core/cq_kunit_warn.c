// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: misuse that is answered with a warning.
 *
 * All of it happens in the thread of the test, so that KUnit can count and hide
 * the warnings. A suppressed warning does not use up a WARN_ON_ONCE().
 */
#include "cq_kunit.h"

static struct cqk_cq *cqk_alloc_ctx(struct kunit *test, enum ib_poll_context ctx)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = ib_alloc_cq(&dev->ibdev, dev, 64, 0, ctx);

	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_alloc_cq: %pe", cq);
	return to_cqk(cq);
}

static void cqk_warn_nr_cqe_zero(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = NULL;

	kunit_warning_suppress(test) {
		cq = ib_alloc_cq(&dev->ibdev, dev, 0, 0, cqk_param(test));
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_PTR_EQ(test, (void *)cq, ERR_PTR(-EINVAL));
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), 0);
}

/* DIRECT has no event, so it cannot be shared. Neither can what does not exist. */
static void cqk_warn_pool_context(struct kunit *test)
{
	static const unsigned int bad[] = { IB_POLL_DIRECT, 4, INT_MAX, UINT_MAX };
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = NULL;
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		kunit_warning_suppress(test) {
			cq = ib_cq_pool_get(&dev->ibdev, 1, 0,
					    (enum ib_poll_context)bad[i]);
			KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
		}
		KUNIT_EXPECT_PTR_EQ(test, (void *)cq, ERR_PTR(-EINVAL));
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), 0);
}

/* The CQ stays and works when free was refused. */
static void cqk_check_usable(struct kunit *test, struct cqk_cq *cq)
{
	struct cqk_dev *dev = cq->dev;

	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->pre_destroy_calls), 0);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 1);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 1u);
	cqk_expect(dev, 3);
	cqk_post(cq, 3);
	if (cq->ibcq.poll_ctx == IB_POLL_DIRECT)
		ib_process_cq_direct(&cq->ibcq, -1);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
}

static void cqk_warn_free_with_qp(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc_ctx(test, cqk_param(test));

	atomic_inc(&cq->ibcq.usecnt);
	kunit_warning_suppress(test) {
		ib_free_cq(&cq->ibcq);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	cqk_check_usable(test, cq);
	atomic_dec(&cq->ibcq.usecnt);
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
}

static void cqk_warn_free_with_claims(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc_ctx(test, cqk_param(test));

	cq->ibcq.cqe_used = 5;
	kunit_warning_suppress(test) {
		ib_free_cq(&cq->ibcq);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	cqk_check_usable(test, cq);
	cq->ibcq.cqe_used = 0;
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
}

static void cqk_warn_double_free(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq;

	if (!cqk_core_is_rust())
		kunit_skip(test, "the C core uses freed memory here");

	cq = cqk_alloc_ctx(test, cqk_param(test));
	ib_free_cq(&cq->ibcq);
	KUNIT_ASSERT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	kunit_warning_suppress(test) {
		ib_free_cq(&cq->ibcq);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);

	/* And nothing is broken by it. */
	cq = cqk_alloc_ctx(test, cqk_param(test));
	ib_free_cq(&cq->ibcq);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 2);
}

/* A shared CQ belongs to its pool, whether or not it is in use. */
static void cqk_warn_free_shared(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *left;
	struct ib_cq *cq;

	if (!cqk_core_is_rust())
		kunit_skip(test, "the C core leaves a freed CQ in the pool");

	cq = ib_cq_pool_get(&dev->ibdev, 10, 0, cqk_param(test));
	KUNIT_ASSERT_FALSE(test, IS_ERR(cq));
	ib_cq_pool_put(cq, 10);
	kunit_warning_suppress(test) {
		ib_free_cq(cq);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 0);
	if (atomic_read(&dev->destroy_calls)) {
		/* The pool has freed memory in its list: forget the list. */
		INIT_LIST_HEAD(&dev->ibdev.cq_pools[cqk_param(test)]);
		list_for_each_entry(left, &dev->live, node)
			left->ibcq.shared = false;
		return;
	}
	KUNIT_EXPECT_PTR_EQ(test, ib_cq_pool_get(&dev->ibdev, 10, 0, cqk_param(test)), cq);
	ib_cq_pool_put(cq, 10);
}

/* A user gives back more than it can have. */
static void cqk_warn_pool_put_too_much(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = ib_cq_pool_get(&dev->ibdev, 10, 0, cqk_param(test));
	KUNIT_ASSERT_FALSE(test, IS_ERR(cq));
	kunit_warning_suppress(test) {
		ib_cq_pool_put(cq, 11);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 10u);
	ib_cq_pool_put(cq, 10);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 0u);
}

/* The device goes away while a user holds a claim. */
static void cqk_warn_pool_unregister_claimed(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = ib_cq_pool_get(&dev->ibdev, 10, 0, cqk_param(test));
	KUNIT_ASSERT_FALSE(test, IS_ERR(cq));
	kunit_warning_suppress(test) {
		cqk_dev_unregister(dev);
		KUNIT_EXPECT_GE(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1);
	}
	/* Those that nobody uses are freed; no CQ was destroyed under its user. */
	KUNIT_EXPECT_LE(test, cqk_live(dev), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls) + cqk_live(dev),
			atomic_read(&dev->created));
	if (cqk_live(dev)) {
		KUNIT_EXPECT_PTR_EQ(test, &cqk_first(dev)->ibcq, cq);
		/* It is in no list any more. */
		cq->cqe_used = 0;
		cq->shared = false;
		ib_free_cq(cq);
	}
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
}

/* A DIRECT CQ is never armed, so an event for it is a fault of the device. */
static void cqk_warn_direct_event(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc_ctx(test, IB_POLL_DIRECT);

	cqk_expect(dev, 2);
	cqk_post_silent(cq, 2);
	kunit_warning_suppress(test) {
		cqk_raise(cq);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, dev->done, 0ull);
	KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, -1), 2);
	ib_free_cq(&cq->ibcq);
}

static void cqk_raise_hook(struct cqk_cq *cq)
{
	cqk_raise(cq);
}

static void cqk_warn_direct_event_in_create(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = NULL;

	dev->hooks.create = cqk_raise_hook;
	kunit_warning_suppress(test) {
		cq = cqk_alloc_ctx(test, IB_POLL_DIRECT);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->ev_no_handler), 0);
	ib_free_cq(&cq->ibcq);
}

/* A ULP may leave wr_cqe out only for what never completes with success. */
static void cqk_warn_null_cqe_success(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc_ctx(test, IB_POLL_DIRECT);

	dev->null_cqe_seq = 1;
	dev->null_cqe_status = IB_WC_SUCCESS;
	cqk_expect(dev, 2);
	cqk_post_silent(cq, 3);
	kunit_warning_suppress(test) {
		KUNIT_EXPECT_EQ(test, ib_process_cq_direct(&cq->ibcq, -1), 3);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, dev->done, 2ull);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
}

/* A device that claims to have stored more completions than there was room for. */
static void cqk_warn_poll_too_many(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq;
	int n = 0;

	if (!cqk_core_is_rust())
		kunit_skip(test, "the C core reads beyond the end of its array");

	cq = cqk_alloc_ctx(test, IB_POLL_DIRECT);
	dev->poll_lie = 1000;
	cqk_expect(dev, 8);
	cqk_post_silent(cq, 8);
	kunit_warning_suppress(test) {
		n = ib_process_cq_direct(&cq->ibcq, 8);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	dev->poll_lie = 0;
	KUNIT_EXPECT_LE(test, n, 8);
	KUNIT_EXPECT_LE(test, dev->done, 8ull);
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_free_cq(&cq->ibcq);
}

/* A device may not refuse; if it does, the CQ is freed all the same. */
static void cqk_warn_destroy_fails(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc_ctx(test, cqk_param(test));

	dev->destroy_err = -EBUSY;
	kunit_warning_suppress(test) {
		ib_free_cq(&cq->ibcq);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
}

static void cqk_warn_pre_destroy_fails(struct kunit *test)
{
	struct cqk_dev *dev = cqk_dev_create(CQK_PRE_POST);
	struct cqk_cq *cq;

	KUNIT_ASSERT_FALSE(test, IS_ERR(dev));
	cqk_dev_destroy(test->priv);
	test->priv = dev;

	cq = cqk_alloc_ctx(test, cqk_param(test));
	dev->pre_destroy_err = -EBUSY;
	kunit_warning_suppress(test) {
		ib_free_cq(&cq->ibcq);
		/* The C code tells it again at the end. */
		KUNIT_EXPECT_GE(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 1);
		KUNIT_EXPECT_LE(test, KUNIT_SUPPRESSED_WARNING_COUNT(), 2);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->pre_destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
}

/*
 * Somebody wrote over the context of a CQ. The C code notices and frees it; the Rust
 * code knows the context from elsewhere.
 */
static void cqk_warn_free_unknown_context(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_cq *cq = cqk_alloc_ctx(test, IB_POLL_DIRECT);

	cq->ibcq.poll_ctx = 99;
	kunit_warning_suppress(test) {
		ib_free_cq(&cq->ibcq);
		if (!cqk_core_is_rust())
			KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 1);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
}

static struct kunit_case cqk_warn_cases[] = {
	KUNIT_CASE_PARAM(cqk_warn_nr_cqe_zero, cqk_ctx_all_gen_params),
	KUNIT_CASE(cqk_warn_pool_context),
	KUNIT_CASE_PARAM(cqk_warn_free_with_qp, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_warn_free_with_claims, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_warn_double_free, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_warn_free_shared, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_warn_pool_put_too_much, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_warn_pool_unregister_claimed, cqk_ctx_event_gen_params),
	KUNIT_CASE(cqk_warn_direct_event),
	KUNIT_CASE(cqk_warn_direct_event_in_create),
	KUNIT_CASE(cqk_warn_null_cqe_success),
	KUNIT_CASE(cqk_warn_poll_too_many),
	KUNIT_CASE_PARAM(cqk_warn_destroy_fails, cqk_ctx_all_gen_params),
	KUNIT_CASE_PARAM(cqk_warn_pre_destroy_fails, cqk_ctx_all_gen_params),
	KUNIT_CASE(cqk_warn_free_unknown_context),
	{}
};

struct kunit_suite cqk_warn_suite = {
	.name = "ib_cq_warn",
	.init = cqk_suite_init,
	.exit = cqk_suite_exit,
	.test_cases = cqk_warn_cases,
};
