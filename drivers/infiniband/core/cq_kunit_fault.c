// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: every allocation fails once.
 *
 * An operation is repeated with its first, second, ... allocation failing, until
 * it gets through without a failure. There are two ways to do so: the KUnit cases,
 * and a debugfs file for a program that sets /proc/self/fail-nth itself and looks
 * for leaks, see tools/testing/selftests/rdma/cq_fault_injection.sh.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "cq_kunit.h"

#define CQK_FAULT_MAX	200

#ifdef CONFIG_FAULT_INJECTION
static unsigned int cqk_fail_nth_swap(unsigned int nth)
{
	unsigned int old = READ_ONCE(current->fail_nth);

	WRITE_ONCE(current->fail_nth, nth);
	return old;
}
#else
static unsigned int cqk_fail_nth_swap(unsigned int nth)
{
	return nth;
}
#endif

struct cqk_fault_op {
	const char *name;
	unsigned int flags;		/* Variant of the device. */
	bool prepared;			/* Runs on a CQ that exists. */
	struct ib_cq *(*run)(struct cqk_dev *dev, struct ib_cq *cq,
			     enum ib_poll_context ctx);
};

static struct ib_cq *cqk_run_alloc(struct cqk_dev *dev, struct ib_cq *cq,
				   enum ib_poll_context ctx)
{
	return ib_alloc_cq(&dev->ibdev, NULL, 4, 0, ctx);
}

static struct ib_cq *cqk_run_alloc_any(struct cqk_dev *dev, struct ib_cq *cq,
				       enum ib_poll_context ctx)
{
	return ib_alloc_cq_any(&dev->ibdev, NULL, 4, ctx);
}

static struct ib_cq *cqk_run_free(struct cqk_dev *dev, struct ib_cq *cq,
				  enum ib_poll_context ctx)
{
	ib_free_cq(cq);
	return NULL;
}

static struct ib_cq *cqk_run_pool_get(struct cqk_dev *dev, struct ib_cq *cq,
				      enum ib_poll_context ctx)
{
	return ib_cq_pool_get(&dev->ibdev, 4, 0, ctx);
}

static struct ib_cq *cqk_run_pool_cleanup(struct cqk_dev *dev, struct ib_cq *cq,
					  enum ib_poll_context ctx)
{
	/* Not a CQ path, but the only way to ib_cq_pool_cleanup(). */
	cqk_dev_unregister(dev);
	return NULL;
}

static const struct cqk_fault_op cqk_fault_ops[] = {
	{ .name = "alloc", .run = cqk_run_alloc },
	{ .name = "alloc_dim", .run = cqk_run_alloc, .flags = CQK_DIM },
	{ .name = "alloc_any", .run = cqk_run_alloc_any },
	{ .name = "free", .run = cqk_run_free, .prepared = true },
	{ .name = "free_dim", .run = cqk_run_free, .prepared = true,
	  .flags = CQK_DIM | CQK_PRE_POST },
	{ .name = "pool_get", .run = cqk_run_pool_get },
	{ .name = "pool_cleanup", .run = cqk_run_pool_cleanup, .prepared = true },
};

static bool cqk_fault_is_pool(const struct cqk_fault_op *op)
{
	return !strncmp(op->name, "pool", 4);
}

/* Does a CQ that an operation returned deliver? */
static bool cqk_fault_works(struct cqk_dev *dev, struct ib_cq *ibcq)
{
	struct cqk_cq *cq = to_cqk(ibcq);

	if (!cqk_is_ready(cq) || !ibcq->wc || !ibcq->comp_handler)
		return false;
	cqk_expect(dev, 3);
	cqk_post(cq, 3);
	if (ibcq->poll_ctx == IB_POLL_DIRECT)
		ib_process_cq_direct(ibcq, -1);
	return cqk_wait(dev) && !dev->disorder;
}

/* Is nothing left of the CQs of the device, with nothing having gone wrong? */
static bool cqk_fault_clean(struct cqk_dev *dev)
{
	return !cqk_live(dev) && !cqk_tracked(dev) &&
	       !atomic_read(&dev->late_calls) && !atomic_read(&dev->late_work) &&
	       !atomic_read(&dev->late_tracked) &&
	       atomic_read(&dev->created) == atomic_read(&dev->destroy_calls);
}

/**
 * cqk_fault_run - run an operation once
 * @op: the operation
 * @ctx: poll context of the CQ
 * @nth: in: allocation that fails or 0; out: 0 if one has failed
 *
 * Return: 0 or the error of the operation; -EUCLEAN if it left something behind
 * or returned a CQ that does not work; -ENODEV if it could not be tried.
 */
static int cqk_fault_run(const struct cqk_fault_op *op, enum ib_poll_context ctx,
			 unsigned int *nth)
{
	struct ib_cq *cq = NULL, *ret;
	struct cqk_dev *dev;
	bool clean = true;
	int err = 0;

	dev = cqk_dev_create(op->flags);
	if (IS_ERR(dev))
		return -ENODEV;
	if (op->prepared) {
		cq = cqk_fault_is_pool(op) ? ib_cq_pool_get(&dev->ibdev, 4, 0, ctx) :
					     ib_alloc_cq(&dev->ibdev, NULL, 4, 0, ctx);
		if (IS_ERR(cq)) {
			cqk_dev_destroy(dev);
			return -ENODEV;
		}
		if (cqk_fault_is_pool(op))
			ib_cq_pool_put(cq, 4);
	}

	cqk_fail_nth_swap(*nth);
	ret = op->run(dev, cq, ctx);
	*nth = cqk_fail_nth_swap(0);

	if (IS_ERR(ret)) {
		err = PTR_ERR(ret);
		clean = cqk_fault_clean(dev);
	} else if (ret) {
		clean = cqk_fault_works(dev, ret);
		if (cqk_fault_is_pool(op))
			ib_cq_pool_put(ret, 4);
		else
			ib_free_cq(ret);
	}
	/* That is where shared CQs are freed. */
	cqk_dev_unregister(dev);
	clean &= cqk_fault_clean(dev);
	cqk_dev_destroy(dev);
	return clean ? err : -EUCLEAN;
}

/*
 * KUnit cases.
 */

struct cqk_fault_param {
	const struct cqk_fault_op *op;
	struct cqk_ctx ctx;
};

static const struct cqk_ctx cqk_fault_ctxs[] = {
	{ "SOFTIRQ", IB_POLL_SOFTIRQ },
	{ "WORKQUEUE", IB_POLL_WORKQUEUE },
	{ "UNBOUND_WORKQUEUE", IB_POLL_UNBOUND_WORKQUEUE },
	{ "DIRECT", IB_POLL_DIRECT },
};

static struct cqk_fault_param
cqk_fault_params[ARRAY_SIZE(cqk_fault_ops) * ARRAY_SIZE(cqk_fault_ctxs)];
static int cqk_fault_num_params;

static const void *cqk_fault_gen_params(struct kunit *test, const void *prev, char *desc)
{
	const struct cqk_fault_param *param = prev;

	param = param ? param + 1 : cqk_fault_params;
	if (param >= cqk_fault_params + cqk_fault_num_params)
		return NULL;
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%s %s", param->op->name, param->ctx.name);
	return param;
}

/* Sleeping allocations fail only if /sys/kernel/debug/failslab says so. */
static bool cqk_fault_possible(void)
{
	void *p;

	cqk_fail_nth_swap(1);
	p = kmalloc(32, GFP_KERNEL | __GFP_NOWARN);
	cqk_fail_nth_swap(0);
	kfree(p);
	return !p;
}

static void cqk_fault_every_allocation(struct kunit *test)
{
	const struct cqk_fault_param *param = test->param_value;
	int failed = 0, tolerated = 0, ret;
	unsigned int nth, left;

	if (!IS_ENABLED(CONFIG_FAILSLAB))
		kunit_skip(test, "needs CONFIG_FAILSLAB");
	if (!cqk_fault_possible())
		kunit_skip(test, "failslab/ignore-gfp-wait is set, nothing can fail");

	for (nth = 1; nth <= CQK_FAULT_MAX; nth++) {
		left = nth;
		ret = cqk_fault_run(param->op, param->ctx.ctx, &left);
		if (left)
			break;
		if (ret == -ENOMEM)
			failed++;
		else if (!ret)
			tolerated++;
		else
			KUNIT_FAIL(test, "allocation %u fails: %pe", nth, ERR_PTR(ret));
	}
	kunit_info(test, "%s %s: %d failures reported, %d tolerated\n",
		   param->op->name, param->ctx.name, failed, tolerated);
	KUNIT_EXPECT_LE(test, nth, (unsigned int)CQK_FAULT_MAX);
	KUNIT_EXPECT_EQ(test, ret, 0);
	/* The object, the array of completions, and what create_cq needs. */
	if (!param->op->prepared)
		KUNIT_EXPECT_GE(test, failed, 3);
	else
		KUNIT_EXPECT_EQ(test, failed, 0);
}

/* The operations work when nothing fails. */
static void cqk_fault_none(struct kunit *test)
{
	const struct cqk_fault_param *param = test->param_value;
	unsigned int left = 0;

	KUNIT_EXPECT_EQ(test, cqk_fault_run(param->op, param->ctx.ctx, &left), 0);
}

static struct kunit_case cqk_fault_cases[] = {
	KUNIT_CASE_PARAM(cqk_fault_none, cqk_fault_gen_params),
	KUNIT_CASE_PARAM(cqk_fault_every_allocation, cqk_fault_gen_params),
	{}
};

struct kunit_suite cqk_fault_suite = {
	.name = "ib_cq_fault",
	.test_cases = cqk_fault_cases,
};

/*
 * The debugfs file: write "OPERATION CONTEXT", read what became of it. That is the
 * same two words, 0 or the error, and whether an allocation failed ("failed"), the
 * operation does not have so many ("passed"), or fail-nth was not set ("unarmed").
 */

static DEFINE_MUTEX(cqk_fault_mutex);
static char cqk_fault_result[96];
static struct dentry *cqk_fault_dir;

static const struct cqk_fault_param *cqk_fault_find(const char *op, const char *ctx)
{
	int i;

	for (i = 0; i < cqk_fault_num_params; i++)
		if (!strcmp(cqk_fault_params[i].op->name, op) &&
		    !strcmp(cqk_fault_params[i].ctx.name, ctx))
			return &cqk_fault_params[i];
	return NULL;
}

static ssize_t cqk_fault_write(struct file *file, const char __user *ubuf,
			       size_t len, loff_t *ppos)
{
	/* No allocation must fail but those of the operation. */
	unsigned int nth = cqk_fail_nth_swap(0);
	const struct cqk_fault_param *param;
	char buf[48], op[16], ctx[24];
	bool armed = nth;
	int ret;

	if (len >= sizeof(buf) || copy_from_user(buf, ubuf, len))
		return -EINVAL;
	buf[len] = 0;
	if (sscanf(buf, "%15s %23s", op, ctx) != 2)
		return -EINVAL;
	param = cqk_fault_find(op, ctx);
	if (!param)
		return -ENOENT;

	mutex_lock(&cqk_fault_mutex);
	ret = cqk_fault_run(param->op, param->ctx.ctx, &nth);
	snprintf(cqk_fault_result, sizeof(cqk_fault_result), "%s %s %d %s\n", op, ctx, ret,
		 !armed ? "unarmed" : nth ? "passed" : "failed");
	mutex_unlock(&cqk_fault_mutex);

	cqk_fail_nth_swap(nth);
	return len;
}

static ssize_t cqk_fault_read(struct file *file, char __user *ubuf, size_t len,
			      loff_t *ppos)
{
	ssize_t ret;

	mutex_lock(&cqk_fault_mutex);
	ret = simple_read_from_buffer(ubuf, len, ppos, cqk_fault_result,
				      strlen(cqk_fault_result));
	mutex_unlock(&cqk_fault_mutex);
	return ret;
}

static const struct file_operations cqk_fault_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = cqk_fault_read,
	.write = cqk_fault_write,
	.llseek = default_llseek,
};

int cqk_fault_init(void)
{
	int i, j;

	for (i = 0; i < ARRAY_SIZE(cqk_fault_ops); i++) {
		for (j = 0; j < ARRAY_SIZE(cqk_fault_ctxs); j++) {
			if (cqk_fault_is_pool(&cqk_fault_ops[i]) &&
			    cqk_fault_ctxs[j].ctx > IB_POLL_LAST_POOL_TYPE)
				continue;
			cqk_fault_params[cqk_fault_num_params].op = &cqk_fault_ops[i];
			cqk_fault_params[cqk_fault_num_params].ctx = cqk_fault_ctxs[j];
			cqk_fault_num_params++;
		}
	}

	/* Without debugfs there is no file; that is not an error. */
	cqk_fault_dir = debugfs_create_dir("ib_cq_kunit", NULL);
	debugfs_create_file("fault", 0600, cqk_fault_dir, NULL, &cqk_fault_fops);
	return 0;
}

void cqk_fault_exit(void)
{
	debugfs_remove_recursive(cqk_fault_dir);
}
