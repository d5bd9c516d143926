// SPDX-License-Identifier: GPL-2.0

//! Dynamic interrupt moderation of completion queues.
//!
//! The algorithm is in C (`lib/dim/rdma_dim.c`). It is fed with the number of completions of each
//! run of the poller and asks, by a work item, for another moderation now and then.
//!
//! C header: [`include/linux/dim.h`](srctree/include/linux/dim.h)

use super::{
    Cq,
    PollContext,
    Poller, //
};
use crate::{
    bindings, container_of,
    prelude::*,
    rdma::trace,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    types::Opaque,
    workqueue::{
        NoOwner,
        RawWorkItem,
        Work,
        WorkItem,
        WorkItemPointer, //
    },
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull, //
};

/// How a completion queue is moderated: an event after `comps` completions or `usec` microseconds.
#[derive(Clone, Copy)]
pub struct Moderation {
    /// Microseconds.
    pub usec: u16,
    /// Completions.
    pub comps: u16,
}

/// The work item in a `struct dim`.
#[repr(transparent)]
pub(super) struct DimWork<P>(Opaque<bindings::dim>, PhantomData<P>);

/// A borrowed pointer to a `struct dim` whose work runs.
pub(super) struct DimPtr<P>(NonNull<bindings::dim>, PhantomData<P>);

// SAFETY: The memory is not bound to a thread, and the pointer is only followed while the work
// item runs.
unsafe impl<P> Send for DimPtr<P> {}

// SAFETY: `run` is the function of the work item by `Work::new()`. The pointer carries nothing.
unsafe impl<P: Poller> WorkItemPointer<0> for DimPtr<P> {
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work item lies in a `struct dim`.
        let dim: *mut bindings::dim = unsafe { container_of!(work, bindings::dim, work) };
        // SAFETY: It is not null.
        DimWork::<P>::run(DimPtr(unsafe { NonNull::new_unchecked(dim) }, PhantomData))
    }
}

// SAFETY: The closure gets the work item in a `struct dim`, which lives until `stop()` has
// disabled it.
unsafe impl<P: Poller> RawWorkItem<0> for DimPtr<P> {
    type EnqueueOutput = bool;

    unsafe fn __enqueue<F>(self, queue_work_on: F) -> bool
    where
        F: FnOnce(*mut bindings::work_struct) -> bool,
    {
        // SAFETY: `self` points to a valid `struct dim`.
        queue_work_on(unsafe { &raw mut (*self.0.as_ptr()).work })
    }
}

// SAFETY: `DimPtr` has no drop glue.
unsafe impl<P> NoOwner for DimWork<P> {}

impl<P: Poller> WorkItem for DimWork<P> {
    type Pointer = DimPtr<P>;

    /// Applies the moderation that the algorithm has chosen.
    //
    // Litmus: LB+dim-state+acquire
    fn run(this: DimPtr<P>) {
        let dim = this.0.as_ptr();
        // SAFETY: The work item runs, so the `struct dim` is alive, and so is its queue: `stop()`
        // waits for us before the queue is destroyed. The algorithm does not change `profile_ix`
        // while it waits for the new profile to be applied.
        let (cq, index) = unsafe {
            (
                Cq::from_raw((*dim).priv_.cast()),
                usize::from((*dim).profile_ix),
            )
        };
        let new = P::MODERATION[index.min(P::MODERATION.len() - 1)];

        // The poller looks at the state from another CPU; it may go on to measure from here, and
        // to change what was read above.
        //
        // SAFETY: The C object is alive.
        unsafe { state(dim) }.store(bindings::dim_state_DIM_START_MEASURE as i8, Release);

        trace::modify(cq, new.comps, new.usec);
        // SAFETY: `enable()` has checked that the operation exists.
        unsafe {
            if let Some(modify_cq) = (*cq.device().as_raw()).ops.modify_cq {
                modify_cq(cq.as_raw(), new.comps, new.usec);
            }
        }
    }
}

/// The state of the algorithm, for access from the poller and the work item at a time.
///
/// # Safety
///
/// `dim` must be valid for the whole of `'a`.
#[inline]
unsafe fn state<'a>(dim: *mut bindings::dim) -> &'a Atomic<i8> {
    // SAFETY: By the safety requirement; a byte of C has the size of an `i8`. `rdma_dim()` writes
    // it while the work item does not run, and is called by the poller only, which also reads it.
    unsafe { Atomic::from_ptr((&raw mut (*dim).state).cast()) }
}

/// Turns moderation on for a queue, if its device can do it and its context has events.
///
/// It is an improvement that the queue works without, so running out of memory is no error.
///
/// # Safety
///
/// `cq` must be valid and not published yet.
#[inline]
pub(super) unsafe fn enable<P: Poller>(cq: *mut bindings::ib_cq, ctx: PollContext) {
    const { assert!(P::MODERATION.len() == bindings::RDMA_DIM_PARAMS_NUM_PROFILES as usize) };

    // SAFETY: The caller promises that `cq` is valid.
    let wanted =
        unsafe { (*(*cq).device).ops.modify_cq.is_some() && (*(*cq).device).use_cq_dim() != 0 };
    if !wanted || ctx == PollContext::Direct {
        return;
    }
    let Ok(dim) = KBox::<MaybeUninit<bindings::dim>>::new(MaybeUninit::zeroed(), GFP_KERNEL) else {
        return;
    };
    let dim = KBox::into_raw(dim).cast::<bindings::dim>();

    let work = Work::<DimWork<P>>::new(
        c"rdma_dim",
        crate::static_lock_class!(), //
    );
    // SAFETY: We own `dim`, which is zeroed; and the caller promises that nobody else uses `cq`.
    // The pinned initialiser writes to memory that stays where it is until `free()`.
    unsafe {
        (*dim).state = bindings::dim_state_DIM_START_MEASURE as u8;
        (*dim).tune_state = bindings::dim_tune_state_DIM_GOING_RIGHT as u8;
        (*dim).profile_ix = bindings::RDMA_DIM_START_PROFILE as u8;
        (*dim).priv_ = cq.cast();
        pin_init::raw_init((&raw mut (*dim).work).cast::<Work<DimWork<P>>>(), work);
        (*cq).dim = dim;
    }
}

/// Stops changing the moderation: on return no work item runs or will run.
///
/// # Safety
///
/// `cq` must be valid.
///
/// # Context
///
/// Process context, may sleep.
#[inline]
pub(super) unsafe fn stop<P: Poller>(cq: *mut bindings::ib_cq) {
    // SAFETY: The caller promises that `cq` is valid; `dim` is null or what `enable()` made.
    unsafe {
        let dim = (*cq).dim;
        if !dim.is_null() {
            (*(&raw const (*dim).work).cast::<Work<DimWork<P>>>()).disable_sync();
        }
    }
}

/// Frees what [`enable`] allocated.
///
/// # Safety
///
/// `cq` must be valid, and [`stop`] must have been called.
#[inline]
pub(super) unsafe fn free(cq: *mut bindings::ib_cq) {
    // SAFETY: By the safety requirement nobody uses it; it comes from a `KBox` of the same layout.
    unsafe {
        let dim = (*cq).dim;
        if !dim.is_null() {
            (*cq).dim = core::ptr::null_mut();
            drop(KBox::<MaybeUninit<bindings::dim>>::from_raw(dim.cast()));
        }
    }
}

/// Tells the algorithm about the completions of one run of the poller.
//
// Litmus: LB+dim-state+acquire
///
/// # Safety
///
/// `cq` must be valid, and calls for one queue must not overlap.
#[inline]
pub(super) unsafe fn update(cq: *mut bindings::ib_cq, completions: i32) {
    // SAFETY: The caller promises that `cq` is valid; `dim` is constant while it is published.
    unsafe {
        let dim = (*cq).dim;
        if dim.is_null() {
            return;
        }
        // While a profile is being applied there is nothing to measure, and the work item reads
        // what the algorithm writes: it has to see the end of that.
        if state(dim).load(Acquire) != bindings::dim_state_DIM_APPLY_NEW_PROFILE as i8 {
            bindings::rdma_dim(dim, completions as u64);
        }
    }
}
