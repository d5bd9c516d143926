// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/ionic: Publish the handler of the admin CQ by a release
// Files: drivers/infiniband/hw/ionic/ionic_admin.c
//
// Store comp_handler last, by smp_store_release(), as the core does for all
// other CQs: ionic_create_cq_common() makes the CQ known to the event path,
// which loads the handler by ib_cq_completion().

@@
expression handler, n;
identifier vcq, cq, rc;
@@

- vcq->ibcq.comp_handler = handler;
  ...
  cq = &vcq->cq[n];
+
+ /* Pairs with ib_cq_completion(). */
+ smp_store_release(&vcq->ibcq.comp_handler, handler);
  ...
  rc = ionic_create_cq_common(vcq, ...);
