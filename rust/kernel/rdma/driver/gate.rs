// SPDX-License-Identifier: GPL-2.0

//! Reaching an object of the core, until that is freed.
//!
//! The driver's data may live longer than the C object that it belongs to: packets, timers and
//! event queues hold references. A gate is what they have instead of a pointer. While somebody is
//! inside, `close` waits, and after it nobody gets in.

use crate::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// A gate for a C object.
///
/// # Invariants
///
/// As long as `users` has not `CLOSED` set or is not `CLOSED` alone, `ptr` is valid.
pub struct Gate<C> {
    ptr: *mut C,
    users: Atomic<u32>,
}

const CLOSED: u32 = 1 << 31;

// SAFETY: The pointer is only given away, never followed here.
unsafe impl<C> Send for Gate<C> {}

// SAFETY: As above; `users` is atomic.
unsafe impl<C> Sync for Gate<C> {}

impl<C> Gate<C> {
    /// Makes a gate that is open.
    ///
    /// # Safety
    ///
    /// `ptr` must stay valid until [`close`](Self::close) was called.
    #[inline]
    pub(super) unsafe fn new(ptr: *mut C, flags: crate::alloc::Flags) -> Result<Arc<Self>> {
        // INVARIANT: By the requirement of this function.
        Ok(Arc::new(
            Self {
                ptr,
                users: Atomic::new(0),
            },
            flags,
        )?)
    }

    /// Calls `f` with the object, which is valid until it returns, if the gate is open.
    ///
    /// # Context
    ///
    /// Any; `f` must not wait for the gate to be closed.
    #[inline]
    pub(super) fn enter<R>(&self, f: impl FnOnce(*mut C) -> R) -> Option<R> {
        let mut users = self.users.load(Relaxed);

        loop {
            if users & CLOSED != 0 {
                return None;
            }
            match self.users.cmpxchg(users, users + 1, Full) {
                Ok(_) => break,
                Err(now) => users = now,
            }
        }
        let ret = f(self.ptr);

        self.users.fetch_sub(1u32, Release);
        Some(ret)
    }

    /// The address of the object. It says nothing about whether that is still there.
    #[inline]
    pub(super) fn address(&self) -> *mut C {
        self.ptr
    }

    /// Closes the gate, and waits until all who are inside have left.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(super) fn close(&self) {
        self.users.fetch_add(CLOSED, Full);
        while self.users.load(Acquire) != CLOSED {
            // SAFETY: May be called where sleeping is allowed.
            unsafe { bindings::msleep(1) };
        }
    }
}
