// SPDX-License-Identifier: GPL-2.0
///
/// Raise completion events by ib_cq_completion().
///
//# An event may come for a completion queue whose handler is not set yet, or
//# is set by another CPU at that moment. A direct call through comp_handler
//# loads the pointer without order, often twice, and some do not test it.
//# ib_cq_completion() loads it once, by smp_load_acquire(), and tests it.
//# The other side is a store by smp_store_release() before the queue is made
//# known to the device. A store is reported only; where it belongs is for the
//# author to say. A store of NULL makes nothing known.
///
// Confidence: High
// Comments: functions that a macro names, UVERBS_HANDLER(x)(...), are seen only
// Comments: with SPFLAGS="--macro-file FILE", FILE having a #define of the macro
// Options: --no-includes --include-headers

virtual patch
virtual context
virtual org
virtual report

//----------------------------------------------------------
//  For context, org and report mode
//----------------------------------------------------------

@call depends on context || org || report@
expression cq;
position p;
@@

(
* cq.comp_handler@p(...)
|
* cq->comp_handler@p(...)
|
* (*cq.comp_handler@p)(...)
|
* (*cq->comp_handler@p)(...)
)

// The pointer in a variable: the same call in two steps.
@copy depends on context || org || report@
expression cq;
identifier handler;
position p;
@@

(
* handler@p = cq.comp_handler;
|
* handler@p = cq->comp_handler;
|
* handler@p = READ_ONCE(cq.comp_handler);
|
* handler@p = READ_ONCE(cq->comp_handler);
)
  ... when any
(
* handler(...)
|
* (*handler)(...)
)

@copydecl depends on context || org || report@
expression cq;
identifier handler;
type T;
position p;
@@

(
* T handler@p = cq.comp_handler;
|
* T handler@p = cq->comp_handler;
|
* T handler@p = READ_ONCE(cq.comp_handler);
|
* T handler@p = READ_ONCE(cq->comp_handler);
)
  ... when any
(
* handler(...)
|
* (*handler)(...)
)

@store depends on context || org || report@
expression cq, handler;
position p;
@@

(
  cq.comp_handler = NULL
|
  cq->comp_handler = NULL
|
* cq.comp_handler@p = handler
|
* cq->comp_handler@p = handler
|
* WRITE_ONCE(cq.comp_handler@p, handler)
|
* WRITE_ONCE(cq->comp_handler@p, handler)
)

//----------------------------------------------------------
//  For patch mode
//----------------------------------------------------------

// The test for NULL in front of the call is part of ib_cq_completion().

@depends on patch@
expression cq;
@@

(
- if (cq.comp_handler)
- 	cq.comp_handler(&cq, cq.cq_context);
+ ib_cq_completion(&cq);
|
- if (cq.comp_handler)
- 	(*cq.comp_handler)(&cq, cq.cq_context);
+ ib_cq_completion(&cq);
|
- if (cq->comp_handler)
- 	cq->comp_handler(cq, cq->cq_context);
+ ib_cq_completion(cq);
|
- if (cq->comp_handler)
- 	(*cq->comp_handler)(cq, cq->cq_context);
+ ib_cq_completion(cq);
)

@depends on patch@
expression cq, more;
@@

(
- if (more && cq.comp_handler)
- 	cq.comp_handler(&cq, cq.cq_context);
+ if (more)
+ 	ib_cq_completion(&cq);
|
- if (more && cq.comp_handler)
- 	(*cq.comp_handler)(&cq, cq.cq_context);
+ if (more)
+ 	ib_cq_completion(&cq);
|
- if (more && cq->comp_handler)
- 	cq->comp_handler(cq, cq->cq_context);
+ if (more)
+ 	ib_cq_completion(cq);
|
- if (more && cq->comp_handler)
- 	(*cq->comp_handler)(cq, cq->cq_context);
+ if (more)
+ 	ib_cq_completion(cq);
)

// A lock around the call stays.

@depends on patch@
expression cq, lock, flags;
@@

- if (cq.comp_handler) {
- 	spin_lock_irqsave(lock, flags);
- 	(*cq.comp_handler)(&cq, cq.cq_context);
- 	spin_unlock_irqrestore(lock, flags);
- }
+ spin_lock_irqsave(lock, flags);
+ ib_cq_completion(&cq);
+ spin_unlock_irqrestore(lock, flags);

@depends on patch@
expression cq, more, lock, flags;
@@

- if (more && cq.comp_handler) {
+ if (more) {
  	spin_lock_irqsave(lock, flags);
- 	(*cq.comp_handler)(&cq, cq.cq_context);
+ 	ib_cq_completion(&cq);
  	spin_unlock_irqrestore(lock, flags);
  }

// What is left has no test, or one farther away.

@depends on patch@
expression cq;
@@

(
- cq.comp_handler(&cq, cq.cq_context)
+ ib_cq_completion(&cq)
|
- (*cq.comp_handler)(&cq, cq.cq_context)
+ ib_cq_completion(&cq)
|
- cq->comp_handler(cq, cq->cq_context)
+ ib_cq_completion(cq)
|
- (*cq->comp_handler)(cq, cq->cq_context)
+ ib_cq_completion(cq)
)

//----------------------------------------------------------
//  For org mode
//----------------------------------------------------------

@script:python depends on org@
p << call.p;
@@

coccilib.org.print_todo(p[0], "direct call through comp_handler, use ib_cq_completion()")

@script:python depends on org@
p << copy.p;
@@

coccilib.org.print_todo(p[0], "comp_handler loaded without order, use ib_cq_completion()")

@script:python depends on org@
p << copydecl.p;
@@

coccilib.org.print_todo(p[0], "comp_handler loaded without order, use ib_cq_completion()")

@script:python depends on org@
p << store.p;
@@

coccilib.org.print_todo(p[0], "comp_handler stored without order, use smp_store_release()")

//----------------------------------------------------------
//  For report mode
//----------------------------------------------------------

@script:python depends on report@
p << call.p;
@@

msg = "WARNING: direct call through comp_handler, use ib_cq_completion()"
coccilib.report.print_report(p[0], msg)

@script:python depends on report@
p << copy.p;
@@

msg = "WARNING: comp_handler loaded without order, use ib_cq_completion()"
coccilib.report.print_report(p[0], msg)

@script:python depends on report@
p << copydecl.p;
@@

msg = "WARNING: comp_handler loaded without order, use ib_cq_completion()"
coccilib.report.print_report(p[0], msg)

@script:python depends on report@
p << store.p;
@@

msg = "WARNING: comp_handler stored without order, use smp_store_release()"
coccilib.report.print_report(p[0], msg)
