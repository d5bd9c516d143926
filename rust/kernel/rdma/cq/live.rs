// SPDX-License-Identifier: GPL-2.0

//! The set of completion queues that are in the hands of consumers.
//!
//! Consumers hold a plain pointer to their queue. When they free it, nothing but this set can tell
//! whether the pointer still is one: freed twice, it points to memory that belongs to somebody
//! else. So freeing begins with a look-up by address, and memory is looked at only if it is found.

use super::{
    poller::State,
    Live,
    Poller, //
};
use crate::{
    bindings,
    sync::lock::{
        spinlock::SpinLockBackend,
        Lock, //
    },
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData, //
};

/// A power of two, large enough to keep the chains short where thousands of queues exist.
const BUCKETS: usize = 256;

/// Why a queue cannot be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// There is no such queue (any more).
    Unknown,
    /// Queue pairs use it.
    InUse,
    /// It is shared: it belongs to the pool of its device.
    Shared,
}

/// A set of queues with poller `P`, found by address.
///
/// # Invariants
///
/// - `lock` is a valid spin lock that protects everything else.
/// - Each member of a bucket is the state of a queue that was given to the C side by `into_raw()`
///   and not taken back.
pub struct LiveSet<P> {
    lock: *mut bindings::spinlock_t,
    buckets: UnsafeCell<[*mut State; BUCKETS]>,
    _p: PhantomData<P>,
}

// SAFETY: Everything is protected by the lock.
unsafe impl<P> Sync for LiveSet<P> {}

impl<P: Poller> LiveSet<P> {
    /// Creates an empty set.
    ///
    /// # Safety
    ///
    /// `lock` must be an initialised spin lock that lives as long as the set, and that nothing
    /// else uses.
    pub const unsafe fn new(lock: *mut bindings::spinlock_t) -> Self {
        Self {
            lock,
            buckets: UnsafeCell::new([core::ptr::null_mut(); BUCKETS]),
            _p: PhantomData,
        }
    }

    /// Runs `f` on the bucket for `cq`, under the lock.
    #[inline]
    fn with_bucket<R>(&self, cq: *mut bindings::ib_cq, f: impl FnOnce(&mut *mut State) -> R) -> R {
        // Objects of this size are aligned to more than 64 bytes, so these bits tell nothing.
        let addr = cq.addr() >> 6;
        let index = (addr ^ (addr >> 8)) % BUCKETS;
        // SAFETY: By the type invariant.
        let lock = unsafe { Lock::<(), SpinLockBackend>::from_raw(self.lock) };

        let _guard = lock.lock();
        // SAFETY: We hold the lock, and `f` gets no other access to the set.
        f(unsafe { &mut (*self.buckets.get())[index] })
    }

    /// Hands `live` over to its consumer, from whom it comes back by [`claim`](Self::claim).
    #[inline]
    pub fn hand_out(&self, live: Live<P>) -> *mut bindings::ib_cq {
        self.insert(live, false)
    }

    /// Hands `live` over to the pool of its device, from which it comes back by
    /// [`claim_pooled`](Self::claim_pooled).
    #[inline]
    pub(super) fn hand_out_pooled(&self, live: Live<P>) -> *mut bindings::ib_cq {
        self.insert(live, true)
    }

    #[inline]
    fn insert(&self, live: Live<P>, pooled: bool) -> *mut bindings::ib_cq {
        let cq = live.into_raw();
        // SAFETY: The queue is ours.
        let state = unsafe { State::of(cq) };

        // INVARIANT: `cq` comes from `into_raw()`.
        self.with_bucket(cq, |head| {
            // SAFETY: We hold the lock.
            unsafe {
                (*state).pooled = pooled;
                (*state).next = *head;
            }
            *head = state;
        });
        cq
    }

    /// Takes the queue at address `cq` back from its consumer, whatever that points to.
    ///
    /// # Context
    ///
    /// Any but hard and soft interrupts.
    ///
    /// # Errors
    ///
    /// See [`ClaimError`]; a queue that is in use stays what it is.
    #[inline]
    pub fn claim(&self, cq: *mut bindings::ib_cq) -> Result<Live<P>, ClaimError> {
        self.remove(cq, false)
    }

    /// As [`claim`](Self::claim), for a queue that was taken out of a [`Pool`](super::Pool).
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim), and `Shared` if entries of it are still claimed. It belongs to
    /// no pool any more then, so who gives back the last entries can [`claim`](Self::claim) it.
    #[inline]
    pub fn claim_pooled(&self, cq: *mut bindings::ib_cq) -> Result<Live<P>, ClaimError> {
        self.remove(cq, true)
    }

    #[inline]
    fn remove(&self, cq: *mut bindings::ib_cq, pooled: bool) -> Result<Live<P>, ClaimError> {
        self.with_bucket(cq, |head| {
            let mut link: *mut *mut State = head;
            // SAFETY: We hold the lock, so by the type invariant the members are valid, and each
            // belongs to a valid queue. Once taken out a queue is nobody's but ours.
            unsafe {
                while !(*link).is_null() && (**link).cq != cq {
                    link = &raw mut (**link).next;
                }
                let state = *link;
                if state.is_null() {
                    return Err(ClaimError::Unknown);
                }
                if (*state).pooled && !pooled {
                    return Err(ClaimError::Shared);
                }
                (*state).pooled = false;
                if bindings::atomic_read(&raw const (*cq).usecnt) != 0 {
                    return Err(ClaimError::InUse);
                }
                if (*cq).cqe_used != 0 {
                    return Err(ClaimError::Shared);
                }
                *link = (*state).next;
                Ok(Live::from_raw(cq))
            }
        })
    }
}
