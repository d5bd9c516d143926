// SPDX-License-Identifier: GPL-2.0

#include <linux/cpumask.h>
#include <linux/hmm.h>
#include <linux/kmemleak.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/mmu_notifier.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/set_memory.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

__rust_helper void *rust_helper_rdma_zalloc_obj(struct ib_device *dev, size_t size, gfp_t gfp,
						bool is_numa_aware)
{
	return rdma_zalloc_obj(dev, size, gfp, is_numa_aware);
}

__rust_helper unsigned int rust_helper_num_online_cpus(void)
{
	return num_online_cpus();
}

__rust_helper void rust_helper_list_add(struct list_head *new, struct list_head *head)
{
	list_add(new, head);
}

__rust_helper void rust_helper_list_del(struct list_head *entry)
{
	list_del(entry);
}

__rust_helper void rust_helper_ib_cq_completion(struct ib_cq *cq)
{
	ib_cq_completion(cq);
}

__rust_helper int rust_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *send_wr,
					   const struct ib_send_wr **bad_send_wr)
{
	return ib_post_send(qp, send_wr, bad_send_wr);
}

__rust_helper int rust_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *recv_wr,
					   const struct ib_recv_wr **bad_recv_wr)
{
	return ib_post_recv(qp, recv_wr, bad_recv_wr);
}

__rust_helper u64 rust_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr, size_t size,
						enum dma_data_direction direction)
{
	return ib_dma_map_single(dev, cpu_addr, size, direction);
}

__rust_helper void rust_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr, size_t size,
						   enum dma_data_direction direction)
{
	ib_dma_unmap_single(dev, addr, size, direction);
}

__rust_helper int rust_helper_ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr)
{
	return ib_dma_mapping_error(dev, dma_addr);
}

__rust_helper u32 rust_helper_rdma_start_port(const struct ib_device *device)
{
	return rdma_start_port(device);
}

__rust_helper bool rust_helper_rdma_protocol_roce(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_roce(device, port_num);
}

__rust_helper bool rust_helper_rdma_protocol_iwarp(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_iwarp(device, port_num);
}

__rust_helper void rust_helper_kmemleak_not_leak(const void *ptr)
{
	kmemleak_not_leak(ptr);
}

__rust_helper void *rust_helper_rdma_kmalloc(size_t size, gfp_t gfp)
{
	return kmalloc(size, gfp);
}

__rust_helper struct ib_ucontext *rust_helper_rdma_udata_ucontext(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

__rust_helper struct ib_udata *rust_helper_rdma_bundle_udata(struct uverbs_attr_bundle *attrs)
{
	return attrs ? &attrs->driver_udata : NULL;
}

__rust_helper bool rust_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

__rust_helper void *rust_helper_rdma_sg_page_iter_addr(struct sg_page_iter *iter)
{
	return page_address(sg_page_iter_page(iter));
}

__rust_helper void *rust_helper_rdma_vmalloc_user(unsigned long size)
{
	return vmalloc_user(size);
}

__rust_helper unsigned long rust_helper_vma_kernel_pagesize(struct vm_area_struct *vma)
{
	return vma_kernel_pagesize(vma);
}

__rust_helper bool rust_helper_mmap_lock_speculate_try_begin(struct mm_struct *mm,
							     unsigned int *seq)
{
	return mmap_lock_speculate_try_begin(mm, seq);
}

__rust_helper bool rust_helper_mmap_lock_speculate_retry(struct mm_struct *mm, unsigned int seq)
{
	return mmap_lock_speculate_retry(mm, seq);
}

__rust_helper void rust_helper_current_comm(char *buf, size_t size)
{
	strscpy_pad(buf, current->comm, size);
}

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
/* Address of a page that hmm has found, 1 added if it may be written; 0 if there is none. */
__rust_helper unsigned long rust_helper_rdma_hmm_pfn_entry(unsigned long pfn)
{
	struct page *page;

	if (!(pfn & HMM_PFN_VALID) || pfn & HMM_PFN_ERROR)
		return 0;
	page = hmm_pfn_to_page(pfn);
	/* Secret memory is not even for the kernel. */
	if (!kernel_page_present(page))
		return 0;
	return (unsigned long)page_address(page) | !!(pfn & HMM_PFN_WRITE);
}

__rust_helper bool rust_helper_rdma_current_is_killed(void)
{
	return fatal_signal_pending(current);
}

__rust_helper void rust_helper_rdma_page_dirty(void *addr)
{
	folio_mark_dirty(virt_to_folio(addr));
}

__rust_helper bool
rust_helper_mmu_notifier_range_blockable(const struct mmu_notifier_range *range)
{
	return mmu_notifier_range_blockable(range);
}

__rust_helper void rust_helper_mmu_interval_set_seq(struct mmu_interval_notifier *interval_sub,
						    unsigned long cur_seq)
{
	mmu_interval_set_seq(interval_sub, cur_seq);
}
#endif
