// SPDX-License-Identifier: GPL-2.0
// Subject: net: mana: Load the entry of the CQ table once
// Files: drivers/net/ethernet/microsoft/mana/gdma_main.c
//
// mana_gd_process_eqe() looks up CQs that are put into the table, and taken
// out of it, by other CPUs at the same time. Load the pointer by READ_ONCE(),
// so that the one that is tested is the one that is used, and the loads
// through it are ordered by the address.

@@
identifier cq, gc, cq_id;
@@

- cq = gc->cq_table[cq_id];
+ cq = READ_ONCE(gc->cq_table[cq_id]);
