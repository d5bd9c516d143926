// SPDX-License-Identifier: GPL-2.0

//! Network devices, as others use them.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::{
    bindings,
    error::to_result,
    ffi::{
        c_int,
        c_ulong,
        c_void, //
    },
    net::namespace::Namespace,
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

/// A network device.
///
/// Wraps the kernel's C `struct net_device`. A reference that is counted keeps the device from
/// going away: whoever has one should give it up when told of [`Event::Unregister`].
///
/// # Invariants
///
/// The object is valid as long as the reference is.
#[repr(transparent)]
pub struct NetDevice(Opaque<bindings::net_device>);

// SAFETY: References can be dropped on any thread.
unsafe impl Send for NetDevice {}
// SAFETY: What is read here may be read on any thread.
unsafe impl Sync for NetDevice {}

// SAFETY: The C functions count the references.
unsafe impl AlwaysRefCounted for NetDevice {
    fn inc_ref(&self) {
        // SAFETY: A shared reference means that the device is valid.
        unsafe { bindings::dev_hold(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller has a reference, and gives it up.
        unsafe { bindings::dev_put(obj.as_ptr().cast()) };
    }
}

impl NetDevice {
    /// Creates a reference from a pointer of the C side.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid network device for the whole of `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::net_device) -> &'a Self {
        // SAFETY: The caller promises that `ptr` is valid; this is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// The index of the device, which is unique in its name space and not zero.
    #[inline]
    pub fn ifindex(&self) -> u32 {
        // SAFETY: By the type invariants the device is valid. It may change while it is read only
        // if the device changes its name space.
        let index: c_int = unsafe { (&raw const (*self.as_raw()).ifindex).read_volatile() };

        index.unsigned_abs()
    }

    /// The largest size of an IP packet.
    #[inline]
    pub fn mtu(&self) -> u32 {
        // SAFETY: By the type invariants the device is valid; C reads it in the same way.
        unsafe { (&raw const (*self.as_raw()).mtu).read_volatile() }
    }

    /// The name, with as many zeroes behind it as there is room for.
    pub fn name(&self) -> [u8; 16] {
        // SAFETY: By the type invariants the device is valid. When it is renamed meanwhile, what is
        // read is a mixture of both.
        unsafe { (&raw const (*self.as_raw()).name).read_volatile() }
    }

    /// Tells whether this is an Ethernet device, or looks like one.
    pub fn is_ether(&self) -> bool {
        // SAFETY: By the type invariants the device is valid; this is constant.
        u32::from(unsafe { (*self.as_raw()).type_ }) == bindings::ARPHRD_ETHER
    }

    /// The hardware address, if it is one of Ethernet.
    pub fn mac(&self) -> Option<[u8; 6]> {
        // SAFETY: By the type invariants the device is valid. An Ethernet device has an address of
        // six bytes; one that is being changed may be read half old and half new.
        self.is_ether()
            .then(|| unsafe { (*self.as_raw()).dev_addr.cast::<[u8; 6]>().read_volatile() })
    }

    /// Tells whether it is registered and not about to go away.
    pub fn is_registered(&self) -> bool {
        // SAFETY: By the type invariants the device is valid.
        let state = unsafe { (&raw const (*self.as_raw()).reg_state).read_volatile() };

        u32::from(state) == bindings::netdev_reg_state_NETREG_REGISTERED
    }

    /// Tells whether it is meant to be up, whatever its carrier.
    #[doc(alias = "netif_running")]
    pub fn is_running(&self) -> bool {
        // SAFETY: By the type invariants the device is valid.
        unsafe { bindings::netif_running(self.as_raw()) }
    }

    /// Tells whether it is up and has a carrier.
    pub fn is_up(&self) -> bool {
        // SAFETY: By the type invariants the device is valid.
        unsafe {
            bindings::netif_running(self.as_raw()) && bindings::netif_carrier_ok(self.as_raw())
        }
    }

    /// Tells whether this is a VLAN on another device.
    #[inline]
    pub fn is_vlan(&self) -> bool {
        // SAFETY: By the type invariants the device is valid.
        unsafe { bindings::is_vlan_dev(self.as_raw()) }
    }

    /// The device that this is on, if this is a VLAN.
    pub fn vlan<'g>(&'g self, _guard: &'g rcu::Guard) -> Option<&'g Self> {
        if !self.is_vlan() {
            return None;
        }

        // SAFETY: This is a VLAN device, as the function wants.
        let real = unsafe { bindings::vlan_dev_real_dev(self.as_raw()) };

        // SAFETY: A VLAN device has a reference to the device that it is on until it is freed,
        // which is a grace period after it was unregistered.
        NonNull::new(real).map(|real| unsafe { Self::from_raw(real.as_ptr()) })
    }

    /// Tells whether this is the loop-back device of its name space.
    #[inline]
    pub fn is_loopback(&self) -> bool {
        // SAFETY: By the type invariants the device is valid.
        let flags = unsafe { (&raw const (*self.as_raw()).flags).read_volatile() };

        flags & bindings::net_device_flags_IFF_LOOPBACK != 0
    }

    /// The name space that the device is in now.
    #[inline]
    pub fn namespace<'g>(&self, _guard: &'g rcu::Guard) -> &'g Namespace {
        // SAFETY: By the type invariants the device is valid, and a name space is freed a grace
        // period after its last device has left it.
        unsafe { Namespace::from_raw(bindings::dev_net_rcu(self.as_raw())) }
    }

    /// Takes a reference to the name space that the device is in now; `None` if that is being shut
    /// down.
    pub fn get_namespace(&self) -> Option<ARef<Namespace>> {
        let guard = rcu::read_lock();
        // SAFETY: The name space is valid while RCU's lock is held.
        let net = unsafe { bindings::maybe_get_net(self.namespace(&guard).as_raw()) };

        // SAFETY: The reference that was taken is ours.
        NonNull::new(net.cast()).map(|net| unsafe { ARef::from_raw(net) })
    }
}

/// What may happen to a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was set up.
    Up,
    /// It was set down.
    Down,
    /// Its state has changed, for example that of the carrier.
    Change,
    /// Its MTU has changed.
    Mtu,
    /// It goes away, or to another name space.
    Unregister,
}

impl Event {
    const fn from_raw(event: c_ulong) -> Option<Self> {
        // The numbers are small.
        match event as bindings::netdev_cmd {
            bindings::netdev_cmd_NETDEV_UP => Some(Self::Up),
            bindings::netdev_cmd_NETDEV_DOWN => Some(Self::Down),
            bindings::netdev_cmd_NETDEV_CHANGE => Some(Self::Change),
            bindings::netdev_cmd_NETDEV_CHANGEMTU => Some(Self::Mtu),
            bindings::netdev_cmd_NETDEV_UNREGISTER => Some(Self::Unregister),
            _ => None,
        }
    }
}

/// Somebody who wants to know what happens to network devices.
pub trait Listener: 'static {
    /// Something has happened to a device. RTNL is held.
    fn event(event: Event, dev: &NetDevice);
}

/// A registration of a [`Listener`].
///
/// # Invariants
///
/// The notifier is registered.
#[pin_data(PinnedDrop)]
pub struct Notifier<T: Listener> {
    #[pin]
    nb: Opaque<bindings::notifier_block>,
    _p: PhantomData<T>,
}

// SAFETY: It does nothing but be there.
unsafe impl<T: Listener> Send for Notifier<T> {}
// SAFETY: As above.
unsafe impl<T: Listener> Sync for Notifier<T> {}

impl<T: Listener> Notifier<T> {
    /// Creates an initialiser that registers. The listener is told of the devices that are up
    /// already.
    pub fn new() -> impl PinInit<Self, Error> {
        // INVARIANT: It is registered if this succeeds.
        try_pin_init!(Self {
            nb <- Opaque::try_ffi_init(|nb: *mut bindings::notifier_block| {
                let init = bindings::notifier_block {
                    notifier_call: Some(Self::call),
                    ..Default::default()
                };

                // SAFETY: `nb` is valid memory for it.
                unsafe { nb.write(init) };
                // SAFETY: It was initialised, is pinned, and stays until it is unregistered.
                to_result(unsafe { bindings::register_netdevice_notifier(nb) })
            }),
            _p: PhantomData,
        })
    }

    /// # Safety
    ///
    /// `info` must be a valid `struct netdev_notifier_info`.
    unsafe extern "C" fn call(
        _nb: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        if let Some(event) = Event::from_raw(event) {
            let info = info.cast::<bindings::netdev_notifier_info>();

            // SAFETY: By the safety requirements; the device is there for the time of the call.
            T::event(event, unsafe { NetDevice::from_raw((*info).dev) });
        }
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<T: Listener> PinnedDrop for Notifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants it is registered. The listener is told that all devices go
        // away; after that it is not called any more. It cannot fail for one that is registered.
        unsafe { bindings::unregister_netdevice_notifier(self.nb.get()) };
    }
}
