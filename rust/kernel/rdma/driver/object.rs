// SPDX-License-Identifier: GPL-2.0

//! Objects that the core allocates, with the driver's part behind.
//!
//! The core allocates as many bytes as `Object` has, zeroed, fills in its part, and calls the
//! driver to create the object; it frees the memory after it has called the driver to destroy it,
//! without knowing that there is something to drop. In between it writes to its part at any time,
//! so there is never a reference to that.

use crate::types::Opaque;
use core::mem::{
    offset_of,
    size_of,
    MaybeUninit, //
};

/// A C object `C` and what a driver keeps with it.
///
/// # Invariants
///
/// `data` is initialised from when the operation that creates the object has succeeded until the
/// one that destroys it is called.
#[repr(C)]
pub(super) struct Object<C, D> {
    c: Opaque<C>,
    data: MaybeUninit<D>,
}

impl<C, D> Object<C, D> {
    /// How many bytes the core has to allocate.
    ///
    /// Memory from `kmalloc()` is aligned to the largest power of two that divides its size, and
    /// the size of a type is a multiple of its alignment.
    pub(super) const SIZE: usize = {
        assert!(offset_of!(Self, c) == 0);
        size_of::<Self>()
    };

    /// Puts the driver's part into a new object.
    ///
    /// # Safety
    ///
    /// `c` must be the start of [`Self::SIZE`] bytes, of which `data` was not initialised before.
    #[inline]
    pub(super) unsafe fn init(c: *mut C, data: D) {
        // SAFETY: By the requirement of this function.
        unsafe { (&raw mut (*c.cast::<Self>()).data).cast::<D>().write(data) };
    }

    /// The driver's part of an object.
    ///
    /// # Safety
    ///
    /// `c` must be an object that was initialised by [`Self::init`], and is not destroyed while the
    /// reference is used.
    #[inline]
    pub(super) unsafe fn data<'a>(c: *mut C) -> &'a D {
        // SAFETY: By the requirement of this function.
        unsafe { &*(&raw const (*c.cast::<Self>()).data).cast::<D>() }
    }

    /// Drops the driver's part of an object.
    ///
    /// # Safety
    ///
    /// As [`Self::data`], and there is no reference to it.
    #[inline]
    pub(super) unsafe fn destroy(c: *mut C) {
        // SAFETY: By the requirement of this function.
        unsafe { core::ptr::drop_in_place((&raw mut (*c.cast::<Self>()).data).cast::<D>()) };
    }
}
