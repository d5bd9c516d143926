// SPDX-License-Identifier: GPL-2.0
/*
 * A libibverbs without devices: it only does to memory what the real one does
 * in fork-safe mode, but without a count for each page.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_verbs.h"

static int protect;

/* What it says need not be what it does. */
int ibv_is_fork_initialized(void)
{
	if (getenv("FAKE_SAYS"))
		return atoi(getenv("FAKE_SAYS"));
	return getenv("FAKE_UNNEEDED") ? 2 : protect;
}

int ibv_fork_init(void)
{
	if (!getenv("FAKE_UNNEEDED"))
		protect = 1;
	return 0;
}

static int mark(void *addr, size_t length, int advice)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(page - 1);

	return protect ? madvise((void *)start, end - start, advice) : 0;
}

#ifndef OLD
int ibv_dontfork_range(void *addr, size_t length)
{
	return mark(addr, length, MADV_DONTFORK);
}

int ibv_dofork_range(void *addr, size_t length)
{
	return mark(addr, length, MADV_DOFORK);
}
#endif

struct ibv_mr *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)iova;
	(void)access;
	if (mark(addr, length, MADV_DONTFORK)) {
		free(mr);
		return NULL;
	}
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	return mr;
}

struct ibv_mr *ibv_reg_mr(void *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	mark(mr->addr, mr->length, MADV_DOFORK);
	free(mr);
	return 0;
}
