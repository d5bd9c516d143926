/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs about fork do with a device. */
#ifndef _FORK_DEVICE_H
#define _FORK_DEVICE_H

#include <infiniband/verbs.h>
#include <string.h>

/* The device with that name, or NULL. */
static struct ibv_context *open_device(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *found = NULL;

	for (int i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			found = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return found;
}

#endif
