// SPDX-License-Identifier: GPL-2.0

//! Trace events of event queues.
//!
//! The events themselves are defined in C, by the one driver that has them. They exist only in that
//! driver, so these functions can be used from there only; where a tracepoint is off, each costs a
//! jump label.
//!
//! C header: [`rrxe_trace.h`](srctree/drivers/infiniband/sw/rrxe/rrxe_trace.h)

use crate::{
    bindings,
    rdma::device::Device,
    tracepoint::declare_trace, //
};

declare_trace! {
    /// # Safety
    ///
    /// `device` must be valid.
    unsafe fn rrxe_eqe_posted(
        device: *const bindings::ib_device,
        vector: u32,
        cqn: u32,
        generation: u8,
    );
    /// # Safety
    ///
    /// `device` must be valid.
    unsafe fn rrxe_eqe_dispatched(
        device: *const bindings::ib_device,
        vector: u32,
        cqn: u32,
        generation: u8,
    );
    /// # Safety
    ///
    /// `device` must be valid.
    unsafe fn rrxe_eqe_stale(
        device: *const bindings::ib_device,
        vector: u32,
        cqn: u32,
        generation: u8,
    );
    /// # Safety
    ///
    /// `device` must be valid.
    unsafe fn rrxe_eq_deferred(device: *const bindings::ib_device, vector: u32, depth: u32);
}

/// An event of completion queue number `cqn` was queued, in an event queue of this vector.
#[inline(always)]
pub fn posted(device: &Device, vector: u32, cqn: u32, generation: u8) {
    // SAFETY: A reference is valid.
    unsafe { rrxe_eqe_posted(device.as_raw(), vector, cqn, generation) }
}

/// The handler of the completion queue was called for it.
#[inline(always)]
pub fn dispatched(device: &Device, vector: u32, cqn: u32, generation: u8) {
    // SAFETY: A reference is valid.
    unsafe { rrxe_eqe_dispatched(device.as_raw(), vector, cqn, generation) }
}

/// It was dropped, because the completion queue is no more.
#[inline(always)]
pub fn stale(device: &Device, vector: u32, cqn: u32, generation: u8) {
    // SAFETY: A reference is valid.
    unsafe { rrxe_eqe_stale(device.as_raw(), vector, cqn, generation) }
}

/// The `depth` events of an event queue are left to its work item.
#[inline(always)]
pub fn deferred(device: &Device, vector: u32, depth: u32) {
    // SAFETY: A reference is valid.
    unsafe { rrxe_eq_deferred(device.as_raw(), vector, depth) }
}
