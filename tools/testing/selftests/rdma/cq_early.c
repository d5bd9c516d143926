// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues that come and go while events are raised for them, also before
 * they are created:
 *
 *	cq_early DEVICE ROUNDS
 *
 * Each event has to be for the queue of the channel that it comes from. Prints how
 * many came. Exit status: 0 all is well, 1 not, 2 an event had the handle 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Some live longer than others. */
#define KEPT 7

struct queue {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
};

static unsigned long events, none, wrong;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

/* libibverbs takes the handle for a pointer; here it is looked at before. */
static void take_events(struct queue *q)
{
	struct ib_uverbs_comp_event_desc event;
	unsigned int n = 0;

	while (read(q->channel->fd, &event, sizeof(event)) == sizeof(event)) {
		n++;
		if (!event.cq_handle)
			none++;
		else if (event.cq_handle != (uintptr_t)q->cq)
			wrong++;
	}
	if (errno != EAGAIN)
		die("events");
	/* Else its destruction would wait for that. */
	ibv_ack_cq_events(q->cq, n);
	events += n;
}

static void make(struct queue *q, struct ibv_context *ctx, unsigned int round)
{
	/* One of four is polled only. */
	q->channel = round % 4 ? ibv_create_comp_channel(ctx) : NULL;
	if (round % 4 && !q->channel)
		die("channel");
	if (q->channel && fcntl(q->channel->fd, F_SETFL, O_NONBLOCK))
		die("O_NONBLOCK");
	q->cq = ibv_create_cq(ctx, 8 << round % 5, q, q->channel, 0);
	if (!q->cq)
		die("queue");
	if (q->channel && ibv_req_notify_cq(q->cq, 0))
		die("arm");
}

static void end(struct queue *q)
{
	struct ibv_wc wc;

	if (!q->cq)
		return;
	if (ibv_poll_cq(q->cq, 1, &wc)) {
		fprintf(stderr, "a completion that nobody asked for\n");
		exit(1);
	}
	if (q->channel)
		take_events(q);
	if (ibv_destroy_cq(q->cq))
		die("destruction");
	if (q->channel && ibv_destroy_comp_channel(q->channel))
		die("the channel's destruction");
	q->cq = NULL;
}

int main(int argc, char **argv)
{
	struct queue kept[KEPT] = {};
	struct ibv_context *ctx;
	unsigned int rounds;

	if (argc != 3)
		return 1;
	rounds = atoi(argv[2]);
	ctx = open_device(argv[1]);
	if (!ctx)
		die(argv[1]);
	for (unsigned int round = 0; round < rounds; round++) {
		struct queue *q = &kept[round * round % KEPT];

		end(q);
		make(q, ctx, round);
	}
	for (int i = 0; i < KEPT; i++)
		end(&kept[i]);
	ibv_close_device(ctx);
	printf("%u queues, %lu events, %lu with another handle, %lu with none\n", rounds, events,
	       wrong, none);
	return wrong ? 1 : none ? 2 : 0;
}
