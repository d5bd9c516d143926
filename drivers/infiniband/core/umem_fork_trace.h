/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Trace event of the check of registrations, umem_fork_rust.rs.
 */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM rdma_umem

#if !defined(_TRACE_RDMA_UMEM_FORK_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_RDMA_UMEM_FORK_H

#include <linux/sched.h>
#include <linux/tracepoint.h>
#include <rdma/ib_verbs.h>

#include "umem_fork_rust.h"

TRACE_EVENT(dontfork_partial,
	    TP_PROTO(const struct ib_device *device, const struct ib_umem_fork_loss *loss),
	    TP_ARGS(device, loss),
	    TP_STRUCT__entry(__string(device, dev_name(&device->dev))
			     __string(name, loss->name)
			     __array(char, comm, TASK_COMM_LEN)
			     __field(pid_t, tgid)
			     __field(unsigned long, start)
			     __field(unsigned long, end)
			     __field(unsigned long, before)
			     __field(unsigned long, behind)
			     __field(bool, rejected)),
	    TP_fast_assign(__assign_str(device);
			   __assign_str(name);
			   memcpy(__entry->comm, current->comm, TASK_COMM_LEN);
			   __entry->tgid = current->tgid;
			   __entry->start = loss->start;
			   __entry->end = loss->end;
			   __entry->before = loss->before;
			   __entry->behind = loss->behind;
			   __entry->rejected = loss->rejected;),
	    TP_printk("device=%s comm=%s tgid=%d start=0x%lx end=0x%lx before=%lu behind=%lu rejected=%d name=%s",
		      __get_str(device), __entry->comm, __entry->tgid, __entry->start,
		      __entry->end, __entry->before, __entry->behind, __entry->rejected,
		      __get_str(name))
);

#endif /* _TRACE_RDMA_UMEM_FORK_H */

/* The makefile says where this is. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE umem_fork_trace
#include <trace/define_trace.h>
