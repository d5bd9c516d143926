// SPDX-License-Identifier: GPL-2.0

//! Completion queues, as their consumers see them.
//!
//! The other side of [`cq`](super::cq), which is how the core makes them. A consumer allocates a
//! queue in a [`PollContext`], creates queue pairs that use it and gets its work requests back by
//! [`Done::done`](super::wr::Done::done), in that context.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    client::ClientDevice,
    cq::PollContext, //
};
use crate::{
    bindings,
    error::from_err_ptr,
    ffi::c_int,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use core::ptr::NonNull;

/// A completion queue that is polled by the core.
///
/// Wraps the kernel's C `struct ib_cq`.
///
/// A queue that overflows loses completions, and with them the memory of requests. So the entries
/// of a queue are handed out to the queue pairs that use it, each of which gets as many as it can
/// have requests at a time, and creating one for which not enough are left fails.
///
/// # Invariants
///
/// - `cq` is a completion queue on `dev` in context `ctx` that is ours to free.
/// - `free` is the number of entries that no queue pair has, except for a moment while somebody
///   finds out that there are not enough.
///
/// # Examples
///
/// Not built, since `ib_core` may be a module and this crate is not:
///
/// ```ignore
/// fn add(dev: &Arc<ClientDevice>) -> Result<Arc<ConsumerCq>> {
///     // 128 entries, completion vector 0.
///     ConsumerCq::new(dev, 128, 0, PollContext::Softirq)
/// }
/// ```
pub struct ConsumerCq {
    cq: NonNull<bindings::ib_cq>,
    dev: Arc<ClientDevice>,
    ctx: PollContext,
    free: Atomic<i32>,
}

// SAFETY: Completion queues are not bound to a thread.
unsafe impl Send for ConsumerCq {}

// SAFETY: The functions that are called with a reference may be called from several threads at a
// time; this is what the rules for drivers say, `Documentation/infiniband/core_locking.rst`.
unsafe impl Sync for ConsumerCq {}

impl ConsumerCq {
    /// Allocates a queue with at least `nr_cqe` entries on completion vector `comp_vector`.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no entries, more than the device can do, or a vector that it does not have;
    /// `ENOMEM`; that of the driver.
    #[doc(alias = "ib_alloc_cq")]
    #[inline]
    pub fn new(
        dev: &Arc<ClientDevice>,
        nr_cqe: u32,
        comp_vector: u32,
        ctx: PollContext,
    ) -> Result<Arc<Self>> {
        if nr_cqe == 0 || nr_cqe > dev.max_cqe() || comp_vector >= dev.num_comp_vectors() {
            return Err(EINVAL);
        }
        let nr_cqe = c_int::try_from(nr_cqe)?;
        // SAFETY: The device is registered, and the name lives as long as the module.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                dev.as_raw(),
                core::ptr::null_mut(),
                nr_cqe,
                comp_vector as c_int,
                ctx.into_raw(),
                dev.user(),
            )
        })?;
        // INVARIANT: It was allocated just now.
        let this = Self {
            cq: NonNull::new(cq).ok_or(ENOMEM)?,
            dev: dev.clone(),
            ctx,
            free: Atomic::new(nr_cqe),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Arc<ClientDevice> {
        &self.dev
    }

    /// From where the queue is polled.
    #[inline]
    pub fn poll_context(&self) -> PollContext {
        self.ctx
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::ib_cq {
        self.cq.as_ptr()
    }

    /// Handles up to `budget` completions of a queue in context [`PollContext::Direct`] and
    /// returns how many there were. They are handed to their consumers from within this call.
    ///
    /// # Context
    ///
    /// Any that the consumers can stand.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a queue in another context.
    #[doc(alias = "ib_process_cq_direct")]
    #[inline]
    pub fn process_direct(&self, budget: u32) -> Result<u32> {
        if self.ctx != PollContext::Direct {
            return Err(EINVAL);
        }
        // A negative value means no limit.
        let budget = c_int::try_from(budget).unwrap_or(c_int::MAX);
        // SAFETY: By the type invariant.
        let n = unsafe { bindings::ib_process_cq_direct(self.as_raw(), budget) };
        Ok(n.try_into().unwrap_or(0))
    }
}

impl Drop for ConsumerCq {
    /// Waits until nobody polls the queue any more. May sleep.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Queue pairs that use a queue hold a reference to it.
        unsafe { bindings::ib_free_cq(self.as_raw()) };
    }
}

/// Some entries of a completion queue, in the hands of a queue pair.
///
/// # Invariants
///
/// `n` entries of `cq` are ours.
pub(super) struct Entries {
    cq: Arc<ConsumerCq>,
    n: i32,
}

impl Entries {
    /// Takes `n` entries of `cq`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are not so many.
    #[inline]
    pub(super) fn take(cq: &Arc<ConsumerCq>, n: i32) -> Result<Self> {
        if cq.free.fetch_sub(n, Relaxed) < n {
            cq.free.add(n, Relaxed);
            return Err(ENOSPC);
        }
        // INVARIANT: There were enough.
        Ok(Self { cq: cq.clone(), n })
    }

    /// The queue.
    #[inline]
    pub(super) fn cq(&self) -> &ConsumerCq {
        &self.cq
    }
}

impl Drop for Entries {
    #[inline]
    fn drop(&mut self) {
        self.cq.free.add(self.n, Relaxed);
    }
}
