// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the completion queue core in Rust cannot say in Rust yet: exports to
 * modules, a lock that is initialised at compile time, and a parameter that
 * sysfs shows.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <rdma/ib_verbs.h>

#include "cq_rust_glue.h"

/* Protects the set of live completion queues, see rust/kernel/rdma/cq/live.rs. */
DEFINE_SPINLOCK(ib_cq_live_lock);

/* The parameter only tells which implementation runs; it cannot choose one. */
static int cq_core_set(const char *val, const struct kernel_param *kp)
{
	return -EPERM;
}

static int cq_core_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "rust\n");
}

static const struct kernel_param_ops cq_core_ops = {
	.set = cq_core_set,
	.get = cq_core_get,
};
module_param_cb(cq_core, &cq_core_ops, NULL, 0444);
MODULE_PARM_DESC(cq_core, "Implementation of the completion queue core (read only)");

/* The functions are in cq_rust.rs. */
#define EXPORT_RUST(name) EXPORT_SYMBOL(name)

EXPORT_RUST(ib_process_cq_direct);
EXPORT_RUST(__ib_alloc_cq);
EXPORT_RUST(__ib_alloc_cq_any);
EXPORT_RUST(ib_free_cq);
EXPORT_RUST(ib_cq_pool_get);
EXPORT_RUST(ib_cq_pool_put);
