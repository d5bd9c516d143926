// SPDX-License-Identifier: GPL-2.0
/*
 * To be preloaded: makes libibverbs believe that the kernel does not copy
 * pinned pages at fork, so that it marks memory as it did before it asked.
 */
#include <infiniband/verbs.h>

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_DISABLED;
}
