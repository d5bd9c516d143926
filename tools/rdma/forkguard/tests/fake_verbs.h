/* SPDX-License-Identifier: GPL-2.0 */
/* As much of libibverbs as the tests need. */
#ifndef _FAKE_VERBS_H
#define _FAKE_VERBS_H

#include <stddef.h>
#include <stdint.h>

struct ibv_mr {
	void *context;
	void *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

int ibv_is_fork_initialized(void);
int ibv_fork_init(void);
int ibv_dontfork_range(void *addr, size_t length);
int ibv_dofork_range(void *addr, size_t length);
struct ibv_mr *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access);
struct ibv_mr *ibv_reg_mr(void *pd, void *addr, size_t length, int access);
int ibv_dereg_mr(struct ibv_mr *mr);

/* For the victim: what must be seen in backtraces. */
void register_field(char *small);

#endif /* _FAKE_VERBS_H */
