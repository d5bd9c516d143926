// SPDX-License-Identifier: GPL-2.0
/*
 * What programs do wrong, by name. Exit status: 0 all is well, 10 the child
 * died, 11 refused and the child lives, 12 refused and the child died.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_verbs.h"

static const char *what;
static size_t page;
static int refused;

static int child(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		free(malloc(1000));
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		_exit(2);
	if (status)
		return refused ? 12 : 10;
	return refused ? 11 : 0;
}

static void note(int failed)
{
	if (!failed)
		return;
	if (errno != EINVAL)
		_exit(3);
	refused = 1;
}

void register_field(char *small)
{
	note(!ibv_reg_mr(&page, small + 16, 32, 1));
}

/* The first allocation of a thread is on the page of the arena's state. */
static void *in_thread(void *result)
{
	char *small = malloc(64);
	char *start = (char *)((uintptr_t)small & ~(uintptr_t)(page - 1));

	if ((uintptr_t)start & ((64UL << 20) - 1))
		_exit(4);
	if (!strcmp(what, "field")) {
		register_field(small);
	} else {
		int rc = madvise(start, page, MADV_DONTFORK);

		note(rc);
		if (!rc)
			note(!ibv_reg_mr(&page, small, 64, 1));
	}
	*(int *)result = child();
	return NULL;
}

int main(int argc, char **argv)
{
	int result = 5;
	char *map;
	struct ibv_mr *a, *b;

	if (argc != 2)
		return 2;
	what = argv[1];
	page = sysconf(_SC_PAGESIZE);
	map = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return 2;
	if (strcmp(what, "direct") && ibv_fork_init())
		return 2;

	if (!strcmp(what, "field") || !strcmp(what, "direct")) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, in_thread, &result) ||
		    pthread_join(thread, NULL))
			return 2;
		return result;
	}
	if (!strcmp(what, "aligned")) {
		a = ibv_reg_mr(&page, map, 2 * page, 1);
		result = child();
		return ibv_dereg_mr(a) ? 2 : result;
	}
	if (!strcmp(what, "twice")) {
		/* Two protection domains; the first to go gives the page back. */
		a = ibv_reg_mr(&page, map, page, 1);
		b = ibv_reg_mr(&what, map, page, 1);
		return ibv_dereg_mr(a) || ibv_dereg_mr(b);
	}
	if (!strcmp(what, "together")) {
		/* All of a page, in pieces: the last one completes it. */
		a = ibv_reg_mr(&page, map, page / 2, 1);
		if (!a)
			return 11;
		b = ibv_reg_mr(&page, map + page / 2, page / 2, 1);
		return !b;
	}
	if (!strcmp(what, "stack")) {
		char local[64];

		/* Whoever looks at it does so later, in a child. */
		a = ibv_reg_mr(&page, local, sizeof(local), 1);
		if (!a)
			return errno == EINVAL ? 11 : 3;
		return ibv_dereg_mr(a);
	}
	if (!strcmp(what, "left"))
		return madvise(map + page, page, MADV_DONTFORK) ? 2 : 0;
	if (!strcmp(what, "unmapped"))
		return madvise(map, page, MADV_DONTFORK) || munmap(map, page);
	if (!strcmp(what, "exhaust")) {
		size_t pages = 80000;

		map = mmap(NULL, pages * page, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (map == MAP_FAILED)
			return 2;
		for (size_t i = 0; i < pages; i += 2) {
			if (!ibv_reg_mr(&page, map + i * page, page, 1))
				return errno == ENOMEM || errno == EAGAIN ? 20 : 3;
		}
		return 0;
	}
	return 2;
}
