// SPDX-License-Identifier: GPL-2.0
/*
 * Regions that are paged on demand, whose memory goes, moves, or comes late while
 * it is used. Each fact is a case of its own:
 *
 *	rrxe_paging DEVICE GID-INDEX CASE [SLOW-DEVICE]
 *
 * SLOW-DEVICE is a block device that takes its time. Exit status: 0 all is well,
 * 1 not.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "rrxe_odp.h"

/* Traffic with memory that changes all the time. */
#define HUGE_SIZE (2ul << 20)
static uint8_t *moving;
static struct ibv_mr *moving_mr;

static void *traffic(void *arg)
{
	struct racer *r = arg;
	struct pair *p = r->p;

	rnd_state = 99;
	while (!atomic_load(&r->stop)) {
		struct request q = {
			.op = below(2) ? WRITE : READ, .local = field_data(&p->here),
			.lkey = p->here.mr->lkey, .rkey = moving_mr->rkey,
			.length = 1 + below(5 * PAGE),
		};

		q.remote = moving + below(HUGE_SIZE - q.length);
		expect(done(p, &q, "traffic"), IBV_WC_SUCCESS, names[q.op]);
		r->done++;
	}
	return NULL;
}

/* What was given up may be in use for something else, and nobody writes to it. */
static void canary(void)
{
	size_t n = 256 * PAGE;
	uint8_t *at = mmap(NULL, n, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	memset(at, 0x47, n);
	usleep(below(3000));
	if (!same(at, n, 0x47))
		fail("memory was written to that is not registered");
	munmap(at, n);
}

/* Memory of a child is what it was at the fork. */
static void child_of(const uint8_t *at)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		uint8_t *copy = malloc(HUGE_SIZE);

		memcpy(copy, at, HUGE_SIZE);
		usleep(3000);
		_exit(memcmp(copy, at, HUGE_SIZE) != 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail("fork: %s", strerror(errno));
	if (status)
		fail("the child sees what was written later");
}

static void change_memory(int kind)
{
	size_t first = below(512), n = 1 + below(512 - first);
	uint8_t *at = moving + first * PAGE, *new;

	switch (kind) {
	case 0:
		madvise(at, n * PAGE, MADV_DONTNEED);
		break;
	case 1:
		mprotect(at, n * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
		mprotect(moving, HUGE_SIZE, PROT_READ | PROT_WRITE);
		break;
	case 2:
		/* Other memory in its place. */
		mmap(at, n * PAGE, PROT_READ | PROT_WRITE,
		     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		break;
	case 3:
		/* Memory that was somewhere else before. */
		new = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(new, 0x33, n * PAGE);
		if (mremap(new, n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at)
			fail("mremap: %s", strerror(errno));
		break;
	case 4:
		child_of(moving);
		return;
	default:
		/* One large page, if there is one. */
		madvise(moving, HUGE_SIZE, MADV_COLLAPSE);
		break;
	}
	canary();
}

static void moves(void)
{
	uint8_t *map = mmap(NULL, 2 * HUGE_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct racer r = { 0 };
	struct request q;
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	moving = (uint8_t *)(((uintptr_t)map + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	moving_mr = MADE(ibv_reg_mr(p.pd, moving, HUGE_SIZE, LAZY_ACCESS));
	r.p = &p;
	race(&r, traffic);
	for (int i = 0; i < 240; i++)
		change_memory(i % 6);
	race_ends(&r);
	q = (struct request){
		.op = WRITE, .local = field_data(&p.here), .lkey = p.here.mr->lkey,
		.rkey = moving_mr->rkey, .length = FIELD, .remote = moving + 12345,
	};
	memset(q.local, 0x61, FIELD);
	expect(done(&p, &q, "the end"), IBV_WC_SUCCESS, "a write in the end");
	if (!same(moving + 12345, FIELD, 0x61))
		fail("what was written in the end is not there");
	printf("%lu requests during 240 changes\n", r.done);
	if (!r.done)
		fail("there was no traffic");
	GONE(ibv_dereg_mr(moving_mr));
	munmap(map, 2 * HUGE_SIZE);
	pair_down(&p);
}

/* Traffic until it is killed. */
static void busy(void)
{
	struct racer r = { 0 };
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	moving = mmap(NULL, HUGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moving_mr = MADE(ibv_reg_mr(p.pd, moving, HUGE_SIZE, LAZY_ACCESS));
	r.p = &p;
	race(&r, traffic);
	printf("ready\n");
	fflush(stdout);
	for (;;)
		change_memory(0);
}

/* Memory that takes long to come. */
static const char *slow_device;
#define SLOW_SIZE (32 * PAGE)
/* What the device takes for each request, in seconds, and what is certainly less. */
#define SLOW 0.4
#define SOON (SLOW / 2)

struct slow {
	int fd;
	uint8_t *at;
	struct ibv_mr *mr;
};

/* Nothing of it is in memory. */
static void slow_up(struct slow *s, struct ibv_pd *pd)
{
	s->fd = open(slow_device, O_RDWR);
	if (s->fd < 0 || fsync(s->fd) || ioctl(s->fd, BLKFLSBUF))
		fail("%s: %s", slow_device, strerror(errno));
	s->at = mmap(NULL, SLOW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (s->at == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	s->mr = MADE(ibv_reg_mr(pd, s->at, SLOW_SIZE, LAZY_ACCESS));
}

static void slow_down(struct slow *s)
{
	if (s->mr)
		GONE(ibv_dereg_mr(s->mr));
	munmap(s->at, SLOW_SIZE);
	close(s->fd);
}

/* Of a request that needs slow memory, and others behind it: all in order, with their data. */
static void slow_request(struct pair *p, enum op what, int remote)
{
	struct request r = { .op = what, .length = 9 * PAGE };
	double start = seconds();
	struct slow s;

	slow_up(&s, p->pd);
	r.local = remote ? field_data(&p->here) : s.at + 5;
	r.lkey = remote ? p->here.mr->lkey : s.mr->lkey;
	r.remote = remote ? s.at + 5 : field_data(&p->there);
	r.rkey = remote ? s.mr->rkey : p->there.mr->rkey;
	memset(field_data(&p->here), 0x61, FIELD);
	memset(field_data(&p->there), 0x62, FIELD);
	if (what == SEND)
		recv_into(p, r.remote, r.length, remote ? s.mr->lkey : p->there.mr->lkey);
	request(p, &r);
	for (int i = 0; i < 8; i++)
		post(p, IBV_WR_RDMA_WRITE, 1 + i, there(p) + 9 * PAGE, p->there.mr->rkey, 100);
	for (int i = 0; i < 9; i++) {
		struct ibv_wc wc = one_completion(p->cq[0], names[what]);

		if (wc.wr_id != (unsigned int)i)
			fail("request %llu is number %d", (unsigned long long)wc.wr_id, i);
		if (!i && seconds() - start < SOON)
			fail("the memory was not slow");
	}
	if (what == SEND)
		one_completion(p->cq[1], "what was sent");
	if (memcmp(r.local, r.remote, r.length))
		fail("%s with slow memory has other data", names[what]);
	slow_down(&s);
}

/*
 * Requests wait for memory that comes late, on either side. It is no reason for
 * the requester to try again if it is its own memory, and it tries as often as it
 * has to for that of the other side.
 */
static void late(void)
{
	struct pair p;

	pair_up(&p, IBV_QPT_RC, 0);
	/* 17 ms, which is much less, and once again. */
	p.timeout = 12;
	p.retries = 1;
	pair_connect(&p);
	slow_request(&p, SEND, 0);
	slow_request(&p, WRITE, 0);
	slow_request(&p, READ, 0);
	p.timeout = 14;
	p.retries = 7;
	pair_connect(&p);
	slow_request(&p, SEND, 1);
	slow_request(&p, WRITE, 1);
	slow_request(&p, READ, 1);
	pair_down(&p);
}

/* Those that need no slow memory do not wait, and what goes does not either. */
static void late_alone(void)
{
	struct request r = { .op = WRITE, .length = PAGE };
	struct pair p, other;
	struct slow s;
	double start;
	int n = 0;

	pair_up(&other, IBV_QPT_RC, 0);
	for (int i = 0; i < 3; i++) {
		pair_up(&p, IBV_QPT_RC, 0);
		slow_up(&s, p.pd);
		start = seconds();
		r.op = i;
		r.local = field_data(&p.here);
		r.lkey = p.here.mr->lkey;
		r.remote = s.at;
		r.rkey = s.mr->rkey;
		if (r.op == SEND)
			recv_into(&p, r.remote, r.length, s.mr->lkey);
		request(&p, &r);
		for (n = 0; n < 20; n++) {
			post(&other, IBV_WR_RDMA_READ, n, there(&other),
			     other.there.mr->rkey, 5000);
			one_completion(other.cq[0], "another queue pair");
		}
		if (seconds() - start > SOON)
			fail("other queue pairs wait for slow memory");
		GONE(ibv_dereg_mr(s.mr));
		s.mr = NULL;
		pair_down(&p);
		if (seconds() - start > SLOW)
			fail("regions and queue pairs wait for slow memory when they go");
		slow_down(&s);
	}
	pair_down(&other);
}

/* What is written to a file by the network is in the file, also after it was cleaned. */
static void written_back(void)
{
	struct request r = { .op = WRITE, .length = 3 * PAGE };
	uint8_t *buffer = aligned_alloc(PAGE, SLOW_SIZE);
	struct pair p;
	struct slow s;
	int fd;

	pair_up(&p, IBV_QPT_RC, 0);
	slow_up(&s, p.pd);
	r.local = field_data(&p.here);
	r.lkey = p.here.mr->lkey;
	r.remote = s.at + 1000;
	r.rkey = s.mr->rkey;
	for (int i = 1; i < 5; i++) {
		memset(r.local, i, r.length);
		expect(done(&p, &r, "a file"), IBV_WC_SUCCESS, "a write to a file");
		/* What is clean is not written, but read by this from the device itself. */
		if (fsync(s.fd))
			fail("fsync: %s", strerror(errno));
		fd = open(slow_device, O_RDONLY | O_DIRECT);
		if (fd < 0 || read(fd, buffer, SLOW_SIZE) != (ssize_t)SLOW_SIZE)
			fail("read: %s", strerror(errno));
		close(fd);
		if (!same(buffer + 1000, r.length, i))
			fail("round %d: 0x%02x is in the file", i, buffer[1000]);
	}
	slow_down(&s);
	free(buffer);
	pair_down(&p);
}

static const struct test_case cases[] = {
	{ "moves", moves, 0 },
	{ "busy", busy, 0 },
	{ "late", late, 0 },
	{ "late-alone", late_alone, 0 },
	{ "written-back", written_back, 0 },
};

int main(int argc, char **argv)
{
	fuzz_name = "rrxe_paging";
	if (argc != 4 && argc != 5)
		fail("usage: rrxe_paging DEVICE GID-INDEX CASE [SLOW-DEVICE]");
	slow_device = argv[4];
	return run_case(cases, ARRAY_SIZE(cases), argv);
}
