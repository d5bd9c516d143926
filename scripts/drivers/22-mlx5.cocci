// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/mlx5: Set up a CQ before it is created
// Files: drivers/infiniband/hw/mlx5/cq.c
//
// mlx5_core_create_cq() makes the CQ known to both event queues. An error
// event that comes before mcq.event is set calls a NULL pointer, and software
// completions may be looked for on a list that has no head yet. Set both
// before.

@@
identifier cq, err;
expression list args;
@@

+ cq->mcq.event = mlx5_ib_cq_event;
+ INIT_LIST_HEAD(&cq->wc_list);
+
  err = mlx5_core_create_cq(args);
  ...
- cq->mcq.event = mlx5_ib_cq_event;
-
- INIT_LIST_HEAD(&cq->wc_list);
