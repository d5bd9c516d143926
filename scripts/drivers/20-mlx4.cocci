// SPDX-License-Identifier: GPL-2.0
// Subject: net/mlx4: Initialise a CQ before the event path can find it
// Files: drivers/net/ethernet/mellanox/mlx4/cq.c
//
// mlx4_cq_alloc() inserts the CQ into the radix tree, gives it to the device,
// and only then sets the reference count, the completion and all that its
// tasklet uses. mlx4_cq_completion() and mlx4_cq_event() find it in the tree
// meanwhile: an event for a number that was in use before calls a NULL
// pointer, or takes a reference that is thrown away. Do the look-up's side
// last.

@@
expression tree, mailbox;
identifier cq, dev, err;
@@

+ cq->cons_index = 0;
+ cq->arm_sn     = 1;
+ cq->uar        = uar;
+ refcount_set(&cq->refcount, 1);
+ init_completion(&cq->free);
+ cq->comp = mlx4_add_cq_to_tasklet;
+ cq->tasklet_ctx.priv =
+ 	&priv->eq_table.eq[MLX4_CQ_TO_EQ_VECTOR(vector)].tasklet_ctx;
+ INIT_LIST_HEAD(&cq->tasklet_ctx.list);
+ cq->irq = priv->eq_table.eq[MLX4_CQ_TO_EQ_VECTOR(vector)].irq;
+
  spin_lock(&cq_table->lock);
  err = radix_tree_insert(tree, cq->cqn, cq);
  ...
- cq->cons_index = 0;
- cq->arm_sn     = 1;
- cq->uar        = uar;
- refcount_set(&cq->refcount, 1);
- init_completion(&cq->free);
- cq->comp = mlx4_add_cq_to_tasklet;
- cq->tasklet_ctx.priv =
- 	&priv->eq_table.eq[MLX4_CQ_TO_EQ_VECTOR(vector)].tasklet_ctx;
- INIT_LIST_HEAD(&cq->tasklet_ctx.list);
- cq->irq = priv->eq_table.eq[MLX4_CQ_TO_EQ_VECTOR(vector)].irq;
+
  return 0;
