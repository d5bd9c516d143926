// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`, and the life of a driver of devices that are made so.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use super::{
    device::DriverId,
    Operations, //
};
use crate::{
    bindings,
    error::from_result,
    ffi::{
        c_char,
        c_int, //
    },
    net::netdevice::NetDevice,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        }, //
    },
    types::Opaque, //
};
use core::marker::PhantomData;

/// Makes devices.
pub trait LinkOperations: Operations {
    /// Makes a device with a name on a network interface.
    ///
    /// # Context
    ///
    /// Process context, may sleep. The RTNL is not held.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the interface has one.
    fn newlink(name: &CStr, netdev: ARef<NetDevice>) -> Result;
}

/// What the core calls to make devices. A driver has one in a `static`.
///
/// Wraps the kernel's C `struct rdma_link_ops`.
pub struct Ops<T> {
    raw: Opaque<bindings::rdma_link_ops>,
    used: Atomic<u32>,
    _p: PhantomData<fn(T)>,
}

// SAFETY: `raw` is written once, by who has set `used`, and then belongs to the core.
unsafe impl<T> Sync for Ops<T> {}

impl<T> Ops<T> {
    /// Makes it.
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            raw: Opaque::uninit(),
            used: Atomic::new(0),
            _p: PhantomData,
        }
    }

    #[inline]
    pub(super) fn as_raw(&self) -> *const bindings::rdma_link_ops {
        self.raw.get()
    }
}

impl<T: LinkOperations> Ops<T> {
    /// Starts the driver: from now on devices of type `kind` can be made.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it was started before.
    #[doc(alias = "rdma_link_register")]
    #[inline]
    pub fn register(&'static self, kind: &'static CStr, driver: DriverId) -> Result<Driver<T>> {
        if self.used.cmpxchg(0, 1, Full).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: Nobody else uses it: `used` says so.
        unsafe {
            self.raw.get().write(bindings::rdma_link_ops {
                type_: kind.as_char_ptr(),
                newlink: Some(newlink::<T>),
                ..Default::default()
            });
            bindings::rdma_link_register(self.raw.get());
        }
        Ok(Driver { ops: self, driver })
    }

    /// Whether the driver was started.
    pub fn is_registered(&self) -> bool {
        self.used.load(Acquire) != 0
    }
}

/// A driver that was started.
///
/// Dropping it ends all its devices, and waits for that.
pub struct Driver<T: LinkOperations> {
    ops: &'static Ops<T>,
    driver: DriverId,
}

impl<T: LinkOperations> Drop for Driver<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: It was registered; and all devices of this driver are ours.
        unsafe {
            bindings::rdma_link_unregister(self.ops.raw.get());
            bindings::ib_unregister_driver(self.driver.into_raw());
        }
        self.ops.used.store(0, Relaxed);
    }
}

/// # Safety
///
/// To be called as `rdma_link_ops.newlink`.
unsafe extern "C" fn newlink<T: LinkOperations>(
    name: *const c_char,
    netdev: *mut bindings::net_device,
) -> c_int {
    from_result(|| {
        // SAFETY: The core gives us a string and an interface that are valid during the call.
        let (name, netdev) = unsafe { (CStr::from_char_ptr(name), NetDevice::from_raw(netdev)) };

        T::newlink(name, netdev.into())?;
        Ok(0)
    })
}

/// Whether a module is loaded, or being loaded or unloaded.
#[doc(alias = "find_module")]
pub fn is_module_loaded(name: &CStr) -> bool {
    let _guard = crate::sync::rcu::read_lock();

    // SAFETY: The name is a string, and the list of modules may be read under RCU.
    !unsafe { bindings::find_module(name.as_char_ptr()) }.is_null()
}

/// Keeps a module from being loaded, as long as it lives.
///
/// For another driver of the same devices, which would take ours for its own.
///
/// # Invariants
///
/// The notifier is registered.
#[pin_data(PinnedDrop)]
pub struct KeepOut {
    name: &'static CStr,
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: Notifiers can be unregistered by any thread.
unsafe impl Send for KeepOut {}

// SAFETY: There is nothing to be done with a reference.
unsafe impl Sync for KeepOut {}

impl KeepOut {
    /// Keeps the module with this name out from now on.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is there already.
    pub fn new(name: &'static CStr) -> Result<Pin<KBox<Self>>> {
        let this = KBox::try_pin_init(
            try_pin_init!(Self {
                name,
                // INVARIANT: It is registered now.
                notifier <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                    // SAFETY: `slot` is valid for writes. The value is pinned, and unregistered
                    // when it is dropped.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(Self::notify),
                            ..Default::default()
                        });
                        crate::error::to_result(bindings::register_module_notifier(slot))
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )?;

        // In this order: what is loaded meanwhile is seen by one of the two.
        if is_module_loaded(name) {
            return Err(EBUSY);
        }
        Ok(this)
    }

    /// Hears of modules that come.
    ///
    /// # Safety
    ///
    /// Only the chain of notifiers for modules may call it.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        action: usize,
        module: *mut crate::ffi::c_void,
    ) -> c_int {
        if action != bindings::module_state_MODULE_STATE_COMING as usize {
            return 0;
        }
        // SAFETY: The notifier is part of such a value, and is called while it is registered, which
        // was done last.
        let this = unsafe { &*crate::container_of!(Opaque::cast_from(notifier), Self, notifier) };
        // SAFETY: What comes is a module.
        let name = unsafe {
            CStr::from_char_ptr((&raw const (*module.cast::<bindings::module>()).name).cast())
        };

        if name == this.name {
            pr_err!("{name:?} cannot be loaded: another driver of its devices is there\n");
            return bindings::NOTIFY_STOP_MASK as c_int | (1 - EBUSY.to_errno());
        }
        0
    }
}

#[pinned_drop]
impl PinnedDrop for KeepOut {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant.
        unsafe { bindings::unregister_module_notifier(self.notifier.get()) };
    }
}
