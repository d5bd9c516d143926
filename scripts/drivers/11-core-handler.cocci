// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/core: Publish the completion handler of a CQ last
// Files: drivers/infiniband/core/verbs.c drivers/infiniband/core/uverbs_cmd.c
// Files: drivers/infiniband/core/uverbs_std_types_cq.c
//
// ib_cq_completion() promises that who sees the handler also sees what was
// written before it. Store it by smp_store_release(), behind all that the
// handlers use, and still before the device gets to know the CQ. Then nothing
// depends any more on how each driver publishes the number of the CQ.

// The kernel's own CQs, and those of user space.

@kernel@
expression handler;
identifier cq;
@@

- cq->comp_handler = handler;
  ...
  rdma_restrack_set_name(&cq->res, ...);
+ /* Pairs with ib_cq_completion(). */
+ smp_store_release(&cq->comp_handler, handler);
