// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: counting the trace events of ib_core.
 *
 * The events are not exported, and tests of what is not exported would be tests
 * of one implementation. They are found by name, as a tracer finds them.
 */
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/tracepoint.h>

#include "cq_kunit.h"

static atomic_t cqk_trace_counts[CQK_TRACE_NUM];

static void cqk_probe_schedule(void *data, struct ib_cq *cq)
{
	atomic_inc(&cqk_trace_counts[CQK_TRACE_SCHEDULE]);
}

static void cqk_probe_reschedule(void *data, struct ib_cq *cq)
{
	atomic_inc(&cqk_trace_counts[CQK_TRACE_RESCHEDULE]);
}

static void cqk_probe_process(void *data, const struct ib_cq *cq)
{
	atomic_inc(&cqk_trace_counts[CQK_TRACE_PROCESS]);
}

static void cqk_probe_poll(void *data, const struct ib_cq *cq, int requested, int rc)
{
	atomic_inc(&cqk_trace_counts[CQK_TRACE_POLL]);
}

static void cqk_probe_modify(void *data, const struct ib_cq *cq, u16 comps, u16 usec)
{
	atomic_inc(&cqk_trace_counts[CQK_TRACE_MODIFY]);
}

static void cqk_probe_alloc(void *data, const struct ib_cq *cq, int nr_cqe,
			    int comp_vector, enum ib_poll_context poll_ctx)
{
	/* The event tells about a CQ that is complete. */
	if (cq->poll_ctx == poll_ctx && cq->comp_vector == comp_vector &&
	    cq->cqe == nr_cqe && cq->res.valid)
		atomic_inc(&cqk_trace_counts[CQK_TRACE_ALLOC]);
}

static void cqk_probe_alloc_error(void *data, int nr_cqe, int comp_vector,
				  enum ib_poll_context poll_ctx, int rc)
{
	if (rc == -EIO)
		atomic_inc(&cqk_trace_counts[CQK_TRACE_ALLOC_ERROR]);
}

static void cqk_probe_free(void *data, const struct ib_cq *cq)
{
	atomic_inc(&cqk_trace_counts[CQK_TRACE_FREE]);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tp;
	bool on;
} cqk_trace_tab[CQK_TRACE_NUM] = {
	[CQK_TRACE_SCHEDULE] = { "cq_schedule", cqk_probe_schedule },
	[CQK_TRACE_RESCHEDULE] = { "cq_reschedule", cqk_probe_reschedule },
	[CQK_TRACE_PROCESS] = { "cq_process", cqk_probe_process },
	[CQK_TRACE_POLL] = { "cq_poll", cqk_probe_poll },
	[CQK_TRACE_MODIFY] = { "cq_modify", cqk_probe_modify },
	[CQK_TRACE_ALLOC] = { "cq_alloc", cqk_probe_alloc },
	[CQK_TRACE_ALLOC_ERROR] = { "cq_alloc_error", cqk_probe_alloc_error },
	[CQK_TRACE_FREE] = { "cq_free", cqk_probe_free },
};

static void cqk_trace_found(struct tracepoint *tp, void *priv)
{
	int i;

	for (i = 0; i < CQK_TRACE_NUM; i++)
		if (!strcmp(tp->name, cqk_trace_tab[i].name))
			cqk_trace_tab[i].tp = tp;
}

#ifdef CONFIG_MODULES
static int cqk_trace_module(struct notifier_block *nb, unsigned long action, void *data)
{
	struct tp_module *tp_mod = data;
	struct module *mod = tp_mod->mod;
	unsigned int i;

	if (action != MODULE_STATE_COMING || strcmp(mod->name, "ib_core"))
		return NOTIFY_OK;
	for (i = 0; i < mod->num_tracepoints; i++)
		cqk_trace_found(tracepoint_ptr_deref(&mod->tracepoints_ptrs[i]), NULL);
	return NOTIFY_OK;
}

static struct notifier_block cqk_trace_nb = {
	.notifier_call = cqk_trace_module,
};
#endif

static bool cqk_trace_find(void)
{
	int i;

	if (IS_BUILTIN(CONFIG_INFINIBAND))
		for_each_kernel_tracepoint(cqk_trace_found, NULL);
#ifdef CONFIG_MODULES
	/* Registering a notifier calls it for the modules that are there. */
	if (!register_tracepoint_module_notifier(&cqk_trace_nb))
		unregister_tracepoint_module_notifier(&cqk_trace_nb);
#endif
	for (i = 0; i < CQK_TRACE_NUM; i++)
		if (!cqk_trace_tab[i].tp)
			return false;
	return true;
}

void cqk_trace_stop(void)
{
	int i;

	for (i = 0; i < CQK_TRACE_NUM; i++) {
		if (!cqk_trace_tab[i].on)
			continue;
		tracepoint_probe_unregister(cqk_trace_tab[i].tp,
					    cqk_trace_tab[i].probe, NULL);
		cqk_trace_tab[i].on = false;
	}
	tracepoint_synchronize_unregister();
}

static void cqk_trace_stop_action(void *data)
{
	cqk_trace_stop();
}

/**
 * cqk_trace_start - count trace events from now on
 * @test: the test; skipped if the kernel has no trace events, see cq_kunit.h
 */
void cqk_trace_start(struct kunit *test)
{
	int i, ret;

	KUNIT_ASSERT_TRUE_MSG(test, cqk_trace_find(), "trace events of ib_core not found");
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action(test, cqk_trace_stop_action, NULL));
	for (i = 0; i < CQK_TRACE_NUM; i++) {
		atomic_set(&cqk_trace_counts[i], 0);
		ret = tracepoint_probe_register(cqk_trace_tab[i].tp,
						cqk_trace_tab[i].probe, NULL);
		KUNIT_ASSERT_EQ(test, ret, 0);
		cqk_trace_tab[i].on = true;
	}
}

int cqk_trace_count(enum cqk_trace ev)
{
	return atomic_read(&cqk_trace_counts[ev]);
}
