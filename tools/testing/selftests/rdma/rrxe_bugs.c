// SPDX-License-Identifier: GPL-2.0
/*
 * Faults that RoCE drivers have had, each as a case of its own:
 *
 *	rrxe_bugs DEVICE GID-INDEX CASE
 *
 * Names of cases are those of Documentation/infiniband/rrxe-bugs.rst. Exit
 * status: 0 all is well, 1 not.
 */
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>

#include "rrxe_pair.h"

/* Where nobody is. */
#define NO_QPN 0xbad0

/* B04: ranges at both ends of a region, and those that wrap. */
static void ranges(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	static const uint32_t lengths[] = { 1, 8, 0x400, 0x2000, FIELD };
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(ops) * ARRAY_SIZE(lengths) * 11; i++) {
		uint32_t n = lengths[i / 11 % ARRAY_SIZE(lengths)];
		const uint64_t starts[] = {
			there(&p), there(&p) - 1, there(&p) - n, there(&p) + FIELD - n,
			there(&p) + FIELD - n + 1, there(&p) + FIELD - 1, there(&p) + FIELD,
			0, -1ull, -(uint64_t)n, -(uint64_t)n - 1,
		};
		uint64_t at = starts[i % 11];
		int inside = at >= there(&p) && at - there(&p) <= FIELD - n;
		struct ibv_wc wc;

		post(&p, ops[i / 11 / ARRAY_SIZE(lengths)], i, at, p.there.mr->rkey, n);
		wc = next_completion(p.cq[0], "a range");
		expect(wc.status, inside ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR, "a range");
		if (!inside)
			again(&p);
	}
	pair_down(&p);
}

/* B06: windows that wrap or go beyond the region. */
static void windows(void)
{
	struct ibv_mw *mw;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	mw = MADE(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	for (int i = 0; i < 6; i++) {
		const uint64_t bad[][2] = {
			{ -0x1000ull, 0x1000 }, { -0x1000ull, 0x2000 }, { there(&p), -1ull },
			{ there(&p) + 1, FIELD }, { there(&p) - 1, 2 },
			{ there(&p) + 8, -there(&p) },
		};
		struct ibv_wc wc = bind_mw(&p, mw, p.there.mr, bad[i][0], bad[i][1],
					IBV_ACCESS_REMOTE_WRITE);

		expect(wc.status, IBV_WC_MW_BIND_ERR, "a window that is too large");
		again(&p);
	}
	expect(bind_mw(&p, mw, p.there.mr, there(&p), FIELD, IBV_ACCESS_REMOTE_WRITE).status,
	       IBV_WC_SUCCESS, "a window");
	GONE(ibv_dealloc_mw(mw));
	pair_down(&p);
}

/* B45: rights that the region does not have, and bits that mean nothing. */
static void window_rights(void)
{
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct pair p;
	double start;

	pair_up(&p, IBV_QPT_RC, 0);
	mw = MADE(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	mr = MADE(ibv_reg_mr(p.pd, field_data(&p.here), FIELD, IBV_ACCESS_MW_BIND));
	expect(bind_mw(&p, mw, mr, (uintptr_t)mr->addr, FIELD, IBV_ACCESS_REMOTE_WRITE).status,
	       IBV_WC_MW_BIND_ERR, "a window to write to, of a region that is read");
	again(&p);
	if (bind_mw(&p, mw, p.there.mr, there(&p), FIELD, 1u << 18).status == IBV_WC_SUCCESS)
		fail("a window has rights that there are not");
	again(&p);
	start = seconds();
	GONE(ibv_dealloc_mw(mw));
	GONE(ibv_dereg_mr(mr));
	if (seconds() - start > 10)
		fail("what was refused is still held");
	pair_down(&p);
}

/* Writes through the window, as long as nobody says that the connection is broken. */
static void *write_through(void *arg)
{
	struct racer *r = arg;

	while (!atomic_load(&r->stop)) {
		if (atomic_load(&r->dead)) {
			sched_yield();
			continue;
		}
		post(r->p, IBV_WR_RDMA_WRITE, 0, there(r->p), atomic_load(&r->rkey), 4096);
		if (next_completion(r->p->cq[0], "a write").status == IBV_WC_SUCCESS)
			r->done++;
		else
			atomic_store(&r->dead, 1);
	}
	return NULL;
}

/* B12: a window that comes and goes, and its region, under those that write to it. */
static void window_races(void)
{
	struct racer r = { 0 };
	struct pair p;
	int refused = 0;

	pair_up(&p, IBV_QPT_RC, 0);
	r.p = &p;
	atomic_store(&r.dead, 1);
	race(&r, write_through);
	for (int i = 0; i < 200; i++) {
		struct ibv_mr *mr = MADE(ibv_reg_mr(p.pd, field_data(&p.there), FIELD,
						    EVERY_ACCESS));
		struct ibv_mw *mw = MADE(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));

		/* Nobody writes while it is connected again. */
		while (!atomic_load(&r.dead))
			sched_yield();
		again(&p);
		expect(bind_mw(&p, mw, mr, there(&p), FIELD, IBV_ACCESS_REMOTE_WRITE).status,
		       IBV_WC_SUCCESS, "a window");
		atomic_store(&r.rkey, mw->rkey);
		atomic_store(&r.dead, 0);
		usleep(below(300));
		/* A region whose window is bound stays. */
		if (ibv_dereg_mr(mr))
			refused++;
		else
			fail("a region went away below its window");
		GONE(ibv_dealloc_mw(mw));
		while (!atomic_load(&r.dead))
			sched_yield();
		GONE(ibv_dereg_mr(mr));
	}
	race_ends(&r);
	printf("%lu writes, %d windows\n", r.done, refused);
	if (!r.done)
		fail("nothing was written");
	pair_down(&p);
}

static void *read_much(void *arg)
{
	struct racer *r = arg;

	while (!atomic_load(&r->stop)) {
		post(r->p, IBV_WR_RDMA_READ, 0, there(r->p), r->p->there.mr->rkey, FIELD);
		expect(next_completion(r->p->cq[0], "a READ").status, IBV_WC_SUCCESS, "a READ");
		r->done++;
	}
	return NULL;
}

/* B13: how many READs there may be changes while they are answered. */
static void read_limits(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct racer r = { 0 };
	struct pair p;
	int changed = 0;

	pair_up(&p, IBV_QPT_RC, 0);
	GONE(ibv_modify_qp(p.qp[1], &attr, IBV_QP_STATE));
	r.p = &p;
	race(&r, read_much);
	for (int i = 0; i < 500; i++) {
		attr.max_dest_rd_atomic = 4 + below(12);
		changed += !ibv_modify_qp(p.qp[1], &attr, IBV_QP_MAX_DEST_RD_ATOMIC);
		usleep(below(200));
	}
	race_ends(&r);
	printf("%lu READs, %d changes\n", r.done, changed);
	if (!r.done)
		fail("nothing was read");
	pair_down(&p);
}

/* Maps what may be a queue at any moment, and looks at it. */
static void *map_queues(void *arg)
{
	struct racer *r = arg;
	size_t page = sysconf(_SC_PAGESIZE);
	unsigned char sum = 0, *map;

	rnd_state = 7;
	while (!atomic_load(&r->stop)) {
		/* Places are given out one behind the other. */
		off_t at = (off_t)below(4096) * page;

		map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->cmd_fd, at);
		if (map == MAP_FAILED)
			continue;
		for (size_t i = 0; i < page; i += 64)
			sum += __atomic_load_n(&map[i], __ATOMIC_RELAXED);
		r->done++;
		munmap(map, page);
	}
	return (void *)(uintptr_t)sum;
}

/* B15: queues are mapped while they go away. */
static void map_races(void)
{
	struct racer r = { 0 };
	int made = 0;

	race(&r, map_queues);
	for (int i = 0; i < 1500; i++) {
		/* The other thread may have taken its place: then there is none. */
		struct ibv_cq *cq = ibv_create_cq(ctx, 1 + below(64), NULL, NULL, 0);

		made += !!cq;
		if (cq)
			GONE(ibv_destroy_cq(cq));
	}
	race_ends(&r);
	printf("%d queues, %lu mapped by the other thread\n", made, r.done);
}

/* B20: queue pairs go away with all that they were told to do. */
static void destroy_busy(void)
{
	for (int i = 0; i < 150; i++) {
		struct pair p;

		pair_up(&p, IBV_QPT_RC, 0);
		for (int n = 0; n < DEPTH / 2; n++)
			post(&p, n % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, n, there(&p),
			     p.there.mr->rkey, 1 + below(FIELD));
		if (one_in(2))
			usleep(below(500));
		pair_down(&p);
	}
}

/* B21: they go away when their timers fire, since nobody answers. */
static void destroy_in_time(void)
{
	struct peer nobody = self;

	nobody.qpn = NO_QPN;
	for (int i = 0; i < 300; i++) {
		struct pair p;

		pair_up(&p, IBV_QPT_RC, 0);
		GONE(qp_up(p.qp[0], &nobody, 1 + below(8), 7));
		post(&p, IBV_WR_RDMA_WRITE, 0, there(&p), p.there.mr->rkey, 64);
		usleep(below(1200));
		pair_down(&p);
	}
}

/* B24: a shared receive queue that cannot become larger stays as it is. */
static void srq_stays(void)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_modify_srq cmd;
		uint64_t mmap_info;
	} msg = { .hdr.command = IB_USER_VERBS_CMD_MODIFY_SRQ };
	struct ibv_wc wc;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 1);
	msg.hdr.in_words = sizeof(msg) / 4;
	msg.cmd.srq_handle = p.srq->handle;
	msg.cmd.attr_mask = IBV_SRQ_MAX_WR;
	msg.cmd.max_wr = 2 * DEPTH;
	/* Where nothing is mapped. */
	msg.mmap_info = 8;
	for (int i = 0; i < 2; i++)
		if (write(ctx->cmd_fd, &msg, sizeof(msg)) >= 0 || errno != EFAULT)
			fail("another size with an answer to nowhere: %s", strerror(errno));
	post_recv(&p, 11, 1024);
	post(&p, IBV_WR_SEND, 12, 0, 0, 1000);
	wc = one_completion(p.cq[1], "a message");
	if (wc.wr_id != 11 || wc.byte_len != 1000)
		fail("the message is of %u bytes", wc.byte_len);
	pair_down(&p);
}

/* B46: a datagram that is too long leaves the receive request to the next one. */
static void long_datagram(void)
{
	struct ibv_sge sge = { 0 };
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_ah_attr attr = peer_ah(&self);
	struct ibv_wc wc;
	struct pair p;

	pair_up(&p, IBV_QPT_UD, 0);
	wr.wr.ud.ah = MADE(ibv_create_ah(p.pd, &attr));
	wr.wr.ud.remote_qpn = p.qp[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	sge.addr = (uintptr_t)field_data(&p.here);
	sge.lkey = p.here.mr->lkey;
	post_recv(&p, 11, 500);
	for (int i = 0; i < 2; i++) {
		sge.length = i ? 100 : 1000;
		GONE(ibv_post_send(p.qp[0], &wr, &bad));
		one_completion(p.cq[0], "a datagram is sent");
	}
	wc = one_completion(p.cq[1], "the short datagram");
	if (wc.wr_id != 11 || wc.byte_len != 140)
		fail("a datagram of %u bytes", wc.byte_len);
	GONE(ibv_destroy_ah(wr.wr.ud.ah));
	pair_down(&p);
}

/* B48: the peer is dead; each request says so, in order, and none that it was done. */
static void dead_peer(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	p.timeout = 8;
	p.retries = 1;
	pair_connect(&p);
	GONE(ibv_modify_qp(p.qp[1], &attr, IBV_QP_STATE));
	for (int i = 0; i < DEPTH; i++)
		post(&p, IBV_WR_RDMA_WRITE, i, there(&p), p.there.mr->rkey, 100);
	for (int i = 0; i < DEPTH; i++) {
		struct ibv_wc wc = next_completion(p.cq[0], "a request to nobody");

		if (wc.wr_id != (unsigned int)i)
			fail("request %llu is number %d", (unsigned long long)wc.wr_id, i);
		expect(wc.status, i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR, "a request");
	}
	pair_down(&p);
}

/* B49: the end of a queue pair with a shared receive queue is announced, once. */
static void last_wqe(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	int flags, seen = 0;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 1);
	flags = fcntl(ctx->async_fd, F_GETFL);
	fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK);
	for (int i = 0; i < 2; i++)
		GONE(ibv_modify_qp(p.qp[1], &attr, IBV_QP_STATE));
	for (int i = 0; i < 50; i++) {
		while (!ibv_get_async_event(ctx, &event)) {
			seen += event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED &&
				event.element.qp == p.qp[1];
			ibv_ack_async_event(&event);
		}
		usleep(10000);
	}
	fcntl(ctx->async_fd, F_SETFL, flags);
	if (seen != 1)
		fail("%d events", seen);
	pair_down(&p);
}

/* R01: prefetch is refused for a region that is there anyway. */
static void prefetch(void)
{
	struct ibv_sge sge;
	struct pair p;
	int rc;

	pair_up(&p, IBV_QPT_RC, 0);
	sge = (struct ibv_sge){ there(&p), 4096, p.there.mr->lkey };
	for (int flags = 0; flags < 2; flags++) {
		rc = ibv_advise_mr(p.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flags, &sge, 1);
		if (rc != EINVAL && rc != EOPNOTSUPP)
			fail("advice about an ordinary region: %s", strerror(rc));
	}
	pair_down(&p);
}

static union ibv_gid group(int number)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 7 } };

	gid.raw[15] = number;
	return gid;
}

/* R12: a queue pair is in a group, and is destroyed; the group goes with it or it stays. */
static void group_left(void)
{
	union ibv_gid gid = group(1);
	struct pair p;

	pair_up(&p, IBV_QPT_UD, 0);
	GONE(ibv_attach_mcast(p.qp[0], &gid, 0));
	if (ibv_destroy_qp(p.qp[0])) {
		GONE(ibv_detach_mcast(p.qp[0], &gid, 0));
		pair_down(&p);
		return;
	}
	fail("a queue pair went away that was in a group");
}

/* B43: groups are joined and left until the device is gone. */
static void join_much(void)
{
	double end = seconds() + 20;
	int joined = 0, rc = 0;
	struct pair p;

	pair_up(&p, IBV_QPT_UD, 0);
	printf("ready\n");
	fflush(stdout);
	while (rc != EIO && seconds() < end) {
		union ibv_gid gid = group(below(4));

		rc = one_in(2) ? ibv_attach_mcast(p.qp[0], &gid, 0) :
				 ibv_detach_mcast(p.qp[0], &gid, 0);
		joined += !rc;
	}
	if (rc != EIO)
		fail("the device did not go");
	printf("%d times joined or left\n", joined);
}

/* B37: holds all that there is while the device goes, and goes on to look at it. */
static void holder(void)
{
	struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(ctx));
	struct ibv_cq *cq = MADE(ibv_create_cq(ctx, 16, NULL, channel, 0));
	struct ibv_wc wc;
	struct pair p;
	char line[16];

	pair_up(&p, IBV_QPT_RC, 1);
	printf("ready\n");
	fflush(stdout);
	if (read(0, line, sizeof(line)) < 0)
		fail("read: %s", strerror(errno));
	/* The queues are still mapped; nothing is in them any more. */
	if (ibv_poll_cq(cq, 1, &wc) < 0 || ibv_poll_cq(p.cq[0], 1, &wc) < 0)
		fail("a queue cannot be looked at");
	/* Refused, in whatever way. */
	if (!ibv_create_cq(ctx, 16, NULL, NULL, 0) && !ibv_alloc_pd(ctx))
		return;
	fail("a device that is gone makes objects");
}

/*
 * From now on the n-th allocation of this thread fails, none with 0. Returns how
 * many were still to come until then; the file stays open, for that is no call
 * that should fail.
 */
static int inject(int n)
{
	static int fd = -1;
	char text[16] = "";

	if (fd < 0)
		fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fd < 0)
		fail("fail-nth cannot be opened: %s", strerror(errno));
	if (pread(fd, text, sizeof(text) - 1, 0) < 0)
		fail("fail-nth cannot be read: %s", strerror(errno));
	dprintf(fd, "%d", n);
	return atoi(text);
}

/* What the verbs whose allocations fail are about. */
static struct pair rc_pair, ud_pair;
static struct ibv_qp_init_attr rc_init, ud_init;
static union ibv_gid some_group;
static int round_number;

static void *make_cq(void)
{
	return ibv_create_cq(ctx, 16, NULL, NULL, 0);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };

	return ibv_create_srq(rc_pair.pd, &srq);
}

static void *make_rc(void)
{
	return ibv_create_qp(rc_pair.pd, &rc_init);
}

static void *make_ud(void)
{
	return ibv_create_qp(ud_pair.pd, &ud_init);
}

static void *make_mr(void)
{
	return ibv_reg_mr(rc_pair.pd, field_data(&rc_pair.here), FIELD, EVERY_ACCESS);
}

static void *make_mw(void)
{
	return ibv_alloc_mw(rc_pair.pd, IBV_MW_TYPE_2);
}

static void *make_ah(void)
{
	struct ibv_ah_attr ah = peer_ah(&self);

	return ibv_create_ah(rc_pair.pd, &ah);
}

static void *make_pd(void)
{
	return ibv_alloc_pd(ctx);
}

/* Those that change something give it back. */
static void *connect_one(void)
{
	struct peer peer = self;

	peer.qpn = rc_pair.qp[1]->qp_num;
	return qp_up(rc_pair.qp[0], &peer, 14, 7) ? NULL : rc_pair.qp[0];
}

static void *resize_cq(void)
{
	return ibv_resize_cq(rc_pair.cq[0], 100 + round_number % 2 * 100) ? NULL : rc_pair.cq[0];
}

static void *resize_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 8 + round_number % 2 * 100 };

	return ibv_modify_srq(rc_pair.srq, &attr, IBV_SRQ_MAX_WR) ? NULL : rc_pair.srq;
}

static void *join_group(void)
{
	return ibv_attach_mcast(ud_pair.qp[0], &some_group, 0) ? NULL : ud_pair.qp[0];
}

static void end_cq(void *it)	{ GONE(ibv_destroy_cq(it)); }
static void end_srq(void *it)	{ GONE(ibv_destroy_srq(it)); }
static void end_qp(void *it)	{ GONE(ibv_destroy_qp(it)); }
static void end_mr(void *it)	{ GONE(ibv_dereg_mr(it)); }
static void end_mw(void *it)	{ GONE(ibv_dealloc_mw(it)); }
static void end_ah(void *it)	{ GONE(ibv_destroy_ah(it)); }
static void end_pd(void *it)	{ GONE(ibv_dealloc_pd(it)); }
static void leave_group(void *it)	{ GONE(ibv_detach_mcast(it, &some_group, 0)); }
static void stay(void *it)	{ (void)it; }

static const struct {
	const char *name;
	void *(*make)(void);
	void (*end)(void *it);
} verbs[] = {
	{ "CQ", make_cq, end_cq },
	{ "SRQ", make_srq, end_srq },
	{ "RC QP", make_rc, end_qp },
	{ "UD QP", make_ud, end_qp },
	{ "MR", make_mr, end_mr },
	{ "MW", make_mw, end_mw },
	{ "AH", make_ah, end_ah },
	{ "PD", make_pd, end_pd },
	{ "RTS", connect_one, stay },
	{ "CQ size", resize_cq, stay },
	{ "SRQ size", resize_srq, stay },
	{ "group", join_group, leave_group },
};

/* B22: each allocation of each verb fails, one after the other. */
static void allocations(void)
{
	struct ibv_qp_attr attr;

	pair_up(&rc_pair, IBV_QPT_RC, 1);
	pair_up(&ud_pair, IBV_QPT_UD, 0);
	some_group = group(2);
	GONE(ibv_query_qp(rc_pair.qp[0], &attr, IBV_QP_CAP, &rc_init));
	GONE(ibv_query_qp(ud_pair.qp[0], &attr, IBV_QP_CAP, &ud_init));
	for (unsigned int i = 0; i < ARRAY_SIZE(verbs); i++) {
		int failed = 0, left = 0;
		void *made;

		for (round_number = 1; !left; round_number++) {
			inject(round_number);
			made = verbs[i].make();
			/* If some are left, there are not so many. */
			left = inject(0);
			failed += !made;
			if (made)
				verbs[i].end(made);
			if (round_number > 1000)
				fail("%s: there is no end", verbs[i].name);
		}
		if (!failed && i != 7)
			fail("%s: no allocation failed", verbs[i].name);
		printf("%s %d/%d%s", verbs[i].name, failed, round_number - 2,
		       i + 1 < ARRAY_SIZE(verbs) ? ", " : "\n");
	}
	pair_connect(&rc_pair);
	pair_down(&rc_pair);
	pair_down(&ud_pair);
}

static const struct test_case cases[] = {
	{ "ranges", ranges, 0 },
	{ "windows", windows, 0 },
	{ "window-rights", window_rights, 0 },
	{ "window-races", window_races, 0 },
	{ "read-limits", read_limits, 0 },
	{ "map-races", map_races, 0 },
	{ "destroy-busy", destroy_busy, 0 },
	{ "destroy-in-time", destroy_in_time, 0 },
	{ "srq-stays", srq_stays, 0 },
	{ "long-datagram", long_datagram, 0 },
	{ "dead-peer", dead_peer, 0 },
	{ "last-wqe", last_wqe, 0 },
	{ "prefetch", prefetch, 0 },
	{ "group-left", group_left, 0 },
	{ "allocations", allocations, 0 },
	{ "join-much", join_much, 1 },
	{ "holder", holder, 1 },
};

int main(int argc, char **argv)
{
	fuzz_name = "rrxe_bugs";
	if (argc != 4)
		fail("usage: rrxe_bugs DEVICE GID-INDEX CASE");
	return run_case(cases, ARRAY_SIZE(cases), argv);
}
