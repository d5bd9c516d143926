/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _RDMA_CORE_CQ_RUST_GLUE_H
#define _RDMA_CORE_CQ_RUST_GLUE_H

#include <linux/spinlock_types.h>

extern spinlock_t ib_cq_live_lock;

#endif /* _RDMA_CORE_CQ_RUST_GLUE_H */
