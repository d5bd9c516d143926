// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/mthca: Initialise a CQ before the event path can find it
// Files: drivers/infiniband/hw/mthca/mthca_cq.c
//
// mthca_init_cq() sets the consumer index of the CQ when it is in the table
// already, and a handler that was called meanwhile may have moved it on.

@@
identifier cq;
@@

  init_waitqueue_head(&cq->wait);
  mutex_init(&cq->mutex);
+ cq->cons_index = 0;
  ...
- cq->cons_index = 0;
-
  mthca_free_mailbox(...);
  return 0;
