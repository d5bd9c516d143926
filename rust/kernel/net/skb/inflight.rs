// SPDX-License-Identifier: GPL-2.0

//! How many buffers of a sender are on their way.
//!
//! A sender that is faster than the device would fill its queue, and those of all others with it.
//! So it counts: [`TxBuff::charge`](super::TxBuff::charge) adds one, and the destructor of the
//! buffer, which the stack calls when the buffer has left it, takes one away. A sender that has
//! `high` buffers on their way stops, and is woken when there are no more than `low`.
//!
//! # Life time
//!
//! Buffers may be on their way for as long as a device likes, so nobody should have to wait for
//! them. The counter is therefore a small object of its own. It has a single atomic word, in which
//! each buffer counts 1 and the sender [`OWNER`]: whoever brings it to 0 frees the object, after a
//! grace period. Nothing that a destructor calls is code of a module, unless there is somebody to
//! wake; and it does all its work in an RCU read-side section, so a grace period after
//! [`InFlight::clear_wake`] there is none of that left either.
//!
//! # Nobody sleeps for ever
//!
//! ```text
//! sender (admits)                 destructor
//!   waits = true                    count -= 1     (fully ordered)
//!   smp_mb()                        if waits, and count <= low: take waits, wake
//!   if count <= low: go on
//! ```
//!
//! Either the sender sees the count that the destructor has left, or the destructor sees `waits`.

use crate::{
    alloc::Flags,
    bindings,
    ffi::c_void,
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
        rcu,
        Arc,
        SpinLockIrq, //
    },
    types::Opaque,
};
use core::ptr::NonNull;

/// What the sender counts for.
const OWNER: u32 = 1 << 31;

/// Somebody who wants to know that there is room again.
pub trait Wake: Send + Sync {
    /// No more than `low` buffers are on their way.
    ///
    /// Called in process or softirq context, in an RCU read-side section, and possibly with locks
    /// of the network stack held: it should only schedule what has to be done.
    fn wake(self: Arc<Self>);
}

/// The object that senders and buffers share.
///
/// `rcu` is the first field, so that a pointer to it is one to the object.
#[pin_data]
#[repr(C)]
struct Inner {
    rcu: Opaque<bindings::callback_head>,
    count: Atomic<u32>,
    waits: Atomic<bool>,
    high: u32,
    low: u32,
    #[pin]
    wake: SpinLockIrq<Option<Arc<dyn Wake>>>,
}

/// A counter of the buffers that are on their way.
///
/// # Invariants
///
/// The pointer is to an `Inner` from a box, whose count has `OWNER` in it.
pub struct InFlight(NonNull<Inner>);

// SAFETY: All that is in it may be used and dropped on any thread.
unsafe impl Send for InFlight {}
// SAFETY: As above; all that changes is atomic or has a lock.
unsafe impl Sync for InFlight {}

impl InFlight {
    /// Creates a counter. `low` should be less than `high`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(high: u32, low: u32, gfp: Flags) -> Result<Self> {
        let inner = KBox::pin_init(
            pin_init!(Inner {
                rcu: Opaque::uninit(),
                count: Atomic::new(OWNER),
                waits: Atomic::new(false),
                high,
                low,
                wake <- new_spinlock_irq!(None),
            }),
            gfp,
        )?;
        // SAFETY: The pointer stays pinned: the object is not moved until it is freed.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });

        // INVARIANT: It has just been made so. The pointer of a box is not null.
        NonNull::new(inner).map(Self).ok_or(ENOMEM)
    }

    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: By the type invariants the object is valid as long as `self`.
        unsafe { self.0.as_ref() }
    }

    /// How many buffers are on their way at the moment.
    #[inline]
    pub fn count(&self) -> u32 {
        self.inner().count.load(Relaxed) & !OWNER
    }

    /// Tells whether one more buffer may be sent. If not, [`Wake::wake`] is called once when there
    /// is room. Any context.
    #[inline]
    pub fn admits(&self) -> bool {
        self.count() < self.inner().high || self.wait()
    }

    /// Notes that somebody waits, unless there is room now.
    #[cold]
    fn wait(&self) -> bool {
        let inner = self.inner();

        inner.waits.store(true, Relaxed);
        // ORDERING: See the top of the file.
        smp_mb(Full);
        if self.count() > inner.low {
            return false;
        }
        inner.waits.store(false, Relaxed);
        true
    }

    /// Says who is to be woken. Any context.
    pub fn set_wake(&self, wake: Arc<dyn Wake>) {
        let old = self.inner().wake.lock().replace(wake);

        // Not under the lock.
        drop(old);
    }

    /// Says that nobody is to be woken. Any context.
    ///
    /// A call that has begun may go on until the next grace period has passed.
    pub fn clear_wake(&self) {
        let old = self.inner().wake.lock().take();

        // Not under the lock.
        drop(old);
    }

    /// Counts a buffer, and lets it take itself off when it is freed.
    ///
    /// # Safety
    ///
    /// `skb` must be valid, owned by the caller, unknown to others, and have no destructor.
    #[inline]
    pub(super) unsafe fn attach(&self, skb: *mut bindings::sk_buff) {
        self.inner().count.fetch_add(1, Relaxed);

        // SAFETY: By the safety requirements. There are no zero-copy fragments, so that nobody
        // else looks at the argument.
        unsafe {
            (*bindings::skb_shinfo(skb)).__bindgen_anon_2.destructor_arg = self.0.as_ptr().cast();
            (*skb).__bindgen_anon_3.__bindgen_anon_1.destructor = Some(release);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.clear_wake();

        // ORDERING: What was done before must be done when the last buffer frees the object.
        if self.inner().count.fetch_sub(OWNER, Full) == OWNER {
            // SAFETY: By the type invariants this is an object from a box, and nobody counts on it.
            unsafe { free(self.0) };
        }
    }
}

/// Frees an object after a grace period.
///
/// # Safety
///
/// It must be from a box and its count be 0.
unsafe fn free(inner: NonNull<Inner>) {
    // SAFETY: By the safety requirements it is ours; `free_rcu` is code of the kernel itself, so
    // nobody needs to wait for it.
    unsafe { bindings::call_rcu(inner.as_ptr().cast(), Some(free_rcu)) };
}

/// # Safety
///
/// `rcu` is the first field of an [`Inner`] from a box that is owned by the call.
unsafe extern "C" fn free_rcu(rcu: *mut bindings::callback_head) {
    // SAFETY: By the safety requirements, and because `Inner` is `repr(C)`.
    drop(unsafe { Pin::new_unchecked(KBox::from_raw(rcu.cast::<c_void>().cast::<Inner>())) });
}

/// The destructor of a buffer that is counted.
///
/// # Safety
///
/// [`InFlight::attach`] was called for `skb`, and this was not yet.
unsafe extern "C" fn release(skb: *mut bindings::sk_buff) {
    // What is freed below is there until this section ends.
    let _guard = rcu::read_lock();
    // SAFETY: By the safety requirements this is what `attach` has put there.
    let inner = unsafe { (*bindings::skb_shinfo(skb)).__bindgen_anon_2.destructor_arg };
    let Some(inner) = NonNull::new(inner.cast::<Inner>()) else {
        return;
    };
    // SAFETY: The buffer has counted for the object, so it was there when the section began.
    let this = unsafe { inner.as_ref() };
    // ORDERING: See the top of the file.
    let left = this.count.fetch_sub(1, Full) - 1;

    if left == 0 {
        // SAFETY: Nobody else counts for it, and nobody can begin to.
        unsafe { free(inner) };
    } else if left & !OWNER <= this.low && this.waits.load(Relaxed) && this.waits.xchg(false, Full)
    {
        let wake = this.wake.lock().clone();

        if let Some(wake) = wake {
            wake.wake();
        }
    }
}
