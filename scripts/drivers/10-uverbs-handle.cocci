// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/uverbs: Set the user handle of a CQ before it is created
// Files: drivers/infiniband/core/uverbs_std_types_cq.c
//
// UVERBS_METHOD_CQ_CREATE sets user_handle when the device has created the CQ
// already. An event that comes in between, say one that was meant for an older
// CQ with the same number, is delivered to user space with the handle 0, which
// libibverbs takes for a pointer. ib_uverbs_create_cq() sets it before; do the
// same here.

@@
expression obj;
identifier cq, handle;
@@

+ obj->uevent.uobject.user_handle = handle;
  INIT_LIST_HEAD(&obj->comp_list);
  ...
  cq = rdma_zalloc_drv_obj(...);
  ...
- obj->uevent.uobject.user_handle = handle;
