// SPDX-License-Identifier: GPL-2.0
/*
 * What a child does with the RDMA of its parent, and what the parent then can:
 *
 *	fork_inherit DEVICE ADDRESS opens|abuses|destroys|outlives
 *
 *	opens		the child reads what its parent registered, opens the
 *			device for itself and uses it (B76)
 *	abuses		the child goes on with the parent's queues and closes
 *			its files (B79)
 *	destroys	it also destroys what it inherited
 *	outlives	it goes on while the parent destroys them, and after
 *
 * Exit status: 0 all is well, 10 the child died, 11 something did not work in
 * the child, 12 it did not work in the parent; 2 it could not be set up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fork_device.h"
#include "fork_link.h"

struct both {
	struct link l;
	struct ibv_mr *mr;
	char *buf;
};

static const char *device, *address;
static size_t page;

static void die(const char *what)
{
	fprintf(stderr, "fork_inherit: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static char *two_pages(void)
{
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	memset(p, 0x5a, 2 * page);
	return p;
}

static int connect_both(struct both *b)
{
	if (link_up(&b->l, address))
		return -1;
	b->buf = two_pages();
	b->mr = ibv_reg_mr(b->l.pd, b->buf, 2 * page, LINK_ACCESS);
	return b->mr ? 0 : -1;
}

/* Writes the pattern from the first page to the second one. */
static int move(struct both *b, int pattern)
{
	memset(b->buf, pattern, 64);
	return link_move(&b->l, IBV_WR_RDMA_WRITE, b->mr, b->buf, b->mr, b->buf + page, 64) ||
	       memcmp(b->buf, b->buf + page, 64);
}

static int disconnect_both(struct both *b)
{
	int left = LINK_LEFT(ibv_dereg_mr(b->mr));

	left += link_down(&b->l);
	munmap(b->buf, 2 * page);
	return left;
}

/* What is new has to work, whatever became of the rest. */
static int new_one_works(int pattern)
{
	struct both b;

	if (connect_both(&b) || move(&b, pattern))
		return 12;
	return disconnect_both(&b) ? 12 : 0;
}

static int reap(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		die("fork");
	if (!status)
		return 0;
	fprintf(stderr, "fork_inherit: status of the child: 0x%x\n", status);
	return WIFEXITED(status) ? 11 : 10;
}

static struct ibv_srq *make_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };

	return ibv_create_srq(pd, &init);
}

/* As if there had been no parent. */
static int use_of_its_own(const char *parents)
{
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_srq *srq;

	/* Without protection this is a copy, and with it, it is not there. */
	for (size_t i = 0; i < 2 * page; i++)
		if (parents[i] != 0x5a)
			return 1;
	ctx = open_device(device);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	srq = pd ? make_srq(pd) : NULL;
	if (!srq || new_one_works(0x33))
		return 1;
	return ibv_destroy_srq(srq) || ibv_dealloc_pd(pd) || ibv_close_device(ctx);
}

static int opens(void)
{
	struct ibv_context *ctx = open_device(device);
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_srq *srq = pd ? make_srq(pd) : NULL;
	char *buf = two_pages();
	struct ibv_mr *mr = srq ? ibv_reg_mr(pd, buf, 2 * page, LINK_ACCESS) : NULL;
	pid_t pid;
	int rc;

	if (!mr)
		die(device);
	pid = fork();
	if (pid == 0)
		_exit(use_of_its_own(buf));
	rc = reap(pid);
	if (rc)
		return rc;
	if (new_one_works(0x44))
		return 12;
	return ibv_dereg_mr(mr) || ibv_destroy_srq(srq) || ibv_dealloc_pd(pd) ||
	       ibv_close_device(ctx) ? 12 : 0;
}

/* What these return does not matter; that they do is the point. */
static void go_on(struct both *b)
{
	struct ibv_wc wc[8];

	link_post(&b->l, IBV_WR_RDMA_WRITE, b->mr, b->buf, b->mr, b->buf + page, 64);
	ibv_poll_cq(b->l.cqs[0], 8, wc);
	ibv_req_notify_cq(b->l.cqs[0], 0);
}

static int abuses(int destroy)
{
	struct both b;
	pid_t pid;
	int rc;

	if (connect_both(&b) || move(&b, 0x11))
		die("connection");
	pid = fork();
	if (pid == 0) {
		go_on(&b);
		if (destroy) {
			/* The kernel does not let it, or they go. */
			ibv_destroy_qp(b.l.ends[0]->qp);
			ibv_dereg_mr(b.mr);
			ibv_destroy_cq(b.l.cqs[0]);
		}
		close(b.l.ends[0]->verbs->cmd_fd);
		close(b.l.events[0]->fd);
		_exit(0);
	}
	rc = reap(pid);
	if (rc)
		return rc;
	/*
	 * The child may have used up entries of the shared rings, and it may
	 * have destroyed what it has the file of, so the pair need not work any
	 * more, nor be there.
	 */
	if (disconnect_both(&b) && !destroy)
		return 12;
	return new_one_works(0x22);
}

static int outlives(void)
{
	int to_child[2], to_parent[2];
	struct both b;
	char c = 0;
	pid_t pid;
	int rc;

	if (connect_both(&b) || move(&b, 0x11) || pipe(to_child) || pipe(to_parent))
		die("connection");
	pid = fork();
	if (pid == 0) {
		if (fcntl(to_child[0], F_SETFL, O_NONBLOCK))
			_exit(1);
		go_on(&b);
		if (write(to_parent[1], &c, 1) != 1)
			_exit(1);
		/* Until it is told to end. */
		while (read(to_child[0], &c, 1) < 0)
			go_on(&b);
		go_on(&b);
		_exit(0);
	}
	close(to_parent[1]);
	if (read(to_parent[0], &c, 1) != 1)
		return reap(pid);
	rc = disconnect_both(&b) ? 12 : new_one_works(0x22);
	if (write(to_child[1], &c, 1) != 1)
		die("write");
	return rc ? rc : reap(pid);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: fork_inherit DEVICE ADDRESS CASE\n");
		return 2;
	}
	device = argv[1];
	address = argv[2];
	page = sysconf(_SC_PAGESIZE);
	if (!strcmp(argv[3], "opens"))
		return opens();
	if (!strcmp(argv[3], "abuses"))
		return abuses(0);
	if (!strcmp(argv[3], "destroys"))
		return abuses(1);
	if (!strcmp(argv[3], "outlives"))
		return outlives();
	fprintf(stderr, "fork_inherit: no case %s\n", argv[3]);
	return 2;
}
