// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/ionic: Poll a CQ only when all of it is created
// Files: drivers/infiniband/hw/ionic/ionic_controlpath.c
// Files: drivers/infiniband/hw/ionic/ionic_datapath.c
//
// A CQ consists of one for each DMA engine. The first is known to the event
// path as soon as it is created, and an event for it polls all those that
// udma_mask names: also the second, whose lock and ring are not there yet.
// Set udma_mask when all of them are created, and until then poll none.

@create exists@
identifier vcq;
@@

  int ionic_create_cq(...)
  {
  	<...
- 	vcq->udma_mask
+ 	udma_mask
  	...>
  }

@@
identifier create.vcq;
expression n;
@@

  vcq->ibcq.cqe = n;
+ /* Pairs with those who poll and arm. */
+ smp_store_release(&vcq->udma_mask, udma_mask);

@@
identifier req;
@@

  struct ionic_cq_req req;
+ u8 udma_mask;

@@
expression vcq, i;
@@

  int ionic_poll_cq(...)
  {
  	<...
+ 	/* Pairs with ionic_create_cq(). */
- 	if (!(vcq->udma_mask & BIT(i)))
+ 	if (!(smp_load_acquire(&vcq->udma_mask) & BIT(i)))
  		continue;
  	...>
  }

@@
expression vcq, i;
@@

  int ionic_req_notify_cq(...)
  {
  	<...
+ 	/* Pairs with ionic_create_cq(). */
- 	if (!(vcq->udma_mask & BIT(i)))
+ 	if (!(smp_load_acquire(&vcq->udma_mask) & BIT(i)))
  		continue;
  	...>
  }
