// SPDX-License-Identifier: GPL-2.0
/*
 * Regions that are changed while they are registered, each fact as a case of its
 * own:
 *
 *	rrxe_rereg DEVICE GID-INDEX CASE
 *
 * The library of the device knows nothing of it, so the kernel is asked
 * directly. Exit status: 0 all is well, 1 not.
 */
#include <rdma/ib_user_verbs.h>

#include "rrxe_pair.h"

#define REMOTE_WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* What the region is to be. */
struct change {
	unsigned int flags, access;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
};

/* Returns 0 or the error; the keys of the region are then those that it has. */
static int rereg(struct ibv_mr *mr, const struct change *c)
{
	struct ib_uverbs_rereg_mr_resp resp = { 0 };
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_rereg_mr cmd;
	} msg = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_REREG_MR,
			.in_words = sizeof(msg) / 4, .out_words = sizeof(resp) / 4,
		},
		.cmd = {
			.response = (uintptr_t)&resp, .mr_handle = mr->handle, .flags = c->flags,
			.start = (uintptr_t)c->addr, .length = c->length, .hca_va = c->iova,
			.pd_handle = c->pd ? c->pd->handle : 0, .access_flags = c->access,
		},
	};

	if (write(ctx->cmd_fd, &msg, sizeof(msg)) < 0)
		return errno;
	mr->lkey = resp.lkey;
	mr->rkey = resp.rkey;
	return 0;
}

static void changed(struct ibv_mr *mr, const struct change *c, const char *what)
{
	int rc = rereg(mr, c);

	if (rc)
		fail("%s: %s", what, strerror(rc));
}

/* What becomes of a write to an address by a key. The connection is as before. */
static void try_write(struct pair *p, uint64_t addr, uint32_t rkey, enum ibv_wc_status wanted,
		      const char *what)
{
	enum ibv_wc_status got;

	post(p, IBV_WR_RDMA_WRITE, 0, addr, rkey, FIELD);
	got = next_completion(p->cq[0], what).status;
	expect(got, wanted, what);
	if (got != IBV_WC_SUCCESS)
		again(p);
}

static void try_here(struct pair *p, enum ibv_wc_status wanted, const char *what)
{
	try_write(p, there(p), p->there.mr->rkey, wanted, what);
}

/* Rights come and go; memory that was registered to be read can then be written. */
static void rights(void)
{
	struct change read = {
		.flags = IBV_REREG_MR_CHANGE_ACCESS, .access = IBV_ACCESS_REMOTE_READ,
	};
	struct change write = { .flags = IBV_REREG_MR_CHANGE_ACCESS, .access = REMOTE_WRITE };
	struct pair p;
	uint32_t old;

	pair_up(&p, IBV_QPT_RC, 0);
	old = p.there.mr->rkey;
	changed(p.there.mr, &read, "fewer");
	try_here(&p, IBV_WC_REM_ACCESS_ERR, "a write without the right");
	changed(p.there.mr, &write, "more");
	if (p.there.mr->rkey != old)
		fail("it has another key, though it is the same memory");
	try_here(&p, IBV_WC_SUCCESS, "a write with the right");

	/* This one is pinned to be read, and has to be pinned anew. */
	GONE(ibv_dereg_mr(p.there.mr));
	p.there.mr = MADE(ibv_reg_mr(p.pd, field_data(&p.there), FIELD, IBV_ACCESS_REMOTE_READ));
	old = p.there.mr->rkey;
	try_here(&p, IBV_WC_REM_ACCESS_ERR, "a write to what is read");
	changed(p.there.mr, &write, "memory that was read is written");
	memset(field_data(&p.here), 0x77, FIELD);
	try_here(&p, IBV_WC_SUCCESS, "a write to what was read");
	if (!same(field_data(&p.there), FIELD, 0x77))
		fail("what was written is not there");
	if (p.there.mr->rkey != old)
		try_write(&p, there(&p), old, IBV_WC_REM_ACCESS_ERR, "a write by the old key");
	pair_down(&p);
}

/* Another protection domain, and then the old one may go. */
static void domains(void)
{
	struct change c = { .flags = IBV_REREG_MR_CHANGE_PD };
	struct ibv_pd *pd = MADE(ibv_alloc_pd(ctx));
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	c.pd = pd;
	changed(p.there.mr, &c, "another domain");
	try_here(&p, IBV_WC_REM_ACCESS_ERR, "a write from the old domain");
	if (ibv_dealloc_pd(pd) != EBUSY)
		fail("the domain of a region went away");
	/* With other rights at once. */
	c.flags |= IBV_REREG_MR_CHANGE_ACCESS;
	c.access = REMOTE_WRITE;
	c.pd = p.pd;
	changed(p.there.mr, &c, "the old domain");
	try_here(&p, IBV_WC_SUCCESS, "a write from the old domain again");
	GONE(ibv_dealloc_pd(pd));
	pair_down(&p);
}

/* Other memory, at another address, with each combination of what else changes. */
static void translation(void)
{
	const unsigned int access = REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct field other;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	for (int i = 0; i < 16; i++) {
		struct change c = {
			.flags = IBV_REREG_MR_CHANGE_TRANSLATION | (i & 6),
			.access = access, .pd = p.pd,
			.length = FIELD, .iova = 0x7700000000 + below(1000) * 4096ull,
		};
		uint64_t old_addr = i ? (uint64_t)(uintptr_t)p.there.mr->addr : there(&p);
		uint32_t old = p.there.mr->rkey;

		/* Ordinary and on demand in turn, where rights can be told. */
		if (i & IBV_REREG_MR_CHANGE_ACCESS && i & 8)
			c.access |= IBV_ACCESS_ON_DEMAND;
		field_init(&other, FIELD, 0x32);
		c.addr = field_data(&other);
		changed(p.there.mr, &c, "other memory");
		memset(field_data(&p.here), i, FIELD);
		try_write(&p, c.iova, p.there.mr->rkey, IBV_WC_SUCCESS, "a write to other memory");
		if (!same(field_data(&other), FIELD, i))
			fail("what was written is not in the other memory");
		field_sealed(&p.there, i ? i - 1 : 0x32, "memory that was registered before");
		if (old != p.there.mr->rkey)
			try_write(&p, old_addr, old, IBV_WC_REM_ACCESS_ERR,
				  "a write by the old key");
		munmap(p.there.base, FIELD + 2 * p.there.guard);
		other.mr = p.there.mr;
		p.there = other;
		p.there.mr->addr = (void *)(uintptr_t)c.iova;
	}
	pair_down(&p);
}

/* What fails changes nothing. */
static void failures(void)
{
	const unsigned int trans = IBV_REREG_MR_CHANGE_TRANSLATION;
	const unsigned int access = IBV_REREG_MR_CHANGE_ACCESS;
	char *hole = mmap(NULL, FIELD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	munmap(hole, FIELD);
	for (int i = 0; i < 2; i++) {
		const struct {
			struct change change;
			int error;
		} bad[] = {
			{ { 0 }, EINVAL },
			{ { .flags = 8 }, EOPNOTSUPP },
			{ { .flags = access, .access = IBV_ACCESS_REMOTE_WRITE }, EINVAL },
			{ { .flags = access, .access = IBV_ACCESS_HUGETLB }, EOPNOTSUPP },
			{ { .flags = trans, .addr = hole, .length = 0 }, EINVAL },
			{ { .flags = trans, .addr = hole, .length = 4096, .iova = 1 }, EINVAL },
			{ { .flags = trans, .addr = field_data(&p.here), .length = -8192ull },
			  i ? EOVERFLOW : EINVAL },
			{ { .flags = trans, .addr = field_data(&p.here), .length = 8192,
			    .iova = -4096ull }, EINVAL },
			/* On demand it may come later. */
			{ { .flags = trans, .addr = hole, .length = 4096 }, EFAULT },
		};

		for (unsigned int n = 0; n < ARRAY_SIZE(bad) - i; n++) {
			uint32_t key = p.there.mr->rkey;
			int rc = rereg(p.there.mr, &bad[n].change);

			if (rc != bad[n].error)
				fail("bad change %u: %s instead of %s", n, strerror(rc),
				     strerror(bad[n].error));
			if (p.there.mr->rkey != key)
				fail("bad change %u: another key", n);
			memset(field_data(&p.here), n + 1, FIELD);
			try_here(&p, IBV_WC_SUCCESS, "a write after a bad change");
			if (!same(field_data(&p.there), FIELD, n + 1))
				fail("bad change %u: other memory", n);
		}
		/* And the same with a region on demand. */
		GONE(ibv_dereg_mr(p.there.mr));
		p.there.mr = MADE(ibv_reg_mr(p.pd, field_data(&p.there), FIELD,
					     EVERY_ACCESS | IBV_ACCESS_ON_DEMAND));
	}
	pair_down(&p);
}

/* A region whose window is bound stays as it is. */
static void bound(void)
{
	struct change changes[] = {
		{ .flags = IBV_REREG_MR_CHANGE_ACCESS, .access = EVERY_ACCESS },
		{ .flags = IBV_REREG_MR_CHANGE_PD },
		{ .flags = IBV_REREG_MR_CHANGE_TRANSLATION, .length = FIELD },
	};
	struct ibv_pd *pd = MADE(ibv_alloc_pd(ctx));
	struct ibv_mw *mw;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	changes[1].pd = pd;
	changes[2].addr = field_data(&p.here);
	mw = MADE(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	expect(bind_mw(&p, mw, p.there.mr, there(&p), FIELD, IBV_ACCESS_REMOTE_WRITE).status,
	       IBV_WC_SUCCESS, "a window");
	for (unsigned int i = 0; i < ARRAY_SIZE(changes); i++) {
		if (rereg(p.there.mr, &changes[i]) != EINVAL)
			fail("change %u below a window", i);
		try_write(&p, there(&p), mw->rkey, IBV_WC_SUCCESS, "a write through the window");
		try_here(&p, IBV_WC_SUCCESS, "a write to the region");
	}
	GONE(ibv_dealloc_mw(mw));
	changed(p.there.mr, &changes[0], "without the window");
	/* That it was changed does not keep others from being bound. */
	mw = MADE(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	expect(bind_mw(&p, mw, p.there.mr, there(&p), FIELD, IBV_ACCESS_REMOTE_WRITE).status,
	       IBV_WC_SUCCESS, "another window");
	GONE(ibv_dealloc_mw(mw));
	GONE(ibv_dealloc_pd(pd));
	pair_down(&p);
}

/* Writes to an address by a key for as long as that goes well. */
static void *write_much(void *arg)
{
	struct racer *r = arg;

	while (!atomic_load(&r->stop)) {
		if (atomic_load(&r->dead)) {
			sched_yield();
			continue;
		}
		post(r->p, IBV_WR_RDMA_WRITE, 0, there(r->p), atomic_load(&r->rkey), FIELD);
		if (next_completion(r->p->cq[0], "a write").status == IBV_WC_SUCCESS)
			r->done++;
		else
			atomic_store(&r->dead, 1);
	}
	return NULL;
}

/* Rights that traffic does not need change below it, and it does not notice. */
static void unnoticed(void)
{
	struct racer r = { 0 };
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	r.p = &p;
	atomic_store(&r.rkey, p.there.mr->rkey);
	race(&r, write_much);
	for (int i = 0; i < 300; i++) {
		struct change c = {
			.flags = IBV_REREG_MR_CHANGE_ACCESS,
			.access = i & 1 ? EVERY_ACCESS : REMOTE_WRITE,
		};

		changed(p.there.mr, &c, "rights below traffic");
		if (atomic_load(&r.dead))
			fail("a write failed that had the right all the time");
	}
	race_ends(&r);
	printf("%lu writes during 300 changes\n", r.done);
	if (!r.done)
		fail("nothing was written");
	pair_down(&p);
}

/* A slow machine needs longer until the first write is through. */
static unsigned int slowness(void)
{
	const char *scale = getenv("CQ_SCALE");
	int n = scale ? atoi(scale) : 1;

	return n > 1 ? n : 1;
}

/* When the change is made, what may not be written any more is not written any more. */
static void in_flight(void)
{
	unsigned int most = 3000 * slowness();
	struct racer r = { 0 };
	struct field other;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	field_init(&other, FIELD, 0x32);
	r.p = &p;
	atomic_store(&r.dead, 1);
	race(&r, write_much);
	for (int i = 0; i < 90; i++) {
		struct change c = {
			.addr = field_data(&other), .length = FIELD, .iova = there(&p),
		};
		struct ibv_pd *pd = MADE(ibv_alloc_pd(ctx));
		int kind = i % 3;

		c.flags = 1u << kind;
		c.access = IBV_ACCESS_REMOTE_READ;
		c.pd = pd;
		while (!atomic_load(&r.dead))
			sched_yield();
		again(&p);
		atomic_store(&r.rkey, p.there.mr->rkey);
		atomic_store(&r.dead, 0);
		usleep(below(most));
		changed(p.there.mr, &c, "a region in use");
		memset(field_data(&p.there), 0x55, FIELD);
		/* There will be an error: the key, the right, or the domain is gone. */
		while (!atomic_load(&r.dead))
			sched_yield();
		usleep(below(500));
		field_sealed(&p.there, 0x55, "memory that is given up");
		GONE(ibv_dereg_mr(p.there.mr));
		GONE(ibv_dealloc_pd(pd));
		p.there.mr = MADE(ibv_reg_mr(p.pd, field_data(&p.there), FIELD, EVERY_ACCESS));
	}
	race_ends(&r);
	field_check(&other, "other memory");
	printf("%lu writes during 90 changes\n", r.done);
	if (!r.done)
		fail("nothing was written");
	pair_down(&p);
}

static const struct test_case cases[] = {
	{ "rights", rights, 0 },
	{ "domains", domains, 0 },
	{ "translation", translation, 0 },
	{ "failures", failures, 0 },
	{ "bound", bound, 0 },
	{ "unnoticed", unnoticed, 0 },
	{ "in-flight", in_flight, 0 },
};

int main(int argc, char **argv)
{
	fuzz_name = "rrxe_rereg";
	if (argc != 4)
		fail("usage: rrxe_rereg DEVICE GID-INDEX CASE");
	return run_case(cases, ARRAY_SIZE(cases), argv);
}
