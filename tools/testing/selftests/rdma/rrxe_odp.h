/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests from and to any memory, for programs about regions that are paged on
 * demand.
 */
#ifndef _RRXE_ODP_H
#define _RRXE_ODP_H

#include "rrxe_pair.h"

#define PAGE 4096UL
#define LAZY_ACCESS (EVERY_ACCESS | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_ON_DEMAND)

enum op { WRITE, READ, SEND, ADD, SWAP, STORE, FLUSH, OPS };

/* A request, and where its data are on both sides. */
struct request {
	enum op op;
	uint8_t *local;
	uint32_t lkey, length, rkey;
	uint8_t *remote;
	uint64_t compare, value;
};

static void recv_into(struct pair *p, uint8_t *at, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)at, length, lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	if (p->srq)
		GONE(ibv_post_srq_recv(p->srq, &wr, &bad));
	else
		GONE(ibv_post_recv(p->qp[1], &wr, &bad));
}

static void request(struct pair *p, const struct request *r)
{
	static const enum ibv_wr_opcode codes[] = {
		[WRITE] = IBV_WR_RDMA_WRITE, [READ] = IBV_WR_RDMA_READ, [SEND] = IBV_WR_SEND,
		[ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD, [SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	struct ibv_sge sge = { (uintptr_t)r->local, r->length, r->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
	};
	uint64_t remote = (uintptr_t)r->remote;
	struct ibv_qp_ex *ex;

	if (r->op == STORE || r->op == FLUSH) {
		ex = MADE(ibv_qp_to_qp_ex(p->qp[0]));
		ibv_wr_start(ex);
		ex->wr_flags = IBV_SEND_SIGNALED;
		if (r->op == STORE)
			ibv_wr_atomic_write(ex, r->rkey, remote, &r->value);
		else
			ibv_wr_flush(ex, r->rkey, remote, r->length, IBV_FLUSH_GLOBAL,
				     IBV_FLUSH_RANGE);
		GONE(ibv_wr_complete(ex));
		return;
	}
	wr.opcode = codes[r->op];
	if (r->op == ADD || r->op == SWAP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = r->rkey;
		wr.wr.atomic.compare_add = r->op == ADD ? r->value : r->compare;
		wr.wr.atomic.swap = r->value;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = r->rkey;
	}
	GONE(ibv_post_send(p->qp[0], &wr, &bad));
}

static enum ibv_wc_status done(struct pair *p, const struct request *r, const char *what)
{
	request(p, r);
	return next_completion(p->cq[0], what).status;
}

static const char *const names[] = {
	"WRITE", "READ", "SEND", "fetch and add", "compare and swap", "atomic write", "FLUSH",
};

#endif
