// SPDX-License-Identifier: GPL-2.0
/*
 * Nonsense on the wire of a RoCE device:
 *
 *	rrxe_wire DEVICE GID-INDEX NETNS IF MAC SRC DST PACKETS [SEED]
 *
 * Packets for queue pairs of the device leave through IF in NETNS, with the
 * source address SRC, as if their peer sent them: requests and answers, of all
 * operations, most of them with something wrong. The queue pairs send requests
 * of their own, so that answers have something to be about. What may not happen:
 * memory that nobody gave to the peer changes, a work request completes twice or
 * never, or the device ceases to work.
 *
 * Exit status: 0 all is well, 1 not.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>

#include "rrxe_fuzz.h"

#define BATCH 16
#define MTU 1024
#define DEPTH 32
#define FIELD 16384
#define SEALED 0x5c
#define ROCE_PORT 4791
/* Of the peer, which is not there. */
#define PEER_QPN 0x77
#define PSN_MASK 0xffffff

/* What is behind a BTH. */
enum {
	RETH = 1, AETH = 2, ATOMIC = 4, IMM = 8, IETH = 16, DETH = 32, FETH = 64,
	EIGHT = 128, FULL = 256, EMPTY = 512,
};

struct operation {
	uint8_t opcode;
	unsigned int parts;
};

/* A message each, so in order whatever comes behind it. */
static const struct operation rc_messages[] = {
	{ 0x04, 0 }, { 0x05, IMM }, { 0x0a, RETH }, { 0x0b, RETH | IMM }, { 0x0c, RETH | EMPTY },
	{ 0x13, ATOMIC | EMPTY }, { 0x14, ATOMIC | EMPTY }, { 0x1c, FETH | RETH | EMPTY },
	{ 0x1d, RETH | EIGHT },
};

static const struct operation rc_requests[] = {
	{ 0x00, FULL }, { 0x01, FULL }, { 0x02, 0 }, { 0x03, IMM }, { 0x04, 0 }, { 0x05, IMM },
	{ 0x06, RETH | FULL }, { 0x07, FULL }, { 0x08, 0 }, { 0x09, IMM }, { 0x0a, RETH },
	{ 0x0b, RETH | IMM }, { 0x0c, RETH | EMPTY }, { 0x13, ATOMIC | EMPTY },
	{ 0x14, ATOMIC | EMPTY }, { 0x16, IETH }, { 0x17, IETH }, { 0x1c, FETH | RETH | EMPTY },
	{ 0x1d, RETH | EIGHT },
};

static const struct operation rc_answers[] = {
	{ 0x0d, AETH | FULL }, { 0x0e, FULL }, { 0x0f, AETH }, { 0x10, AETH },
	{ 0x11, AETH | EMPTY }, { 0x12, AETH | EIGHT },
};

static const struct operation uc_requests[] = {
	{ 0x20, FULL }, { 0x21, FULL }, { 0x22, 0 }, { 0x23, IMM }, { 0x24, 0 }, { 0x25, IMM },
	{ 0x26, RETH | FULL }, { 0x27, FULL }, { 0x28, 0 }, { 0x29, IMM }, { 0x2a, RETH },
	{ 0x2b, RETH | IMM },
};

static const struct operation ud_requests[] = { { 0x64, DETH }, { 0x65, DETH | IMM } };

/* Work requests have numbers; those that wait have a bit each. */
struct half {
	uint64_t waiting;
	unsigned int next;
};

struct end {
	struct ibv_qp *qp;
	struct half send, recv;
	/* What the peer would send next, and what it was asked last. */
	uint32_t expected, asked;
};

struct frame {
	uint8_t bytes[2 * MTU];
	unsigned int len;
};

/* Of the two connected ones, one is answered; else a bad answer would end both halves. */
enum { RC, ASKS, UC, UD, ENDS };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_ah *ah;
static struct end ends[ENDS];
static struct peer self, peer;
static struct field open_field, sealed;
static struct in_addr src, dst;
static uint8_t macs[2][ETH_ALEN];
static unsigned long sent, completions, errors, revived, accepted;
static int sock;

static uint32_t crc_table[256];

static void crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = (c >> 1) ^ (c & 1 ? 0xedb88320 : 0);
		crc_table[i] = c;
	}
}

static uint32_t crc(uint32_t c, const uint8_t *at, size_t n)
{
	while (n--)
		c = (c >> 8) ^ crc_table[(c ^ *at++) & 0xff];
	return c;
}

/* IBA A17.3.1: the ICRC of an IPv4 packet, of which it is the last word. */
static void put_icrc(uint8_t *ip, unsigned int len)
{
	uint8_t head[40];
	uint32_t c = 0xffffffff;
	unsigned int n = len < sizeof(head) + 4 ? len - 4 : sizeof(head);

	memset(head, 0xff, 8);
	c = crc(c, head, 8);
	memcpy(head, ip, n);
	/* What changes on the way: traffic class, TTL, checksums, and BTH's reserved byte. */
	head[1] = 0xff;
	head[8] = 0xff;
	memset(head + 10, 0xff, 2);
	memset(head + 26, 0xff, 2);
	head[32] = 0xff;
	c = crc(c, head, n);
	c = ~crc(c, ip + n, len - 4 - n);
	for (int i = 0; i < 4; i++)
		ip[len - 4 + i] = c >> (8 * i);
}

static void put_ip_checksum(uint8_t *ip)
{
	uint32_t sum = 0;

	memset(ip + 10, 0, 2);
	for (int i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~(sum + (sum >> 16));
	ip[10] = sum >> 8;
	ip[11] = sum;
}

static uint8_t *put(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		at[i] = value >> (8 * (bytes - 1 - i));
	return at + bytes;
}

static uint32_t some_key(void)
{
	switch (below(256)) {
	case 0:
		return sealed.mr->rkey;
	case 1:
		return odd_number();
	default:
		return open_field.mr->rkey;
	}
}

static uint64_t some_address(void)
{
	if (one_in(256))
		return odd_number();
	return (uintptr_t)field_data(&open_field) + below(one_in(256) ? 2 * FIELD : FIELD / 2);
}

static uint8_t *put_parts(uint8_t *at, unsigned int parts, unsigned int payload)
{
	if (parts & DETH) {
		at = put(at, one_in(16) ? odd_number() : QKEY, 4);
		at = put(at, PEER_QPN, 4);
	}
	if (parts & FETH)
		at = put(at, one_in(16) ? odd_number() : 1 | below(2) << 4, 4);
	if (parts & RETH) {
		at = put(at, some_address(), 8);
		at = put(at, some_key(), 4);
		at = put(at, one_in(64) ? odd_number() : parts & EMPTY ? below(4096) : payload, 4);
	}
	if (parts & ATOMIC) {
		at = put(at, some_address() & ~(one_in(64) ? 0ull : 7ull), 8);
		at = put(at, some_key(), 4);
		/* Added up, they must not look like an address of the kernel: leaked(). */
		at = put(at, rnd() >> 24, 8);
		at = put(at, below(2), 8);
	}
	if (parts & AETH) {
		at = put(at, one_in(16) ? below(256) : below(0x20), 1);
		at = put(at, one_in(8) ? odd_number() : below(64), 3);
	}
	if (parts & IMM)
		at = put(at, rnd(), 4);
	if (parts & IETH)
		at = put(at, some_key(), 4);
	return at;
}

static unsigned int some_length(unsigned int parts)
{
	if (one_in(64))
		return below(MTU + 64);
	if (parts & EMPTY)
		return 0;
	if (parts & EIGHT)
		return 8;
	/* Short ones are many, for their sum is made by hand. */
	return parts & FULL && !one_in(8) ? MTU : below(one_in(16) ? MTU : 64);
}

static const struct operation *some_operation(struct end **end, int *answer)
{
	int which = below(8);

	*answer = which < 2;
	*end = &ends[which < 2 ? ASKS : which == 6 ? UC : which == 7 ? UD : RC];
	if (which < 2)
		return &rc_answers[below(ARRAY_SIZE(rc_answers))];
	if (which == 6)
		return &uc_requests[below(ARRAY_SIZE(uc_requests))];
	if (which == 7)
		return &ud_requests[below(ARRAY_SIZE(ud_requests))];
	if (!one_in(16))
		return &rc_messages[below(ARRAY_SIZE(rc_messages))];
	return &rc_requests[below(ARRAY_SIZE(rc_requests))];
}

static uint32_t some_qpn(const struct end *end)
{
	static const uint32_t special[] = { 0, 1, 0xffffff, PEER_QPN };

	if (!one_in(32))
		return end->qp->qp_num;
	return one_in(2) ? special[below(ARRAY_SIZE(special))] : ends[below(ENDS)].qp->qp_num;
}

static uint32_t some_psn(struct end *end, int answer)
{
	uint32_t right = answer ? end->asked + below(8) - 4 : end->expected;

	if (one_in(8))
		return right + below(400) - 200;
	if (one_in(32))
		return odd_number();
	if (!answer)
		end->expected++;
	return right;
}

/* A packet that is right but for what is in it. */
static void build(struct frame *f)
{
	struct end *end;
	int answer;
	const struct operation *op = some_operation(&end, &answer);
	unsigned int payload = some_length(op->parts), pad = -payload & 3;
	uint8_t *ip = f->bytes + ETH_HLEN, *at = ip + 28;

	at = put(at, one_in(64) ? below(256) : op->opcode, 1);
	at = put(at, below(4) << 6 | pad << 4 | one_in(64), 1);
	at = put(at, one_in(64) ? odd_number() : 0xffff, 2);
	at = put(at, some_qpn(end), 4);
	at = put(at, (uint32_t)one_in(2) << 31 | (some_psn(end, answer) & PSN_MASK), 4);
	at = put_parts(at, op->parts, payload);
	memset(at, 0x61, payload);
	memset(at + payload, 0, pad);
	f->len = at - f->bytes + payload + pad + 4;
}

/* IP and UDP, and the ICRC, unless they are to be wrong. */
static void finish(struct frame *f)
{
	uint8_t *ip = f->bytes + ETH_HLEN, *at;
	unsigned int len;

	/* Cut off or with something behind it, at times. */
	if (one_in(16))
		f->len = ETH_HLEN + 28 + below(f->len - ETH_HLEN - 27);
	else if (one_in(64))
		f->len += below(64);
	len = f->len - ETH_HLEN;
	memcpy(f->bytes, macs[1], ETH_ALEN);
	memcpy(f->bytes + ETH_ALEN, macs[0], ETH_ALEN);
	put(f->bytes + 2 * ETH_ALEN, ETHERTYPE_IP, 2);
	at = put(ip, 0x4500, 2);
	at = put(at, len, 2);
	at = put(at, sent << 16 | 0x4000, 4);
	at = put(at, 64 << 8 | IPPROTO_UDP, 2);
	at = put(at, 0, 2);
	memcpy(at, &src, 4);
	memcpy(at + 4, &dst, 4);
	at = put(at + 8, 0xc000 + PEER_QPN, 2);
	at = put(at, ROCE_PORT, 2);
	at = put(at, one_in(128) ? below(len) : len - 20, 2);
	put(at, 0, 2);
	put_ip_checksum(ip);
	/* A bit that is wrong, and an ICRC that is right about it. */
	if (one_in(64) && len > 28)
		ip[28 + below(len - 28)] ^= 1 << below(8);
	if (len >= 32 && !one_in(16))
		put_icrc(ip, len);
	/* The shortest frame that there is. */
	if (f->len < 60) {
		memset(f->bytes + f->len, 0, 60 - f->len);
		f->len = 60;
	}
}

static void send_all(struct frame *frames, int n)
{
	struct mmsghdr msgs[BATCH] = { 0 };
	struct iovec iov[BATCH];
	int done = 0, rc;

	for (int i = 0; i < n; i++) {
		iov[i] = (struct iovec){ frames[i].bytes, frames[i].len };
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	while (done < n) {
		rc = sendmmsg(sock, msgs + done, n - done, 0);
		if (rc < 0 && errno != ENOBUFS)
			fail("sendmmsg: %s", strerror(errno));
		done += rc > 0 ? rc : 0;
	}
	sent += n;
}

static uint64_t wr_id(int which, int is_send, unsigned int slot)
{
	return which << 16 | is_send << 8 | slot;
}

static int take_slot(struct half *half)
{
	int slot = half->next++ % DEPTH;

	if (half->waiting >> slot & 1)
		return -1;
	half->waiting |= 1ull << slot;
	return slot;
}

static void post_recvs(int which)
{
	struct end *end = &ends[which];
	struct ibv_recv_wr *bad_wr, wr = { .num_sge = 1 };
	struct ibv_sge sge = { .lkey = open_field.mr->lkey };
	int slot;

	while (~end->recv.waiting & ((1ull << DEPTH) - 1)) {
		slot = take_slot(&end->recv);
		if (slot < 0)
			continue;
		sge.addr = (uintptr_t)field_data(&open_field) + below(FIELD / 2);
		/* One into which no datagram fits would wait for ever. */
		sge.length = (which == UD ? 2 * MTU : 0) + below(FIELD / 4);
		wr.sg_list = &sge;
		wr.wr_id = wr_id(which, 0, slot);
		GONE(ibv_post_recv(end->qp, &wr, &bad_wr));
	}
}

/* Something that the peer should answer; of UC and UD it is only sent. */
static void post_send(int which)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct end *end = &ends[which];
	struct ibv_sge sge = {
		.addr = (uintptr_t)field_data(&open_field), .length = below(3000),
		.lkey = open_field.mr->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.num_sge = 1, .sg_list = &sge, .send_flags = IBV_SEND_SIGNALED,
		.opcode = ops[below(which == ASKS ? ARRAY_SIZE(ops) : 2)],
	};
	int slot = take_slot(&end->send);

	if (slot < 0)
		return;
	wr.wr_id = wr_id(which, 1, slot);
	if (which == UD) {
		wr.opcode = IBV_WR_SEND;
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = PEER_QPN;
		wr.wr.ud.remote_qkey = QKEY;
		sge.length = below(MTU);
	} else if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = 0x1000;
	} else {
		wr.wr.rdma.remote_addr = 0x1000;
	}
	GONE(ibv_post_send(end->qp, &wr, &bad_wr));
}

static void look_at(const struct ibv_wc *wc)
{
	unsigned int which = wc->wr_id >> 16, slot = wc->wr_id & 0xff;
	int is_send = wc->wr_id >> 8 & 1;
	struct half *half;

	if (which >= ENDS || slot >= DEPTH)
		fail("a completion of 0x%llx", (unsigned long long)wc->wr_id);
	half = is_send ? &ends[which].send : &ends[which].recv;
	if (!(half->waiting >> slot & 1))
		fail("0x%llx completes twice", (unsigned long long)wc->wr_id);
	half->waiting &= ~(1ull << slot);
	if (wc->qp_num != ends[which].qp->qp_num)
		fail("a completion of queue pair 0x%x", wc->qp_num);
	completions++;
	if (wc->status != IBV_WC_SUCCESS)
		errors++;
	else if (!is_send && wc->byte_len > FIELD / 2)
		fail("%u bytes were received", wc->byte_len);
	else if (!is_send)
		accepted++;
}

static void drain(void)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = ibv_poll_cq(cq, ARRAY_SIZE(wc), wc)) > 0)
		for (int i = 0; i < n; i++)
			look_at(&wc[i]);
	if (n)
		fail("ibv_poll_cq: %d", n);
}

/* A queue pair in the error state gives back all that it has, and then starts again. */
static void revive(int which)
{
	struct end *end = &ends[which];
	double limit = seconds() + 60;

	while (end->send.waiting | end->recv.waiting) {
		drain();
		if (seconds() > limit)
			fail("work requests of queue pair %d never complete: 0x%llx 0x%llx", which,
			     (unsigned long long)end->send.waiting,
			     (unsigned long long)end->recv.waiting);
	}
	if (qp_up(end->qp, &peer, 18, 7))
		fail("a queue pair cannot be connected again: %s", strerror(errno));
	revived++;
}

static void look_after(int which)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end *end = &ends[which];

	GONE(ibv_query_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init));
	if (attr.qp_state == IBV_QPS_ERR) {
		revive(which);
		attr.rq_psn = FIRST_PSN;
		attr.sq_psn = FIRST_PSN;
	}
	end->expected = attr.rq_psn;
	end->asked = attr.sq_psn;
	post_recvs(which);
	if (which == ASKS || one_in(8))
		post_send(which);
}

static void make_ends(void)
{
	static const enum ibv_qp_type types[ENDS] = {
		IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
	};
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	struct ibv_ah_attr ah_attr = peer_ah(&peer);

	pd = MADE(ibv_alloc_pd(ctx));
	ah = MADE(ibv_create_ah(pd, &ah_attr));
	cq = MADE(ibv_create_cq(ctx, 2 * DEPTH * ENDS, NULL, NULL, 0));
	init.send_cq = cq;
	init.recv_cq = cq;
	open_field.mr = MADE(ibv_reg_mr(pd, field_data(&open_field), FIELD, EVERY_ACCESS));
	sealed.mr = MADE(ibv_reg_mr(pd, field_data(&sealed), FIELD, 0));
	for (int i = 0; i < ENDS; i++) {
		init.qp_type = types[i];
		ends[i].qp = MADE(ibv_create_qp(pd, &init));
		GONE(qp_up(ends[i].qp, &peer, 18, 7));
	}
}

static void destroy_ends(void)
{
	for (int i = 0; i < ENDS; i++)
		GONE(ibv_destroy_qp(ends[i].qp));
	GONE(ibv_destroy_ah(ah));
	GONE(ibv_dereg_mr(open_field.mr));
	GONE(ibv_dereg_mr(sealed.mr));
	GONE(ibv_destroy_cq(cq));
	GONE(ibv_dealloc_pd(pd));
}

/* A socket that sends whole frames, in the other name space. */
static void open_socket(const char *netns, const char *interface)
{
	struct sockaddr_ll addr = { .sll_family = AF_PACKET };
	socklen_t len = sizeof(addr);
	char path[128];
	int here, there;

	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	here = open("/proc/self/ns/net", O_RDONLY);
	there = open(path, O_RDONLY);
	if (there < 0 || setns(there, CLONE_NEWNET))
		fail("%s: %s", path, strerror(errno));
	addr.sll_ifindex = if_nametoindex(interface);
	sock = socket(AF_PACKET, SOCK_RAW, 0);
	if (sock < 0 || bind(sock, (void *)&addr, sizeof(addr)) ||
	    getsockname(sock, (void *)&addr, &len))
		fail("%s: %s", interface, strerror(errno));
	memcpy(macs[0], addr.sll_addr, ETH_ALEN);
	if (setns(here, CLONE_NEWNET))
		fail("setns: %s", strerror(errno));
}

static void parse(char **argv)
{
	uint8_t *m = macs[1];

	ctx = open_self(argv[1], argv[2], &self);
	open_socket(argv[3], argv[4]);
	if (sscanf(argv[5], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", m, m + 1, m + 2, m + 3, m + 4,
		   m + 5) != ETH_ALEN ||
	    !inet_aton(argv[6], &src) || !inet_aton(argv[7], &dst))
		fail("an address is none");
	peer = self;
	peer.qpn = PEER_QPN;
	memcpy(peer.gid.raw + 12, &src, 4);
}

int main(int argc, char **argv)
{
	static struct frame frames[BATCH];
	unsigned long packets, rounds = 0;

	fuzz_name = "rrxe_wire";
	if (argc < 9)
		fail("usage: rrxe_wire DEVICE GID-INDEX NETNS IF MAC SRC DST PACKETS [SEED]");
	parse(argv);
	packets = strtoul(argv[8], NULL, 0);
	if (argc > 9)
		rnd_state = strtoull(argv[9], NULL, 0);
	crc_init();
	field_init(&open_field, FIELD, 0x31);
	field_init(&sealed, FIELD, SEALED);
	make_ends();
	for (; sent < packets; rounds++) {
		drain();
		for (int i = 0; i < ENDS; i++)
			look_after(i);
		for (int i = 0; i < BATCH; i++) {
			build(&frames[i]);
			finish(&frames[i]);
		}
		send_all(frames, BATCH);
		if (rounds % 64 == 0) {
			field_check(&open_field, "open region");
			field_sealed(&sealed, SEALED, "region that the peer was not given");
			leaked(&open_field);
		}
		if (rounds % 8192 == 0)
			still_works(ctx, &self);
	}
	still_works(ctx, &self);
	destroy_ends();
	field_sealed(&sealed, SEALED, "region that the peer was not given");
	printf("%lu packets, %lu completions, %lu errors, %lu messages in, %lu times up again\n",
	       sent, completions, errors, accepted, revived);
	/* Else the packets were so bad that all were dropped at the door. */
	if (!accepted || !errors)
		fail("nothing was accepted");
	return 0;
}
