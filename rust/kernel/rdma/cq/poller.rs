// SPDX-License-Identifier: GPL-2.0

//! Running a [`Poller`] in the context of a completion queue.
//!
//! Here are the functions that C calls, and the state that a poller needs beside `struct ib_cq`.

use super::*;
use crate::{
    irq_poll::{
        HasIrqPoll,
        Run,
        Verdict, //
    },
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        NoOwner,
        Queue,
        RawWorkItem,
        Work,
        WorkItem,
        WorkItemPointer, //
    },
};
use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::NonNull, //
};

/// What the core does with completion events and completions: its policy.
///
/// All methods may run on several CPUs for different queues at a time; for one queue see each.
pub trait Poller: Sized + 'static {
    /// How many completions a softirq run may handle before others get their turn.
    const SOFTIRQ_BUDGET: i32;

    /// The moderation that each profile of the algorithm stands for.
    const MODERATION: &'static [Moderation];

    /// An event arrived for a queue in context [`PollContext::Direct`], which nobody asked for.
    ///
    /// # Context
    ///
    /// Any, chosen by the driver; may not sleep.
    fn event_direct(cq: &Cq);

    /// An event arrived for a queue in context [`PollContext::Softirq`]: schedule `poller`.
    ///
    /// # Context
    ///
    /// Any, chosen by the driver; may not sleep.
    fn event_softirq(cq: &Cq, poller: &IrqPoll<Polled<Self>>);

    /// An event arrived for a queue in context [`PollContext::Workqueue`]: queue `work`.
    ///
    /// # Context
    ///
    /// Any, chosen by the driver; may not sleep.
    fn event_workqueue(cq: &Cq, work: CqWork<Self>);

    /// Handles completions in softirq context.
    ///
    /// # Context
    ///
    /// That of [`irq_poll::Operations::poll`].
    fn poll_softirq(cq: &Polled<Self>, run: Run<'_>) -> Verdict;

    /// Handles completions in a work queue.
    ///
    /// # Context
    ///
    /// Process context, one run at a time for a queue.
    fn poll_work(cq: &Polled<Self>, run: WorkRun<'_>);
}

/// State of the poller that `struct ib_cq` has no field for. `ib_cq.wc` points to it.
#[repr(C)]
pub(super) struct State {
    /// First, since this is what `ib_cq.wc` is meant to point to.
    pub(super) wcs: [WcSlot; POLL_BATCH],
    /// How many calls of the softirq poller have not ended, their tails included.
    in_softirq: Atomic<i32>,
    /// For [`LiveSet`], protected by its lock: the queue, and the next in the bucket.
    pub(super) cq: *mut bindings::ib_cq,
    pub(super) next: *mut State,
}

impl State {
    /// Allocates the state for `cq`.
    #[inline]
    pub(super) fn new(cq: *mut bindings::ib_cq) -> Result<NonNull<Self>> {
        let mut state = KBox::<MaybeUninit<Self>>::new_uninit(GFP_KERNEL)?;
        let p = state.as_mut_ptr().cast::<Self>();
        // The slots are written by the device before anybody reads them.
        //
        // SAFETY: `p` is valid for writes.
        unsafe {
            (&raw mut (*p).in_softirq).write(Atomic::new(0));
            (&raw mut (*p).cq).write(cq);
            (&raw mut (*p).next).write(core::ptr::null_mut());
        }
        // SAFETY: A box is not null.
        Ok(unsafe { NonNull::new_unchecked(KBox::into_raw(state).cast()) })
    }

    /// Frees the state.
    ///
    /// # Safety
    ///
    /// `state` must come from [`State::new`] and nobody may use it any more.
    #[inline]
    pub(super) unsafe fn free(state: *mut Self) {
        // SAFETY: By the safety requirement.
        drop(unsafe { KBox::<MaybeUninit<Self>>::from_raw(state.cast()) });
    }
}

/// A completion queue with a poll context, whose poller is `P`.
///
/// # Invariants
///
/// Those of [`Cq`]; `ib_cq.wc` points to a [`State`], and what the context of the queue needs is
/// initialised for `P`.
#[repr(transparent)]
pub struct Polled<P>(Cq, PhantomData<P>);

impl<P> Deref for Polled<P> {
    type Target = Cq;

    #[inline]
    fn deref(&self) -> &Cq {
        &self.0
    }
}

impl<P: Poller> Polled<P> {
    /// Creates a reference from a pointer of the C side.
    ///
    /// # Safety
    ///
    /// `ptr` must fulfil the type invariants for the whole of `'a`.
    #[inline]
    unsafe fn from_raw<'a>(ptr: *mut bindings::ib_cq) -> &'a Self {
        // SAFETY: The caller promises that `ptr` is valid; `Polled` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    #[inline]
    fn state(&self) -> *mut State {
        // SAFETY: The queue is valid; the field is constant while it is published.
        unsafe { (*self.as_raw()).wc.cast() }
    }

    /// The buffer for completions, for the owner of a softirq run.
    ///
    /// The borrow ends before [`Run::complete`], after which another run may use the buffer.
    #[inline]
    pub fn slots<'r>(&'r self, _run: &'r mut Run<'_>) -> &'r mut [WcSlot] {
        // SAFETY: By the type invariant the state exists. A `Run` exists once for a queue, so we
        // are the only user of the buffer.
        unsafe { &mut (*self.state()).wcs }
    }

    /// The buffer for completions, for the owner of a run of the work item.
    #[inline]
    pub fn slots_work<'r>(&'r self, _run: &'r mut WorkRun<'_>) -> &'r mut [WcSlot] {
        // SAFETY: As above; a work item does not run twice at a time.
        unsafe { &mut (*self.state()).wcs }
    }

    /// Feeds the moderation algorithm with the number of completions of this softirq run.
    #[inline]
    pub fn moderate(&self, _run: &mut Run<'_>, completions: i32) {
        // SAFETY: The queue is valid, and a `Run` exists once for a queue.
        unsafe { dim::update(self.as_raw(), completions) }
    }

    /// Feeds the moderation algorithm with the number of completions of this run.
    #[inline]
    pub fn moderate_work(&self, _run: &mut WorkRun<'_>, completions: i32) {
        // SAFETY: The queue is valid, and a work item does not run twice at a time.
        unsafe { dim::update(self.as_raw(), completions) }
    }

    /// The softirq poller of the queue.
    #[inline]
    pub fn irq_poll<'a>(&'a self, _tail: &'a Verdict) -> &'a IrqPoll<Self> {
        // SAFETY: Who has a `Verdict` runs in the softirq poller of a queue in that context, whose
        // `irq_poll` is initialised.
        unsafe { &*Self::raw_get_irq_poll(core::ptr::from_ref(self).cast_mut()) }
    }
}

// SAFETY: The two are inverses of each other. Queues are freed by `Hardware::drop()` only, after
// `quiesce()`, which disables the poller and waits for its tail.
unsafe impl<P: Poller> HasIrqPoll for Polled<P> {
    #[inline]
    unsafe fn raw_get_irq_poll(ptr: *mut Self) -> *mut IrqPoll<Self> {
        let cq: *mut bindings::ib_cq = ptr.cast();
        // SAFETY: The caller promises that `ptr` is valid.
        unsafe { (&raw mut (*cq).__bindgen_anon_1.iop).cast() }
    }

    #[inline]
    unsafe fn irq_poll_container_of(ptr: *mut IrqPoll<Self>) -> *mut Self {
        let iop: *mut bindings::irq_poll = ptr.cast();
        // SAFETY: The caller promises that `ptr` points to the `irq_poll` of an `ib_cq`.
        unsafe { container_of!(iop, bindings::ib_cq, __bindgen_anon_1.iop).cast() }
    }
}

impl<P: Poller> irq_poll::Operations for Polled<P> {
    const WEIGHT: i32 = P::SOFTIRQ_BUDGET;

    #[inline]
    fn poll(&self, run: Run<'_>) -> Verdict {
        // SAFETY: By the type invariant the state exists. It exists until the count is given back
        // at least, since `quiesce()` waits for that.
        let in_softirq = unsafe { &(*self.state()).in_softirq };

        // Counted while the run is owned: whoever finds the poller disabled sees the count of
        // every run that was ever completed.
        in_softirq.add(1, Relaxed);
        let verdict = P::poll_softirq(self, run);
        // Nothing of the queue is touched after this.
        in_softirq.fetch_sub(1, Release);
        verdict
    }
}

/// The right to run the work item of a queue once.
pub struct WorkRun<'a>(PhantomData<&'a Cq>);

/// The work item of a queue that is polled by a work queue, with the work queue.
pub struct CqWork<P> {
    cq: NonNull<bindings::ib_cq>,
    _p: PhantomData<P>,
}

// SAFETY: Queues are not bound to a thread; the pointer is only followed while the queue lives.
unsafe impl<P> Send for CqWork<P> {}

// SAFETY: `CqWork` has no drop glue and carries no count.
unsafe impl<P> NoOwner for Polled<P> {}

impl<P: Poller> CqWork<P> {
    /// Queues the work item on the work queue of its completion queue, unless it is queued already
    /// or disabled.
    #[doc(alias = "queue_work")]
    #[inline]
    pub fn queue(self) {
        // SAFETY: A `CqWork` exists only for queues whose work item and work queue are set.
        let wq = unsafe { Queue::from_raw((*self.cq.as_ptr()).comp_wq) };
        wq.enqueue(self);
    }
}

impl WorkRun<'_> {
    /// Queues the work item of `cq`, whose run this is, again.
    #[inline]
    pub fn again<P: Poller>(self, cq: &Polled<P>) {
        // A run exists only for queues whose work item is set.
        CqWork::<P>::of(cq.as_raw()).queue();
    }
}

impl<P: Poller> CqWork<P> {
    #[inline]
    fn of(cq: *mut bindings::ib_cq) -> Self {
        Self {
            // SAFETY: Pointers to queues are not null.
            cq: unsafe { NonNull::new_unchecked(cq) },
            _p: PhantomData,
        }
    }
}

// SAFETY: `run` is the function of the work item by `Work::new()`, and the work item lies in an
// `ib_cq`.
unsafe impl<P: Poller> WorkItemPointer<0> for CqWork<P> {
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work item lies in an `ib_cq`.
        let cq: *mut bindings::ib_cq =
            unsafe { container_of!(work, bindings::ib_cq, __bindgen_anon_1.work) };
        Polled::<P>::run(Self::of(cq));
    }
}

// SAFETY: The closure gets the work item of the queue, which lives until `quiesce()` has disabled
// it.
unsafe impl<P: Poller> RawWorkItem<0> for CqWork<P> {
    type EnqueueOutput = bool;

    #[inline]
    unsafe fn __enqueue<F>(self, queue_work_on: F) -> bool
    where
        F: FnOnce(*mut bindings::work_struct) -> bool,
    {
        // SAFETY: `self` points to a valid queue.
        queue_work_on(unsafe { &raw mut (*self.cq.as_ptr()).__bindgen_anon_1.work })
    }
}

impl<P: Poller> WorkItem for Polled<P> {
    type Pointer = CqWork<P>;

    #[inline]
    fn run(this: CqWork<P>) {
        // SAFETY: The work item runs, so the queue is alive and initialised for `P`.
        let cq = unsafe { Polled::<P>::from_raw(this.cq.as_ptr()) };
        P::poll_work(cq, WorkRun(PhantomData));
    }
}

/// Initialises all that the handler of context `ctx` touches, and returns the handler.
///
/// # Safety
///
/// `cq` must be valid, have its [`State`], and not be in use by anybody else.
#[inline]
pub(super) unsafe fn init<P: Poller>(
    cq: *mut bindings::ib_cq,
    ctx: PollContext,
) -> bindings::ib_comp_handler {
    match ctx {
        PollContext::Direct => Some(handler_direct::<P>),
        PollContext::Softirq => {
            // SAFETY: By the safety requirement.
            unsafe { IrqPoll::init_raw(Polled::<P>::raw_get_irq_poll(cq.cast())) };
            Some(handler_softirq::<P>)
        }
        PollContext::Workqueue(wq) => {
            let work = Work::<Polled<P>>::new(
                c"ib_cq_poll_work",
                crate::static_lock_class!(), //
            );
            // SAFETY: By the safety requirement; the pinned initialiser writes to memory that
            // stays where it is. The work queues exist as long as `ib_core` is loaded.
            unsafe {
                let slot = &raw mut (*cq).__bindgen_anon_1.work;
                pin_init::raw_init(slot.cast::<Work<Polled<P>>>(), work);
                (*cq).comp_wq = match wq {
                    Wq::Bound => bindings::ib_comp_wq,
                    Wq::Unbound => bindings::ib_comp_unbound_wq,
                };
            }
            Some(handler_workqueue::<P>)
        }
    }
}

/// Stops the poller for good: on return it neither runs nor will run.
///
/// An event that arrives later finds a poller that is disabled and does nothing.
///
/// # Safety
///
/// `cq` must be initialised by [`init`] for `ctx`. This must be called once at most.
///
/// # Context
///
/// Process context, may sleep.
#[inline]
pub(super) unsafe fn quiesce<P: Poller>(cq: *mut bindings::ib_cq, ctx: PollContext) {
    // SAFETY: By the safety requirement.
    let polled = unsafe { Polled::<P>::from_raw(cq) };

    match ctx {
        PollContext::Direct => (),
        PollContext::Softirq => {
            // SAFETY: `init()` has initialised the `irq_poll`.
            let iop = unsafe { &*Polled::<P>::raw_get_irq_poll(cq.cast()) };
            iop.disable();
            // The tail of the last run may still arm the queue or find out that it cannot be
            // scheduled. Pairs with the release in `Polled::poll()`.
            //
            // SAFETY: The state exists as long as the queue.
            while unsafe { (*polled.state()).in_softirq.load(Acquire) } != 0 {
                fsleep(Delta::from_micros(50));
            }
        }
        PollContext::Workqueue(_) => {
            // SAFETY: `init()` has initialised the work item.
            let work =
                unsafe { &*(&raw const (*cq).__bindgen_anon_1.work).cast::<Work<Polled<P>>>() };
            work.disable_sync();
        }
    }
}

/// # Safety
///
/// To be called by drivers as `ib_cq.comp_handler`, for a queue in this context.
unsafe extern "C" fn handler_direct<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: Drivers call the handler for queues that exist.
    P::event_direct(unsafe { Cq::from_raw(cq) });
}

/// # Safety
///
/// As [`handler_direct`].
unsafe extern "C" fn handler_softirq<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: Drivers call the handler for queues that exist. Who can see the handler can see
    // what `init()` did before it was stored.
    unsafe {
        P::event_softirq(
            Cq::from_raw(cq),
            &*Polled::<P>::raw_get_irq_poll(cq.cast()), //
        );
    }
}

/// # Safety
///
/// As [`handler_direct`].
unsafe extern "C" fn handler_workqueue<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: As in `handler_softirq()`.
    P::event_workqueue(unsafe { Cq::from_raw(cq) }, CqWork::of(cq));
}
