// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the check of registrations, umem_fork_rust.rs, cannot say in Rust yet: a
 * parameter that sysfs shows and changes, a limit of the rate of messages, the
 * trace event, and the two places where the count can be read.
 */
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <rdma/ib_verbs.h>
#include <rdma/restrack.h>

#include "umem_fork_rust.h"

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "umem_fork_trace.h"

static const char *const policies[] = {
	[IB_UMEM_FORK_OFF] = "off",
	[IB_UMEM_FORK_WARN] = "warn",
	[IB_UMEM_FORK_REJECT] = "reject",
};

/* May change at any time, so READ_ONCE() and WRITE_ONCE(). */
int ib_umem_fork_policy = IB_UMEM_FORK_WARN;

static int policy_set(const char *val, const struct kernel_param *kp)
{
	int policy = sysfs_match_string(policies, val);

	if (policy < 0)
		return policy;
	WRITE_ONCE(ib_umem_fork_policy, policy);
	return 0;
}

static int policy_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", policies[READ_ONCE(ib_umem_fork_policy)]);
}

static const struct kernel_param_ops policy_ops = {
	.set = policy_set,
	.get = policy_get,
};
module_param_cb(dontfork_partial, &policy_ops, NULL, 0644);
MODULE_PARM_DESC(dontfork_partial,
		 "Registrations that take other memory from forked children: off, warn (default) or reject");

/* Programs choose when there is something to say, so there is a limit. */
bool ib_umem_fork_may_print(void)
{
	static DEFINE_RATELIMIT_STATE(state, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST);

	return __ratelimit(&state);
}

/*
 * As /proc/PID/maps names mappings, but of a path only the end.  @vma is locked
 * for reading.
 */
void ib_umem_fork_vma_name(struct vm_area_struct *vma, char *buf, size_t size)
{
	if (vma->vm_file)
		scnprintf(buf, size, "%pD4", vma->vm_file);
	else if (vma_is_initial_heap(vma))
		strscpy(buf, "[heap]", size);
	else if (vma_is_initial_stack(vma))
		strscpy(buf, "[stack]", size);
#ifdef CONFIG_ANON_VMA_NAME
	else if (vma->anon_name)
		scnprintf(buf, size, "[anon:%s]", vma->anon_name->name);
#endif
	else
		strscpy(buf, "[anon]", size);
}

static ssize_t dontfork_partial_show(struct device *device, struct device_attribute *attr,
				     char *buf)
{
	struct ib_device *dev = rdma_device_to_ibdev(device);

	return sysfs_emit(buf, "%lld\n", atomic64_read(&dev->dontfork_partial));
}

struct device_attribute ib_dev_attr_dontfork_partial = __ATTR_RO(dontfork_partial);

/* Adds the count to what "rdma statistic" shows. */
int ib_umem_fork_fill_stat(struct sk_buff *msg, struct ib_device *device)
{
	return rdma_nl_stat_hwcounter_entry(msg, "dontfork_partial",
					    atomic64_read(&device->dontfork_partial));
}
