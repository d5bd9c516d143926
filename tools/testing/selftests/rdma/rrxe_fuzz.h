/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs that send nonsense to a RoCE device share: numbers that are
 * odd more often than not, memory of which they know what may be written to, and
 * a pair of queue pairs that shows whether the device still works.
 */
#ifndef _RRXE_FUZZ_H
#define _RRXE_FUZZ_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fork_device.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define EVERY_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static const char *fuzz_name = "rrxe_fuzz";

/* It cannot be set up, or what was seen is wrong. */
#define fail(...)								\
do {										\
	fprintf(stderr, "%s: ", fuzz_name);					\
	fprintf(stderr, __VA_ARGS__);						\
	fputc('\n', stderr);							\
	exit(1);								\
} while (0)

/* One sequence for each thread; the seed is printed, so that it can be had again. */
static __thread uint64_t rnd_state = 1;

static uint64_t rnd(void)
{
	uint64_t z = rnd_state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static unsigned int below(unsigned int n)
{
	return rnd() % n;
}

static inline int one_in(unsigned int n)
{
	return below(n) == 0;
}

/* Where things go wrong: near powers of two. */
static inline uint64_t odd_number(void)
{
	uint64_t bit = 1ull << below(64);

	switch (below(6)) {
	case 0:
		return below(8);
	case 1:
		return bit;
	case 2:
		return bit - 1;
	case 3:
		return -below(0x2000) & 0xfffeffffffffffffull;
	case 4:
		return rnd() >> below(64) >> 1;
	default:
		return below(0x4000);
	}
}

/*
 * Registered memory between pages that are not, of the same mapping: what the
 * device writes beside the registration is seen.
 */
struct field {
	uint8_t *base;
	size_t guard, size;
	struct ibv_mr *mr;
};

#define GUARD 0x47

static uint8_t *field_data(const struct field *f)
{
	return f->base + f->guard;
}

static void field_init(struct field *f, size_t size, int fill)
{
	f->guard = sysconf(_SC_PAGESIZE);
	f->size = size;
	f->base = mmap(NULL, size + 2 * f->guard, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (f->base == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	memset(f->base, GUARD, size + 2 * f->guard);
	memset(field_data(f), fill, size);
}

static int same(const uint8_t *at, size_t n, uint8_t value)
{
	return !n || (at[0] == value && !memcmp(at, at + 1, n - 1));
}

static void field_check(const struct field *f, const char *what)
{
	if (!same(f->base, f->guard, GUARD) ||
	    !same(field_data(f) + f->size, f->guard, GUARD))
		fail("memory beside the %s was written to", what);
}

/* Nobody may have written to this one at all. */
static inline void field_sealed(const struct field *f, int fill, const char *what)
{
	field_check(f, what);
	if (!same(field_data(f), f->size, fill))
		fail("the %s was written to", what);
}

/* These programs send no bytes of that form, so they came out of the kernel. */
static inline void leaked(const struct field *f)
{
	const uint64_t *word = (const void *)field_data(f);

	for (size_t i = 0; i < f->size / 8; i++)
		if (word[i] >> 47 == 0x1ffff && word[i] + 1)
			fail("an address of the kernel was received: 0x%llx",
			     (unsigned long long)word[i]);
}

/* Where a queue pair sends to. */
struct peer {
	union ibv_gid gid;
	int sgid_index;
	uint32_t qpn;
};

/* The device, and how it is reached, as the command line says. */
static struct ibv_context *open_self(const char *device, const char *gid_index, struct peer *self)
{
	struct ibv_context *ctx = open_device(device);

	self->sgid_index = atoi(gid_index);
	if (!ctx || ibv_query_gid(ctx, 1, self->sgid_index, &self->gid))
		fail("no device %s with GID %s", device, gid_index);
	return ctx;
}

#define QKEY 0x11111111
#define FIRST_PSN 0xfffff0

static struct ibv_ah_attr peer_ah(const struct peer *peer)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = peer->gid, .sgid_index = peer->sgid_index, .hop_limit = 64 },
	};

	return attr;
}

/* From any state to RTS. A PSN near the end of its range, so that it wraps soon. */
static int qp_up(struct ibv_qp *qp, const struct peer *peer, int timeout, int retries)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int connected = qp->qp_type != IBV_QPT_UD;
	int rc = qp->qp_type == IBV_QPT_RC;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		return -1;
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = QKEY;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_REMOTE_ATOMIC;
	if (ibv_modify_qp(qp, &attr, mask | (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY)))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = FIRST_PSN;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.ah_attr = peer_ah(peer);
	mask = IBV_QP_STATE;
	if (connected)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(qp, &attr, mask))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = FIRST_PSN;
	attr.timeout = timeout;
	attr.retry_cnt = retries;
	attr.rnr_retry = 1;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask) ? -1 : 0;
}

/* The kernel says EBUSY as long as an event or a packet of it is being handled. */
#define GONE(call)								\
do {										\
	int rc_, tries_ = 0;							\
										\
	while ((rc_ = (call)) == EBUSY && tries_++ < 1000)			\
		usleep(1000);							\
	if (rc_)								\
		fail(#call ": %s", strerror(rc_ < 0 ? errno : rc_));		\
} while (0)

#define MADE(call)								\
({										\
	__typeof__(call) made_ = (call);					\
										\
	if (!made_)								\
		fail(#call ": %s", strerror(errno));				\
	made_;									\
})

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* The next completion, whatever it says. */
static struct ibv_wc next_completion(struct ibv_cq *cq, const char *what)
{
	double end = seconds() + 60;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0) {
		if (seconds() > end)
			fail("%s: no completion", what);
		sched_yield();
	}
	return wc;
}

/* One completion of a queue, or it fails. */
static struct ibv_wc one_completion(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc = next_completion(cq, what);

	if (wc.status != IBV_WC_SUCCESS)
		fail("%s: %s", what, ibv_wc_status_str(wc.status));
	return wc;
}

/* A message between two new queue pairs of the device, with its data compared. */
static void still_works(struct ibv_context *ctx, const struct peer *self)
{
	enum { SIZE = 3000 };
	struct ibv_pd *pd = MADE(ibv_alloc_pd(ctx));
	struct ibv_cq *cq = MADE(ibv_create_cq(ctx, 4, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp[2];
	struct ibv_send_wr *bad_send, send = { .opcode = IBV_WR_SEND, .num_sge = 1 };
	struct ibv_recv_wr *bad_recv, recv = { .num_sge = 1 };
	struct peer peer = *self;
	struct field f;
	struct ibv_sge sge;

	field_init(&f, 2 * SIZE, 0);
	f.mr = MADE(ibv_reg_mr(pd, field_data(&f), f.size, IBV_ACCESS_LOCAL_WRITE));
	for (int i = 0; i < SIZE; i++)
		field_data(&f)[i] = rnd();
	for (int i = 0; i < 2; i++)
		qp[i] = MADE(ibv_create_qp(pd, &init));
	for (int i = 0; i < 2; i++) {
		peer.qpn = qp[!i]->qp_num;
		GONE(qp_up(qp[i], &peer, 14, 7));
	}
	sge = (struct ibv_sge){ (uintptr_t)field_data(&f) + SIZE, SIZE, f.mr->lkey };
	recv.sg_list = &sge;
	GONE(ibv_post_recv(qp[1], &recv, &bad_recv));
	sge.addr -= SIZE;
	send.sg_list = &sge;
	GONE(ibv_post_send(qp[0], &send, &bad_send));
	one_completion(cq, "a message afterwards");
	one_completion(cq, "a message afterwards");
	if (memcmp(field_data(&f), field_data(&f) + SIZE, SIZE))
		fail("a message afterwards has wrong data");
	field_check(&f, "memory of the message afterwards");
	GONE(ibv_destroy_qp(qp[0]));
	GONE(ibv_destroy_qp(qp[1]));
	GONE(ibv_dereg_mr(f.mr));
	GONE(ibv_destroy_cq(cq));
	GONE(ibv_dealloc_pd(pd));
	munmap(f.base, f.size + 2 * f.guard);
}

#endif
