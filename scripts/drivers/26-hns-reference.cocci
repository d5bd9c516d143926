// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/hns: Hold a CQ while its completion handler runs
// Files: drivers/infiniband/hw/hns/hns_roce_cq.c
//
// Completion events are handled by a work item in softirq context.
// hns_roce_cq_completion() takes no reference and no lock, and free_cqc() only
// waits for the interrupt, which may have left the work item behind: the CQ can
// be freed while its handler runs. Take a reference at the look-up, under the
// lock of the table, as hns_roce_cq_event() does. That one is called by a work
// item in process context, so it has to disable interrupts now.

@@
expression array, where;
identifier hr_cq;
@@

  void hns_roce_cq_completion(...)
  {
  	<...
+ 	xa_lock_irqsave(array, flags);
  	hr_cq = xa_load(array, where);
+ 	if (hr_cq)
+ 		refcount_inc(&hr_cq->refcount);
+ 	xa_unlock_irqrestore(array, flags);
  	...>
  }

@@
identifier hr_cq, ibcq;
@@

  void hns_roce_cq_completion(...)
  {
  	<...
  	ibcq = &hr_cq->ib_cq;
  	ib_cq_completion(ibcq);
+
+ 	if (refcount_dec_and_test(&hr_cq->refcount))
+ 		complete(&hr_cq->free);
  	...>
  }

@@
identifier ibcq;
@@

  void hns_roce_cq_completion(...)
  {
  	<...
  	struct ib_cq *ibcq;
+ 	unsigned long flags;
  	...>
  }

@@
expression array;
@@

  void hns_roce_cq_event(...)
  {
  	<...
(
- 	xa_lock(array);
+ 	xa_lock_irqsave(array, flags);
|
- 	xa_unlock(array);
+ 	xa_unlock_irqrestore(array, flags);
)
  	...>
  }

@@
identifier ibcq;
@@

  void hns_roce_cq_event(...)
  {
  	<...
  	struct ib_cq *ibcq;
+ 	unsigned long flags;
  	...>
  }
