/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _RDMA_CORE_UMEM_FORK_RUST_H
#define _RDMA_CORE_UMEM_FORK_RUST_H

#include <linux/types.h>

struct device_attribute;
struct ib_device;
struct sk_buff;
struct vm_area_struct;

/* The values of the module parameter dontfork_partial. */
enum ib_umem_fork_policy {
	IB_UMEM_FORK_OFF,
	IB_UMEM_FORK_WARN,
	IB_UMEM_FORK_REJECT,
};

/**
 * struct ib_umem_fork_loss - what a registration takes from forked children
 * @start: first byte that is registered
 * @end: first byte behind
 * @before: bytes in front of @start that are lost
 * @behind: bytes from @end on that are lost
 * @name: name of the mapping
 * @rejected: whether the registration fails
 */
struct ib_umem_fork_loss {
	unsigned long start;
	unsigned long end;
	unsigned long before;
	unsigned long behind;
	const char *name;
	bool rejected;
};

#ifdef CONFIG_INFINIBAND_RUST_UMEM_FORK
/* In umem_fork_rust.rs */
int ib_umem_check_fork(struct ib_device *device, unsigned long addr, size_t size);

/* In umem_fork_rust_glue.c */
extern int ib_umem_fork_policy;
extern struct device_attribute ib_dev_attr_dontfork_partial;
bool ib_umem_fork_may_print(void);
void ib_umem_fork_vma_name(struct vm_area_struct *vma, char *buf, size_t size);
int ib_umem_fork_fill_stat(struct sk_buff *msg, struct ib_device *device);
#else
static inline int ib_umem_check_fork(struct ib_device *device, unsigned long addr, size_t size)
{
	return 0;
}

static inline int ib_umem_fork_fill_stat(struct sk_buff *msg, struct ib_device *device)
{
	return 0;
}
#endif

#endif /* _RDMA_CORE_UMEM_FORK_RUST_H */
