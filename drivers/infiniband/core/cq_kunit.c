// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API of ib_core: module and list of suites.
 *
 * The suites run when the module is loaded and kunit.enable=1 is on the command
 * line of the kernel. The C and the Rust implementation must both pass them; what
 * the C one does not pass is listed in
 * tools/testing/selftests/rdma/cq_kunit_c.xfail.
 */
#include <linux/module.h>

#include "cq_kunit.h"

static const struct cqk_ctx cqk_ctxs_all[] = {
	{ "SOFTIRQ", IB_POLL_SOFTIRQ },
	{ "WORKQUEUE", IB_POLL_WORKQUEUE },
	{ "UNBOUND_WORKQUEUE", IB_POLL_UNBOUND_WORKQUEUE },
	{ "DIRECT", IB_POLL_DIRECT },
};

static const void *cqk_next_param(const struct cqk_ctx *first, int n,
				  const struct cqk_ctx *prev, char *desc)
{
	const struct cqk_ctx *next = prev ? prev + 1 : first;

	if (next >= first + n)
		return NULL;
	strscpy(desc, next->name, KUNIT_PARAM_DESC_SIZE);
	return next;
}

const void *cqk_ctx_all_gen_params(struct kunit *test, const void *prev, char *desc)
{
	return cqk_next_param(cqk_ctxs_all, 4, prev, desc);
}

/* Those whose poller is started by an event; they are also those of the pools. */
const void *cqk_ctx_event_gen_params(struct kunit *test, const void *prev, char *desc)
{
	return cqk_next_param(cqk_ctxs_all, 3, prev, desc);
}

const void *cqk_ctx_wq_gen_params(struct kunit *test, const void *prev, char *desc)
{
	return cqk_next_param(cqk_ctxs_all + 1, 2, prev, desc);
}

kunit_test_suites(&cqk_alloc_suite, &cqk_poll_suite, &cqk_free_suite,
		  &cqk_pool_suite, &cqk_track_suite, &cqk_fault_suite,
		  &cqk_warn_suite);

static int __init cqk_init(void)
{
	pr_info("ib_cq_kunit: completion queue core in %s\n",
		cqk_core_is_rust() ? "Rust" : "C");
	return cqk_fault_init();
}

static void __exit cqk_exit(void)
{
	cqk_fault_exit();
}

module_init(cqk_init);
module_exit(cqk_exit);

MODULE_DESCRIPTION("KUnit tests of the completion queue API of ib_core");
MODULE_LICENSE("GPL");
