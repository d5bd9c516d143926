// SPDX-License-Identifier: GPL-2.0
/*
 * Regions that are paged on demand, each fact as a case of its own:
 *
 *	rrxe_odp DEVICE GID-INDEX CASE
 *
 * Exit status: 0 all is well, 1 not.
 */
#define _GNU_SOURCE
#include "rrxe_odp.h"

#define PAGES 32
#define SIZE (PAGES * PAGE)
#define QP_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL)

/* A region on demand, and what has to be in it. */
struct lazy {
	uint8_t *at, *shadow;
	struct ibv_mr *mr;
};

static void lazy_up(struct lazy *l, struct ibv_pd *pd)
{
	l->at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l->at == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	l->shadow = MADE(calloc(1, SIZE));
	l->mr = MADE(ibv_reg_mr(pd, l->at, SIZE, LAZY_ACCESS));
}

static void lazy_check(const struct lazy *l, const char *what)
{
	for (size_t i = 0; i < SIZE; i++)
		if (l->at[i] != l->shadow[i])
			fail("%s: byte %zu is 0x%02x instead of 0x%02x", what, i, l->at[i],
			     l->shadow[i]);
}

static void lazy_down(struct lazy *l)
{
	GONE(ibv_dereg_mr(l->mr));
	munmap(l->at, SIZE);
	free(l->shadow);
}

/* Some pages go, and have zeros when they come again. */
static void lazy_forget(struct lazy *l)
{
	size_t first = below(PAGES), n = 1 + below(PAGES - first);

	if (madvise(l->at + first * PAGE, n * PAGE, MADV_DONTNEED))
		fail("madvise: %s", strerror(errno));
	memset(l->shadow + first * PAGE, 0, n * PAGE);
}

/* The process writes to some bytes of it. */
static void lazy_touch(struct lazy *l)
{
	size_t first = below(SIZE), n = 1 + below(SIZE - first);

	n = n < 3 * PAGE ? n : 3 * PAGE;
	for (size_t i = first; i < first + n; i++) {
		l->shadow[i] = rnd();
		l->at[i] = l->shadow[i];
	}
}

/* The first queue pair may flush and write atomically, too. */
static void pair_extend(struct pair *p)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = p->cq[0], .recv_cq = p->cq[0], .qp_type = IBV_QPT_RC, .pd = p->pd,
		.cap = {
			.max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE,
	};

	GONE(ibv_destroy_qp(p->qp[0]));
	p->qp[0] = MADE(ibv_create_qp_ex(ctx, &init));
}

static void extended_again(struct pair *p)
{
	struct ibv_qp_attr attr = { .qp_access_flags = QP_ACCESS };

	again(p);
	GONE(ibv_modify_qp(p->qp[1], &attr, IBV_QP_ACCESS_FLAGS));
}

/* What a request does to the memory of both sides. */
static void follow(const struct request *r, struct lazy *l, struct lazy *m)
{
	uint8_t *here = l->shadow + (r->local - l->at), *there = m->shadow + (r->remote - m->at);
	uint64_t word, new = r->value;

	switch (r->op) {
	case WRITE:
	case SEND:
		memcpy(there, here, r->length);
		break;
	case READ:
		memcpy(here, there, r->length);
		break;
	case ADD:
	case SWAP:
		memcpy(&word, there, 8);
		if (r->op == ADD)
			new += word;
		else if (word != r->compare)
			new = word;
		memcpy(there, &new, 8);
		memcpy(here, &word, 8);
		break;
	case STORE:
		memcpy(there, &new, 8);
		break;
	default:
		break;
	}
}

/* Any request between any places; pages are there or not. */
static void some_request(struct pair *p, struct lazy *l, struct lazy *m, enum op op)
{
	size_t from = below(SIZE - 8), to = below(SIZE - 8);
	size_t most = SIZE - (from > to ? from : to);
	struct request r = {
		.op = op, .lkey = l->mr->lkey, .rkey = m->mr->rkey,
		.length = 1 + below(most < 5 * PAGE ? most : 5 * PAGE), .value = rnd(),
	};

	if (op == ADD || op == SWAP || op == STORE) {
		r.length = 8;
		to &= ~7ul;
	}
	r.local = l->at + from;
	r.remote = m->at + to;
	r.compare = rnd();
	if (op == SWAP && one_in(2))
		memcpy(&r.compare, m->shadow + to, 8);
	if (op == SEND)
		recv_into(p, r.remote, r.length, m->mr->lkey);
	expect(done(p, &r, names[op]), IBV_WC_SUCCESS, names[op]);
	if (op == SEND)
		one_completion(p->cq[1], "what was sent");
	follow(&r, l, m);
}

static void rounds_with(struct pair *p, struct lazy *l, struct lazy *m, int n, unsigned int ops)
{
	int count = 0;

	while (count < n) {
		enum op op = below(OPS);

		if (!(ops >> op & 1))
			continue;
		if (one_in(2))
			lazy_forget(l);
		if (one_in(2))
			lazy_forget(m);
		if (one_in(2))
			lazy_touch(one_in(2) ? l : m);
		some_request(p, l, m, op);
		/* To look at all of it makes it available, so that is not done often. */
		if (one_in(8)) {
			lazy_check(l, "this side");
			lazy_check(m, "the other side");
		}
		count++;
	}
	lazy_check(l, "this side");
	lazy_check(m, "the other side");
}

static void rounds(struct pair *p, int n, unsigned int ops)
{
	struct lazy l, m;

	lazy_up(&l, p->pd);
	lazy_up(&m, p->pd);
	rounds_with(p, &l, &m, n, ops);
	lazy_down(&l);
	lazy_down(&m);
}

/* Every operation, at any place, over pages that are not there. */
static void any_access(void)
{
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	pair_extend(&p);
	extended_again(&p);
	for (enum op op = 0; op < OPS; op++)
		rounds(&p, 40, 1u << op);
	rounds(&p, 200, (1u << OPS) - 1);
	pair_down(&p);
}

static int advise(struct pair *p, int advice, int flags, const void *at, size_t n, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)at, n, lkey };

	return ibv_advise_mr(p->pd, advice, flags, &sge, 1);
}

/* A region of all memory, and what it cannot be. */
static struct ibv_mr *all_memory(struct pair *p, int access)
{
	struct ibv_mr *mr = MADE(ibv_reg_mr(p->pd, NULL, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND));

	if (ibv_reg_mr_iova(p->pd, NULL, SIZE_MAX, PAGE, access | IBV_ACCESS_ON_DEMAND))
		fail("a region of all memory with addresses of its own");
	return mr;
}

/*
 * All memory there is and that is yet to come. What is accessed is where the
 * driver begins another piece of the address space, and other places.
 */
static void all_of_it(void)
{
	const size_t piece = 64ul << 20;
	struct request r = { .op = WRITE, .length = 3 * PAGE };
	struct ibv_mr *read;
	struct lazy l, m;
	struct pair p;
	uint8_t *map;

	pair_up(&p, IBV_QPT_RC, 0);
	pair_extend(&p);
	extended_again(&p);
	l.mr = all_memory(&p, LAZY_ACCESS);
	m.mr = l.mr;
	read = all_memory(&p, IBV_ACCESS_REMOTE_READ);
	map = mmap(NULL, 3 * piece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m.at = (uint8_t *)(((uintptr_t)map + piece) & ~(piece - 1)) - SIZE / 2;
	l.at = mmap(m.at + piece - 7 * PAGE, SIZE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	mmap(m.at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	l.shadow = MADE(calloc(1, SIZE));
	m.shadow = MADE(calloc(1, SIZE));
	rounds_with(&p, &l, &m, 200, (1u << OPS) - 1);

	/* Where there is nothing, there is nothing; not even at the ends of all. */
	r.local = field_data(&p.here);
	r.lkey = p.here.mr->lkey;
	for (int i = 0; i < 5; i++) {
		uint8_t *const bad[] = {
			NULL, (void *)(-4 * PAGE), (void *)(1ul << 47), m.at + SIZE - PAGE, m.at,
		};

		/* The last one may not be written by this key. */
		r.rkey = i == 4 ? read->rkey : m.mr->rkey;
		r.remote = bad[i];
		expect(done(&p, &r, "no memory"), IBV_WC_REM_ACCESS_ERR, "no memory");
		extended_again(&p);
	}
	/* Then there is something. */
	mmap(m.at + SIZE, 2 * PAGE, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	r.rkey = m.mr->rkey;
	r.remote = m.at + SIZE - PAGE;
	expect(done(&p, &r, "new memory"), IBV_WC_SUCCESS, "memory that was mapped later");
	if (memcmp(r.remote, r.local, r.length))
		fail("memory that was mapped later has other data");
	GONE(advise(&p, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, m.at, SIZE,
		    m.mr->lkey));
	GONE(ibv_dereg_mr(read));
	GONE(ibv_dereg_mr(m.mr));
	munmap(map, 3 * piece);
	pair_down(&p);
}

/* Buffers of a shared receive queue. */
static void shared(void)
{
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 1);
	rounds(&p, 100, 1u << SEND);
	pair_down(&p);
}

/* Datagrams: the header that is in front of them crosses a page, too. */
static void datagrams(void)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_SEND, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_ah_attr attr = peer_ah(&self);
	struct lazy l, m;
	struct pair p;

	pair_up(&p, IBV_QPT_UD, 0);
	lazy_up(&l, p.pd);
	lazy_up(&m, p.pd);
	wr.wr.ud.ah = MADE(ibv_create_ah(p.pd, &attr));
	wr.wr.ud.remote_qpn = p.qp[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	for (int i = 0; i < 100; i++) {
		size_t from = below(SIZE - 1024), to = (1 + below(PAGES - 2)) * PAGE - below(60);
		struct ibv_sge sge = { (uintptr_t)l.at + from, 1 + below(1000), l.mr->lkey };

		lazy_touch(&l);
		lazy_forget(&l);
		lazy_forget(&m);
		recv_into(&p, m.at + to, 40 + sge.length, m.mr->lkey);
		wr.sg_list = &sge;
		GONE(ibv_post_send(p.qp[0], &wr, &bad));
		one_completion(p.cq[0], "a datagram is sent");
		one_completion(p.cq[1], "a datagram");
		if (memcmp(m.at + to + 40, l.shadow + from, sge.length))
			fail("a datagram has other data");
	}
	GONE(ibv_destroy_ah(wr.wr.ud.ah));
	lazy_down(&l);
	lazy_down(&m);
	pair_down(&p);
}

/* The last byte of more than 4 GiB. */
static void large(void)
{
	size_t size = (4ul << 30) + 3 * PAGE;
	struct request r = { .op = WRITE, .length = FIELD };
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr;
	struct pair p;

	if (at == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	pair_up(&p, IBV_QPT_RC, 0);
	mr = MADE(ibv_reg_mr(p.pd, at, size - 1, LAZY_ACCESS));
	r.local = field_data(&p.here);
	r.lkey = p.here.mr->lkey;
	r.rkey = mr->rkey;
	r.remote = at + size - 1 - FIELD;
	expect(done(&p, &r, "the end"), IBV_WC_SUCCESS, "a write to the end");
	if (!same(r.remote, FIELD, 0x31) || at[size - 1])
		fail("the end has other data");
	r.remote++;
	expect(done(&p, &r, "beyond the end"), IBV_WC_REM_ACCESS_ERR, "a write beyond the end");
	GONE(ibv_dereg_mr(mr));
	munmap(at, size);
	again(&p);
	pair_down(&p);
}

static int present(const uint8_t *at, size_t n)
{
	unsigned char vec[PAGES];
	int count = 0;

	if (mincore((void *)at, n * PAGE, vec))
		fail("mincore: %s", strerror(errno));
	for (size_t i = 0; i < n; i++)
		count += vec[i] & 1;
	return count;
}

static const int kinds[] = {
	IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
};

/* What advice is followed, and that it is: pages are there then, or not. */
static void advice_followed(struct pair *p)
{
	for (int i = 0; i < 6; i++) {
		int advice = kinds[i / 2], flush = i % 2, want;
		double end = seconds() + 20;
		struct lazy l;

		lazy_up(&l, p->pd);
		want = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT ? 0 : 5;
		/* Four pages and two bytes: six pages but the first. */
		GONE(advise(p, advice, flush ? IBV_ADVISE_MR_FLAG_FLUSH : 0, l.at + 3 * PAGE - 1,
			    3 * PAGE + 2, l.mr->lkey));
		while (!flush && present(l.at, PAGES) < want && seconds() < end)
			usleep(1000);
		if (!flush && !want)
			usleep(20000);
		if (present(l.at, PAGES) != want || present(l.at + 2 * PAGE, 5) != want)
			fail("advice %d: %d pages instead of %d", advice,
			     present(l.at, PAGES), want);
		lazy_check(&l, "memory that was prefetched");
		lazy_down(&l);
	}
}

/* Advice that is bad is refused, and about what is not there, if it is waited for. */
static void advice(void)
{
	struct ibv_pd *other;
	struct ibv_mr *read;
	struct lazy l, m;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	advice_followed(&p);
	other = MADE(ibv_alloc_pd(ctx));
	lazy_up(&l, p.pd);
	lazy_up(&m, other);
	read = MADE(ibv_reg_mr(p.pd, l.at, SIZE, IBV_ACCESS_ON_DEMAND));
	munmap(l.at + 8 * PAGE, 8 * PAGE);
	for (int flags = 0; flags < 2; flags++) {
		const struct {
			int advice;
			uint8_t *at;
			size_t n;
			uint32_t lkey;
			int rc;
		} bad[] = {
			{ 0, l.at, PAGE, l.mr->lkey ^ 0x5a, ENOENT },
			{ 0, l.at, PAGE, 0, ENOENT },
			{ 0, m.at, PAGE, m.mr->lkey, EPERM },
			{ 0, field_data(&p.here), PAGE, p.here.mr->lkey, EINVAL },
			{ 0, l.at - 1, PAGE, l.mr->lkey, EFAULT },
			{ 0, l.at + SIZE - PAGE + 1, PAGE, l.mr->lkey, EFAULT },
			{ 0, (void *)-PAGE, 2 * PAGE, l.mr->lkey, EFAULT },
			{ 1, l.at, PAGE, read->lkey, EPERM },
			{ 17, l.at, PAGE, l.mr->lkey, EOPNOTSUPP },
			{ 0, l.at + 7 * PAGE, 2 * PAGE, l.mr->lkey, flags ? EFAULT : 0 },
			{ 1, l.at + 8 * PAGE, PAGE, l.mr->lkey, flags ? EFAULT : 0 },
			/* What is not there is not prefetched, which is no error. */
			{ 2, l.at + 20 * PAGE, PAGE, l.mr->lkey, 0 },
		};

		for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
			int rc = advise(&p, bad[i].advice, flags, bad[i].at, bad[i].n, bad[i].lkey);

			if (rc != bad[i].rc)
				fail("bad one %u: %s instead of %s", i, strerror(rc),
				     strerror(bad[i].rc));
		}
	}
	if (advise(&p, 0, 2, l.at, PAGE, l.mr->lkey) != EINVAL)
		fail("a flag that means nothing");
	GONE(ibv_dereg_mr(read));
	lazy_down(&l);
	lazy_down(&m);
	GONE(ibv_dealloc_pd(other));
	pair_down(&p);
}

/* Sixteen pages of which the middle is no good. */
static uint8_t *hole_at;
#define HOLE_PAGES 16
static const struct hole {
	const char *name;
	int prot, file, readable;
} holes[] = {
	{ "nothing", -1, 0, 0 },
	{ "memory without access", PROT_NONE, 0, 0 },
	{ "memory to read", PROT_READ, 0, 1 },
	{ "what is behind a file", PROT_READ | PROT_WRITE, 1, 0 },
};

static struct ibv_mr *hole_up(struct pair *p, const struct hole *h)
{
	uint8_t *middle;
	int fd = -1;

	hole_at = mmap(NULL, HOLE_PAGES * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	middle = hole_at + 4 * PAGE;
	if (h->prot < 0) {
		munmap(middle, 8 * PAGE);
	} else {
		if (h->file)
			fd = memfd_create("empty", 0);
		mmap(middle, 8 * PAGE, h->prot, MAP_FIXED | MAP_PRIVATE |
		     (h->file ? 0 : MAP_ANONYMOUS), fd, 0);
		if (h->file)
			close(fd);
	}
	return MADE(ibv_reg_mr(p->pd, hole_at, HOLE_PAGES * PAGE, LAZY_ACCESS));
}

/* What there is instead of memory is told to the side that is to blame. */
static void hole_requests(struct pair *p, const struct hole *h, struct ibv_mr *mr)
{
	for (enum op op = 0; op < 2 * OPS; op++) {
		uint8_t *own = field_data(&p->here), *bad = hole_at + 5 * PAGE;
		int remote = op < OPS, reads, good;
		struct request r = {
			.op = op % OPS, .length = op % OPS >= ADD ? 8 : 3 * PAGE,
			.local = remote ? own : bad, .lkey = remote ? p->here.mr->lkey : mr->lkey,
			.remote = remote ? bad : own, .rkey = remote ? mr->rkey : p->here.mr->rkey,
		};
		enum ibv_wc_status wanted = remote ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
		enum ibv_wc_status got;

		/* The bytes of an atomic write are in the request. FLUSH accesses nothing. */
		if (r.op == FLUSH || (r.op == STORE && !remote))
			continue;
		if (r.op == SEND && remote)
			wanted = IBV_WC_REM_OP_ERR;
		reads = remote ? r.op == READ : r.op == WRITE || r.op == SEND;
		good = h->readable && reads;
		if (r.op == SEND)
			recv_into(p, remote ? bad : own, r.length,
				  remote ? mr->lkey : p->here.mr->lkey);
		got = done(p, &r, names[r.op]);
		if (got != (good ? IBV_WC_SUCCESS : wanted))
			fail("%s, %s %s: %s instead of %s", names[r.op], remote ? "to" : "from",
			     h->name, ibv_wc_status_str(got),
			     ibv_wc_status_str(good ? IBV_WC_SUCCESS : wanted));
		if (r.op == SEND && (remote || good))
			expect(next_completion(p->cq[1], "a receive request").status,
			       good ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR, "a receive request");
		extended_again(p);
	}
}

/* B56, B58: memory that cannot be had, and afterwards all can be unmapped. */
static void no_memory(void)
{
	struct request r = { .op = WRITE, .length = 6 * PAGE };
	struct ibv_mr *mr;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	pair_extend(&p);
	extended_again(&p);
	for (unsigned int i = 0; i < ARRAY_SIZE(holes); i++) {
		mr = hole_up(&p, &holes[i]);
		hole_requests(&p, &holes[i], mr);
		/* It begins well. */
		r.local = field_data(&p.here);
		r.lkey = p.here.mr->lkey;
		r.remote = hole_at + PAGE + 9;
		r.rkey = mr->rkey;
		memset(r.local, 0x31, r.length);
		expect(done(&p, &r, "a long write"), IBV_WC_REM_ACCESS_ERR, holes[i].name);
		if (!same(hole_at + PAGE + 9, 2 * PAGE, 0x31))
			fail("what was written in front of it is not there");
		extended_again(&p);
		munmap(hole_at, HOLE_PAGES * PAGE);
		/* Nor is it when the process has given all of it up. */
		expect(done(&p, &r, "a write to nothing"), IBV_WC_REM_ACCESS_ERR,
		       "all is unmapped");
		extended_again(&p);
		GONE(ibv_dereg_mr(mr));
	}
	pair_down(&p);
}

static const struct test_case cases[] = {
	{ "access", any_access, 0 },
	{ "all", all_of_it, 0 },
	{ "shared", shared, 0 },
	{ "datagrams", datagrams, 0 },
	{ "large", large, 0 },
	{ "advice", advice, 0 },
	{ "no-memory", no_memory, 0 },
};

int main(int argc, char **argv)
{
	fuzz_name = "rrxe_odp";
	if (argc != 4)
		fail("usage: rrxe_odp DEVICE GID-INDEX CASE");
	return run_case(cases, ARRAY_SIZE(cases), argv);
}
