// SPDX-License-Identifier: GPL-2.0

//! Trace events of the RDMA core.
//!
//! The events themselves are defined in C. They exist only in `ib_core`, so these functions can be
//! used from there only; where a tracepoint is off, each costs a jump label.
//!
//! C header: [`include/trace/events/rdma_core.h`](srctree/include/trace/events/rdma_core.h)

use super::cq::{
    Cq,
    PollContext, //
};
use crate::{
    bindings,
    ffi::c_int,
    tracepoint::declare_trace, //
};

declare_trace! {
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_schedule(cq: *mut bindings::ib_cq);
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_reschedule(cq: *mut bindings::ib_cq);
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_process(cq: *const bindings::ib_cq);
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_poll(cq: *const bindings::ib_cq, requested: c_int, rc: c_int);
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_modify(cq: *const bindings::ib_cq, comps: u16, usec: u16);
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_alloc(
        cq: *const bindings::ib_cq,
        nr_cqe: c_int,
        comp_vector: c_int,
        poll_ctx: bindings::ib_poll_context,
    );
    /// # Safety
    ///
    /// None; the C side does not say so.
    unsafe fn cq_alloc_error(
        nr_cqe: c_int,
        comp_vector: c_int,
        poll_ctx: bindings::ib_poll_context,
        rc: c_int,
    );
    /// # Safety
    ///
    /// `cq` must be valid.
    unsafe fn cq_free(cq: *const bindings::ib_cq);
}

/// A completion event arrived and made the poller run.
#[inline(always)]
pub fn schedule(cq: &Cq) {
    // SAFETY: A reference is valid.
    unsafe { cq_schedule(cq.as_raw()) }
}

/// The poller runs again, since an event may have been missed while arming.
#[inline(always)]
pub fn reschedule(cq: &Cq) {
    // SAFETY: A reference is valid.
    unsafe { cq_reschedule(cq.as_raw()) }
}

/// The poller begins.
#[inline(always)]
pub fn process(cq: &Cq) {
    // SAFETY: A reference is valid.
    unsafe { cq_process(cq.as_raw()) }
}

/// The device was polled for `requested` completions and answered `rc`.
#[inline(always)]
pub fn poll(cq: &Cq, requested: c_int, rc: c_int) {
    // SAFETY: A reference is valid.
    unsafe { cq_poll(cq.as_raw(), requested, rc) }
}

/// The moderation of the queue changes: an event after `comps` completions or `usec` microseconds.
#[inline(always)]
pub fn modify(cq: &Cq, comps: u16, usec: u16) {
    // SAFETY: A reference is valid.
    unsafe { cq_modify(cq.as_raw(), comps, usec) }
}

/// A completion queue was allocated.
#[inline(always)]
pub fn alloc(cq: &Cq, nr_cqe: c_int, comp_vector: c_int, ctx: PollContext) {
    // SAFETY: A reference is valid.
    unsafe { cq_alloc(cq.as_raw(), nr_cqe, comp_vector, ctx.into_raw()) }
}

/// Allocating a completion queue failed. `ctx` is what the caller asked for, valid or not.
#[inline(always)]
pub fn alloc_error(nr_cqe: c_int, comp_vector: c_int, ctx: bindings::ib_poll_context, rc: c_int) {
    // SAFETY: No requirements.
    unsafe { cq_alloc_error(nr_cqe, comp_vector, ctx, rc) }
}

/// A completion queue is about to be destroyed.
#[inline(always)]
pub fn free(cq: &Cq) {
    // SAFETY: A reference is valid.
    unsafe { cq_free(cq.as_raw()) }
}
