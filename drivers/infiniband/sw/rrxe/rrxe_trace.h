/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of event queues, see event.rs.
 */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM rrxe

#if !defined(_TRACE_RRXE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_RRXE_H

#include <linux/tracepoint.h>
#include <rdma/ib_verbs.h>

DECLARE_EVENT_CLASS(rrxe_eqe,
		    TP_PROTO(const struct ib_device *device, u32 vector, u32 cqn, u8 generation),
		    TP_ARGS(device, vector, cqn, generation),
		    TP_STRUCT__entry(__string(device, dev_name(&device->dev))
				     __field(u32, vector)
				     __field(u32, cqn)
				     __field(u8, generation)),
		    TP_fast_assign(__assign_str(device);
				   __entry->vector = vector;
				   __entry->cqn = cqn;
				   __entry->generation = generation;),
		    TP_printk("device=%s vector=%u cqn=%u generation=%u", __get_str(device),
			      __entry->vector, __entry->cqn, __entry->generation)
);

#define DEFINE_RRXE_EQE(name)							\
DEFINE_EVENT(rrxe_eqe, name,							\
	TP_PROTO(const struct ib_device *device, u32 vector, u32 cqn,		\
		 u8 generation),						\
	TP_ARGS(device, vector, cqn, generation))

/* An event was queued, */
DEFINE_RRXE_EQE(rrxe_eqe_posted);
/* and the handler of its completion queue was called, */
DEFINE_RRXE_EQE(rrxe_eqe_dispatched);
/* or it was dropped: it is about a completion queue that is no more. */
DEFINE_RRXE_EQE(rrxe_eqe_stale);

/* What is in an event queue is left to its work item. */
TRACE_EVENT(rrxe_eq_deferred,
	    TP_PROTO(const struct ib_device *device, u32 vector, u32 depth),
	    TP_ARGS(device, vector, depth),
	    TP_STRUCT__entry(__string(device, dev_name(&device->dev))
			     __field(u32, vector)
			     __field(u32, depth)),
	    TP_fast_assign(__assign_str(device);
			   __entry->vector = vector;
			   __entry->depth = depth;),
	    TP_printk("device=%s vector=%u depth=%u", __get_str(device), __entry->vector,
		      __entry->depth)
);

#endif /* _TRACE_RRXE_H */

/* The makefile says where this is. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rrxe_trace
#include <trace/define_trace.h>
