// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that fork with registered memory, right and wrong, by name:
 *
 *	fork_victim DEVICE CASE [NUMBER]
 *
 * Exit status: 0 all is well, 10 the child died, 11 the registration was
 * refused and the child lives, 12 it was refused and the child died; 2 the
 * case could not be set up, 3 something else is wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fork_device.h"

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
/* glibc aligns the heaps of threads to this on 64-bit machines. */
#define HEAP_ALIGN (64UL << 20)

static const char *device;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static size_t page;
static int refused;
static long number;

static void die(const char *what)
{
	fprintf(stderr, "fork_victim: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static char *map_pages(size_t pages, int flags)
{
	char *map = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		die("mmap");
	memset(map, 0x5a, pages * page);
	return map;
}

/* Only EINVAL is a refusal. */
static struct ibv_mr *reg(void *addr, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, length, access);

	if (!mr) {
		if (errno != EINVAL)
			die("ibv_reg_mr");
		refused = 1;
	}
	return mr;
}

static int in_child(int (*f)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(f(arg));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		die("fork");
	if (status)
		fprintf(stderr, "fork_victim: status of the child: 0x%x\n", status);
	if (WIFEXITED(status) && WEXITSTATUS(status))
		return 3;
	if (status)
		return refused ? 12 : 10;
	return refused ? 11 : 0;
}

static int allocate(void *size)
{
	free(malloc((uintptr_t)size));
	return 0;
}

/* Reads all of it: what is not there kills. */
static int read_page(void *addr)
{
	char *p = addr;

	for (size_t i = 0; i < page; i++)
		if (p[i] != 0x5a)
			return 1;
	return 0;
}

struct small {
	char other[16];
	char field[32];
};

/*
 * What was seen in the field: the first allocation of a thread is on the page
 * of the state of its arena, and a part of it is registered.
 */
static void *field_thread(void *result)
{
	struct small *small = malloc(sizeof(*small));

	if ((uintptr_t)small % HEAP_ALIGN >= page) {
		fprintf(stderr, "fork_victim: %p is not beside the arena\n", (void *)small);
		_exit(2);
	}
	reg(small->field, sizeof(small->field), ACCESS);
	*(int *)result = in_child(allocate, (void *)1000);
	return NULL;
}

/* The same by the program's own hand; it gives the page back if that was no use. */
static void *direct_thread(void *result)
{
	struct small *small = malloc(sizeof(*small));
	char *start = (char *)((uintptr_t)small & ~(page - 1));

	if ((uintptr_t)small % HEAP_ALIGN >= page)
		_exit(2);
	if (madvise(start, page, MADV_DONTFORK)) {
		/* Somebody does not let us. */
		if (errno != EINVAL)
			die("madvise");
		refused = 1;
	} else if (!reg(small->field, sizeof(small->field), ACCESS)) {
		madvise(start, page, MADV_DOFORK);
	}
	*(int *)result = in_child(allocate, (void *)1000);
	return NULL;
}

static int threaded(void *(*f)(void *))
{
	pthread_t thread;
	int result = 3;

	if (pthread_create(&thread, NULL, f, &result) || pthread_join(thread, NULL))
		die("thread");
	return result;
}

/* Ordinary memory, any length: nobody has anything to say. */
static int ordinary(int flags, int access)
{
	static const size_t lengths[] = { 1, 64, 100, 4095, 4097, 8191, 10000 };
	char *map = map_pages(8, flags);

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		for (size_t offset = 0; offset < 130; offset += 65) {
			struct ibv_mr *mr = reg(map + offset, lengths[i], access);
			int rc;

			if (!mr)
				return 11;
			rc = in_child(read_page, map);
			if (ibv_dereg_mr(mr) || rc)
				return rc ? rc : 3;
		}
	}
	return 0;
}

/* Memory that the program marked; what is registered is given by its ends. */
static int marked(int flags, size_t from, size_t to, int again, int access)
{
	char *map = map_pages(4, flags);
	struct ibv_mr *mr;

	if (madvise(map + page, 2 * page, MADV_DONTFORK))
		die("madvise");
	if (again && madvise(map + page, 2 * page, MADV_DOFORK))
		die("madvise");
	mr = reg(map + page + from, to - from, access);
	if (!mr)
		return 11;
	return ibv_dereg_mr(mr) ? 3 : 0;
}

/* Again and again. */
static int marked_often(void)
{
	for (long i = 0; i < number; i++) {
		int rc = marked(MAP_PRIVATE, 100, 2 * page - 28, 0, ACCESS);

		if (rc)
			return rc;
	}
	return 0;
}

/* On huge pages, a small page is a part. */
static int huge(int whole)
{
	size_t size = 2UL << 20;
	char *map = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
	struct ibv_mr *mr;

	if (map == MAP_FAILED)
		die("MAP_HUGETLB");
	if (madvise(map, 2 * size, MADV_DONTFORK))
		die("madvise");
	mr = whole ? reg(map, size, ACCESS) : reg(map + page, page, ACCESS);
	if (!mr)
		return 11;
	return ibv_dereg_mr(mr) ? 3 : 0;
}

static size_t mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	size_t n = 0;
	int c;

	if (!f)
		die("maps");
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* Many registrations of odd ranges: the mappings are what they were. */
static int maps_come_back(void)
{
	size_t pages = 512;
	char *map = map_pages(pages, MAP_PRIVATE);
	struct ibv_mr *mrs[256];
	size_t start, most, end;

	if (ibv_fork_init())
		die("ibv_fork_init");
	start = mappings();
	most = start;
	for (long round = 0; round < number; round++) {
		for (size_t i = 0; i < 256; i++) {
			mrs[i] = reg(map + 2 * i * page + 8 + round, 1000, ACCESS);
			if (!mrs[i])
				return 11;
		}
		end = mappings();
		most = end > most ? end : most;
		for (size_t i = 0; i < 256; i++)
			if (ibv_dereg_mr(mrs[i]))
				return 3;
	}
	end = mappings();
	printf("mappings: %zu, at most %zu, then %zu\n", start, most, end);
	/* stdio and malloc may have got one each. */
	return end > start + 2 ? 3 : 0;
}

static void put(const char *file, const char *value)
{
	int fd = open(file, O_WRONLY);

	if (fd < 0 || write(fd, value, strlen(value)) < 0 || close(fd))
		die(file);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * Nanoseconds for each of many small registrations, without and with the check,
 * in turn and in one process: the medians.
 */
static int bench(size_t offset)
{
	enum { ROUNDS = 50 };
	static const char *const policies[] = { "off", "warn" };
	const char *file = getenv("FORK_PARAM");
	char *map = map_pages(2, MAP_PRIVATE);
	double ns[2][ROUNDS];

	if (!file)
		die("FORK_PARAM");
	for (int round = -2; round < 2 * ROUNDS; round++) {
		int which = round & 1;
		struct timespec a, b;

		put(file, policies[which]);
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (long i = 0; i < number / ROUNDS; i++) {
			struct ibv_mr *mr = reg(map + offset, 64, ACCESS);

			if (!mr || ibv_dereg_mr(mr))
				return 3;
		}
		clock_gettime(CLOCK_MONOTONIC, &b);
		/* The first of each are for the caches. */
		if (round >= 0)
			ns[which][round / 2] = ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec -
						a.tv_nsec) / (number / ROUNDS);
	}
	for (int which = 0; which < 2; which++)
		qsort(ns[which], ROUNDS, sizeof(double), compare);
	printf("%.1f %.1f\n", ns[0][ROUNDS / 2], ns[1][ROUNDS / 2]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what;

	if (argc < 3) {
		fprintf(stderr, "usage: fork_victim DEVICE CASE [NUMBER]\n");
		return 2;
	}
	device = argv[1];
	what = argv[2];
	number = argc > 3 ? atol(argv[3]) : 0;
	page = sysconf(_SC_PAGESIZE);
	ctx = open_device(device);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	if (!pd)
		die(device);

	/* Fork-safe mode is for the environment to switch on. */
	if (!strcmp(what, "field"))
		return threaded(field_thread);
	if (!strcmp(what, "direct"))
		return threaded(direct_thread);
	if (!strcmp(what, "ordinary"))
		return ordinary(MAP_PRIVATE, ACCESS);
	if (!strcmp(what, "ordinary-shared"))
		return ordinary(MAP_SHARED, ACCESS);
	if (!strcmp(what, "whole"))
		return marked(MAP_PRIVATE, 0, 2 * page, 0, ACCESS);
	if (!strcmp(what, "part"))
		return marked(MAP_PRIVATE, 100, 2 * page - 28, 0, ACCESS);
	if (!strcmp(what, "part-many"))
		return marked_often();
	if (!strcmp(what, "part-begin"))
		return marked(MAP_PRIVATE, 100, 2 * page, 0, ACCESS);
	if (!strcmp(what, "part-odp"))
		return marked(MAP_PRIVATE, 100, 2 * page - 28, 0, ACCESS | IBV_ACCESS_ON_DEMAND);
	/* Into ordinary memory behind it: only the first page is at stake. */
	if (!strcmp(what, "part-into-ordinary"))
		return marked(MAP_PRIVATE, 100, 2 * page + 50, 0, ACCESS);
	if (!strcmp(what, "part-dofork"))
		return marked(MAP_PRIVATE, 100, 2 * page - 28, 1, ACCESS);
	if (!strcmp(what, "part-shared"))
		return marked(MAP_SHARED, 100, 2 * page - 28, 0, ACCESS);
	if (!strcmp(what, "huge-part"))
		return huge(0);
	if (!strcmp(what, "huge-whole"))
		return huge(1);
	if (!strcmp(what, "maps"))
		return maps_come_back();
	if (!strcmp(what, "bench"))
		return bench(100);
	if (!strcmp(what, "bench-aligned"))
		return bench(0);
	fprintf(stderr, "fork_victim: no case %s\n", what);
	return 2;
}
