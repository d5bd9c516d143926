// SPDX-License-Identifier: GPL-2.0

//! Running a [`Poller`] in the context of a completion queue.
//!
//! Here are the functions that C calls, and the state that a poller needs beside `struct ib_cq`.

use super::{
    dim,
    Armed,
    Cq,
    Moderation,
    NotifyFlags,
    PollContext,
    WcSlot,
    Wq,
    POLL_BATCH, //
};
use crate::{
    bindings, container_of,
    irq_poll::{
        self,
        HasIrqPoll,
        IrqPoll,
        Run,
        Verdict, //
    },
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque,
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

    /// An event arrived for a queue in context [`PollContext::Softirq`].
    ///
    /// # Context
    ///
    /// Any, chosen by the driver; may not sleep.
    fn event_softirq(event: SoftirqEvent<'_, Self>);

    /// An event arrived for a queue in context [`PollContext::Workqueue`].
    ///
    /// # Context
    ///
    /// Any, chosen by the driver; may not sleep.
    fn event_workqueue(event: WorkEvent<'_, Self>);

    /// Handles completions in softirq context.
    ///
    /// # Context
    ///
    /// That of [`irq_poll::Operations::poll`].
    fn poll_softirq<'a>(run: SoftirqRun<'a, Self>) -> Verdict<'a>;

    /// Handles completions in a work queue.
    ///
    /// # Context
    ///
    /// Process context, one run at a time for a queue.
    fn poll_work(run: WorkRun<'_, Self>);
}

/// How far a queue with events has come; see [`handler_early`].
const CREATING: u32 = 0;
/// An event arrived while the device was creating the queue.
const EVENT_SEEN: u32 = 1;
/// The device has created the queue.
const OPEN: u32 = 2;

/// State of the poller that `struct ib_cq` has no field for. `ib_cq.wc` points to it.
#[repr(C)]
pub(super) struct State {
    /// First, since this is what `ib_cq.wc` is meant to point to.
    wcs: [WcSlot; POLL_BATCH],
    /// How many runs of the softirq poller began. Written by the owner of a run only.
    entered: Atomic<u32>,
    /// How many of them have ended, their tails included.
    left: Atomic<u32>,
    /// [`CREATING`], [`EVENT_SEEN`] or [`OPEN`].
    phase: Atomic<u32>,
    /// Constant once the queue is initialised. `ib_cq.poll_ctx` says the same to the C side, but
    /// lies where drivers can write.
    pub(super) ctx: PollContext,
    /// For [`LiveSet`](super::LiveSet), protected by its lock: the queue, whether it is in the
    /// pool of its device, and the next in the bucket.
    pub(super) cq: *mut bindings::ib_cq,
    pub(super) pooled: bool,
    pub(super) next: *mut State,
}

impl State {
    /// Allocates the state for `cq`.
    #[inline]
    pub(super) fn new(cq: *mut bindings::ib_cq) -> Result<NonNull<Self>> {
        // Not by a box, which would call the function that reallocates.
        //
        // SAFETY: No requirements.
        let p: *mut Self =
            unsafe { bindings::rdma_kmalloc(size_of::<Self>(), GFP_KERNEL.as_raw()) }.cast();
        let state = NonNull::new(p).ok_or(ENOMEM)?;

        // The slots are written by the device before anybody reads them.
        //
        // SAFETY: `p` is valid for writes.
        unsafe {
            (&raw mut (*p).entered).write(Atomic::new(0));
            (&raw mut (*p).left).write(Atomic::new(0));
            (&raw mut (*p).phase).write(Atomic::new(CREATING));
            (&raw mut (*p).ctx).write(PollContext::Direct);
            (&raw mut (*p).cq).write(cq);
            (&raw mut (*p).pooled).write(false);
            (&raw mut (*p).next).write(core::ptr::null_mut());
        }
        Ok(state)
    }

    /// Frees the state.
    ///
    /// # Safety
    ///
    /// `state` must come from [`State::new`] and nobody may use it any more.
    #[inline]
    pub(super) unsafe fn free(state: *mut Self) {
        // SAFETY: By the safety requirement; `new()` got it from `kmalloc()`.
        unsafe { bindings::kfree(state.cast()) };
    }

    /// Returns the state of `cq`.
    ///
    /// # Safety
    ///
    /// `cq` must be valid and have a state.
    #[inline]
    pub(super) unsafe fn of(cq: *mut bindings::ib_cq) -> *mut Self {
        // SAFETY: By the safety requirement; the field is constant.
        unsafe { (*cq).wc.cast() }
    }
}

/// A completion queue with a poll context, whose poller is `P`.
///
/// # Invariants
///
/// Those of [`Cq`]; the queue has a [`State`], and what its context needs is initialised for `P`.
#[repr(transparent)]
struct Polled<P>(Opaque<bindings::ib_cq>, PhantomData<fn() -> P>);

// SAFETY: As for `Cq`.
unsafe impl<P> Sync for Polled<P> {}

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
    fn as_raw(&self) -> *mut bindings::ib_cq {
        self.0.get()
    }

    #[inline]
    fn cq(&self) -> &Cq {
        // SAFETY: By the type invariant.
        unsafe { Cq::from_raw(self.as_raw()) }
    }

    #[inline]
    fn state(&self) -> *mut State {
        // SAFETY: By the type invariant.
        unsafe { State::of(self.as_raw()) }
    }

    /// The softirq poller.
    ///
    /// # Safety
    ///
    /// The context must be [`PollContext::Softirq`].
    #[inline]
    unsafe fn iop(&self) -> &IrqPoll<Self> {
        // SAFETY: By the type invariant and the safety requirement it is initialised.
        unsafe { &*Self::raw_get_irq_poll(core::ptr::from_ref(self).cast_mut()) }
    }
}

// SAFETY: The two are inverses of each other. A queue is freed only after `Handler::stop()`, which
// disables the poller and waits for its tail.
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

    // Litmus: MP+tail-count, MP+tail-count-two-runs
    #[inline]
    fn poll<'a>(&'a self, run: Run<'a>) -> Verdict<'a> {
        // SAFETY: By the type invariant the state exists. It exists until the end of the run has
        // been counted at least, since `quiesce()` waits for that.
        let (entered, left) = unsafe { (&(*self.state()).entered, &(*self.state()).left) };

        // Counted while the run is owned, so nobody else writes, and whoever finds the poller
        // disabled sees every run that was ever completed.
        entered.store(entered.load(Relaxed).wrapping_add(1), Relaxed);
        let verdict = P::poll_softirq(SoftirqRun { cq: self, run });
        // Nothing of the queue is touched after this. Tails of several runs may end at a time.
        left.fetch_add(1u32, Release);
        verdict
    }
}

/// A run of the poller in softirq context.
pub struct SoftirqRun<'a, P: Poller> {
    cq: &'a Polled<P>,
    run: Run<'a>,
}

impl<'a, P: Poller> SoftirqRun<'a, P> {
    /// The queue.
    #[inline]
    pub fn cq(&self) -> &'a Cq {
        self.cq.cq()
    }

    /// How many completions may be handled.
    #[inline]
    pub fn budget(&self) -> i32 {
        self.run.budget()
    }

    /// The buffer for completions.
    ///
    /// The borrow ends before [`complete`](Self::complete), after which another run may use it.
    #[inline]
    pub fn slots(&mut self) -> &mut [WcSlot] {
        // SAFETY: By the type invariant of `Polled` the state exists. A `Run` exists once for a
        // queue, so we are the only user of the buffer.
        unsafe { &mut (*self.cq.state()).wcs }
    }

    /// Feeds the moderation algorithm with the number of completions of this run.
    #[inline]
    pub fn moderate(&mut self, completions: i32) {
        // SAFETY: The queue is valid, and a `Run` exists once for it.
        unsafe { dim::update(self.cq.as_raw(), completions) }
    }

    /// Asks for another run: the budget is used up.
    #[inline]
    pub fn exhausted(self) -> Verdict<'a> {
        self.run.exhausted()
    }

    /// Ends the run. The next event schedules another one, on any CPU.
    #[inline]
    pub fn complete(self, completions: i32) -> Tail<'a, P> {
        Tail {
            cq: self.cq,
            verdict: self.run.complete(completions),
        }
    }
}

/// What is left to do when a run has been completed: asking for events.
pub struct Tail<'a, P: Poller> {
    cq: &'a Polled<P>,
    verdict: Verdict<'a>,
}

impl<'a, P: Poller> Tail<'a, P> {
    /// Arms the queue.
    #[inline]
    pub fn req_notify(&self, flags: NotifyFlags) -> Armed {
        self.cq.cq().req_notify(flags)
    }

    /// Schedules another run.
    #[inline]
    pub fn sched(&self) {
        // SAFETY: We come from a run in softirq context.
        unsafe { self.cq.iop() }.sched();
    }

    /// Ends the tail.
    #[inline]
    pub fn end(self) -> Verdict<'a> {
        self.verdict
    }
}

/// An event for a queue that is polled in softirq context.
pub struct SoftirqEvent<'a, P: Poller>(&'a Polled<P>);

impl<'a, P: Poller> SoftirqEvent<'a, P> {
    /// The queue.
    #[inline]
    pub fn cq(&self) -> &'a Cq {
        self.0.cq()
    }

    /// Schedules a run, unless one is scheduled already or the poller is disabled.
    #[inline]
    pub fn sched(self) {
        // SAFETY: The event is for a queue in softirq context.
        unsafe { self.0.iop() }.sched();
    }
}

/// An event for a queue that is polled in a work queue.
pub struct WorkEvent<'a, P: Poller>(&'a Polled<P>);

impl<'a, P: Poller> WorkEvent<'a, P> {
    /// The queue.
    #[inline]
    pub fn cq(&self) -> &'a Cq {
        self.0.cq()
    }

    /// Queues a run, unless one is queued already or the work item is disabled.
    #[inline]
    pub fn queue(self) {
        queue_work(self.0);
    }
}

/// A run of the poller in a work queue.
pub struct WorkRun<'a, P: Poller>(&'a Polled<P>);

impl<'a, P: Poller> WorkRun<'a, P> {
    /// The queue.
    #[inline]
    pub fn cq(&self) -> &'a Cq {
        self.0.cq()
    }

    /// The buffer for completions.
    #[inline]
    pub fn slots(&mut self) -> &mut [WcSlot] {
        // SAFETY: By the type invariant of `Polled` the state exists. A work item does not run
        // twice at a time, so we are the only user of the buffer.
        unsafe { &mut (*self.0.state()).wcs }
    }

    /// Feeds the moderation algorithm with the number of completions of this run.
    #[inline]
    pub fn moderate(&mut self, completions: i32) {
        // SAFETY: The queue is valid, and a work item does not run twice at a time.
        unsafe { dim::update(self.0.as_raw(), completions) }
    }

    /// Arms the queue.
    #[inline]
    pub fn req_notify(&self, flags: NotifyFlags) -> Armed {
        self.0.cq().req_notify(flags)
    }

    /// Queues another run.
    #[inline]
    pub fn again(self) {
        queue_work(self.0);
    }
}

/// Queues the work item of a queue that is polled in a work queue.
#[inline]
fn queue_work<P: Poller>(polled: &Polled<P>) {
    let cq = polled.as_raw();
    // SAFETY: Only events and runs of queues in that context get here, whose work item and work
    // queue are set.
    let wq = unsafe { Queue::from_raw((*cq).comp_wq) };

    wq.enqueue(WorkPtr::<P>(NonNull::from(polled)));
}

/// A queue as the owner of its work item.
#[repr(transparent)]
struct PollWork<P>(Polled<P>);

/// A borrowed pointer to a queue whose work item is queued.
struct WorkPtr<P>(NonNull<Polled<P>>);

// SAFETY: Queues are not bound to a thread; the pointer is only followed while the queue lives.
unsafe impl<P> Send for WorkPtr<P> {}

// SAFETY: `WorkPtr` has no drop glue and carries no count.
unsafe impl<P> NoOwner for PollWork<P> {}

// SAFETY: `run` is the function of the work item by `Work::new()`, and the work item lies in an
// `ib_cq`.
unsafe impl<P: Poller> WorkItemPointer<0> for WorkPtr<P> {
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work item lies in an `ib_cq`, which is not null.
        let cq = unsafe {
            NonNull::new_unchecked(container_of!(
                work,
                bindings::ib_cq,
                __bindgen_anon_1.work //
            ))
        };
        PollWork::<P>::run(WorkPtr(cq.cast()));
    }
}

// SAFETY: The closure gets the work item of the queue, which lives until `quiesce()` has disabled
// it.
unsafe impl<P: Poller> RawWorkItem<0> for WorkPtr<P> {
    type EnqueueOutput = bool;

    #[inline]
    unsafe fn __enqueue<F>(self, queue_work_on: F) -> bool
    where
        F: FnOnce(*mut bindings::work_struct) -> bool,
    {
        let cq: *mut bindings::ib_cq = self.0.as_ptr().cast();
        // SAFETY: `self` points to a valid queue.
        queue_work_on(unsafe { &raw mut (*cq).__bindgen_anon_1.work })
    }
}

impl<P: Poller> WorkItem for PollWork<P> {
    type Pointer = WorkPtr<P>;

    #[inline]
    fn run(this: WorkPtr<P>) {
        // SAFETY: The work item runs, so the queue is alive and initialised for `P`.
        P::poll_work(WorkRun(unsafe { this.0.as_ref() }));
    }
}

/// Initialises all that the handler of context `ctx` touches, and returns the handler that is good
/// until [`open`].
///
/// # Safety
///
/// `cq` must be valid, have its [`State`], and not be in use by anybody else.
#[inline]
pub(super) unsafe fn init<P: Poller>(
    cq: *mut bindings::ib_cq,
    ctx: PollContext,
) -> bindings::ib_comp_handler {
    // SAFETY: By the safety requirement.
    unsafe { (*State::of(cq)).ctx = ctx };
    match ctx {
        PollContext::Direct => return handler::<P>(ctx),
        PollContext::Softirq => {
            // SAFETY: By the safety requirement.
            unsafe { IrqPoll::init_raw(Polled::<P>::raw_get_irq_poll(cq.cast())) };
        }
        PollContext::Workqueue(wq) => {
            let work = Work::<PollWork<P>>::new(
                c"ib_cq_poll_work",
                crate::static_lock_class!(), //
            );
            // SAFETY: By the safety requirement; the pinned initialiser writes to memory that
            // stays where it is. The work queues exist as long as `ib_core` is loaded.
            unsafe {
                let slot = &raw mut (*cq).__bindgen_anon_1.work;
                pin_init::raw_init(slot.cast::<Work<PollWork<P>>>(), work);
                (*cq).comp_wq = match wq {
                    Wq::Bound => bindings::ib_comp_wq,
                    Wq::Unbound => bindings::ib_comp_unbound_wq,
                };
            }
        }
    }
    Some(handler_early::<P>)
}

/// The handler of a queue that the device has created.
#[inline]
pub(super) fn handler<P: Poller>(ctx: PollContext) -> bindings::ib_comp_handler {
    match ctx {
        PollContext::Direct => Some(handler_direct::<P>),
        PollContext::Softirq => Some(handler_softirq::<P>),
        PollContext::Workqueue(_) => Some(handler_workqueue::<P>),
    }
}

/// Lets events through: the device has created the queue, so it can be polled.
///
/// An event that came too early is handled now.
///
/// # Safety
///
/// `cq` must be created by its device, initialised by [`init`] for `ctx`, and have the handler of
/// [`handler`] by now.
// Litmus: MP+event-early+open, MP+open+event-late
#[inline]
pub(super) unsafe fn open<P: Poller>(cq: *mut bindings::ib_cq, ctx: PollContext) {
    // Either we see that there was an event, or `handler_early()` sees that we are open: both
    // modify the same word.
    //
    // SAFETY: By the safety requirement.
    let before = unsafe { (*State::of(cq)).phase.xchg(OPEN, Full) };

    if before == EVENT_SEEN {
        // SAFETY: By the safety requirement.
        unsafe { dispatch::<P>(cq, ctx) };
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
// Litmus: MP+tail-count, MP+tail-count-two-runs, MP+work-disable
#[inline]
pub(super) unsafe fn quiesce<P: Poller>(cq: *mut bindings::ib_cq, ctx: PollContext) {
    // SAFETY: By the safety requirement.
    let polled = unsafe { Polled::<P>::from_raw(cq) };

    match ctx {
        PollContext::Direct => (),
        PollContext::Softirq => {
            // SAFETY: By the safety requirement.
            unsafe { polled.iop() }.disable();
            // SAFETY: The state exists as long as the queue.
            let state = unsafe { &*polled.state() };
            // No run begins any more, but the tail of the last ones may still arm the queue or
            // find out that it cannot be scheduled. Pairs with the release in `Polled::poll()`.
            while state.left.load(Acquire) != state.entered.load(Relaxed) {
                fsleep(Delta::from_micros(50));
            }
        }
        PollContext::Workqueue(_) => {
            // SAFETY: `init()` has initialised the work item.
            let work = unsafe {
                let slot = &raw const (*cq).__bindgen_anon_1.work;
                &*slot.cast::<Work<PollWork<P>>>()
            };
            work.disable_sync();
        }
    }
}

/// Does what the handler of context `ctx` does.
///
/// # Safety
///
/// `cq` must be created by its device and initialised by [`init`] for `ctx`.
#[inline]
unsafe fn dispatch<P: Poller>(cq: *mut bindings::ib_cq, ctx: PollContext) {
    // SAFETY: By the safety requirement.
    let polled = unsafe { Polled::<P>::from_raw(cq) };

    match ctx {
        PollContext::Direct => P::event_direct(polled.cq()),
        PollContext::Softirq => P::event_softirq(SoftirqEvent(polled)),
        PollContext::Workqueue(_) => P::event_workqueue(WorkEvent(polled)),
    }
}

/// The handler while the device creates the queue.
///
/// The poller would call `ops.poll_cq()`, and a queue that is half made cannot be polled; if
/// `ops.create_cq()` fails after all, its ring may be freed already. So this only takes a note.
///
/// # Safety
///
/// To be called by drivers as `ib_cq.comp_handler`.
// Litmus: MP+event-early+open, MP+open+event-late
unsafe extern "C" fn handler_early<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: Who can see the handler can see what was written before it was stored.
    let state = unsafe { &*State::of(cq) };

    // A driver may have loaded the handler just before it was replaced.
    if state.phase.cmpxchg(CREATING, EVENT_SEEN, Full) == Err(OPEN) {
        // SAFETY: The queue is created, and initialised for its context.
        unsafe { dispatch::<P>(cq, state.ctx) };
    }
}

/// # Safety
///
/// To be called by drivers as `ib_cq.comp_handler`, for a queue in this context.
unsafe extern "C" fn handler_direct<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: Who can see the handler can see what `init()` did before it was stored.
    unsafe { dispatch::<P>(cq, PollContext::Direct) };
}

/// # Safety
///
/// As [`handler_direct`].
unsafe extern "C" fn handler_softirq<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: As in `handler_direct()`.
    unsafe { dispatch::<P>(cq, PollContext::Softirq) };
}

/// # Safety
///
/// As [`handler_direct`].
unsafe extern "C" fn handler_workqueue<P: Poller>(cq: *mut bindings::ib_cq, _context: *mut c_void) {
    // SAFETY: As in `handler_direct()`; all work queues are alike here.
    unsafe { dispatch::<P>(cq, PollContext::Workqueue(Wq::Bound)) };
}
