// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    bindings,
    device,
    ffi::c_int,
    prelude::*,
    types::Opaque, //
};

#[cfg(CONFIG_INFINIBAND_RUST_UMEM_FORK)]
use crate::sync::atomic::Atomic;

/// An RDMA device, as the core sees it.
///
/// Wraps the kernel's C `struct ib_device`.
///
/// # Invariants
///
/// The C object is allocated by `ib_alloc_device()` and valid as long as the reference is.
#[repr(transparent)]
pub struct Device(Opaque<bindings::ib_device>);

// SAFETY: What is read here is constant after registration; the operations are called from any
// thread in C too.
unsafe impl Sync for Device {}

impl Device {
    /// Creates a reference from a pointer of the C side.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid device for the whole of `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: The caller promises that `ptr` is valid; `Device` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// The device as the driver core knows it, for messages.
    #[inline]
    pub fn as_dev(&self) -> &device::Device {
        // SAFETY: By the type invariant the object is valid, and so is what is embedded in it.
        unsafe { device::Device::from_raw(&raw mut (*self.as_raw()).__bindgen_anon_1.dev) }
    }

    /// How many registrations took other memory from the children of fork.
    #[cfg(CONFIG_INFINIBAND_RUST_UMEM_FORK)]
    #[inline]
    pub fn dontfork_partial(&self) -> &Atomic<i64> {
        // SAFETY: By the type invariant the object is valid; C uses the counter as an atomic too.
        unsafe { Atomic::from_ptr(&raw mut (*self.as_raw()).dontfork_partial.counter) }
    }

    /// The number of completion vectors, that is of interrupts that completions can be spread on.
    #[inline]
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: By the type invariant the object is valid; the field is constant after
        // registration.
        let n: c_int = unsafe { (*self.as_raw()).num_comp_vectors };
        n.try_into().unwrap_or(0)
    }

    /// The largest number of entries that a completion queue can have.
    #[inline]
    pub fn max_cqe(&self) -> u32 {
        // SAFETY: As above.
        unsafe { (*self.as_raw()).attrs.max_cqe }
    }

    /// The number of completion vectors that are worth using: no more than there are CPUs online.
    #[inline]
    pub fn usable_comp_vectors(&self) -> u32 {
        // SAFETY: Just reads a counter.
        let cpus = unsafe { bindings::num_online_cpus() };
        self.num_comp_vectors().min(cpus)
    }

    /// The operations that every device with kernel verbs has.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device cannot be used from within the kernel.
    #[inline]
    pub(super) fn check_kernel_verbs(&self) -> Result {
        // SAFETY: By the type invariant the object is valid; the operations are constant.
        let ops = unsafe { &raw const (*self.as_raw()).ops };
        // SAFETY: As above.
        let complete = unsafe {
            (*ops).create_cq.is_some()
                && (*ops).destroy_cq.is_some()
                && (*ops).poll_cq.is_some()
                && (*ops).req_notify_cq.is_some()
        };
        if complete {
            Ok(())
        } else {
            Err(EOPNOTSUPP)
        }
    }
}
