// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/qedr: Accept events of a CQ when it is initialised
// Files: drivers/infiniband/hw/qedr/verbs.c drivers/infiniband/hw/qedr/main.c
//
// Notifications carry the address of the CQ, and the interrupt handler takes
// them when the CQ has its signature. That was set before the lock and the
// state of the ring, and without order. Initialise the lock before the device
// has the CQ, set the signature last, by smp_store_release(), and load it by
// smp_load_acquire().

@@
identifier cq, dev, params, icid, rc, udata;
@@

+ spin_lock_init(&cq->cq_lock);
+
  rc = dev->ops->rdma_create_cq(dev->rdma_ctx, &params, &icid);
  ...
  cq->icid = icid;
- cq->sig = QEDR_CQ_MAGIC_NUMBER;
- spin_lock_init(&cq->cq_lock);
  ...
  if (udata) { ... } else { ... }
+
+ /* Pairs with qedr_irq_handler(). */
+ smp_store_release(&cq->sig, QEDR_CQ_MAGIC_NUMBER);

@@
identifier cq;
statement S;
@@

+ /* Pairs with qedr_create_cq(). */
- if (cq->sig != QEDR_CQ_MAGIC_NUMBER)
+ if (smp_load_acquire(&cq->sig) != QEDR_CQ_MAGIC_NUMBER)
  	S
