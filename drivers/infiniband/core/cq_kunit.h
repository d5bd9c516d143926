/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Selftest of the completion queue API of ib_core: the fake device.
 *
 * The tests use exported functions only, so that one and the same module runs
 * against every implementation of them.
 */
#ifndef _CQ_KUNIT_H
#define _CQ_KUNIT_H

#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

/* What the documentation of the CQ API promises; see drivers/infiniband/core/cq.c. */
#define CQK_BATCH		16
#define CQK_BATCH_DIRECT	8
#define CQK_BUDGET_SOFTIRQ	256
#define CQK_BUDGET_WORKQUEUE	65536
#define CQK_SHARED_CQE		4096

#define CQK_MAX_CQE		1048576
#define CQK_TIMEOUT		(10 * HZ)
#define CQK_POLL_LOG		8

struct cqk_dev;
struct cqk_cq;

/* What became of an event that the fake device raised. */
enum cqk_event {
	CQK_EVENT_CALLED,	/* The handler ran. */
	CQK_EVENT_NO_HANDLER,	/* comp_handler was NULL. */
	CQK_EVENT_NOT_READY,	/* The handler would have used uninitialised state. */
};

/* Variants of the fake device. */
enum cqk_flags {
	CQK_PRE_POST	= BIT(0),	/* pre_destroy_cq and post_destroy_cq. */
	CQK_DIM		= BIT(1),	/* modify_cq and use_cq_dim. */
};

enum cqk_state {
	CQK_LIVE = 0x11fe,
	CQK_DESTROYING,
	CQK_DEAD,
};

/*
 * Called by the fake device at the points where real hardware may act. Hooks
 * run without a lock of the fake device held.
 */
struct cqk_hooks {
	void (*create)(struct cqk_cq *cq);
	void (*arm)(struct cqk_cq *cq, enum ib_cq_notify_flags flags);
	void (*poll)(struct cqk_cq *cq, int num);
	void (*done)(struct cqk_cq *cq, u64 seq);
	void (*pre_destroy)(struct cqk_cq *cq);
	void (*destroy)(struct cqk_cq *cq);
	void (*modify)(struct cqk_cq *cq);
};

struct cqk_cq {
	struct ib_cq ibcq;
	struct cqk_dev *dev;
	struct list_head node;		/* In cqk_dev.live. */
	void *ring;			/* What create_cq allocates. */
	enum cqk_state state;
	atomic_t in_callback;		/* poll_cq and req_notify_cq running. */
	u64 next;			/* Sequence number that is to be done next. */

	spinlock_t lock;		/* Of everything below. */
	u64 posted;
	u64 polled;
	unsigned int armed;
};

struct cqk_dev {
	struct ib_device ibdev;
	struct cqk_hooks hooks;
	unsigned int flags;
	bool registered;

	/* Faults to play. */
	int create_err;			/* create_cq fails with this ... */
	int create_err_after;		/* ... after so many that worked ... */
	bool create_err_late;		/* ... and after the CQ was published. */
	int pre_destroy_err;
	int destroy_err;
	int poll_err;			/* poll_cq of an empty CQ. */
	int poll_lie;			/* Added to what poll_cq returns. */
	u64 null_cqe_seq;		/* This CQE has no wr_cqe ... */
	enum ib_wc_status null_cqe_status;	/* ... and this status. */

	/* What happened. */
	atomic_t create_calls;
	atomic_t created;
	atomic_t pre_destroy_calls;
	atomic_t destroy_calls;
	atomic_t arm_calls;
	atomic_t modify_calls;
	atomic_t ev_called;
	atomic_t ev_no_handler;
	atomic_t ev_not_ready;
	atomic_t late_work;		/* Work pending when the CQ was destroyed. */
	atomic_t late_calls;		/* Verbs on a CQ that is being destroyed. */
	atomic_t late_tracked;		/* Still in the tracker when destroyed. */
	unsigned int first_arm_flags;
	unsigned int last_arm_flags;
	int n_polls;
	int poll_max;			/* Largest num_entries asked for. */
	int poll_log[CQK_POLL_LOG];
	bool destroying;

	/* Receiver of the completions. */
	struct ib_cqe cqe;
	u64 done;
	u64 done_want;
	u64 disorder;
	u64 bad_status;
	struct completion all_done;

	spinlock_t live_lock;		/* Of the list of CQs. */
	struct list_head live;

	/* The CQ that events from other CPUs go to, and the one in use there. */
	struct cqk_cq *target;
	struct cqk_cq *busy;

	/* For the use of a test. */
	atomic_t mark;
	atomic_t bad;
};

struct cqk_ctx {
	const char *name;
	enum ib_poll_context ctx;
};

/* Parameter generators: all contexts, those with events, work queues only. */
const void *cqk_ctx_all_gen_params(struct kunit *test, const void *prev, char *desc);
const void *cqk_ctx_event_gen_params(struct kunit *test, const void *prev, char *desc);
const void *cqk_ctx_wq_gen_params(struct kunit *test, const void *prev, char *desc);

static inline enum ib_poll_context cqk_param(struct kunit *test)
{
	return ((const struct cqk_ctx *)test->param_value)->ctx;
}

static inline struct cqk_cq *to_cqk(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct cqk_cq, ibcq);
}

static inline struct cqk_dev *to_cqk_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct cqk_dev, ibdev);
}

static inline bool cqk_is_wq(enum ib_poll_context ctx)
{
	return ctx == IB_POLL_WORKQUEUE || ctx == IB_POLL_UNBOUND_WORKQUEUE;
}

/* Attribute of the cases that take more than a second. */
#define CQK_SLOW		{ .speed = KUNIT_SPEED_SLOW }

/* True if ib_core's CQ code is the Rust one. */
bool cqk_core_is_rust(void);

void cqk_skip_chance(struct kunit *test);

/* Rounds of a stress test on this kernel. */
int cqk_rounds(int n);

int cqk_suite_init(struct kunit *test);
void cqk_suite_exit(struct kunit *test);
struct cqk_dev *cqk_dev_create(unsigned int flags);
void cqk_dev_unregister(struct cqk_dev *dev);
void cqk_dev_destroy(struct cqk_dev *dev);
int cqk_live(struct cqk_dev *dev);
u32 cqk_tracked(struct cqk_dev *dev);
struct cqk_cq *cqk_first(struct cqk_dev *dev);

bool cqk_is_ready(struct cqk_cq *cq);
enum cqk_event cqk_raise(struct cqk_cq *cq);
enum cqk_event cqk_raise_on(struct cqk_cq *cq, int cpu);
bool cqk_raise_target(struct cqk_dev *dev);
int cqk_other_cpu(void);

void cqk_expect(struct cqk_dev *dev, u64 n);
bool cqk_wait(struct cqk_dev *dev);
void cqk_post_silent(struct cqk_cq *cq, u64 n);
void cqk_post(struct cqk_cq *cq, u64 n);

/* Counting the trace events of the CQ code. */
enum cqk_trace {
	CQK_TRACE_SCHEDULE,
	CQK_TRACE_RESCHEDULE,
	CQK_TRACE_PROCESS,
	CQK_TRACE_POLL,
	CQK_TRACE_MODIFY,
	CQK_TRACE_ALLOC,
	CQK_TRACE_ALLOC_ERROR,
	CQK_TRACE_FREE,
	CQK_TRACE_NUM,
};

#ifdef CONFIG_TRACEPOINTS
void cqk_trace_start(struct kunit *test);
void cqk_trace_stop(void);
int cqk_trace_count(enum cqk_trace ev);
#else
static inline void cqk_trace_start(struct kunit *test)
{
	kunit_skip(test, "kernel without trace points");
}

static inline void cqk_trace_stop(void)
{
}

static inline int cqk_trace_count(enum cqk_trace ev)
{
	return 0;
}
#endif

/* Event storm from another CPU; see cq_kunit_free.c. */
struct cqk_flood;
struct cqk_flood *cqk_flood_start(struct kunit *test, struct cqk_dev *dev);
u64 cqk_flood_stop(struct cqk_flood *flood);

int cqk_fault_init(void);
void cqk_fault_exit(void);

extern struct kunit_suite cqk_alloc_suite;
extern struct kunit_suite cqk_poll_suite;
extern struct kunit_suite cqk_free_suite;
extern struct kunit_suite cqk_pool_suite;
extern struct kunit_suite cqk_track_suite;
extern struct kunit_suite cqk_fault_suite;
extern struct kunit_suite cqk_warn_suite;

#endif /* _CQ_KUNIT_H */
