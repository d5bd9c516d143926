// SPDX-License-Identifier: GPL-2.0
/*
 * Nonsense in the queues that a RoCE device shares with user space:
 *
 *	rrxe_rings DEVICE GID-INDEX MUTATIONS [SEED]
 *
 * Work requests are written to the mapped queues by hand, most of them with
 * something wrong, and in half of the rounds a thread writes odd numbers to
 * all queues, their heads included, while the device works. The device may
 * answer with errors. It may not touch memory that it was not given, send what
 * is not the program's, report what is no completion, or cease to work.
 *
 * Exit status: 0 all is well, 1 not.
 */
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <stdatomic.h>

#include "rrxe_fuzz.h"

#define SLOTS 15
#define SGES 4
#define BATCH 8
#define FIELD 8192
#define SEALED 0x5c
/* Of the kernel's own work requests, which are none of a user's business. */
#define KERNEL_REG_MR 0x20

/* A mapped queue, and what its head said when it was new. */
struct ring {
	struct rxe_queue_buf *head;
	size_t size;
	unsigned int stride, mask;
	uint32_t next;
};

enum { RC_A, RC_B, UC_A, UC_B, UD, QPS };

struct world {
	struct ibv_pd *pd;
	struct ibv_cq *cq[2];
	struct ibv_srq *srq;
	struct ibv_qp *qp[QPS];
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ring cqs[2], srqs, sq[QPS], rq[QPS];
	struct ring *all[3 + 2 * QPS];
	int rings;
	uint32_t ah_num;
	/* A thread writes to the rings, and so anything may be in them. */
	int wild;
	atomic_int stop;
};

static struct ibv_context *ctx;
static struct peer self;
static struct field from, to, sealed;
static unsigned long mutations, good, bad, revived, wanted;
static uint64_t seed = 1;

/* What of the device is mapped that has not been seen yet: at most two. */
static int new_maps(struct world *w, struct ring *found)
{
	FILE *maps = MADE(fopen("/proc/self/maps", "r"));
	unsigned long start, end;
	char line[512];
	int n = 0;

	while (fgets(line, sizeof(line), maps)) {
		int known = 0;

		if (!strstr(line, "infiniband/uverbs") ||
		    sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		for (int i = 0; i < w->rings; i++)
			known |= (unsigned long)w->all[i]->head == start;
		if (known)
			continue;
		if (n == 2)
			fail("more queues were mapped than asked for");
		found[n].head = (void *)start;
		found[n].size = end - start;
		found[n].stride = 1u << (found[n].head->log2_elem_size & 31);
		found[n].mask = found[n].head->index_mask;
		found[n].next = found[n].head->producer_index;
		if (sizeof(*found[n].head) + (found[n].mask + 1ul) * found[n].stride >
		    found[n].size)
			fail("the head of a new queue is wrong");
		n++;
	}
	fclose(maps);
	return n;
}

static void learn(struct world *w, struct ring *r, const struct ring *found)
{
	*r = *found;
	w->all[w->rings++] = r;
}

static void learn_one(struct world *w, struct ring *r)
{
	struct ring found[2];

	if (new_maps(w, found) != 1)
		fail("a queue was not mapped");
	learn(w, r, found);
}

static void make_qp(struct world *w, int i, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = w->cq[0],
		.recv_cq = w->cq[1],
		.srq = srq,
		.qp_type = type,
		.cap = {
			.max_send_wr = SLOTS,
			.max_recv_wr = srq ? 0 : SLOTS,
			.max_send_sge = SGES,
			.max_recv_sge = srq ? 0 : SGES,
		},
	};
	struct ring found[2];
	int n, sq;

	w->qp[i] = MADE(ibv_create_qp(w->pd, &init));
	n = new_maps(w, found);
	if (n != (srq ? 1 : 2))
		fail("%d queues of a queue pair are mapped", n);
	/* What is sent needs more room. */
	sq = n == 2 && found[1].stride > found[0].stride;
	learn(w, &w->sq[i], &found[sq]);
	if (n == 2)
		learn(w, &w->rq[i], &found[!sq]);
}

static int revive(struct world *w, int i)
{
	struct peer peer = self;

	peer.qpn = w->qp[i == UD ? UD : i ^ 1]->qp_num;
	return qp_up(w->qp[i], &peer, 8, 1);
}

/* The number of an address handle is known to the library only: see what it writes. */
static void learn_ah(struct world *w)
{
	struct ibv_send_wr *bad_wr, wr = { .opcode = IBV_WR_SEND };
	const struct rxe_send_wqe *wqe = (const void *)w->sq[UD].head->data;

	wr.wr.ud.ah = w->ah;
	GONE(ibv_post_send(w->qp[UD], &wr, &bad_wr));
	w->ah_num = wqe->wr.wr.ud.ah_num;
	w->sq[UD].next++;
}

static void world_up(struct world *w)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = SLOTS, .max_sge = SGES } };
	struct ibv_ah_attr ah = peer_ah(&self);

	memset(w, 0, sizeof(*w));
	w->pd = MADE(ibv_alloc_pd(ctx));
	for (int i = 0; i < 2; i++) {
		w->cq[i] = MADE(ibv_create_cq(ctx, 127, NULL, NULL, 0));
		learn_one(w, &w->cqs[i]);
	}
	w->srq = MADE(ibv_create_srq(w->pd, &srq));
	learn_one(w, &w->srqs);
	w->ah = MADE(ibv_create_ah(w->pd, &ah));
	w->mw = MADE(ibv_alloc_mw(w->pd, IBV_MW_TYPE_2));
	from.mr = MADE(ibv_reg_mr(w->pd, field_data(&from), from.size, EVERY_ACCESS));
	to.mr = MADE(ibv_reg_mr(w->pd, field_data(&to), to.size, EVERY_ACCESS));
	sealed.mr = MADE(ibv_reg_mr(w->pd, field_data(&sealed), sealed.size, 0));
	make_qp(w, RC_A, IBV_QPT_RC, NULL);
	make_qp(w, RC_B, IBV_QPT_RC, w->srq);
	make_qp(w, UC_A, IBV_QPT_UC, NULL);
	make_qp(w, UC_B, IBV_QPT_UC, w->srq);
	make_qp(w, UD, IBV_QPT_UD, NULL);
	for (int i = 0; i < QPS; i++)
		if (revive(w, i))
			fail("a new queue pair cannot be connected: %s", strerror(errno));
	learn_ah(w);
}

static void world_down(struct world *w)
{
	for (int i = 0; i < QPS; i++)
		GONE(ibv_destroy_qp(w->qp[i]));
	GONE(ibv_dealloc_mw(w->mw));
	GONE(ibv_destroy_ah(w->ah));
	GONE(ibv_destroy_srq(w->srq));
	GONE(ibv_dereg_mr(from.mr));
	GONE(ibv_dereg_mr(to.mr));
	GONE(ibv_dereg_mr(sealed.mr));
	for (int i = 0; i < 2; i++)
		GONE(ibv_destroy_cq(w->cq[i]));
	GONE(ibv_dealloc_pd(w->pd));
}

/* A key of something, the right one more often than not. */
static uint32_t some_key(const struct world *w, const struct field *right)
{
	switch (below(8)) {
	case 0:
		return sealed.mr->rkey;
	case 1:
		return w->mw->rkey;
	case 2:
		return odd_number();
	default:
		return right->mr->rkey;
	}
}

static uint64_t some_address(const struct field *f)
{
	return (uintptr_t)field_data(f) + below(one_in(8) ? 2 * f->size : f->size / 2);
}

static void some_sges(struct rxe_dma_info *dma, struct rxe_sge *sge, const struct world *w,
		      const struct field *f)
{
	dma->num_sge = below(SGES + 1);
	for (unsigned int i = 0; i < dma->num_sge; i++) {
		sge[i].addr = some_address(f);
		sge[i].length = below(one_in(4) ? 2000 : 100);
		sge[i].lkey = some_key(w, f);
		dma->length += sge[i].length;
	}
	dma->resid = dma->length;
}

/* What depends on the operation, which is at first one that there is. */
static void some_operation(struct rxe_send_wr *wr, const struct world *w)
{
	switch (wr->opcode) {
	case IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
	case IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = some_address(&to) & ~(one_in(4) ? 0ull : 7ull);
		wr->wr.atomic.rkey = some_key(w, &to);
		wr->wr.atomic.compare_add = below(4);
		wr->wr.atomic.swap = below(4);
		break;
	case IB_UVERBS_WR_BIND_MW:
		wr->wr.mw.addr = some_address(&to);
		wr->wr.mw.length = below(FIELD);
		wr->wr.mw.mr_lkey = some_key(w, &to);
		wr->wr.mw.mw_rkey = w->mw->rkey;
		wr->wr.mw.rkey = w->mw->rkey ^ below(256);
		wr->wr.mw.access = EVERY_ACCESS;
		break;
	case IB_UVERBS_WR_FLUSH:
		wr->wr.flush.remote_addr = some_address(&to);
		wr->wr.flush.length = below(FIELD);
		wr->wr.flush.rkey = some_key(w, &to);
		wr->wr.flush.type = below(4);
		wr->wr.flush.level = below(3);
		break;
	default:
		wr->wr.rdma.remote_addr = some_address(&to);
		wr->wr.rdma.rkey = some_key(w, &to);
	}
}

static void some_send(uint8_t *image, const struct world *w, int i)
{
	struct rxe_send_wqe *wqe = (void *)image;

	wqe->wr.wr_id = rnd() >> 1;
	wqe->wr.opcode = below(IB_UVERBS_WR_ATOMIC_WRITE + 1);
	wqe->wr.send_flags = IBV_SEND_SIGNALED | below(32);
	wqe->wr.ex.invalidate_rkey = some_key(w, &to);
	if (i == UD) {
		/* Without a number it is as an old library does it. */
		wqe->wr.opcode = IB_UVERBS_WR_SEND + below(2);
		wqe->wr.wr.ud.remote_qpn = w->qp[below(QPS)]->qp_num;
		wqe->wr.wr.ud.remote_qkey = one_in(8) ? odd_number() : QKEY;
		wqe->wr.wr.ud.ah_num = one_in(4) ? below(4) : w->ah_num;
	} else {
		some_operation(&wqe->wr, w);
	}
	if (wqe->wr.send_flags & IBV_SEND_INLINE) {
		wqe->dma.length = below(SGES * sizeof(struct rxe_sge) + 1);
		wqe->dma.resid = wqe->dma.length;
		memset(image + sizeof(*wqe), 0x21, wqe->dma.length);
	} else {
		some_sges(&wqe->dma, (void *)(image + sizeof(*wqe)), w, &from);
	}
}

static void some_recv(uint8_t *image, const struct world *w)
{
	struct rxe_recv_wqe *wqe = (void *)image;

	wqe->wr_id = rnd() >> 1;
	some_sges(&wqe->dma, (void *)(image + sizeof(*wqe)), w, &to);
}

/*
 * An odd number somewhere in so many bytes of entries. Behind the fixed part of
 * an entry to send there may be inline data, which comes back at any alignment.
 * Since leaked() takes two bytes of ones behind a large one for an address of the
 * kernel, no two such bytes are next to each other in there.
 */
static void spoil_word(uint8_t *entries, unsigned int stride, unsigned int from,
		       unsigned int size)
{
	uint64_t value = odd_number();
	unsigned int width = 1u << below(4);
	unsigned int at = from + below(size / width) * width;

	if (at % stride >= sizeof(struct rxe_send_wqe))
		value &= 0xff7fff7fff7fff7full;
	memcpy(entries + at, &value, width);
}

static void spoil(uint8_t *image, unsigned int size)
{
	static const uint32_t opcodes[] = { KERNEL_REG_MR, KERNEL_REG_MR + 1, 0xf0, 0xff, 16, 10 };
	int n = below(4);

	mutations++;
	if (one_in(16)) {
		for (unsigned int i = 0; i < size; i++)
			image[i] = rnd() & 0x7f;
		return;
	}
	/* The fields that say how many and where come last, and are few. */
	if (one_in(4))
		spoil_word(image, size, size / 2, size / 2);
	if (one_in(8) && size > sizeof(struct rxe_send_wqe))
		((struct rxe_send_wqe *)image)->wr.opcode = opcodes[below(ARRAY_SIZE(opcodes))];
	while (n--)
		spoil_word(image, size, 0, size);
}

/* The slot behind the last one, whether or not the device is done with it. */
static void put(struct ring *r, const uint8_t *image)
{
	memcpy(r->head->data + (r->next & r->mask) * r->stride, image, r->stride);
	r->next++;
	__atomic_store_n(&r->head->producer_index, one_in(64) ? odd_number() : r->next & r->mask,
			 __ATOMIC_RELEASE);
}

/* What ibv_post_send() of the library does when the request is in the queue. */
static void doorbell(struct ibv_qp *qp)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send cmd;
	} msg = { .hdr.command = IB_USER_VERBS_CMD_POST_SEND };
	struct ib_uverbs_post_send_resp answer;
	ssize_t n;

	msg.hdr.in_words = sizeof(msg) / 4;
	msg.hdr.out_words = sizeof(answer) / 4;
	msg.cmd.response = (uintptr_t)&answer;
	msg.cmd.qp_handle = qp->handle;
	msg.cmd.wqe_size = sizeof(struct ib_uverbs_send_wr);
	n = write(ctx->cmd_fd, &msg, sizeof(msg));
	if (n < 0 && errno != EINVAL && errno != ENOMEM)
		fail("cannot ring: %s", strerror(errno));
}

static void post_some(struct world *w)
{
	uint8_t image[4096] = { 0 };
	int i = below(QPS);
	struct ring *r = w->rq[i].head ? &w->rq[i] : &w->srqs;

	if (r->stride > sizeof(image) || w->sq[i].stride > sizeof(image))
		fail("entries of %u bytes", w->sq[i].stride);
	some_recv(image, w);
	if (one_in(3))
		spoil(image, r->stride);
	put(r, image);
	memset(image, 0, sizeof(image));
	some_send(image, w, i);
	if (!one_in(3))
		spoil(image, w->sq[i].stride);
	put(&w->sq[i], image);
	if (one_in(64))
		w->sq[i].head->consumer_index = odd_number();
	doorbell(w->qp[i]);
}

static void look_at(const struct world *w, const struct ib_uverbs_wc *wc)
{
	int ours = 0;

	for (int i = 0; i < QPS; i++)
		ours |= wc->qp_num == w->qp[i]->qp_num;
	if (!ours || wc->status > IBV_WC_TM_RNDV_INCOMPLETE)
		fail("queue pair 0x%x, status %u in a completion", wc->qp_num, wc->status);
	if (wc->status == IBV_WC_SUCCESS)
		good++;
	else
		bad++;
}

/* All that has come; a queue that somebody writes to is only made empty. */
static void drain(struct world *w)
{
	for (int i = 0; i < 2; i++) {
		struct ring *r = &w->cqs[i];
		uint32_t last = __atomic_load_n(&r->head->producer_index, __ATOMIC_ACQUIRE);

		for (; !w->wild && ((r->next ^ last) & r->mask); r->next++)
			look_at(w, (void *)(r->head->data + (r->next & r->mask) * r->stride));
		__atomic_store_n(&r->head->consumer_index, last, __ATOMIC_RELEASE);
	}
}

static void revive_all(struct world *w)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (int i = 0; i < QPS; i++) {
		GONE(ibv_query_qp(w->qp[i], &attr, IBV_QP_STATE, &init));
		if (attr.qp_state == IBV_QPS_RTS)
			continue;
		/* What it has in its queues when it gets up may fell it again. */
		if (revive(w, i) && errno != EINVAL)
			fail("a queue pair cannot be connected again: %s", strerror(errno));
		w->sq[i].next = w->sq[i].head->producer_index;
		revived++;
	}
}

static void *scribble(void *arg)
{
	struct world *w = arg;

	rnd_state = seed + mutations;
	while (!atomic_load(&w->stop)) {
		struct ring *r = w->all[below(w->rings)];
		uint64_t value = odd_number();

		if (one_in(4))
			memcpy((uint8_t *)r->head + 128 * below(3), &value, 4);
		else
			spoil_word(r->head->data, r->stride, 0, (r->mask + 1) * r->stride);
		if (one_in(32))
			usleep(100);
	}
	return NULL;
}

static void one_world(struct world *w, int wild)
{
	pthread_t thread;

	world_up(w);
	w->wild = wild;
	if (wild && pthread_create(&thread, NULL, scribble, w))
		fail("no thread");
	for (int batch = 0; batch < 64 && mutations < wanted; batch++) {
		for (int i = 0; i < BATCH; i++)
			post_some(w);
		drain(w);
		revive_all(w);
	}
	atomic_store(&w->stop, 1);
	if (wild)
		pthread_join(thread, NULL);
	world_down(w);
	field_check(&from, "source");
	field_check(&to, "destination");
	field_sealed(&sealed, SEALED, "region that nobody may write to");
	leaked(&to);
	leaked(&from);
}

int main(int argc, char **argv)
{
	static struct world w;
	unsigned long worlds = 0;

	fuzz_name = "rrxe_rings";
	if (argc < 4)
		fail("usage: rrxe_rings DEVICE GID-INDEX MUTATIONS [SEED]");
	wanted = strtoul(argv[3], NULL, 0);
	if (argc > 4)
		seed = strtoull(argv[4], NULL, 0);
	rnd_state = seed;
	ctx = open_self(argv[1], argv[2], &self);
	field_init(&from, FIELD, 0x31);
	field_init(&to, FIELD, 0x32);
	field_init(&sealed, FIELD, SEALED);
	while (mutations < wanted) {
		one_world(&w, worlds % 2);
		if (worlds++ % 8 == 0)
			still_works(ctx, &self);
	}
	still_works(ctx, &self);
	printf("%lu mutations in %lu rounds, %lu completions, %lu errors, %lu times up again\n",
	       mutations, worlds, good + bad, bad, revived);
	/* Else the requests were so bad that nothing was tried, or not bad at all. */
	if (!good || !bad)
		fail("not both good and bad requests were seen");
	return 0;
}
