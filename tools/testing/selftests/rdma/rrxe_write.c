// SPDX-License-Identifier: GPL-2.0
/*
 * RDMA WRITEs whose sender sleeps until there is an event, which perftest does not
 * have; see rrxe_bench.sh.
 *
 *   rrxe_write server ADDRESS PORT BYTES
 *   rrxe_write client ADDRESS PORT BYTES COUNT
 *
 * The client says, as perftest does: bytes, count, 0, MiB/s, millions a second.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* As perftest: so many at once, and every one has a completion. */
#define WINDOW 128

/* Where to write to, in the private data of the server's answer. */
struct place {
	__u64 address;
	__u32 key, unused;
};

#define CHECK(what) do {							\
	if (!(what)) {								\
		fprintf(stderr, "%s: %s\n", #what, strerror(errno));		\
		exit(1);							\
	}									\
} while (0)

static struct rdma_cm_id *endpoint(const char *address, const char *port, int passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = WINDOW, .max_recv_wr = 1,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	if (passive)
		hints.ai_flags = RAI_PASSIVE;
	CHECK(!rdma_getaddrinfo(address, port, &hints, &info));
	CHECK(!rdma_create_ep(&id, info, NULL, &init));
	rdma_freeaddrinfo(info);
	return id;
}

static void server(const char *address, const char *port, size_t bytes)
{
	struct rdma_cm_id *listener = endpoint(address, port, 1), *id;
	struct rdma_conn_param answer = { .responder_resources = 1, .initiator_depth = 1 };
	struct place place;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	char *data;

	CHECK(!rdma_listen(listener, 1));
	CHECK(!rdma_get_request(listener, &id));
	CHECK(!posix_memalign((void **)&data, 4096, bytes));
	memset(data, 0, bytes);
	CHECK((mr = rdma_reg_write(id, data, bytes)));
	CHECK(!rdma_post_recv(id, NULL, data, 1, mr));
	place = (struct place){ .address = (uintptr_t)data, .key = mr->rkey };
	answer.private_data = &place;
	answer.private_data_len = sizeof(place);
	CHECK(!rdma_accept(id, &answer));
	/* Asleep until the client has said that this was all. */
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	/* What was zero is not any more. */
	CHECK(data[0] && data[bytes - 1]);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	free(data);
}

/* Take what has completed; sleep if that is nothing. */
static unsigned int reap(struct rdma_cm_id *id)
{
	struct ibv_wc wc[16];
	struct ibv_cq *cq;
	void *context;
	int n;

	n = ibv_poll_cq(id->send_cq, 16, wc);
	if (!n) {
		CHECK(!ibv_req_notify_cq(id->send_cq, 0));
		/* What came before that gives no event. */
		n = ibv_poll_cq(id->send_cq, 16, wc);
		if (!n) {
			CHECK(!ibv_get_cq_event(id->send_cq_channel, &cq, &context));
			ibv_ack_cq_events(cq, 1);
			return 0;
		}
	}
	CHECK(n > 0);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	}
	return n;
}

static void client(const char *address, const char *port, size_t bytes, unsigned int count)
{
	struct rdma_conn_param wish = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7,
	};
	struct rdma_cm_id *id = endpoint(address, port, 0);
	struct timespec from, to;
	struct place place;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	double seconds;
	void *data;

	CHECK(!posix_memalign(&data, 4096, bytes));
	memset(data, 1, bytes);
	CHECK((mr = rdma_reg_msgs(id, data, bytes)));
	CHECK(!rdma_connect(id, &wish));
	CHECK(id->event->param.conn.private_data_len >= sizeof(place));
	memcpy(&place, id->event->param.conn.private_data, sizeof(place));

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (unsigned int sent = 0, done = 0; done < count; done += reap(id)) {
		for (; sent < count && sent - done < WINDOW; sent++)
			CHECK(!rdma_post_write(id, NULL, data, bytes, mr, 0,
					       place.address, place.key));
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	seconds = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
	printf("%zu %u 0 %.2f %.6f\n", bytes, count, bytes * count / seconds / (1 << 20),
	       count / seconds / 1e6);
	CHECK(!rdma_post_send(id, NULL, data, 1, mr, 0));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	free(data);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "server")) {
		server(argv[2], argv[3], atol(argv[4]));
	} else if (argc == 6 && !strcmp(argv[1], "client")) {
		client(argv[2], argv[3], atol(argv[4]), atoi(argv[5]));
	} else {
		fprintf(stderr,
			"usage: %s server ADDRESS PORT BYTES | client ADDRESS PORT BYTES COUNT\n",
			argv[0]);
		return 2;
	}
	return 0;
}
