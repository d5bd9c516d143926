// SPDX-License-Identifier: GPL-2.0-only

//! Allocating completion queues and freeing them.

use super::poll::CorePoller;
use kernel::{
    bindings,
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    prelude::*,
    rdma::{
        cq::{
            Allocated,
            Attr,
            ClaimError,
            Live,
            LiveSet,
            PollContext, //
        },
        device::Device,
        trace, //
    },
    types::Opaque,
    warn_on_once,
};

// Initialised at compile time, which Rust cannot say yet; see cq_rust_glue.c.
extern "C" {
    static ib_cq_live_lock: Opaque<bindings::spinlock_t>;
}

/// Every queue that a consumer has.
//
// SAFETY: The lock is initialised at compile time, lives as long as this module, and is used for
// nothing else, see cq_rust_glue.c.
pub(super) static LIVE: LiveSet<CorePoller> = unsafe { LiveSet::new(ib_cq_live_lock.get()) };

/// Makes a queue that nobody has yet.
///
/// # Safety
///
/// `name` must be a string that lives as long as the queue.
pub(super) unsafe fn make(
    dev: &Device,
    attr: Attr,
    raw_ctx: bindings::ib_poll_context,
    name: *const c_char,
) -> Result<Live<CorePoller>> {
    if warn_on_once!(attr.nr_cqe == 0) {
        return Err(EINVAL);
    }
    let traced = |e: Error| {
        trace::alloc_error(attr.nr_cqe, attr.comp_vector, raw_ctx, e.to_errno());
        e
    };
    let ctx = PollContext::from_raw(raw_ctx).map_err(traced)?;
    // SAFETY: The caller promises that `name` lives long enough.
    let queue = unsafe { Allocated::new(dev, attr, name) }.map_err(traced)?;

    Ok(match ctx.events() {
        None => queue.set_direct().publish().map_err(traced)?.unarmed(),
        Some(ctx) => queue.set_events(ctx).publish().map_err(traced)?.arm(),
    })
}

/// See [`__ib_alloc_cq`](super::__ib_alloc_cq).
///
/// # Safety
///
/// `name` must be a string that lives as long as the queue.
pub(super) unsafe fn alloc_cq(
    dev: &Device,
    private: *mut c_void,
    nr_cqe: c_int,
    comp_vector: c_int,
    raw_ctx: bindings::ib_poll_context,
    name: *const c_char,
) -> Result<*mut bindings::ib_cq> {
    let attr = Attr {
        nr_cqe,
        comp_vector,
        context: private,
        shared: false,
    };
    // SAFETY: The caller promises that `name` lives long enough.
    Ok(LIVE.hand_out(unsafe { make(dev, attr, raw_ctx, name) }?))
}

/// See [`ib_free_cq`](super::ib_free_cq).
pub(super) fn free_cq(cq: *mut bindings::ib_cq) {
    free(LIVE.claim(cq));
}

/// Frees a queue, or reports why it cannot be freed.
pub(super) fn free(claimed: Result<Live<CorePoller>, ClaimError>) {
    // One warning for each reason, so that the line number tells which.
    match claimed {
        Ok(live) => drop(live),
        Err(ClaimError::InUse) => {
            warn_on_once!(true);
        }
        Err(ClaimError::Shared) => {
            warn_on_once!(true);
        }
        Err(ClaimError::Unknown) => {
            warn_on_once!(true);
        }
    }
}
