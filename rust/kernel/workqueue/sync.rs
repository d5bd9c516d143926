// SPDX-License-Identifier: GPL-2.0

//! Waiting for work items, and keeping them from being queued.
//!
//! Three questions have three answers:
//!
//! | question | method |
//! | --- | --- |
//! | has what was queued so far run? | [`Work::flush`] |
//! | is it idle now? | [`Work::cancel_sync`]: it may be queued again the moment after |
//! | will it never run again? | [`Work::disable_sync`]: queueing has no effect any more |
//!
//! Before the memory of a work item is freed only the last one helps, unless something else
//! guarantees that nobody queues it.
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     prelude::*,
//!     sync::{
//!         atomic::{Atomic, Relaxed},
//!         Arc,
//!     },
//!     workqueue::{self, impl_has_work, new_work, Work, WorkItem},
//! };
//!
//! #[pin_data]
//! struct Counter {
//!     runs: Atomic<i32>,
//!     #[pin]
//!     work: Work<Counter>,
//! }
//!
//! impl_has_work! {
//!     impl HasWork<Self> for Counter { self.work }
//! }
//!
//! impl WorkItem for Counter {
//!     type Pointer = Arc<Counter>;
//!
//!     fn run(this: Arc<Counter>) {
//!         this.runs.fetch_add(1, Relaxed);
//!     }
//! }
//!
//! let counter = Arc::pin_init(
//!     pin_init!(Counter {
//!         runs: Atomic::new(0),
//!         work <- new_work!("Counter::work"),
//!     }),
//!     GFP_KERNEL,
//! )?;
//!
//! // Queued as an `Arc`, so it can be waited for, but not taken off the queue from outside.
//! assert!(workqueue::system().enqueue(counter.clone()).is_ok());
//! counter.work.flush();
//! assert_eq!(counter.runs.load(Relaxed), 1);
//! # Ok::<(), Error>(())
//! ```

use super::{
    Queue,
    Work, //
};

impl<T: ?Sized, const ID: u64> Work<T, ID> {
    /// Waits until the last queued run has ended. Returns whether there was anything to wait for.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Not from the work item itself.
    #[doc(alias = "flush_work")]
    #[inline]
    pub fn flush(&self) -> bool {
        // SAFETY: `self` is an initialised work item.
        unsafe { bindings::flush_work(Work::raw_get(self)) }
    }

    /// Disables the work item: takes it off its queue and waits for a running call to end.
    ///
    /// Until it is enabled again (there is no such method here, since nobody needs it) queueing it
    /// does nothing and reports that the item was queued already. Returns whether it was pending.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Not from the work item itself.
    #[doc(alias = "disable_work_sync")]
    #[inline]
    pub fn disable_sync(&self) -> bool
    where
        T: NoOwner<ID>,
    {
        // SAFETY: `self` is an initialised work item. By `NoOwner` a queued item owns nothing that
        // would be lost when it is taken off its queue.
        unsafe { bindings::disable_work_sync(Work::raw_get(self)) }
    }

    /// Takes the work item off its queue and waits for a running call to end. It can be queued
    /// again at once. Returns whether it was pending.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Not from the work item itself.
    #[doc(alias = "cancel_work_sync")]
    #[inline]
    pub fn cancel_sync(&self) -> bool
    where
        T: NoOwner<ID>,
    {
        // SAFETY: As in `disable_sync()`.
        unsafe { bindings::cancel_work_sync(Work::raw_get(self)) }
    }
}

/// Work items that own nothing while they are queued.
///
/// An item that is queued as an [`Arc`](crate::sync::Arc) or a box owns a reference until it runs;
/// cancelling it from outside would leak that. So only items whose pointer type carries no
/// ownership can be cancelled.
///
/// # Safety
///
/// The [`WorkItem::Pointer`](super::WorkItem::Pointer) of the implementing type must have no drop
/// glue and stand for no count of anything.
pub unsafe trait NoOwner<const ID: u64 = 0> {}

impl Queue {
    /// Waits until everything that was queued before has run.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Not from a work item on this queue.
    #[doc(alias = "flush_workqueue")]
    #[inline]
    pub fn flush(&self) {
        // SAFETY: `self` is a valid workqueue.
        unsafe { bindings::__flush_workqueue(self.0.get()) };
    }
}
