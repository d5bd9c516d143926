// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/vmw_pvrdma: Take a CQ out of the slot that it is in
// Files: drivers/infiniband/hw/vmw_pvrdma/pvrdma_cq.c
//
// The handle of a CQ comes from the device. It is stored in the table, and
// looked up there, modulo the size of the table, but cleared without that: a
// device that gives out a larger handle makes the driver write behind the
// table, and leaves the CQ in it after it is freed.

@@
expression dev, vcq;
@@

- dev->cq_tbl[vcq->cq_handle] = NULL;
+ dev->cq_tbl[vcq->cq_handle % dev->dsr->caps.max_cq] = NULL;
