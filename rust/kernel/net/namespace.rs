// SPDX-License-Identifier: GPL-2.0

//! Network name spaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::{
    bindings,
    error::to_result,
    net::{
        addr::{
            be32,
            IpAddr, //
        },
        netdevice::NetDevice, //
    },
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        rcu, //
    },
    types::Opaque,
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

/// A network name space.
///
/// Wraps the kernel's C `struct net`. A reference that is counted keeps the name space alive, with
/// its devices; drivers should not keep one for long.
///
/// # Invariants
///
/// The object is valid as long as the reference is.
#[repr(transparent)]
pub struct Namespace(Opaque<bindings::net>);

// SAFETY: References can be dropped on any thread.
unsafe impl Send for Namespace {}
// SAFETY: The methods may be called on any thread.
unsafe impl Sync for Namespace {}

// SAFETY: The C functions count the references.
unsafe impl AlwaysRefCounted for Namespace {
    fn inc_ref(&self) {
        // SAFETY: A shared reference means that the count is not zero.
        unsafe { bindings::get_net(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller has a reference, and gives it up.
        unsafe { bindings::put_net(obj.as_ptr().cast()) };
    }
}

impl Namespace {
    /// Creates a reference from a pointer of the C side.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid name space for the whole of `'a`. It need not have a reference: the
    /// methods work for one that is being shut down too. But then no [`ARef`] may be made of it.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::net) -> &'a Self {
        // SAFETY: The caller promises that `ptr` is valid; this is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// Finds a device by its index. Any context.
    pub fn device(&self, index: u32) -> Option<ARef<NetDevice>> {
        let index = i32::try_from(index).ok()?;
        // SAFETY: By the type invariants the name space is valid.
        let dev = unsafe { bindings::dev_get_by_index(self.as_raw(), index) };

        // SAFETY: The function has taken a reference, which is ours.
        NonNull::new(dev.cast()).map(|dev| unsafe { ARef::from_raw(dev) })
    }

    /// Finds the device that has a unicast address. Any context.
    pub fn owner<'g>(&self, _guard: &'g rcu::Guard, addr: &IpAddr) -> Option<&'g NetDevice> {
        let dev = match addr {
            // SAFETY: By the type invariants the name space is valid.
            IpAddr::V4(a) => unsafe { bindings::__ip_dev_find(self.as_raw(), be32(*a), false) },
            #[cfg(CONFIG_IPV6)]
            // SAFETY: As above; the address is read only.
            IpAddr::V6(a) => unsafe {
                bindings::ipv6_dev_find(self.as_raw(), &super::addr::in6(*a), core::ptr::null_mut())
            },
            #[cfg(not(CONFIG_IPV6))]
            IpAddr::V6(_) => return None,
        };

        // SAFETY: The device that has an address is there for a grace period after it was found.
        NonNull::new(dev).map(|dev| unsafe { NetDevice::from_raw(dev.as_ptr()) })
    }
}

/// What somebody does when network name spaces come and go.
pub trait Operations: 'static {
    /// A name space goes away. Its devices have left it already, or are gone. Sleeping is allowed.
    fn exit(net: &Namespace);
}

/// A registration for network name spaces.
///
/// # Invariants
///
/// The operations are registered.
#[pin_data(PinnedDrop)]
pub struct Registration<T: Operations> {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
    _p: PhantomData<T>,
}

// SAFETY: It does nothing but be there.
unsafe impl<T: Operations> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Operations> Sync for Registration<T> {}

impl<T: Operations> Registration<T> {
    /// Creates an initialiser that registers.
    pub fn new() -> impl PinInit<Self, Error> {
        // INVARIANT: They are registered if this succeeds.
        try_pin_init!(Self {
            ops <- Opaque::try_ffi_init(|ops: *mut bindings::pernet_operations| {
                let init = bindings::pernet_operations {
                    exit: Some(Self::exit),
                    ..Default::default()
                };

                // SAFETY: `ops` is valid memory for it.
                unsafe { ops.write(init) };
                // SAFETY: It was initialised, is pinned, and stays until it is unregistered.
                to_result(unsafe { bindings::register_pernet_subsys(ops) })
            }),
            _p: PhantomData,
        })
    }

    /// # Safety
    ///
    /// `net` must be valid.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: By the safety requirements.
        T::exit(unsafe { Namespace::from_raw(net) });
    }
}

#[pinned_drop]
impl<T: Operations> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants they are registered. This calls `exit` for all name
        // spaces, and waits for those calls that have begun.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) };
    }
}
