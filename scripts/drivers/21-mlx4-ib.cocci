// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/mlx4: Set the callbacks of a CQ before it is created
// Files: drivers/infiniband/hw/mlx4/cq.c
//
// The callbacks were set when mlx4_cq_alloc() was done, so that an event in
// between called a NULL pointer. For a CQ of the kernel mlx4_cq_alloc() sets
// comp to its tasklet; give that a callback too, which does for an event that
// comes before comp is set.

@@
identifier cq, err;
expression list args;
@@

+ cq->mcq.tasklet_ctx.comp = mlx4_ib_cq_comp;
+ cq->mcq.event = mlx4_ib_cq_event;
+
  err = mlx4_cq_alloc(args);
  ...
- cq->mcq.tasklet_ctx.comp = mlx4_ib_cq_comp;
- cq->mcq.event = mlx4_ib_cq_event;
+
  cq->mcq.usage = ...;

@@
identifier cq, err;
expression list args;
@@

+ cq->mcq.tasklet_ctx.comp = mlx4_ib_cq_comp;
+ cq->mcq.event = mlx4_ib_cq_event;
+
  err = mlx4_cq_alloc(args);
  ...
  cq->mcq.comp = mlx4_ib_cq_comp;
- cq->mcq.event = mlx4_ib_cq_event;
