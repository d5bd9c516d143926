// SPDX-License-Identifier: GPL-2.0
/*
 * What a parent and its child see of registered memory after a fork, in fork-
 * safe mode or not, by the kind of memory:
 *
 *	fork_copy ADDRESS KIND [child-first]
 *
 * The memory is registered but for some bytes at its ends, which share pages
 * with what is registered. Then there is a fork, and
 *
 *	- the child sees all of the memory as it was at the fork, also when the
 *	  device has written to it since, and what it writes itself stays with it;
 *	- what the device writes arrives in the memory of the parent, and what the
 *	  parent writes is what the device reads.
 *
 * The parent is the first one to write after the fork, or the child is.
 *
 * Exit status: 0 all of this is so, 10 the child sees something else, 11 what
 * the device writes does not arrive, 12 the device does not read what the parent
 * wrote, 13 what the child writes arrives in the parent; 2 it could not be set
 * up, 4 there is no such memory here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fork_link.h"

#define FRONT 100
#define BEHIND 28
/* So much of each end is moved; the rest of huge pages is only looked at. */
#define PIECE 12288UL
#define HUGE (2UL << 20)

enum { AT_FORK = 0x11, BY_DEVICE = 0x22, BY_PARENT = 0x33, BY_CHILD = 0x44 };

static size_t page;
static struct link l;
/* Where data come from and where they are looked at. */
static char *own;
static struct ibv_mr *own_mr;

struct memory {
	char *map;
	size_t size;
	/* What is registered, and what is in front of it. */
	size_t front;
	char *start;
	size_t length;
	int access;
	struct ibv_mr *mr;
};

static void die(const char *what)
{
	fprintf(stderr, "fork_copy: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static bool all(const char *p, size_t n, int value)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != value) {
			fprintf(stderr, "fork_copy: 0x%02x instead of 0x%02x, byte %zu of %zu\n",
				p[i] & 0xff, value, i, n);
			return false;
		}
	}
	return true;
}

static size_t piece(const struct memory *m)
{
	return m->length < PIECE ? m->length : PIECE;
}

/* The two ends of what is registered. */
static char *end_of(const struct memory *m, int which)
{
	return which ? m->start + m->length - piece(m) : m->start;
}

/* What the device writes is there, and nothing else has changed. */
static bool arrives(struct memory *m, int before)
{
	size_t n = piece(m);

	memset(own, BY_DEVICE, n);
	for (int i = 0; i < 2; i++)
		if (link_move(&l, IBV_WR_RDMA_WRITE, own_mr, own, m->mr, end_of(m, i), n))
			return false;
	return all(end_of(m, 0), n, BY_DEVICE) && all(end_of(m, 1), n, BY_DEVICE) &&
	       all(m->map, m->start - m->map, before) &&
	       all(m->start + m->length, m->map + m->size - m->start - m->length, before);
}

/* What was written by the processor is what the device sends. */
static bool is_sent(struct memory *m, int value)
{
	size_t n = piece(m);

	memset(m->map, value, m->size);
	for (int i = 0; i < 2; i++) {
		memset(own, 0, n);
		if (link_move(&l, IBV_WR_RDMA_WRITE, m->mr, end_of(m, i), own_mr, own, n) ||
		    !all(own, n, value))
			return false;
	}
	return true;
}

static void tell(int fd)
{
	if (write(fd, "", 1) != 1)
		die("write");
}

/* Whether the other one said something; it does not if it is dead. */
static bool await(int fd)
{
	char c;

	return read(fd, &c, 1) == 1;
}

/* The child: when it is told to, it looks, writes, and says so. */
static int child(const struct memory *m, int told, int says)
{
	bool good;

	await(told);
	good = all(m->map, m->size, AT_FORK);
	memset(m->map, BY_CHILD, m->size);
	tell(says);
	/* Until the parent has looked. */
	await(told);
	good = good && all(m->map, m->size, BY_CHILD);
	return good ? 0 : 1;
}

static int reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		die("waitpid");
	if (!status)
		return 0;
	fprintf(stderr, "fork_copy: status of the child: 0x%x\n", status);
	return 10;
}

static int traffic(struct memory *m, int *was)
{
	bool writable = m->access & IBV_ACCESS_REMOTE_WRITE;

	if (writable && !arrives(m, *was))
		return 11;
	if (!is_sent(m, BY_PARENT))
		return 12;
	*was = BY_PARENT;
	if (writable && !arrives(m, *was))
		return 11;
	return 0;
}

static int fork_and_look(struct memory *m, bool child_first)
{
	int to_child[2], to_parent[2], rc = 0, was = AT_FORK, last;
	pid_t pid;

	if (pipe(to_child) || pipe(to_parent))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		_exit(child(m, to_child[0], to_parent[1]));
	/* Else a child that is dead would not be missed. */
	close(to_parent[1]);
	if (!child_first)
		rc = traffic(m, &was);
	tell(to_child[1]);
	last = m->access & IBV_ACCESS_REMOTE_WRITE && !child_first ? BY_DEVICE : was;
	if (await(to_parent[0]) && !rc &&
	    !(all(m->map, m->start - m->map, was) && all(m->start, piece(m), last)))
		rc = 13;
	if (!rc)
		rc = traffic(m, &was);
	tell(to_child[1]);
	last = reap(pid);
	return last ? last : rc;
}

static int look(struct memory *m, bool child_first)
{
	int rc;

	m->start = m->map + m->front;
	m->length = m->length ? m->length : m->size - m->front - BEHIND;
	memset(m->map, AT_FORK, m->size);
	m->mr = ibv_reg_mr(l.pd, m->start, m->length, m->access);
	if (!m->mr)
		die("ibv_reg_mr");
	rc = fork_and_look(m, child_first);
	if (ibv_dereg_mr(m->mr))
		die("ibv_dereg_mr");
	return rc;
}

static char *map(size_t size, int flags, int fd)
{
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (p != MAP_FAILED)
		return p;
	if (flags & MAP_HUGETLB)
		_exit(4);
	die("mmap");
	return NULL;
}

/* A private mapping of a file, whose own data do not change. */
static int file_private(struct memory *m, bool child_first)
{
	char name[] = "/tmp/fork_copy.XXXXXX", byte;
	int fd = mkstemp(name), rc;

	if (fd < 0 || unlink(name) || ftruncate(fd, m->size))
		die("file");
	m->map = map(m->size, MAP_PRIVATE, fd);
	rc = look(m, child_first);
	if (pread(fd, &byte, 1, FRONT) != 1 || byte)
		rc = rc ? rc : 11;
	return rc;
}

/* Huge pages that nobody asked for by name. */
static int transparent(struct memory *m, bool child_first)
{
	char *p = map(2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	m->map = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	m->size = HUGE;
	if (madvise(m->map, HUGE, MADV_HUGEPAGE))
		_exit(4);
	return look(m, child_first);
}

static int stack(struct memory *m, bool child_first)
{
	char buf[5 * 4096];

	m->map = buf;
	m->size = sizeof(buf);
	return look(m, child_first);
}

/* The control: shared memory, where the child sees what it should not. */
static int shared(struct memory *m, bool child_first)
{
	m->map = map(m->size, MAP_SHARED | MAP_ANONYMOUS, -1);
	return look(m, child_first);
}

/* The control: the device has other memory than the parent. */
static int moved(struct memory *m)
{
	int was = AT_FORK;

	m->map = map(m->size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	m->start = m->map + FRONT;
	m->length = m->size - FRONT - BEHIND;
	m->mr = ibv_reg_mr(l.pd, m->start, m->length, m->access);
	if (!m->mr)
		die("ibv_reg_mr");
	if (mmap(m->map, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) != m->map)
		die("mmap");
	memset(m->map, was, m->size);
	return traffic(m, &was);
}

static int run(const char *kind, bool child_first)
{
	struct memory m = { .size = 5 * page, .front = FRONT, .access = LINK_ACCESS };
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (!strcmp(kind, "file"))
		return file_private(&m, child_first);
	if (!strcmp(kind, "transparent"))
		return transparent(&m, child_first);
	if (!strcmp(kind, "stack"))
		return stack(&m, child_first);
	if (!strcmp(kind, "shared"))
		return shared(&m, child_first);
	if (!strcmp(kind, "moved"))
		return moved(&m);
	if (!strcmp(kind, "moved-read-only")) {
		m.access = 0;
		return moved(&m);
	}
	if (!strcmp(kind, "huge")) {
		flags |= MAP_HUGETLB | (21 << MAP_HUGE_SHIFT);
		m.size = HUGE;
	} else if (!strcmp(kind, "piece")) {
		/* Of one page. */
		m.size = page;
		m.length = 64;
	} else if (!strcmp(kind, "read-only")) {
		/* The device only sends it. */
		m.access = 0;
	} else if (!strcmp(kind, "on-demand")) {
		/*
		 * Whole pages: rdma_rxe of Linux 7.3 puts what arrives for such
		 * a region at the beginning of the page, whatever its offset.
		 */
		m.front = page;
		m.length = 3 * page;
		m.access |= IBV_ACCESS_ON_DEMAND;
	} else if (strcmp(kind, "anonymous")) {
		fprintf(stderr, "fork_copy: no kind %s\n", kind);
		return 2;
	}
	m.map = map(m.size, flags, -1);
	return look(&m, child_first);
}

int main(int argc, char **argv)
{
	int rc;

	if (argc < 3) {
		fprintf(stderr, "usage: fork_copy ADDRESS KIND [child-first]\n");
		return 2;
	}
	page = sysconf(_SC_PAGESIZE);
	if (link_up(&l, argv[1]))
		die("connection");
	own = map(PIECE, MAP_SHARED | MAP_ANONYMOUS, -1);
	own_mr = ibv_reg_mr(l.pd, own, PIECE, LINK_ACCESS);
	if (!own_mr)
		die("ibv_reg_mr");
	rc = run(argv[2], argc > 3);
	if (rc)
		return rc;
	if (ibv_dereg_mr(own_mr) || link_down(&l))
		die("end");
	return 0;
}
