/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connected pair of queue pairs in one process, made by the connection
 * manager, so that it is the same for RoCE and for iWARP.
 */
#ifndef _FORK_LINK_H
#define _FORK_LINK_H

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What iWARP needs of memory that the answer to a READ goes to. */
#define LINK_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct link {
	/* Channels: of the one that listens and accepts, of the one that connects. */
	struct rdma_event_channel *events[2];
	struct rdma_cm_id *listener;
	/* The first one sends. */
	struct rdma_cm_id *ends[2];
	struct ibv_cq *cqs[2];
	struct ibv_pd *pd;
};

/* The id of the next event of the channel, if it is what is wanted. */
static struct rdma_cm_id *link_event(struct rdma_event_channel *channel,
				     enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id = NULL;

	if (rdma_get_cm_event(channel, &event))
		return NULL;
	if (event->event == wanted)
		id = event->id;
	else
		fprintf(stderr, "fork_link: %s, status %d, instead of %s\n",
			rdma_event_str(event->event), event->status, rdma_event_str(wanted));
	rdma_ack_cm_event(event);
	return id;
}

static int link_end(struct link *l, int which)
{
	struct rdma_cm_id *id = l->ends[which];
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 8,
			.max_recv_wr = 8,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	if (!l->pd)
		l->pd = ibv_alloc_pd(id->verbs);
	l->cqs[which] = ibv_create_cq(id->verbs, 32, NULL, NULL, 0);
	if (!l->pd || !l->cqs[which])
		return -1;
	init.send_cq = l->cqs[which];
	init.recv_cq = l->cqs[which];
	return rdma_create_qp(id, l->pd, &init);
}

/* Connects the two ends to each other through the device with the IPv4 address. */
static int link_up(struct link *l, const char *address)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	memset(l, 0, sizeof(*l));
	if (inet_pton(AF_INET, address, &sin.sin_addr) != 1)
		return -1;
	for (int i = 0; i < 2; i++) {
		l->events[i] = rdma_create_event_channel();
		if (!l->events[i])
			return -1;
	}
	if (rdma_create_id(l->events[1], &l->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(l->listener, (struct sockaddr *)&sin) ||
	    rdma_listen(l->listener, 1))
		return -1;
	sin.sin_port = rdma_get_src_port(l->listener);
	if (rdma_create_id(l->events[0], &l->ends[0], NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(l->ends[0], NULL, (struct sockaddr *)&sin, 5000) ||
	    !link_event(l->events[0], RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    rdma_resolve_route(l->ends[0], 5000) ||
	    !link_event(l->events[0], RDMA_CM_EVENT_ROUTE_RESOLVED) ||
	    link_end(l, 0) || rdma_connect(l->ends[0], &param))
		return -1;
	l->ends[1] = link_event(l->events[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!l->ends[1] || link_end(l, 1) || rdma_accept(l->ends[1], &param))
		return -1;
	return link_event(l->events[0], RDMA_CM_EVENT_ESTABLISHED) &&
	       link_event(l->events[1], RDMA_CM_EVENT_ESTABLISHED) ? 0 : -1;
}

/*
 * 1 if it was not destroyed. What another process has in a call right now the
 * kernel does not destroy: it says EBUSY, and has to be asked again.
 */
#define LINK_LEFT(call)								\
({										\
	int rc_, tries_ = 0;							\
										\
	while ((rc_ = (call)) == EBUSY && tries_++ < 10000)			\
		usleep(100);							\
	if (rc_)								\
		fprintf(stderr, "fork_link: " #call ": %s\n",			\
			strerror(rc_ < 0 ? errno : rc_));			\
	!!rc_;									\
})

/* How much of it could not be destroyed. What is registered has to be gone by now. */
static int link_down(struct link *l)
{
	int left = 0;

	rdma_disconnect(l->ends[0]);
	for (int i = 0; i < 2; i++) {
		left += LINK_LEFT(ibv_destroy_qp(l->ends[i]->qp));
		l->ends[i]->qp = NULL;
		left += LINK_LEFT(ibv_destroy_cq(l->cqs[i]));
	}
	left += LINK_LEFT(ibv_dealloc_pd(l->pd));
	for (int i = 0; i < 2; i++)
		left += LINK_LEFT(rdma_destroy_id(l->ends[i]));
	left += LINK_LEFT(rdma_destroy_id(l->listener));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(l->events[i]);
	return left;
}

static int link_post(struct link *l, enum ibv_wr_opcode opcode, struct ibv_mr *here, void *local,
		     struct ibv_mr *there, void *remote, size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local, .length = length, .lkey = here->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)remote, .rkey = there->rkey },
	}, *bad;

	return ibv_post_send(l->ends[0]->qp, &wr, &bad);
}

/* Moves memory and waits for it; 0 if that went well. */
static int link_move(struct link *l, enum ibv_wr_opcode opcode, struct ibv_mr *here, void *local,
		     struct ibv_mr *there, void *remote, size_t length)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int n = 0;

	if (link_post(l, opcode, here, local, there, remote, length))
		return -1;
	for (int i = 0; i < 50000 && !n; i++) {
		n = ibv_poll_cq(l->cqs[0], 1, &wc);
		if (!n)
			usleep(100);
	}
	if (n == 1 && wc.status == IBV_WC_SUCCESS)
		return 0;
	fprintf(stderr, "fork_link: %d completions, %s\n", n, ibv_wc_status_str(wc.status));
	return -1;
}

#endif /* _FORK_LINK_H */
