// SPDX-License-Identifier: GPL-2.0

//! Polling in softirq context with a budget.
//!
//! An interrupt handler that has more work than it should do schedules an [`IrqPoll`]; its
//! [`Operations::poll`] then runs in the `IRQ_POLL` softirq, again and again while it uses up its
//! budget, and until it says that it is done.
//!
//! # States
//!
//! ```text
//!             sched()                          poll() begins
//!  [Idle] -----------------> [Scheduled] --------------------> [Running]
//!    ^                            ^                             |     |
//!    |                            |   Run::exhausted()          |     |
//!    |                            +-----------------------------+     |
//!    |                Run::complete()                                 |
//!    +----------------------------------------------------------------+
//!
//!  disable(): waits for [Idle], then holds [Scheduled] itself, so that nobody else gets there.
//! ```
//!
//! One bit (`IRQ_POLL_F_SCHED`) stands for both `Scheduled` and `Running`. A [`Run`] is the proof
//! that the code that has it owns that bit. It can be turned into a [`Verdict`] only by giving the
//! bit back ([`Run::complete`]) or by asking for another round ([`Run::exhausted`]), and a poll
//! function has to return a [`Verdict`]: that the C rules about the returned number are kept is
//! checked by the compiler.
//!
//! # Tails
//!
//! After [`Run::complete`] the poll function goes on to run. This is on purpose: a driver re-arms
//! its interrupt there, and schedules again if it finds that it missed an event. But
//! [`IrqPoll::disable`] does not wait for this *tail*. Whoever frees the container has to wait for
//! it by other means, for example with a counter or with
//! [`synchronize_rcu()`](crate::sync::rcu::synchronize_rcu) (a softirq is an RCU read-side
//! section); [`IrqPoll::disable_and_wait`] does the latter.
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     irq_poll::{self, impl_has_irq_poll, IrqPoll, Run, Verdict},
//!     prelude::*,
//!     sync::{
//!         atomic::{Atomic, Relaxed},
//!         Completion,
//!     },
//! };
//!
//! /// A device with a number of events that wait for being handled.
//! #[pin_data]
//! struct Device {
//!     #[pin]
//!     iop: IrqPoll<Device>,
//!     waiting: Atomic<i32>,
//!     #[pin]
//!     done: Completion,
//! }
//!
//! impl_has_irq_poll! {
//!     // SAFETY: A `Device` is boxed and pinned, and disabled before it is dropped.
//!     unsafe impl HasIrqPoll for Device { self.iop }
//! }
//!
//! impl irq_poll::Operations for Device {
//!     const WEIGHT: i32 = 4;
//!
//!     fn poll<'a>(&'a self, run: Run<'a>) -> Verdict<'a> {
//!         let todo = self.waiting.load(Relaxed).min(run.budget());
//!         let left = self.waiting.fetch_sub(todo, Relaxed) - todo;
//!
//!         if todo == run.budget() {
//!             return run.exhausted();
//!         }
//!         let verdict = run.complete(todo);
//!         assert_eq!(left, 0);
//!         self.done.complete_all();
//!         verdict
//!     }
//! }
//!
//! let dev = KBox::pin_init(
//!     pin_init!(Device {
//!         iop <- IrqPoll::new(),
//!         waiting: Atomic::new(10),
//!         done <- Completion::new(),
//!     }),
//!     GFP_KERNEL,
//! )?;
//!
//! dev.iop.sched();
//! dev.done.wait_for_completion();
//! assert_eq!(dev.waiting.load(Relaxed), 0);
//!
//! // Required before `dev` goes away.
//! dev.iop.disable_and_wait();
//! # Ok::<(), Error>(())
//! ```
//!
//! C header: [`include/linux/irq_poll.h`](srctree/include/linux/irq_poll.h)

use crate::{
    bindings,
    ffi::c_int,
    prelude::*,
    sync::rcu,
    types::Opaque, //
};
use core::marker::PhantomData;

/// What a type that is polled in softirq context does.
pub trait Operations: HasIrqPoll + Sync {
    /// The budget of one call of [`poll`](Operations::poll), in events. It must be positive.
    const WEIGHT: i32;

    /// Handles up to [`Run::budget`] events.
    ///
    /// # Context
    ///
    /// Softirq, interrupts enabled, no lock held. May not sleep. Not called twice at a time for
    /// one object, except that the tail of a call (the part after [`Run::complete`]) can overlap
    /// with the next call on another CPU.
    fn poll<'a>(&'a self, run: Run<'a>) -> Verdict<'a>;
}

/// Declares that a type contains an [`IrqPoll`] for itself.
///
/// Use [`impl_has_irq_poll!`](crate::impl_has_irq_poll) where the field has a name in Rust.
///
/// # Safety
///
/// - `raw_get_irq_poll` and `irq_poll_container_of` must be inverses of each other and return
///   pointers to the field and to the object that contains it.
/// - An object must be pinned from the first call of [`IrqPoll::sched`] on, and it may be dropped
///   or freed only after [`IrqPoll::disable`] has returned and the tail of the last call of
///   [`Operations::poll`] has ended.
pub unsafe trait HasIrqPoll: Sized {
    /// Returns a pointer to the [`IrqPoll`] of the object.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a valid allocation of type `Self`.
    unsafe fn raw_get_irq_poll(ptr: *mut Self) -> *mut IrqPoll<Self>;

    /// Returns a pointer to the object that contains the [`IrqPoll`].
    ///
    /// # Safety
    ///
    /// `ptr` must come from [`raw_get_irq_poll`](HasIrqPoll::raw_get_irq_poll).
    unsafe fn irq_poll_container_of(ptr: *mut IrqPoll<Self>) -> *mut Self;
}

/// Implements [`HasIrqPoll`] for a type with a field of type [`IrqPoll`].
///
/// The rule of [`HasIrqPoll`] about pinning and dropping is for the user of the macro to keep,
/// who therefore writes `unsafe`: call [`IrqPoll::disable_and_wait`] before the object goes away.
#[macro_export]
macro_rules! impl_has_irq_poll {
    (unsafe impl HasIrqPoll for $self:ty { self.$field:ident }) => {
        // SAFETY: Both functions compile only if the field has the right type, and they are
        // inverses of each other. The user of the macro promises the rest.
        unsafe impl $crate::irq_poll::HasIrqPoll for $self {
            #[inline]
            unsafe fn raw_get_irq_poll(ptr: *mut Self) -> *mut $crate::irq_poll::IrqPoll<Self> {
                // SAFETY: The caller promises that `ptr` is valid.
                unsafe { &raw mut (*ptr).$field }
            }

            #[inline]
            unsafe fn irq_poll_container_of(
                ptr: *mut $crate::irq_poll::IrqPoll<Self>,
            ) -> *mut Self {
                // SAFETY: The caller promises that `ptr` points to the field of a `Self`.
                unsafe { $crate::container_of!(ptr, Self, $field) }
            }
        }
    };
}
pub use impl_has_irq_poll;

/// A softirq poller that is embedded in a `T`.
///
/// Wraps the kernel's C `struct irq_poll`.
///
/// # Invariants
///
/// The C object is initialised with the callback for `T` and a positive weight.
#[pin_data]
#[repr(transparent)]
pub struct IrqPoll<T: HasIrqPoll> {
    #[pin]
    inner: Opaque<bindings::irq_poll>,
    _t: PhantomData<T>,
}

// SAFETY: `struct irq_poll` may be used from every CPU; its state is a set of atomic bits.
unsafe impl<T: HasIrqPoll> Send for IrqPoll<T> {}
// SAFETY: As above.
unsafe impl<T: HasIrqPoll> Sync for IrqPoll<T> {}

impl<T: Operations> IrqPoll<T> {
    /// Creates an enabled, idle poller.
    #[doc(alias = "irq_poll_init")]
    #[inline]
    pub fn new() -> impl PinInit<Self> {
        const { assert!(T::WEIGHT > 0) };

        // INVARIANT: `irq_poll_init()` gets our callback and a positive weight.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::irq_poll_init(slot, T::WEIGHT, Some(poll_callback::<T>)) }
            }),
            _t: PhantomData,
        })
    }

    /// Initialises a `struct irq_poll` that lies in memory that C owns.
    ///
    /// # Safety
    ///
    /// - `slot` must be valid for writes and must not be in use by anybody.
    /// - It must be the one that `T::raw_get_irq_poll` returns for some `T`.
    #[inline]
    pub unsafe fn init_raw(slot: *mut Self) {
        const { assert!(T::WEIGHT > 0) };

        // INVARIANT: As in `new()`.
        // SAFETY: The caller promises that `slot` is valid; `IrqPoll` is a transparent wrapper.
        unsafe { bindings::irq_poll_init(slot.cast(), T::WEIGHT, Some(poll_callback::<T>)) };
    }
}

impl<T: HasIrqPoll> IrqPoll<T> {
    /// Schedules a run of [`Operations::poll`] on this CPU. Does nothing if one is scheduled
    /// already, or if the poller is disabled.
    ///
    /// # Context
    ///
    /// Any, including hard interrupts.
    #[doc(alias = "irq_poll_sched")]
    #[inline]
    pub fn sched(&self) {
        // SAFETY: By the invariant the object is initialised. It stays where it is and valid by
        // the safety requirement of `HasIrqPoll`.
        unsafe { bindings::irq_poll_sched(self.inner.get()) };
    }

    /// Disables the poller for good and waits for a scheduled run to give back ownership.
    ///
    /// On return [`sched`](IrqPoll::sched) has no effect any more. It does not wait for the tail
    /// of a run, see the [module documentation](self).
    ///
    /// # Context
    ///
    /// Process context, may sleep. Must be called once at most: a second call waits for ever.
    #[doc(alias = "irq_poll_disable")]
    #[inline]
    pub fn disable(&self) {
        // SAFETY: By the invariant the object is initialised.
        unsafe { bindings::irq_poll_disable(self.inner.get()) };
    }

    /// As [`disable`](IrqPoll::disable), and also waits for the tail of a run.
    ///
    /// It waits for an RCU grace period, that is some milliseconds.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Must be called once at most.
    // Litmus: RCU+tail-grace
    pub fn disable_and_wait(&self) {
        self.disable();
        // The tail is part of a softirq handler, which is a read-side section for RCU.
        rcu::synchronize_rcu();
    }
}

/// Tells the runs of different calls apart: it is invariant in `'a`, so a [`Run`] and a [`Verdict`]
/// of one call do not fit another.
type Brand<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// The right to run [`Operations::poll`] once.
///
/// # Invariants
///
/// `iop` is in the state `Running` and this is the only [`Run`] for it.
pub struct Run<'a> {
    iop: *mut bindings::irq_poll,
    budget: i32,
    brand: Brand<'a>,
}

impl<'a> Run<'a> {
    /// The number of events that this run may handle.
    #[inline]
    pub fn budget(&self) -> i32 {
        self.budget
    }

    /// Ends the polling: all events are handled. The object can be scheduled again from now on.
    ///
    /// `handled` is the number of events that were handled. Less than the budget is reported to
    /// the C side even if `handled` says something else, since it takes a full budget as a request
    /// for another round.
    // Litmus: MP+complete-arm+rmw
    #[doc(alias = "irq_poll_complete")]
    #[inline]
    pub fn complete(self, handled: i32) -> Verdict<'a> {
        // SAFETY: By the type invariant `iop` is initialised and ours to complete.
        unsafe { bindings::irq_poll_complete(self.iop) };
        Verdict(handled.min(self.budget - 1), self.brand)
    }

    /// Asks for another round: the budget is used up.
    #[inline]
    pub fn exhausted(self) -> Verdict<'a> {
        Verdict(self.budget, self.brand)
    }
}

/// What became of a [`Run`].
#[must_use = "a poll function has to return it"]
pub struct Verdict<'a>(i32, Brand<'a>);

/// The poll function that C calls.
///
/// # Safety
///
/// To be called by `irq_poll_softirq()` only, for a poller of type [`IrqPoll<T>`].
unsafe extern "C" fn poll_callback<T: Operations>(
    iop: *mut bindings::irq_poll,
    budget: c_int,
) -> c_int {
    // SAFETY: By the safety requirement `iop` belongs to an `IrqPoll<T>`, which lies in a `T`.
    let this = unsafe { &*T::irq_poll_container_of(iop.cast::<IrqPoll<T>>()) };

    // INVARIANT: `irq_poll_softirq()` calls us with the scheduled bit set and on one CPU only.
    let run = Run {
        iop,
        budget,
        brand: PhantomData,
    };
    T::poll(this, run).0
}
