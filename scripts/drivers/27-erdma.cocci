// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/erdma: Make a CQ known when it is created
// Files: drivers/infiniband/hw/erdma/erdma_verbs.c
//
// The number of a CQ and its place in the table were allocated in one, before
// the CQ has a ring. A stale event for that number then polls a ring that is
// not there, and if the creation fails, one that was freed. Reserve the number
// first, and store the CQ when the device has created it: until then it is not
// armed, and an event for it is nobody's. The store into a reserved entry needs
// no memory, so it cannot fail.

@@
identifier cq, dev, ret, ctx;
@@

  ret = xa_alloc_cyclic_irq(&dev->cq_xa, &cq->cqn,
- 			  cq,
+ 			  NULL,
  			  ...);
  ...
  ret = create_cq_cmd(ctx, cq);
  if (ret)
  	goto err_free_res;
+
+ xa_store_irq(&dev->cq_xa, cq->cqn, cq, GFP_KERNEL);
