// SPDX-License-Identifier: GPL-2.0

//! What a library in user space and the driver tell each other beside the verbs.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::{
    object::Object,
    Bound,
    Operations, //
};
use crate::{
    bindings,
    error::to_result,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

/// Input and output of a call from user space.
///
/// Wraps the kernel's C `struct ib_udata`.
///
/// # Invariants
///
/// `raw` is the `driver_udata` of a `struct uverbs_attr_bundle`, valid for `'a`.
pub struct Udata<'a, T> {
    raw: NonNull<bindings::ib_udata>,
    _p: Bound<'a, T>,
}

impl<T: Operations> Udata<'_, T> {
    /// Creates it from what the core calls a driver with; `None` for a user in the kernel.
    ///
    /// # Safety
    ///
    /// `raw` must be null or what the core calls an operation of a `T` device with, and valid for
    /// the lifetime of the result.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Option<Self> {
        // INVARIANT: By the requirement of this function.
        NonNull::new(raw).map(|raw| Self {
            raw,
            _p: PhantomData,
        })
    }

    /// How many bytes of input there are.
    #[inline]
    pub fn inlen(&self) -> usize {
        // SAFETY: By the type invariant.
        unsafe { (*self.raw.as_ptr()).inlen }
    }

    /// How many bytes of output there is room for.
    #[inline]
    pub fn outlen(&self) -> usize {
        // SAFETY: By the type invariant.
        unsafe { (*self.raw.as_ptr()).outlen }
    }

    /// Reads the first bytes of the input.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is shorter than that, `EFAULT` if it cannot be read.
    #[inline]
    pub fn read(&self, to: &mut [u8]) -> Result {
        if self.inlen() < to.len() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant.
        let from = unsafe { (*self.raw.as_ptr()).inbuf };

        UserSlice::new(UserPtr::from_ptr(from.cast_mut()), to.len())
            .reader()
            .read_slice(to)
    }

    /// Writes some bytes of the output, from `at` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no room for that, `EFAULT` if it cannot be written.
    #[inline]
    pub fn respond(&self, at: usize, bytes: &[u8]) -> Result {
        let end = at.checked_add(bytes.len()).ok_or(EINVAL)?;

        if self.outlen() < end {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant.
        let to = unsafe { (*self.raw.as_ptr()).outbuf };

        UserSlice::new(UserPtr::from_ptr(to).wrapping_byte_add(at), bytes.len())
            .writer()
            .write_slice(bytes)
    }

    /// Says that there is no input and no output: refuses any input, and fills the output with
    /// zeroes.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if there is input that is not zero; `EFAULT`.
    #[doc(alias = "ib_no_udata_io")]
    #[inline]
    pub(super) fn none(&self) -> Result {
        // SAFETY: By the type invariant; nothing is copied.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(self.raw.as_ptr(), core::ptr::null_mut(), 0, 0)
        })?;
        // SAFETY: As above.
        to_result(unsafe { bindings::_ib_respond_udata(self.raw.as_ptr(), core::ptr::null(), 0) })
    }

    /// What the driver keeps with the open file of the caller.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none yet.
    #[doc(alias = "rdma_udata_to_drv_context")]
    #[inline]
    pub fn ucontext(&self) -> Result<&T::Ucontext> {
        // SAFETY: By the type invariant.
        let c = unsafe { bindings::rdma_udata_ucontext(self.raw.as_ptr()) };

        if c.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The context is one of a `T` device, and exists as long as the call lasts.
        Ok(unsafe { Object::<_, T::Ucontext>::data(c) })
    }
}
