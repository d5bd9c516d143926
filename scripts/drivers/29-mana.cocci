// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/mana_ib: Publish a CQ when it is initialised
// Files: drivers/infiniband/hw/mana/cq.c
//
// mana_ib_install_cq_cb() makes the CQ known to the interrupt handler by a
// plain store, and the lock and the lists of the CQ are initialised after that:
// polling it in between takes a lock that is not one. Initialise first, and
// publish by smp_store_release().
//
// mana_ib_remove_cq_cb() frees the entry of the table before it takes it out,
// while an interrupt may be using it. Take it out, wait for the interrupts,
// which run in a read-side section of RCU, and then free it.

@@
identifier cq, ibdev, attr;
@@

  cq->comp_vector = attr->comp_vector % ibdev->num_comp_vectors;
  cq->cq_handle = INVALID_MANA_HANDLE;
+ spin_lock_init(&cq->cq_lock);
+ INIT_LIST_HEAD(&cq->list_send_qp);
+ INIT_LIST_HEAD(&cq->list_recv_qp);
  ...
- spin_lock_init(&cq->cq_lock);
- INIT_LIST_HEAD(&cq->list_send_qp);
- INIT_LIST_HEAD(&cq->list_recv_qp);
-
  return 0;

@@
identifier gc, cq, mdev;
@@

  void mana_ib_remove_cq_cb(struct mana_ib_dev *mdev, struct mana_ib_cq *cq)
  {
  	struct gdma_context *gc = mdev_to_gc(mdev);
+ 	struct gdma_queue *gdma_cq;
  	...
- 	kfree(gc->cq_table[cq->queue.id]);
- 	gc->cq_table[cq->queue.id] = NULL;
+ 	gdma_cq = gc->cq_table[cq->queue.id];
+ 	WRITE_ONCE(gc->cq_table[cq->queue.id], NULL);
+ 	/* mana_gd_intr() may be using it. */
+ 	synchronize_rcu();
+ 	kfree(gdma_cq);
  }

@@
expression gc, id;
identifier gdma_cq;
@@

- gc->cq_table[id] = gdma_cq;
+ /* Pairs with the address dependency in mana_gd_process_eqe(). */
+ smp_store_release(&gc->cq_table[id], gdma_cq);
