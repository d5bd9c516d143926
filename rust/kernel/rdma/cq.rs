// SPDX-License-Identifier: GPL-2.0

//! Completion queues of the kernel.
//!
//! A completion queue (CQ) can be reached from the interrupt path of its device from the moment
//! that the device knows it, which is in the middle of `ops.create_cq()`. So this is the order in
//! which one comes to life; each step is a type that only the step before can turn into:
//!
//! ```text
//! Allocated -> Initialised<Evented> -> Published<Evented> -> Live
//!           set_events()          publish()           arm()
//!
//! Allocated -> Initialised<Direct>  -> Published<Direct>  -> Live
//!           set_direct()          publish()           unarmed()
//! ```
//!
//! - [`Allocated`]: memory, device, context, buffer for completions, tracker.
//! - [`Initialised`]: all that the handlers touch, which is `irq_poll` or work item, work queue and
//!   moderation; *then* `comp_handler` by a store-release. It pairs with the load-acquire of
//!   `comp_handler` in the device's event path.
//! - [`Published`]: `ops.create_cq()`: the device publishes the number of the CQ. It pairs with the
//!   device's own look-up.
//! - [`Live`]: the handler that polls, by a store-release; `ops.req_notify_cq()`: events may come
//!   from now on. It pairs with the device's arm/notify protocol.
//!
//! An event before arming, a stale one for a number that was used before or one that a hostile
//! device makes up, thus finds either no handler or one that works. Until `ops.create_cq()` has
//! succeeded that is one that only takes a note, since a queue that is half made cannot be polled;
//! the event is handled afterwards, and not at all if creating fails. Dropping a value undoes what
//! its step did, and the steps before: this is the error path and the way to free a CQ.
//!
//! A CQ that is not published cannot be armed, since [`Initialised`] has no such method, and a CQ
//! for direct polling can never be armed, since [`Published<Direct>`] has none.
//!
//! What the poller does, budgets, batches and so on, is not decided here but by the [`Poller`]
//! that the core provides.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::Device,
    trace, //
};
use crate::{
    bindings,
    ffi::c_int,
    prelude::*,
    types::Opaque,
    warn_on_once, //
};
use core::mem::MaybeUninit;

mod build;
mod dim;
mod event;
mod live;
mod poller;
mod pool;

pub use build::{
    Allocated,
    Attr,
    Direct,
    Evented,
    Initialised,
    Live,
    Published, //
};
pub use dim::Moderation;
pub use event::raise_event;
pub use live::{
    ClaimError,
    LiveSet, //
};
pub use poller::{
    Poller,
    SoftirqEvent,
    SoftirqRun,
    Tail,
    WorkEvent,
    WorkRun, //
};
pub use pool::Pool;

/// How many completions are fetched from the device at a time where the core polls.
pub const POLL_BATCH: usize = 16;

/// From where a completion queue is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollContext {
    /// By the consumer, when it likes. Never armed.
    Direct,
    /// In softirq context, see [`irq_poll`](crate::irq_poll).
    Softirq,
    /// By a work queue.
    Workqueue(Wq),
}

/// The work queue that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wq {
    /// `ib_comp_wq`: on the CPU on which the event arrived.
    Bound,
    /// `ib_comp_unbound_wq`: where the scheduler likes.
    Unbound,
}

impl PollContext {
    /// Parses the C enumeration.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a value that it does not have.
    #[inline]
    pub fn from_raw(raw: bindings::ib_poll_context) -> Result<Self> {
        match raw {
            bindings::ib_poll_context_IB_POLL_DIRECT => Ok(Self::Direct),
            bindings::ib_poll_context_IB_POLL_SOFTIRQ => Ok(Self::Softirq),
            bindings::ib_poll_context_IB_POLL_WORKQUEUE => Ok(Self::Workqueue(Wq::Bound)),
            bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE => Ok(Self::Workqueue(Wq::Unbound)),
            _ => Err(EINVAL),
        }
    }

    /// Returns the value of the C enumeration.
    #[inline]
    pub fn into_raw(self) -> bindings::ib_poll_context {
        match self {
            Self::Direct => bindings::ib_poll_context_IB_POLL_DIRECT,
            Self::Softirq => bindings::ib_poll_context_IB_POLL_SOFTIRQ,
            Self::Workqueue(Wq::Bound) => bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            Self::Workqueue(Wq::Unbound) => bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE,
        }
    }
}

impl PollContext {
    /// Which of the contexts with events it is; none if there are no events.
    #[inline]
    pub fn events(self) -> Option<EventContext> {
        match self {
            Self::Direct => None,
            Self::Softirq => Some(EventContext::Softirq),
            Self::Workqueue(wq) => Some(EventContext::Workqueue(wq)),
        }
    }
}

/// A [`PollContext`] in which events make the poller run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventContext {
    /// See [`PollContext::Softirq`].
    Softirq,
    /// See [`PollContext::Workqueue`].
    Workqueue(Wq),
}

impl From<EventContext> for PollContext {
    #[inline]
    fn from(ctx: EventContext) -> Self {
        match ctx {
            EventContext::Softirq => Self::Softirq,
            EventContext::Workqueue(wq) => Self::Workqueue(wq),
        }
    }
}

/// What to be told of, and how, when a completion queue is armed.
///
/// IBA 1.5, chapter 11.4.2.2 (request completion notification).
#[derive(Clone, Copy)]
pub struct NotifyFlags(bindings::ib_cq_notify_flags);

impl NotifyFlags {
    /// The next completion of any kind.
    pub const NEXT_COMP: Self = Self(bindings::ib_cq_notify_flags::IB_CQ_NEXT_COMP);

    /// As [`NEXT_COMP`](Self::NEXT_COMP), and say so if a completion may have been missed.
    pub const NEXT_COMP_OR_MISSED: Self = Self(bindings::ib_cq_notify_flags(
        bindings::ib_cq_notify_flags::IB_CQ_NEXT_COMP.0
            | bindings::ib_cq_notify_flags::IB_CQ_REPORT_MISSED_EVENTS.0,
    ));
}

/// What the device says when it is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The next completion makes an event.
    Waiting,
    /// A completion may have arrived without an event: poll again.
    Missed,
    /// Arming failed.
    Failed,
}

/// Room for a completion.
///
/// Wraps the kernel's C `struct ib_wc`.
pub type WcSlot = MaybeUninit<bindings::ib_wc>;

/// A completion queue that the device knows.
///
/// Wraps the kernel's C `struct ib_cq`.
///
/// # Invariants
///
/// - `ops.create_cq()` has succeeded or is running for this object, and `ops.destroy_cq()` has not
///   been called.
/// - The device has the operations `poll_cq` and `req_notify_cq`.
/// - Who posts work requests whose completions go to this queue sets `wr_cqe` in them.
#[repr(transparent)]
pub struct Cq(Opaque<bindings::ib_cq>);

// SAFETY: The operations on it may be called from any thread: this is what the rules for drivers
// say, `Documentation/infiniband/core_locking.rst`.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates a reference from a pointer of the C side.
    ///
    /// # Safety
    ///
    /// `ptr` must fulfil the type invariants for the whole of `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::ib_cq) -> &'a Self {
        // INVARIANT: The caller promises them.
        // SAFETY: The caller promises that `ptr` is valid; `Cq` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::ib_cq {
        self.0.get()
    }

    /// The device that the queue belongs to.
    #[inline]
    pub fn device(&self) -> &Device {
        // SAFETY: The field is constant, and a device outlives its queues.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Fetches as many completions from the device as there are and as `slots` has room for.
    ///
    /// # Context
    ///
    /// Any. Who takes completions off a queue decides their order, so calls for one queue should
    /// not overlap.
    #[doc(alias = "ib_poll_cq")]
    #[inline]
    pub fn poll<'w>(&'w self, slots: &'w mut [WcSlot]) -> Completions<'w> {
        let asked = slots.len() as c_int;
        let cq = self.as_raw();
        // SAFETY: By the type invariant the queue is valid and the operation exists; `slots` has
        // room for `asked` completions.
        let rc = unsafe {
            let poll_cq = (*(*cq).device).ops.poll_cq.unwrap_unchecked();
            poll_cq(cq, asked, slots.as_mut_ptr().cast())
        };
        trace::poll(self, asked, rc);

        // One comparison for all that is out of the ordinary: nothing there, an error, and a device
        // that claims more than it was asked for, which does not tell what it stored and must not
        // make us read beyond the end.
        if (rc as u32).wrapping_sub(1) >= asked as u32 {
            warn_on_once!(rc > asked);
            return Completions {
                cq: self,
                slots: &mut [],
            };
        }
        // INVARIANT: `poll_cq` returns the number of completions that it stored.
        Completions {
            cq: self,
            slots: &mut slots[..rc as usize],
        }
    }

    /// Arms the queue: asks for an event on the next completion. One-shot.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// Not for everybody: only the stages of a queue and its poller know when it is time.
    #[doc(alias = "ib_req_notify_cq")]
    #[inline]
    fn req_notify(&self, flags: NotifyFlags) -> Armed {
        let cq = self.as_raw();
        // SAFETY: By the type invariant the queue is valid and the operation exists.
        let rc = unsafe {
            let req_notify_cq = (*(*cq).device).ops.req_notify_cq.unwrap_unchecked();
            req_notify_cq(cq, flags.0)
        };
        match rc {
            0 => Armed::Waiting,
            1.. => Armed::Missed,
            _ => Armed::Failed,
        }
    }
}

/// Completions that were fetched from a device.
///
/// # Invariants
///
/// All slots are initialised with completions of `cq`.
pub struct Completions<'w> {
    cq: &'w Cq,
    slots: &'w mut [WcSlot],
}

impl Completions<'_> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Hands each completion to the consumer that posted the work request, in order.
    ///
    /// A successful completion without a `wr_cqe` is a fault of the consumer and reported once.
    #[inline]
    pub fn dispatch(self) {
        for slot in self.slots {
            let wc = slot.as_mut_ptr();
            // SAFETY: By the type invariants the slot is initialised, and `wr_cqe` is what was set.
            let (wr_cqe, status) = unsafe { ((*wc).__bindgen_anon_1.wr_cqe, (*wc).status) };
            if wr_cqe.is_null() {
                warn_on_once!(status == bindings::ib_wc_status_IB_WC_SUCCESS);
                continue;
            }
            // SAFETY: It is valid until its `done` is called, and that exists.
            unsafe { (*wr_cqe).done.unwrap_unchecked()(self.cq.as_raw(), wc) };
        }
    }
}
