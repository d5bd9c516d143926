// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/ocrdma: Publish a CQ in the table
// Files: drivers/infiniband/hw/ocrdma/ocrdma_verbs.c drivers/infiniband/hw/ocrdma/ocrdma_hw.c
//
// The interrupt handlers look up the CQ in an array without a lock, and nothing
// orders the initialisation of the CQ before the store of the pointer. Use
// smp_store_release(); the loads of the reader depend on the address.

@@
expression dev, cq;
@@

- dev->cq_tbl[cq->id] = cq;
+ /* Pairs with the address dependency of the interrupt handlers. */
+ smp_store_release(&dev->cq_tbl[cq->id], cq);

@@
expression dev, cq;
@@

- dev->cq_tbl[cq->id] = NULL;
+ WRITE_ONCE(dev->cq_tbl[cq->id], NULL);

@@
expression dev, id;
identifier cq;
@@

  cq =
- dev->cq_tbl[id]
+ READ_ONCE(dev->cq_tbl[id])
