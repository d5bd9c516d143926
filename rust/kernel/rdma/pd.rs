// SPDX-License-Identifier: GPL-2.0

//! Protection domains.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::client::ClientDevice;
use crate::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};
use core::ptr::NonNull;

/// A protection domain: queue pairs and memory work with each other if they are in the same one.
///
/// Wraps the kernel's C `struct ib_pd`.
///
/// # Invariants
///
/// `pd` is a protection domain on `dev` that is ours to free.
///
/// # Examples
///
/// Not built, since `ib_core` may be a module and this crate is not:
///
/// ```ignore
/// fn add(dev: &Arc<ClientDevice>) -> Result<Arc<Pd>> {
///     Pd::new(dev)
/// }
/// ```
pub struct Pd {
    pd: NonNull<bindings::ib_pd>,
    dev: Arc<ClientDevice>,
}

// SAFETY: Protection domains are not bound to a thread.
unsafe impl Send for Pd {}

// SAFETY: All that can be done with a reference is to read what is constant.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or that of the driver.
    #[doc(alias = "ib_alloc_pd")]
    #[inline]
    pub fn new(dev: &Arc<ClientDevice>) -> Result<Arc<Self>> {
        // SAFETY: The device is registered, and the name lives as long as the module.
        let pd = from_err_ptr(unsafe { bindings::__ib_alloc_pd(dev.as_raw(), 0, dev.user()) })?;
        // INVARIANT: It was allocated just now.
        let this = Self {
            pd: NonNull::new(pd).ok_or(ENOMEM)?,
            dev: dev.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Arc<ClientDevice> {
        &self.dev
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::ib_pd {
        self.pd.as_ptr()
    }

    /// The key by which the device gets at memory that was mapped for it.
    #[inline]
    pub fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariant; the field is constant.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    /// May sleep.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant. What uses a protection domain holds a reference to it.
        let ret = unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), core::ptr::null_mut()) };
        crate::warn_on_once!(ret != 0);
    }
}
