/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two queue pairs of a device that are connected to each other, with memory, and
 * a thread that does something else at the same time.
 */
#ifndef _RRXE_PAIR_H
#define _RRXE_PAIR_H

#include <pthread.h>
#include <stdatomic.h>

#include "rrxe_fuzz.h"

#define FIELD 65536
#define DEPTH 64

static struct ibv_context *ctx;
static struct peer self;

/* Two queue pairs that are connected to each other, and memory. */
struct pair {
	struct ibv_pd *pd;
	struct ibv_cq *cq[2];
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
	struct field here, there;
	int timeout, retries;
};

static inline void pair_connect(struct pair *p)
{
	struct peer peer = self;

	for (int i = 0; i < 2; i++) {
		peer.qpn = p->qp[p->qp[0]->qp_type == IBV_QPT_UD ? i : !i]->qp_num;
		GONE(qp_up(p->qp[i], &peer, p->timeout, p->retries));
	}
}

static inline void pair_up(struct pair *p, enum ibv_qp_type type, int with_srq)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.cap = {
			.max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};

	memset(p, 0, sizeof(*p));
	p->timeout = 14;
	p->retries = 7;
	p->pd = MADE(ibv_alloc_pd(ctx));
	if (with_srq)
		p->srq = MADE(ibv_create_srq(p->pd, &srq));
	field_init(&p->here, FIELD, 0x31);
	field_init(&p->there, FIELD, 0x32);
	p->here.mr = MADE(ibv_reg_mr(p->pd, field_data(&p->here), FIELD, EVERY_ACCESS));
	p->there.mr = MADE(ibv_reg_mr(p->pd, field_data(&p->there), FIELD, EVERY_ACCESS));
	for (int i = 0; i < 2; i++) {
		p->cq[i] = MADE(ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0));
		init.send_cq = p->cq[i];
		init.recv_cq = p->cq[i];
		init.srq = i ? p->srq : NULL;
		p->qp[i] = MADE(ibv_create_qp(p->pd, &init));
	}
	pair_connect(p);
}

static inline void pair_down(struct pair *p)
{
	field_check(&p->here, "source");
	field_check(&p->there, "destination");
	for (int i = 0; i < 2; i++) {
		GONE(ibv_destroy_qp(p->qp[i]));
		GONE(ibv_destroy_cq(p->cq[i]));
	}
	if (p->srq)
		GONE(ibv_destroy_srq(p->srq));
	GONE(ibv_dereg_mr(p->here.mr));
	GONE(ibv_dereg_mr(p->there.mr));
	GONE(ibv_dealloc_pd(p->pd));
	munmap(p->here.base, FIELD + 2 * p->here.guard);
	munmap(p->there.base, FIELD + 2 * p->there.guard);
}

static inline uint64_t there(const struct pair *p)
{
	return (uintptr_t)field_data(&p->there);
}

static inline void post_recv(struct pair *p, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = { there(p), length, p->there.mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	if (p->srq)
		GONE(ibv_post_srq_recv(p->srq, &wr, &bad));
	else
		GONE(ibv_post_recv(p->qp[1], &wr, &bad));
}

static inline void post(struct pair *p, enum ibv_wr_opcode opcode, uint64_t wr_id,
			uint64_t addr, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)field_data(&p->here), length, p->here.mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	GONE(ibv_post_send(p->qp[0], &wr, &bad));
}

static inline struct ibv_wc bind_mw(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr,
				    uint64_t addr, uint64_t length, unsigned int access)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = {
				.mr = mr, .addr = addr, .length = length,
				.mw_access_flags = access,
			},
		},
	};
	struct ibv_wc wc;

	GONE(ibv_post_send(p->qp[1], &wr, &bad));
	wc = next_completion(p->cq[1], "a window");
	if (wc.status == IBV_WC_SUCCESS)
		mw->rkey = wr.bind_mw.rkey;
	return wc;
}

static inline void empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static inline void expect(enum ibv_wc_status got, enum ibv_wc_status wanted, const char *what)
{
	if (got != wanted)
		fail("%s: %s instead of %s", what, ibv_wc_status_str(got),
		     ibv_wc_status_str(wanted));
}

static inline void again(struct pair *p)
{
	pair_connect(p);
	empty(p->cq[0]);
	empty(p->cq[1]);
}

/* What a second thread does all the time, and how often it did. */
struct racer {
	pthread_t thread;
	struct pair *p;
	atomic_uint rkey;
	atomic_int stop, dead;
	unsigned long done;
};

static inline void race(struct racer *r, void *(*run)(void *))
{
	if (pthread_create(&r->thread, NULL, run, r))
		fail("no thread");
}

static inline void race_ends(struct racer *r)
{
	atomic_store(&r->stop, 1);
	pthread_join(r->thread, NULL);
}

struct test_case {
	const char *name;
	void (*run)(void);
	/* The device is not there any more behind it. */
	int last;
};

/* Runs a case: the arguments are the device, the index of a GID and its name. */
static inline int run_case(const struct test_case *cases, size_t count, char **argv)
{
	ctx = open_self(argv[1], argv[2], &self);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(cases[i].name, argv[3]))
			continue;
		cases[i].run();
		if (!cases[i].last)
			still_works(ctx, &self);
		return 0;
	}
	fail("there is no case %s", argv[3]);
}

#endif
