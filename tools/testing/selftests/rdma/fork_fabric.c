// SPDX-License-Identifier: GPL-2.0
/*
 * A thread registers a field of its first allocation with libfabric's verbs
 * provider, and forks:
 *
 *	fork_fabric DEVICE
 *
 * Exit status: 0 all is well, 10 the child died, 11 the registration was
 * refused and the child lives, 12 it was refused and the child died; 2 it
 * could not be set up.
 */
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* glibc aligns the heaps of threads to this on 64-bit machines. */
#define HEAP_ALIGN (64UL << 20)

struct small {
	char other[16];
	char field[32];
};

static struct fid_domain *domain;

static int in_child(int refused)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		free(malloc(1000));
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		_exit(2);
	if (status)
		return refused ? 12 : 10;
	return refused ? 11 : 0;
}

static void *in_thread(void *result)
{
	struct small *small = malloc(sizeof(*small));
	struct fid_mr *mr;
	int rc;

	if ((uintptr_t)small % HEAP_ALIGN >= (uintptr_t)sysconf(_SC_PAGESIZE))
		_exit(2);
	rc = fi_mr_reg(domain, small->field, sizeof(small->field), FI_REMOTE_WRITE | FI_RECV, 0, 0,
		       0, &mr, NULL);
	if (rc && rc != -FI_EINVAL) {
		fprintf(stderr, "fork_fabric: fi_mr_reg: %s\n", fi_strerror(-rc));
		_exit(2);
	}
	*(int *)result = in_child(rc != 0);
	return NULL;
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	struct fid_fabric *fabric;
	pthread_t thread;
	int result = 2;
	int rc;

	if (argc != 2 || !hints)
		return 2;
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->fabric_attr->prov_name = strdup("verbs");
	hints->domain_attr->name = strdup(argv[1]);
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	rc = fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &info);
	if (!rc)
		rc = fi_fabric(info->fabric_attr, &fabric, NULL);
	if (!rc)
		rc = fi_domain(fabric, info, &domain, NULL);
	if (rc) {
		fprintf(stderr, "fork_fabric: %s: %s\n", argv[1], fi_strerror(-rc));
		return 2;
	}
	if (pthread_create(&thread, NULL, in_thread, &result) || pthread_join(thread, NULL))
		return 2;
	return result;
}
