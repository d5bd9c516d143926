// SPDX-License-Identifier: GPL-2.0-only

//! Completion queues for users in the kernel.
//!
//! This replaces `cq.c`. Here are the functions that C calls, and nothing else; what they do is in
//!
//! - [`alloc`]: making a queue and freeing it,
//! - [`poll`]: handling events and completions,
//! - [`context`]: the numbers that the poll contexts differ in,
//! - [`pool`]: queues that consumers share,
//!
//! on top of [`kernel::rdma::cq`], which has the types that keep the order of things: all that an
//! event handler touches, then the handler, then the device, then arming.
//!
//! See `Documentation/infiniband/cq-rust.rst`.

use kernel::{
    bindings,
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_void, //
    },
    prelude::*,
    rdma::{
        cq::Cq,
        device::Device, //
    },
};

#[path = "cq_rust/alloc.rs"]
mod alloc;
#[path = "cq_rust/context.rs"]
mod context;
#[path = "cq_rust/poll.rs"]
mod poll;
#[path = "cq_rust/pool.rs"]
mod pool;

/// For `pr_warn!` and its like: this is part of a module that is written in C.
const __LOG_PREFIX: &[u8] = b"ib_core\0";

/// Turns a result into what C functions return that return a pointer or an error.
fn ptr_or_err(result: Result<*mut bindings::ib_cq>) -> *mut bindings::ib_cq {
    result.unwrap_or_else(|e| e.to_ptr())
}

/// Processes all outstanding completions of a queue in the context of the caller.
///
/// The completions are not offloaded to another context, and no event is asked for. On a queue
/// that has another poll context than `IB_POLL_DIRECT` this can run beside its poller.
///
/// `budget` is the number of completions to poll for; -1 is no limit, for who knows that there are
/// few. Returns how many there were.
///
/// # Safety
///
/// `cq` must be a valid completion queue.
///
/// # Context
///
/// Any; the `done` callbacks run in it.
#[export]
pub unsafe extern "C" fn ib_process_cq_direct(cq: *mut bindings::ib_cq, budget: c_int) -> c_int {
    // SAFETY: The caller promises that `cq` is valid.
    poll::process_direct(unsafe { Cq::from_raw(cq) }, budget)
}

/// Allocates a completion queue for a user in the kernel.
///
/// - `dev`: the device;
/// - `private`: becomes `cq->cq_context`;
/// - `nr_cqe`: the number of entries;
/// - `comp_vector`: the completion vector of the device;
/// - `poll_ctx`: the context in which completions are handled;
/// - `caller`: the name of the owner.
///
/// Users put a `struct ib_cqe` into their work requests (`wr_cqe`), not a `wr_id`. Returns the
/// queue or an error pointer: `EINVAL`, `ENOMEM`, `EOPNOTSUPP`, or what the driver says.
///
/// # Safety
///
/// `dev` must be a registered device and `caller` a string that lives as long as the queue.
///
/// # Context
///
/// Process context, may sleep.
#[export]
pub unsafe extern "C" fn __ib_alloc_cq(
    dev: *mut bindings::ib_device,
    private: *mut c_void,
    nr_cqe: c_int,
    comp_vector: c_int,
    poll_ctx: bindings::ib_poll_context,
    caller: *const c_char,
) -> *mut bindings::ib_cq {
    // SAFETY: The caller promises that `dev` is valid, and `caller` for long enough.
    ptr_or_err(unsafe {
        alloc::alloc_cq(
            Device::from_raw(dev),
            private,
            nr_cqe,
            comp_vector,
            poll_ctx,
            caller,
        )
    })
}

/// As [`__ib_alloc_cq`], on a completion vector that is chosen so that users are spread over them.
///
/// # Safety
///
/// As [`__ib_alloc_cq`].
///
/// # Context
///
/// Process context, may sleep.
#[export]
pub unsafe extern "C" fn __ib_alloc_cq_any(
    dev: *mut bindings::ib_device,
    private: *mut c_void,
    nr_cqe: c_int,
    poll_ctx: bindings::ib_poll_context,
    caller: *const c_char,
) -> *mut bindings::ib_cq {
    // SAFETY: The caller promises that `dev` is valid.
    let vector = context::next_vector(unsafe { Device::from_raw(dev) });

    // SAFETY: As promised by the caller.
    unsafe { __ib_alloc_cq(dev, private, nr_cqe, vector, poll_ctx, caller) }
}

/// Frees a completion queue. On return none of its handlers runs or will run.
///
/// A queue that is in use, and a pointer that is not (any more) one of [`__ib_alloc_cq`], is
/// reported and left alone.
///
/// # Safety
///
/// If `cq` is a queue then it must not be used after this call. (Unsafe by the rules for exported
/// functions; the pointer need not be valid.)
///
/// # Context
///
/// Process context, may sleep.
#[export]
pub unsafe extern "C" fn ib_free_cq(cq: *mut bindings::ib_cq) {
    alloc::free_cq(cq);
}

/// Frees the queues in the pools of a device that goes away.
///
/// # Safety
///
/// `dev` must be valid, and its clients must be gone.
///
/// # Context
///
/// Process context, may sleep.
#[export]
pub unsafe extern "C" fn ib_cq_pool_cleanup(dev: *mut bindings::ib_device) {
    // SAFETY: The caller promises that `dev` is valid.
    pool::cleanup(unsafe { Device::from_raw(dev) });
}

/// Claims `nr_cqe` entries of a shared queue with a matching poll context and vector; makes more
/// queues if there is none with enough room.
///
/// A negative `comp_vector_hint` leaves the choice of the vector to the pool. Returns the queue or
/// an error pointer: `EINVAL` if the device can have no such queue, or as [`__ib_alloc_cq`].
///
/// # Safety
///
/// `dev` must be a registered device.
///
/// # Context
///
/// Process context, may sleep.
#[export]
pub unsafe extern "C" fn ib_cq_pool_get(
    dev: *mut bindings::ib_device,
    nr_cqe: c_uint,
    comp_vector_hint: c_int,
    poll_ctx: bindings::ib_poll_context,
) -> *mut bindings::ib_cq {
    // SAFETY: The caller promises that `dev` is valid.
    let dev = unsafe { Device::from_raw(dev) };

    ptr_or_err(pool::get(dev, nr_cqe, comp_vector_hint, poll_ctx))
}

/// Gives back entries of a shared queue: as many as were asked for when it was claimed.
///
/// # Safety
///
/// `cq` must come from [`ib_cq_pool_get`].
///
/// # Context
///
/// Any but hard interrupts.
#[export]
pub unsafe extern "C" fn ib_cq_pool_put(cq: *mut bindings::ib_cq, nr_cqe: c_uint) {
    // SAFETY: The caller promises that `cq` is valid.
    pool::put(unsafe { Cq::from_raw(cq) }, nr_cqe);
}
