// SPDX-License-Identifier: GPL-2.0

//! Making and registering devices.
//!
//! A registered device belongs to the core. `rdma link delete`, the end of its network interface
//! and the end of the driver may each unregister it, so nothing here stands for a registered
//! device. What the driver keeps with it is dropped when the core says that it is over, in
//! `dealloc_driver`.

use super::{
    link::Ops,
    object::Object,
    vtable::VTable,
    Operations, //
};
use crate::{
    bindings,
    error::to_result,
    ffi::c_int,
    net::netdevice::NetDevice,
    prelude::*,
    rdma::device::Device,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};

// SAFETY: `get_device()` and `put_device()` count references to the memory of the device.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        // SAFETY: By the type invariant the device is valid.
        unsafe { bindings::get_device(&raw mut (*self.as_raw()).__bindgen_anon_1.dev) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the requirement of this function there is a reference to put.
        unsafe {
            bindings::put_device(
                &raw mut (*obj.as_ptr().cast::<bindings::ib_device>())
                    .__bindgen_anon_1
                    .dev,
            )
        };
    }
}

// SAFETY: References to devices can be put by any thread.
unsafe impl Send for Device {}

/// Who the driver is, for user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverId {
    /// The software device for RoCE.
    Rxe,
    /// One that neither user space nor other drivers know by its number.
    Private(u32),
}

impl DriverId {
    #[inline]
    pub(super) fn into_raw(self) -> bindings::rdma_driver_id {
        match self {
            Self::Rxe => bindings::rdma_driver_id_RDMA_DRIVER_RXE,
            Self::Private(id) => id,
        }
    }
}

/// What a device is.
pub struct Config<'a, T: Operations> {
    /// What it was made by.
    pub link: &'static Ops<T>,
    /// Its description.
    pub description: &'a CStr,
    /// Its GUID.
    pub node_guid: [u8; 8],
    /// Who the driver is.
    pub driver: DriverId,
    /// Who the library in user space takes it for. If that is somebody else, only processes that
    /// open the device through an `ib_uverbs` that was there when it was registered can be told so.
    pub library: DriverId,
    /// How many completion vectors it has.
    pub num_comp_vectors: u32,
}

/// A device that is not registered yet.
///
/// # Invariants
///
/// `raw` is an `Object` with what the driver keeps with it, ours to free.
pub struct Unregistered<T: Operations> {
    raw: NonNull<bindings::ib_device>,
    driver: DriverId,
    _p: PhantomData<fn(T)>,
}

impl<T: Operations> Unregistered<T> {
    /// Makes a device; `make` makes what the driver keeps with it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what `make` says.
    #[doc(alias = "ib_alloc_device")]
    #[inline]
    pub fn new(
        config: &Config<'_, T>,
        make: impl FnOnce(ARef<Device>) -> Result<T::Device>,
    ) -> Result<Self> {
        // SAFETY: The size is that of an object that starts with an `ib_device`.
        let raw = unsafe {
            bindings::_ib_alloc_device(
                Object::<bindings::ib_device, T::Device>::SIZE,
                &raw mut bindings::init_net,
            )
        };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The device was allocated just now.
        let made = make(unsafe { Device::from_raw(raw.as_ptr()) }.into());

        match made {
            // SAFETY: The memory is as large as the object and was not initialised before.
            Ok(data) => unsafe { Object::init(raw.as_ptr(), data) },
            Err(e) => {
                // SAFETY: It is ours, and has no operations yet.
                unsafe { bindings::ib_dealloc_device(raw.as_ptr()) };
                return Err(e);
            }
        }
        // SAFETY: The device is ours; nobody else uses it yet.
        let dev = unsafe { &mut *raw.as_ptr() };

        for (to, from) in dev
            .node_desc
            .iter_mut()
            .zip(config.description.to_bytes().iter().take(63))
        {
            *to = *from;
        }
        dev.node_type = bindings::RDMA_NODE_IB_CA as u8;
        dev.node_guid = u64::from_ne_bytes(config.node_guid);
        dev.phys_port_cnt = 1;
        dev.num_comp_vectors = config.num_comp_vectors as c_int;
        dev.local_dma_lkey = 0;
        dev.uverbs_cmd_mask |= 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND
            | 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;
        dev.name_assign_type = bindings::rdma_nl_name_assign_type_RDMA_NAME_ASSIGN_TYPE_USER;
        dev.link_ops = config.link.as_raw();
        dev.ops.driver_id = config.library.into_raw();
        // SAFETY: The operations are those for this type of object. They are copied, and what was
        // set before stays.
        unsafe { bindings::ib_set_device_ops(raw.as_ptr(), &VTable::<T>::OPS) };
        // INVARIANT: It has what the driver keeps with it, and `dealloc_driver`, which drops that.
        Ok(Self {
            raw,
            driver: config.driver,
            _p: PhantomData,
        })
    }

    /// What the driver keeps with the device.
    #[inline]
    pub fn data(&self) -> &T::Device {
        // SAFETY: By the type invariant.
        unsafe { Object::data(self.raw.as_ptr()) }
    }

    /// Registers the device, whose port is `netdev`. From then on it belongs to the core.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENFILE` if the name is taken; `ENOMEM`; that of an operation.
    #[doc(alias = "ib_register_device")]
    #[inline]
    pub fn register(self, name: &CStr, netdev: &NetDevice) -> Result {
        // SAFETY: The device is ours.
        let memory: ARef<Device> = unsafe { Device::from_raw(self.raw.as_ptr()) }.into();

        // SAFETY: The device is ours, and the interface is valid.
        to_result(unsafe {
            bindings::ib_device_set_netdev(self.raw.as_ptr(), netdev.as_raw(), 1)
        })?;
        // SAFETY: As above. No device for DMA means that addresses are virtual ones.
        to_result(unsafe {
            bindings::ib_register_device(
                self.raw.as_ptr(),
                name.as_char_ptr(),
                core::ptr::null_mut(),
            )
        })?;
        // It is the core's now, and may even be gone.
        let this = ManuallyDrop::new(self);

        // SAFETY: The memory is there. `ib_uverbs` has read the field; from now on it is for those
        // who look for devices of a driver.
        unsafe {
            (&raw mut (*memory.as_raw()).ops.driver_id).write_volatile(this.driver.into_raw())
        };
        Ok(())
    }
}

impl<T: Operations> Drop for Unregistered<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant. This calls `dealloc_driver`, which drops the data.
        unsafe { bindings::ib_dealloc_device(self.raw.as_ptr()) };
    }
}

impl Device {
    /// The name that it has at the moment, with zeroes behind.
    pub fn name(&self) -> [u8; bindings::IB_DEVICE_NAME_MAX as usize] {
        // SAFETY: The device is valid. A name that is just being changed is read in part.
        unsafe { (&raw const (*self.as_raw()).name).read_volatile() }
    }

    /// Has the core unregister the device soon.
    ///
    /// # Context
    ///
    /// Any that may not sleep for long.
    #[doc(alias = "ib_unregister_device_queued")]
    #[inline]
    pub fn unregister_queued(&self) {
        // SAFETY: The device is valid; once it is unregistered this does nothing. To keep it from
        // being freed meanwhile needs a reference of the kind that only registered devices give.
        unsafe {
            if bindings::ib_device_try_get(self.as_raw()) {
                bindings::ib_unregister_device_queued(self.as_raw());
                bindings::ib_device_put(self.as_raw());
            }
        }
    }

    /// Tells everybody that the port is active, or is not any more.
    ///
    /// # Context
    ///
    /// Any.
    #[doc(alias = "ib_dispatch_event")]
    #[inline]
    pub fn port_event(&self, active: bool) {
        let event = bindings::ib_event {
            device: self.as_raw(),
            element: bindings::ib_event__bindgen_ty_1 { port_num: 1 },
            event: if active {
                bindings::ib_event_type_IB_EVENT_PORT_ACTIVE
            } else {
                bindings::ib_event_type_IB_EVENT_PORT_ERR
            },
        };

        // SAFETY: The device is valid.
        unsafe { bindings::ib_dispatch_event(&event) };
    }
}
