// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/bnxt_re: Initialise a CQ before the device has it
// Files: drivers/infiniband/hw/bnxt_re/qplib_fp.c
//
// Notifications carry the address of the CQ, so the device can name it from the
// command that creates it on. Its lock, its lists and its wait queue were
// initialised only when the command was done.

@@
identifier cq, rc, rcfw, msg;
@@

+ cq->period = BNXT_QPLIB_QUEUE_START_PERIOD;
+ init_waitqueue_head(&cq->waitq);
+ INIT_LIST_HEAD(&cq->sqf_head);
+ INIT_LIST_HEAD(&cq->rqf_head);
+ spin_lock_init(&cq->compl_lock);
+ spin_lock_init(&cq->flush_lock);
+
  rc = bnxt_qplib_rcfw_send_message(rcfw, &msg);
  ...
- cq->period = BNXT_QPLIB_QUEUE_START_PERIOD;
- init_waitqueue_head(&cq->waitq);
- INIT_LIST_HEAD(&cq->sqf_head);
- INIT_LIST_HEAD(&cq->rqf_head);
- spin_lock_init(&cq->compl_lock);
- spin_lock_init(&cq->flush_lock);
