// SPDX-License-Identifier: GPL-2.0

//! Data for one user at a time, where nobody waits.
//!
//! An [`Exclusive`] is a lock that can only be tried. It is for data whose user is chosen by other
//! means, say by a protocol with an owner word: then it never fails, costs next to nothing, and
//! the compiler need not trust the protocol.
//!
//! # Examples
//!
//! ```
//! use kernel::sync::exclusive::Exclusive;
//!
//! let cell = Exclusive::new(1);
//! {
//!     let mut it = cell.try_borrow().unwrap();
//!     *it += 1;
//!     assert!(cell.try_borrow().is_none());
//! }
//! assert_eq!(*cell.try_borrow().unwrap(), 2);
//! ```

use super::atomic::{
    Acquire,
    AtomicFlag,
    Release, //
};
use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

/// Data for one user at a time.
///
/// # Invariants
///
/// There is a [`Borrowed`] if and only if `busy` is set, and there is at most one.
pub struct Exclusive<T: ?Sized> {
    busy: AtomicFlag,
    data: UnsafeCell<T>,
}

// SAFETY: Nothing is bound to a thread but the data may be.
unsafe impl<T: ?Sized + Send> Send for Exclusive<T> {}

// SAFETY: Of all that share it one at a time gets at the data, and each one sees what the former
// has done; so the data goes from one to another, which is what `Send` says that it can.
unsafe impl<T: ?Sized + Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// Makes one that nobody uses.
    #[inline]
    pub const fn new(data: T) -> Self {
        // INVARIANT: There is no `Borrowed` yet.
        Self {
            busy: AtomicFlag::new(false),
            data: UnsafeCell::new(data),
        }
    }
}

impl<T: ?Sized> Exclusive<T> {
    /// Gets at the data if nobody else does at the moment.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn try_borrow(&self) -> Option<Borrowed<'_, T>> {
        // INVARIANT: The flag was not set, so there was no `Borrowed`, and now it is.
        (!self.busy.xchg(true, Acquire)).then_some(Borrowed(self))
    }
}

/// Access to the data of an [`Exclusive`]; ends when dropped.
pub struct Borrowed<'a, T: ?Sized>(&'a Exclusive<T>);

impl<T: ?Sized> Deref for Borrowed<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the type invariant of `Exclusive` nobody else has a reference to the data.
        unsafe { &*self.0.data.get() }
    }
}

impl<T: ?Sized> DerefMut for Borrowed<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: As in `deref`; and this one is borrowed for as long.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T: ?Sized> Drop for Borrowed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // INVARIANT: This was the only `Borrowed`, and it is gone.
        self.0.busy.store(false, Release);
    }
}
