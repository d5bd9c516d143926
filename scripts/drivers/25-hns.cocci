// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/hns: Initialise a CQ before the event path can find it
// Files: drivers/infiniband/hw/hns/hns_roce_cq.c
//
// alloc_cqc() stores the CQ in the table and creates it in the device; the
// reference count and the completion were initialised after that. An
// asynchronous event in between takes a reference that is thrown away. When
// ib_respond_udata() fails, free_cqc() drops a reference that was never there
// and waits for ever. Initialise them first.

@@
identifier hr_cq, hr_dev, ret;
@@

+ hr_cq->cons_index = 0;
+ hr_cq->arm_sn = 1;
+ refcount_set(&hr_cq->refcount, 1);
+ init_completion(&hr_cq->free);
+
  ret = alloc_cqc(hr_dev, hr_cq);
  ...
- hr_cq->cons_index = 0;
- hr_cq->arm_sn = 1;
- refcount_set(&hr_cq->refcount, 1);
- init_completion(&hr_cq->free);
-
  return 0;
