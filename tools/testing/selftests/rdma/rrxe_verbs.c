// SPDX-License-Identifier: GPL-2.0
/*
 * Nonsense in the verbs of a RoCE device:
 *
 *	rrxe_verbs DEVICE GID-INDEX CALLS [SEED]
 *
 * Child processes call verbs in any order and with odd attributes, by the
 * library and, in a second thread, by commands of the kernel that are made by
 * hand and know only numbers: so objects are changed and destroyed while others
 * use them. A child ends in one of three ways: it destroys what it has, it just
 * exits, or it is killed at any moment. After that the device has to work.
 *
 * Exit status: 0 all is well, 1 not.
 */
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "rrxe_fuzz.h"

#define SLOTS 8
#define FIELD 16384
#define ROUND 400
#define HAND_MADE 4

enum kind { PD, MR, CQ, SRQ, QP, AH, MW, KINDS };

/* What the library gave us, by kind; NULL if there is nothing. */
static void *objects[KINDS][SLOTS];
static struct ibv_context *ctx;
static struct peer self;
static struct field memory;
static atomic_ulong *calls, *refused, *by_hand;
static atomic_int stop, rounds;

static void count(atomic_ulong *which, int failed)
{
	atomic_fetch_add_explicit(which, 1, memory_order_relaxed);
	if (failed)
		atomic_fetch_add_explicit(refused, 1, memory_order_relaxed);
}

/* One of them, or NULL. */
static void *some(enum kind kind)
{
	for (int i = 0; i < 3; i++) {
		void *found = objects[kind][below(SLOTS)];

		if (found)
			return found;
	}
	return NULL;
}

static void keep(enum kind kind, void *made)
{
	void **slot = &objects[kind][0];

	count(calls, !made);
	while (made && *slot)
		slot++;
	if (made)
		*slot = made;
}

static int has_room(enum kind kind)
{
	for (int i = 0; i < SLOTS; i++)
		if (!objects[kind][i])
			return 1;
	return 0;
}

/* A number that is usual, or one that is not. */
static uint32_t usual(uint32_t most)
{
	return one_in(6) ? odd_number() : below(most + 1);
}

static struct ibv_sge some_sge(void)
{
	struct ibv_mr *mr = some(MR);
	struct ibv_sge sge = {
		.addr = (uintptr_t)field_data(&memory) + usual(FIELD),
		.length = usual(2000),
		.lkey = mr && !one_in(8) ? mr->lkey : odd_number(),
	};

	return sge;
}

static void make_mr(struct ibv_pd *pd)
{
	static const unsigned int access[] = { 0, IBV_ACCESS_LOCAL_WRITE, EVERY_ACCESS };
	void *at = field_data(&memory) + below(FIELD);

	if (one_in(8))
		at = (void *)(uintptr_t)odd_number();
	keep(MR, ibv_reg_mr_iova2(pd, at, usual(FIELD), one_in(2) ? (uintptr_t)at : odd_number(),
				  one_in(4) ? odd_number() : access[below(3)]));
}

static void make_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = usual(64), .max_sge = usual(8), .srq_limit = usual(2) },
	};

	keep(SRQ, ibv_create_srq(pd, &attr));
}

static void make_qp(struct ibv_pd *pd)
{
	static const unsigned int types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_qp_init_attr attr = {
		.send_cq = some(CQ),
		.recv_cq = some(CQ),
		.srq = one_in(3) ? some(SRQ) : NULL,
		.qp_type = one_in(16) ? odd_number() : types[below(3)],
		.sq_sig_all = usual(1),
		.cap = {
			.max_send_wr = usual(64), .max_recv_wr = usual(64),
			.max_send_sge = usual(8), .max_recv_sge = usual(8),
			.max_inline_data = usual(256),
		},
	};

	if (attr.send_cq && attr.recv_cq)
		keep(QP, ibv_create_qp(pd, &attr));
}

static struct ibv_ah_attr some_ah(void)
{
	struct ibv_ah_attr attr = peer_ah(&self);

	if (one_in(4))
		attr.is_global = usual(1);
	if (one_in(4))
		attr.port_num = odd_number();
	if (one_in(4))
		attr.grh.sgid_index = odd_number();
	if (one_in(4))
		attr.grh.dgid.raw[below(16)] = odd_number();
	return attr;
}

static void make(void)
{
	enum kind kind = below(KINDS);
	struct ibv_pd *pd = some(PD);
	struct ibv_ah_attr ah = some_ah();

	if (!has_room(kind))
		return;
	if (kind == PD || !pd) {
		if (has_room(PD))
			keep(PD, ibv_alloc_pd(ctx));
		return;
	}
	switch (kind) {
	case MR:
		make_mr(pd);
		break;
	case CQ:
		keep(CQ, ibv_create_cq(ctx, usual(256), NULL, NULL, usual(1)));
		break;
	case SRQ:
		make_srq(pd);
		break;
	case QP:
		make_qp(pd);
		break;
	case AH:
		keep(AH, ibv_create_ah(pd, &ah));
		break;
	default:
		keep(MW, ibv_alloc_mw(pd, one_in(8) ? odd_number() : 1 + below(2)));
	}
}

static int destroy_it(enum kind kind, void *it)
{
	switch (kind) {
	case PD:
		return ibv_dealloc_pd(it);
	case MR:
		return ibv_dereg_mr(it);
	case CQ:
		return ibv_destroy_cq(it);
	case SRQ:
		return ibv_destroy_srq(it);
	case QP:
		return ibv_destroy_qp(it);
	case AH:
		return ibv_destroy_ah(it);
	default:
		return ibv_dealloc_mw(it);
	}
}

static void destroy(void)
{
	enum kind kind = below(KINDS);
	void **slot = &objects[kind][below(SLOTS)];
	int rc;

	if (!*slot)
		return;
	rc = destroy_it(kind, *slot);
	count(calls, rc);
	if (!rc)
		*slot = NULL;
}

static void modify_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *other = some(QP);
	struct peer peer = self;

	peer.qpn = other && !one_in(4) ? other->qp_num : odd_number();
	/* One that works, as often as not: else nothing would ever be sent. */
	if (one_in(2)) {
		count(calls, qp_up(qp, &peer, usual(14), usual(7)));
		return;
	}
	for (size_t i = 0; i < sizeof(attr); i++)
		((uint8_t *)&attr)[i] = one_in(2) ? 0 : odd_number();
	attr.qp_state = usual(IBV_QPS_ERR);
	attr.ah_attr = some_ah();
	count(calls, ibv_modify_qp(qp, &attr, IBV_QP_STATE | odd_number()));
}

static void post(struct ibv_qp *qp)
{
	struct ibv_sge sges[2] = { some_sge(), some_sge() };
	struct ibv_mr *mr = some(MR);
	struct ibv_send_wr *bad_send, send = {
		.opcode = one_in(8) ? odd_number() : below(IBV_WR_SEND_WITH_INV + 1),
		.send_flags = below(32),
		.sg_list = sges,
		.num_sge = below(3),
		.wr.rdma.remote_addr = (uintptr_t)field_data(&memory) + usual(FIELD),
		.wr.rdma.rkey = mr ? mr->rkey : 7,
	};
	struct ibv_recv_wr *bad_recv, recv = { .sg_list = sges, .num_sge = below(3) };

	if (qp->qp_type == IBV_QPT_UD) {
		send.wr.ud.ah = some(AH);
		send.wr.ud.remote_qpn = qp->qp_num;
		send.wr.ud.remote_qkey = QKEY;
		if (!send.wr.ud.ah)
			return;
	}
	if (send.opcode == IBV_WR_BIND_MW) {
		send.bind_mw.mw = some(MW);
		send.bind_mw.rkey = usual(7);
		send.bind_mw.bind_info.mr = mr;
		send.bind_mw.bind_info.addr = send.wr.rdma.remote_addr;
		send.bind_mw.bind_info.length = usual(FIELD);
		send.bind_mw.bind_info.mw_access_flags = usual(EVERY_ACCESS);
		if (!mr || !send.bind_mw.mw)
			return;
	}
	/* The library copies inline data from there, whatever the length is. */
	if (send.send_flags & IBV_SEND_INLINE)
		send.num_sge = 0;
	if (!qp->srq)
		count(calls, ibv_post_recv(qp, &recv, &bad_recv));
	else
		count(calls, ibv_post_srq_recv(qp->srq, &recv, &bad_recv));
	count(calls, ibv_post_send(qp, &send, &bad_send));
}

static void use_cq(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];

	switch (below(4)) {
	case 0:
		count(calls, ibv_resize_cq(cq, usual(256)));
		break;
	case 1:
		count(calls, ibv_req_notify_cq(cq, usual(1)));
		break;
	default:
		count(calls, ibv_poll_cq(cq, 4, wc) < 0);
	}
}

static void use_qp(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	union ibv_gid group = { .raw = { 0xff, 0x0e } };

	switch (below(8)) {
	case 0:
		count(calls, ibv_query_qp(qp, &attr, odd_number(), &init));
		break;
	case 1:
		group.raw[10] = 0xff;
		group.raw[11] = 0xff;
		group.raw[12] = 239;
		group.raw[15] = below(4);
		count(calls, one_in(2) ? ibv_attach_mcast(qp, &group, 0) :
					 ibv_detach_mcast(qp, &group, 0));
		break;
	case 2:
	case 3:
		modify_qp(qp);
		break;
	default:
		post(qp);
	}
}

static void use_mr(struct ibv_mr *mr)
{
	struct ibv_sge sge = some_sge();
	struct ibv_pd *pd = some(PD);

	if (one_in(2) && pd)
		count(calls, ibv_rereg_mr(mr, usual(7), pd, field_data(&memory), usual(FIELD),
					  usual(EVERY_ACCESS)));
	else if (pd)
		count(calls, ibv_advise_mr(pd, usual(2), usual(1), &sge, 1));
}

static void use_srq(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr = { .max_wr = usual(64), .srq_limit = usual(64) };

	count(calls, one_in(2) ? ibv_modify_srq(srq, &attr, usual(3)) :
				 ibv_query_srq(srq, &attr));
}

static void use(void)
{
	void *it;

	switch (below(8)) {
	case 0:
		it = some(CQ);
		if (it)
			use_cq(it);
		break;
	case 1:
		it = some(MR);
		if (it)
			use_mr(it);
		break;
	case 2:
		it = some(SRQ);
		if (it)
			use_srq(it);
		break;
	default:
		it = some(QP);
		if (it)
			use_qp(it);
	}
}

/* A command as it is written to the file; its answer, if any, goes where it does no harm. */
static int raw_command(void *scratch)
{
	uint32_t words[64], n = 2 + below(30);
	struct ib_uverbs_cmd_hdr *hdr = (void *)words;
	uint64_t answer = one_in(8) ? odd_number() : (uintptr_t)scratch;

	for (unsigned int i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = one_in(3) ? odd_number() : below(2 * SLOTS);
	hdr->command = below(IB_USER_VERBS_CMD_OPEN_QP + 1);
	hdr->in_words = one_in(16) ? odd_number() : n;
	hdr->out_words = usual(64);
	memcpy(words + 2, &answer, sizeof(answer));
	if (one_in(4)) {
		hdr->command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		if (one_in(2))
			hdr->command += IB_USER_VERBS_CMD_THRESHOLD - 40;
	}
	return write(ctx->cmd_fd, words, 4 * n) < 0;
}

static int raw_ioctl(void *scratch)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[8];
	} msg;
	unsigned int n = below(8);

	memset(&msg, 0, sizeof(msg));
	msg.hdr.length = sizeof(msg.hdr) + n * sizeof(msg.attrs[0]);
	msg.hdr.object_id = below(20);
	msg.hdr.method_id = below(12);
	msg.hdr.num_attrs = n;
	msg.hdr.driver_id = below(24);
	for (unsigned int i = 0; i < n; i++) {
		msg.attrs[i].attr_id = one_in(4) ? odd_number() : i;
		msg.attrs[i].len = one_in(2) ? 0 : below(one_in(4) ? 64 : 9);
		msg.attrs[i].flags = below(2);
		msg.attrs[i].data = msg.attrs[i].len > 8 ? (uintptr_t)scratch : below(2 * SLOTS);
	}
	return ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &msg) < 0;
}

static void *behind(void *arg)
{
	/* Far from what the device may write to. */
	void *scratch = MADE(malloc(65536));
	int n = 0;

	rnd_state = *(uint64_t *)arg ^ 0x5555;
	while (!atomic_load(&stop)) {
		/* They are quick; do not let them be all that is done. */
		if (n > HAND_MADE * atomic_load(&rounds)) {
			usleep(100);
			continue;
		}
		n++;
		if (one_in(2))
			count(by_hand, raw_command(scratch));
		else
			count(by_hand, raw_ioctl(scratch));
	}
	return NULL;
}

static void child(const char *device, uint64_t seed)
{
	int hand_made = seed % 2;
	pthread_t thread;

	ctx = open_device(device);
	if (!ctx)
		_exit(3);
	rnd_state = seed;
	if (hand_made && pthread_create(&thread, NULL, behind, &seed))
		_exit(3);
	for (int i = 0; i < ROUND; i++) {
		atomic_store(&rounds, i);
		switch (below(8)) {
		case 0:
		case 1:
			make();
			break;
		case 2:
			destroy();
			break;
		default:
			use();
		}
	}
	atomic_store(&stop, 1);
	if (hand_made)
		pthread_join(thread, NULL);
	if (seed % 3)
		_exit(0);
	/* What was destroyed behind the library's back is not there any more. */
	for (int kind = KINDS - 1; kind >= 0; kind--)
		for (int i = 0; i < SLOTS; i++)
			if (objects[kind][i])
				destroy_it(kind, objects[kind][i]);
	_exit(0);
}

/* How it ended: 0, a signal of its own doing (the library believed an odd answer), or ours. */
static int one_child(const char *device, uint64_t seed)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (!pid)
		child(device, seed);
	if (one_in(3)) {
		usleep(below(100000));
		kill(pid, SIGKILL);
	}
	alarm(300);
	if (waitpid(pid, &status, 0) != pid)
		fail("waitpid: %s", strerror(errno));
	alarm(0);
	if (WIFEXITED(status) && WEXITSTATUS(status))
		fail("a child could not be set up");
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int main(int argc, char **argv)
{
	unsigned long wanted, children = 0, killed = 0, crashed = 0;
	uint64_t seed = 1;
	atomic_ulong *shared;

	fuzz_name = "rrxe_verbs";
	if (argc < 4)
		fail("usage: rrxe_verbs DEVICE GID-INDEX CALLS [SEED]");
	wanted = strtoul(argv[3], NULL, 0);
	if (argc > 4)
		seed = strtoull(argv[4], NULL, 0);
	rnd_state = seed;
	ctx = open_self(argv[1], argv[2], &self);
	field_init(&memory, FIELD, 0x31);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	calls = &shared[0];
	refused = &shared[1];
	by_hand = &shared[2];
	while (atomic_load(calls) < wanted) {
		int sig = one_child(argv[1], seed + children);

		killed += sig == SIGKILL;
		crashed += sig && sig != SIGKILL;
		if (children++ % 16 == 0)
			still_works(ctx, &self);
	}
	still_works(ctx, &self);
	printf("%lu calls, %lu more by hand, %lu refused; %lu processes, %lu killed, %lu crashed\n",
	       atomic_load(calls), atomic_load(by_hand), atomic_load(refused), children, killed,
	       crashed);
	if (atomic_load(calls) + atomic_load(by_hand) == atomic_load(refused) ||
	    !atomic_load(refused))
		fail("not both good and bad calls were made");
	return 0;
}
