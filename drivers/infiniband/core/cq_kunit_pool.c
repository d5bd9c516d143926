// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: the pools of shared completion queues.
 */
#include <linux/delay.h>
#include <linux/kthread.h>

#include "cq_kunit.h"

/* Number of CQs that one allocation for a pool makes. */
static int cqk_pool_batch(struct cqk_dev *dev)
{
	return min_t(int, dev->ibdev.num_comp_vectors, num_online_cpus());
}

static struct ib_cq *cqk_get(struct kunit *test, unsigned int nr_cqe, int hint)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = ib_cq_pool_get(&dev->ibdev, nr_cqe, hint, cqk_param(test));
	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(cq), "ib_cq_pool_get: %pe", cq);
	return cq;
}

static void cqk_pool_first_get(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int n;

	dev->ibdev.num_comp_vectors = 16;
	n = cqk_pool_batch(dev);

	cq = cqk_get(test, 10, 0);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), n);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->arm_calls), n);
	KUNIT_EXPECT_TRUE(test, cq->shared);
	KUNIT_EXPECT_EQ(test, cq->poll_ctx, cqk_param(test));
	KUNIT_EXPECT_EQ(test, cq->cqe, CQK_SHARED_CQE);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 10u);
	KUNIT_EXPECT_EQ(test, cq->comp_vector, 0u);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), (u32)n);

	ib_cq_pool_put(cq, 10);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 0u);
	/* Giving back keeps the CQ for the next user. */
	KUNIT_EXPECT_EQ(test, cqk_live(dev), n);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), 0);
}

/* Users share a CQ until its entries are used up. */
static void cqk_pool_shares(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *a, *b, *c, *d;
	int n = cqk_pool_batch(dev);

	a = cqk_get(test, 4000, 0);
	b = cqk_get(test, 96, 0);
	KUNIT_EXPECT_PTR_EQ(test, a, b);
	KUNIT_EXPECT_EQ(test, a->cqe_used, 4096u);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), n);

	/* Full: a new set. */
	c = cqk_get(test, 1, 0);
	KUNIT_EXPECT_PTR_NE(test, a, c);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 2 * n);
	KUNIT_EXPECT_EQ(test, c->cqe_used, 1u);
	KUNIT_EXPECT_EQ(test, a->cqe_used, 4096u);

	/* What is given back is used again. */
	ib_cq_pool_put(a, 4000);
	KUNIT_EXPECT_EQ(test, a->cqe_used, 96u);
	d = cqk_get(test, 4096, 0);
	KUNIT_EXPECT_PTR_NE(test, d, a);
	KUNIT_EXPECT_PTR_NE(test, d, c);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 3 * n);
	ib_cq_pool_put(d, 4096);
	ib_cq_pool_put(c, 1);
	ib_cq_pool_put(a, 96);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 3 * n);
}

/*
 * Of several that fit, the newest set comes first. This is what users see of the
 * order in the pool; both implementations have it.
 */
static void cqk_pool_first_fit(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *a, *b, *c;
	int n = cqk_pool_batch(dev);

	a = cqk_get(test, 4096, 0);
	b = cqk_get(test, 4000, 0);
	ib_cq_pool_put(a, 4096);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 2 * n);

	c = cqk_get(test, 96, 0);
	KUNIT_EXPECT_PTR_EQ(test, c, b);
	ib_cq_pool_put(c, 96);
	c = cqk_get(test, 97, 0);
	KUNIT_EXPECT_PTR_EQ(test, c, a);
	ib_cq_pool_put(c, 97);
	ib_cq_pool_put(b, 4000);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 2 * n);
}

static void cqk_pool_vector_matches_hint(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int n, hint;

	dev->ibdev.num_comp_vectors = 16;
	n = cqk_pool_batch(dev);
	for (hint = 0; hint < 3 * n; hint++) {
		cq = cqk_get(test, 1, hint);
		KUNIT_EXPECT_EQ(test, (int)cq->comp_vector, hint % n);
	}
	cq = cqk_get(test, 1, INT_MAX);
	KUNIT_EXPECT_EQ(test, (int)cq->comp_vector, INT_MAX % n);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), n);
}

static void cqk_pool_any_vector_spreads(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int n, i, prev = -1;
	struct ib_cq *cq;

	dev->ibdev.num_comp_vectors = 16;
	n = cqk_pool_batch(dev);
	for (i = 0; i < 3 * n; i++) {
		cq = cqk_get(test, 1, i % 2 ? -1 : -7);
		if (prev >= 0)
			KUNIT_EXPECT_EQ(test, (int)cq->comp_vector, (prev + 1) % n);
		prev = cq->comp_vector;
	}
}

/* Each context has a pool of its own. */
static void cqk_pool_contexts_apart(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int i, j, n = cqk_pool_batch(dev);
	struct ib_cq *cqs[3];

	for (i = 0; i < 3; i++) {
		cqs[i] = ib_cq_pool_get(&dev->ibdev, 1, 0, i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(cqs[i]));
		KUNIT_EXPECT_EQ(test, (int)cqs[i]->poll_ctx, i);
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_PTR_NE(test, cqs[i], cqs[j]);
	}
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 3 * n);
	for (i = 0; i < 3; i++)
		ib_cq_pool_put(cqs[i], 1);
}

/* Completions of a shared CQ are handled like those of any other. */
static void cqk_pool_delivers(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq = cqk_get(test, 100, 0);

	cqk_expect(dev, 100);
	cqk_post(to_cqk(cq), 100);
	KUNIT_EXPECT_TRUE(test, cqk_wait(dev));
	KUNIT_EXPECT_EQ(test, dev->disorder, 0ull);
	ib_cq_pool_put(cq, 100);
}

static void cqk_pool_zero_cqe(struct kunit *test)
{
	struct ib_cq *cq = cqk_get(test, 0, 0);

	KUNIT_EXPECT_EQ(test, cq->cqe_used, 0u);
	KUNIT_EXPECT_EQ(test, cq->cqe, CQK_SHARED_CQE);
	ib_cq_pool_put(cq, 0);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 0u);
}

/* The size of a shared CQ is limited by the device, and may be used up. */
static void cqk_pool_up_to_max_cqe(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	dev->ibdev.attrs.max_cqe = 100;
	cq = cqk_get(test, 100, 0);
	KUNIT_EXPECT_EQ(test, cq->cqe, 100);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 100u);
	ib_cq_pool_put(cq, 100);

	dev->ibdev.attrs.max_cqe = 10000;
	cq = cqk_get(test, 10000, 0);
	KUNIT_EXPECT_EQ(test, cq->cqe, 10000);
	ib_cq_pool_put(cq, 10000);
}

/*
 * More than any CQ of the device can have. There is no use in trying: an error
 * at once. The limit on creations ends a core that tries for ever.
 */
static void cqk_check_too_much(struct kunit *test, unsigned int nr_cqe)
{
	struct cqk_dev *dev = test->priv;
	int live = cqk_live(dev);
	struct ib_cq *cq;

	dev->create_err = -ENOSPC;
	dev->create_err_after = 50;
	cq = ib_cq_pool_get(&dev->ibdev, nr_cqe, 0, cqk_param(test));
	KUNIT_EXPECT_TRUE(test, IS_ERR(cq));
	KUNIT_EXPECT_EQ_MSG(test, cqk_live(dev), live,
			    "CQs were created for a request that none can fulfil");
	if (!IS_ERR(cq))
		cq->cqe_used -= nr_cqe;
}

static void cqk_pool_beyond_max_cqe(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;

	dev->ibdev.attrs.max_cqe = 100;
	cqk_check_too_much(test, 101);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), 0);
}

static void cqk_pool_beyond_max_cqe_in_use(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	dev->ibdev.attrs.max_cqe = 100;
	cq = cqk_get(test, 60, 0);
	cqk_check_too_much(test, 101);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 60u);
	ib_cq_pool_put(cq, 60);
}

/* Used plus wanted must not wrap around. */
static void cqk_pool_count_wraps(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;

	cq = cqk_get(test, 60, 0);
	dev->create_err_after = atomic_read(&dev->created);
	cqk_check_too_much(test, UINT_MAX);
	cqk_check_too_much(test, UINT_MAX - 30);
	cqk_check_too_much(test, (unsigned int)INT_MAX + 1);
	KUNIT_EXPECT_EQ(test, cq->cqe_used, 60u);
	ib_cq_pool_put(cq, 60);
}

static void cqk_pool_no_vectors(struct kunit *test)
{
	static const int hints[] = { 0, 1, -1 };
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int i;

	if (!cqk_core_is_rust())
		kunit_skip(test, "the C core divides by zero here");

	dev->ibdev.num_comp_vectors = 0;
	for (i = 0; i < ARRAY_SIZE(hints); i++) {
		cq = ib_cq_pool_get(&dev->ibdev, 1, hints[i], cqk_param(test));
		KUNIT_EXPECT_TRUE(test, IS_ERR(cq));
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->create_calls), 0);
}

/* A device that fails in the middle of a set: no part of it stays. */
static void cqk_pool_half_way(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *cq;
	int n, k;

	dev->ibdev.num_comp_vectors = 16;
	n = cqk_pool_batch(dev);
	dev->create_err = -EIO;
	for (k = 0; k < n; k++) {
		dev->create_err_after = atomic_read(&dev->created) + k;
		cq = ib_cq_pool_get(&dev->ibdev, 1, 0, cqk_param(test));
		KUNIT_EXPECT_PTR_EQ(test, (void *)cq, ERR_PTR(-EIO));
		KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
		KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
		KUNIT_EXPECT_TRUE(test, list_empty(&dev->ibdev.cq_pools[cqk_param(test)]));
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_work), 0);

	dev->create_err = 0;
	cq = cqk_get(test, 1, 0);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), n);
	ib_cq_pool_put(cq, 1);
}

static void cqk_pool_freed_with_device(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct ib_cq *a, *b;

	a = cqk_get(test, 4096, 0);
	b = cqk_get(test, 1, 1);
	ib_cq_pool_put(a, 4096);
	ib_cq_pool_put(b, 1);
	b = cqk_get(test, 4096, 0);
	ib_cq_pool_put(b, 4096);

	cqk_dev_unregister(dev);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, cqk_tracked(dev), 0u);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->destroy_calls), atomic_read(&dev->created));
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_work), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_tracked), 0);
}

/*
 * Concurrency: several users get and put. Nobody gets more than a CQ has, and
 * in the end nothing is claimed.
 */

struct cqk_user {
	struct cqk_dev *dev;
	enum ib_poll_context ctx;
	unsigned int seed;
	int err;
	int overcommit;
	struct task_struct *task;
	struct completion done;
};

struct cqk_claim {
	struct ib_cq *cq;
	unsigned int n;
};

static int cqk_user_thread(void *data)
{
	struct cqk_claim claims[8] = {};
	int i, rounds = cqk_rounds(20000);
	struct cqk_user *user = data;
	unsigned int r = user->seed;

	for (i = 0; i < rounds && !user->err; i++) {
		struct cqk_claim *claim = &claims[i % ARRAY_SIZE(claims)];

		if (claim->cq)
			ib_cq_pool_put(claim->cq, claim->n);
		/* Any sequence will do as long as the two threads differ. */
		r = r * 1103515245 + 12345;
		claim->n = 1 + (r >> 16) % 60;
		claim->cq = ib_cq_pool_get(&user->dev->ibdev, claim->n, (r >> 8) % 4 - 1,
					   user->ctx);
		if (IS_ERR(claim->cq)) {
			user->err = PTR_ERR(claim->cq);
			claim->cq = NULL;
		} else if (READ_ONCE(claim->cq->cqe_used) > claim->cq->cqe) {
			user->overcommit++;
		}
		if (i % 16 == 0)
			cond_resched();
	}
	for (i = 0; i < ARRAY_SIZE(claims); i++)
		if (claims[i].cq)
			ib_cq_pool_put(claims[i].cq, claims[i].n);
	complete(&user->done);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void cqk_pool_concurrent_users(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	struct cqk_user *users;
	struct cqk_cq *cq;
	int i, n = 3;

	/* Small CQs, so that they fill up and new ones are made. */
	dev->ibdev.attrs.max_cqe = 64;
	users = kunit_kcalloc(test, n, sizeof(*users), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, users);
	for (i = 0; i < n; i++) {
		users[i].dev = dev;
		users[i].ctx = cqk_param(test);
		users[i].seed = i + 1;
		init_completion(&users[i].done);
		users[i].task = kthread_run(cqk_user_thread, &users[i], "cqk_user/%d", i);
	}
	for (i = 0; i < n; i++) {
		if (IS_ERR(users[i].task)) {
			users[i].err = PTR_ERR(users[i].task);
		} else {
			wait_for_completion(&users[i].done);
			kthread_stop(users[i].task);
		}
		KUNIT_EXPECT_EQ(test, users[i].err, 0);
		KUNIT_EXPECT_EQ(test, users[i].overcommit, 0);
	}

	i = 0;
	list_for_each_entry(cq, &dev->live, node) {
		KUNIT_EXPECT_EQ(test, cq->ibcq.cqe_used, 0u);
		i++;
	}
	/* Three users with eight claims each cannot need more. */
	KUNIT_EXPECT_LE(test, i, 24 * 3 * cqk_pool_batch(dev));
	KUNIT_EXPECT_GT(test, i, 0);
}

/* A pool user claims and gives back while the device raises events. */
static void cqk_pool_under_flood(struct kunit *test)
{
	struct cqk_dev *dev = test->priv;
	int i, rounds = cqk_rounds(1000);
	struct cqk_flood *flood;
	struct ib_cq *cq;

	flood = cqk_flood_start(test, dev);
	for (i = 0; i < rounds; i++) {
		cq = ib_cq_pool_get(&dev->ibdev, 1, -1, cqk_param(test));
		if (IS_ERR(cq))
			break;
		ib_cq_pool_put(cq, 1);
	}
	cqk_dev_unregister(dev);
	cqk_flood_stop(flood);
	KUNIT_EXPECT_EQ(test, i, rounds);
	KUNIT_EXPECT_EQ(test, cqk_live(dev), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_work), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&dev->late_calls), 0);
}

static struct kunit_case cqk_pool_cases[] = {
	KUNIT_CASE_PARAM(cqk_pool_first_get, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_shares, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_first_fit, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_vector_matches_hint, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_any_vector_spreads, cqk_ctx_event_gen_params),
	KUNIT_CASE(cqk_pool_contexts_apart),
	KUNIT_CASE_PARAM(cqk_pool_delivers, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_zero_cqe, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_up_to_max_cqe, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_beyond_max_cqe, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_beyond_max_cqe_in_use, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_count_wraps, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_no_vectors, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_half_way, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM(cqk_pool_freed_with_device, cqk_ctx_event_gen_params),
	KUNIT_CASE_PARAM_ATTR(cqk_pool_concurrent_users, cqk_ctx_event_gen_params, CQK_SLOW),
	KUNIT_CASE_PARAM_ATTR(cqk_pool_under_flood, cqk_ctx_event_gen_params, CQK_SLOW),
	{}
};

struct kunit_suite cqk_pool_suite = {
	.name = "ib_cq_pool",
	.init = cqk_suite_init,
	.exit = cqk_suite_exit,
	.test_cases = cqk_pool_cases,
};
