// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/mthca: Publish the entries of arrays
// Files: drivers/infiniband/hw/mthca/mthca_allocator.c
//
// The interrupt handler looks up CQs, and others QPs, in an mthca_array without
// a lock. Nothing orders the initialisation of an object, or of a page of the
// array, before the store of the pointer to it, and the compiler may load the
// pointer to the page twice. Use smp_store_release(); the readers' loads of the
// objects depend on the address.
//
// mthca_array_clear() frees a page when its last entry goes, while the handler
// may be reading it: synchronize_irq() comes only later. Keep the page until
// mthca_array_cleanup(), which frees all pages; there are never more than the
// device has entries for.

@@
identifier array, index, p;
@@

  void *mthca_array_get(struct mthca_array *array, int index)
  {
+ 	void **page;
  	int p = ...;

- 	if (array->page_list[p].page)
- 		return array->page_list[p].page[index & MTHCA_ARRAY_MASK];
- 	else
- 		return NULL;
+ 	/* Pairs with mthca_array_set(). */
+ 	page = READ_ONCE(array->page_list[p].page);
+ 	if (!page)
+ 		return NULL;
+
+ 	return READ_ONCE(page[index & MTHCA_ARRAY_MASK]);
  }

@@
identifier array, index, p, value;
@@

  int mthca_array_set(struct mthca_array *array, int index, void *value)
  {
+ 	void **page;
  	int p = ...;

- 	if (!array->page_list[p].page)
- 		array->page_list[p].page = kzalloc(PAGE_SIZE, GFP_ATOMIC);
-
- 	if (!array->page_list[p].page)
- 		return -ENOMEM;
-
- 	array->page_list[p].page[index & MTHCA_ARRAY_MASK] = value;
+ 	page = array->page_list[p].page;
+ 	if (!page) {
+ 		/* Callers hold locks. */
+ 		page = kzalloc(PAGE_SIZE, GFP_ATOMIC);
+ 		if (!page)
+ 			return -ENOMEM;
+ 		/* Pairs with the address dependency in mthca_array_get(). */
+ 		smp_store_release(&array->page_list[p].page, page);
+ 	}
+
+ 	/* As above: who finds the object finds it initialised. */
+ 	smp_store_release(&page[index & MTHCA_ARRAY_MASK], value);
  	++array->page_list[p].used;
  	...
  }

@@
identifier array, index, p;
@@

  void mthca_array_clear(struct mthca_array *array, int index)
  {
  	int p = ...;

- 	if (--array->page_list[p].used == 0) {
- 		kfree(array->page_list[p].page);
- 		array->page_list[p].page = NULL;
- 	} else
- 		array->page_list[p].page[index & MTHCA_ARRAY_MASK] = NULL;
+ 	/* An interrupt may be reading the page, so it stays. */
+ 	--array->page_list[p].used;
+ 	WRITE_ONCE(array->page_list[p].page[index & MTHCA_ARRAY_MASK], NULL);
  	...
  }
