// SPDX-License-Identifier: GPL-2.0

//! Clients: users of RDMA devices within the kernel.
//!
//! A client is told of each device that appears and of each that is about to go. What it makes on
//! a device (protection domains, queues) holds an [`Arc`] of the [`ClientDevice`] that it was
//! given, and a removal does not end before the last one is gone:
//!
//! ```text
//!             Client::add() -> Data          Client::remove(Data)   wait for the last
//!                   |                              |                Arc<ClientDevice>
//! device --registered--------------------------------------------------------|--goes away
//! ```
//!
//! So a client may share its objects with work items and the like as it wants to, without ever
//! touching a device that does not exist any more. The price of an object that is forgotten is a
//! removal that hangs, not memory that is used after it was freed.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::device::Device;
use crate::{
    bindings,
    device,
    error::{
        from_result,
        to_result,
        VTABLE_DEFAULT_ERROR, //
    },
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        Arc,
        Completion, //
    },
    types::Opaque,
    ModuleMetadata, //
};
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

/// A user of RDMA devices within the kernel.
///
/// The calls for one device do not overlap; those for different devices may. A client appears in
/// the resource tracker (`rdma resource show`) by the name of its module.
///
/// # Examples
///
/// A client that counts the devices:
///
/// ```
/// use kernel::{
///     impl_rdma_client,
///     rdma::client::{Client, ClientDevice},
///     sync::{
///         atomic::{Atomic, Relaxed},
///         Arc,
///     },
/// };
///
/// static DEVICES: Atomic<i32> = Atomic::new(0);
///
/// struct Counter;
///
/// #[vtable]
/// impl Client for Counter {
///     type Data = ();
///
///     fn add(_dev: &Arc<ClientDevice>) -> Result {
///         DEVICES.add(1, Relaxed);
///         Ok(())
///     }
///
///     fn remove(_dev: &Arc<ClientDevice>, _data: ()) {
///         DEVICES.add(-1, Relaxed);
///     }
/// }
///
/// impl_rdma_client!(Counter);
/// ```
#[vtable]
pub trait Client: Sized + 'static {
    /// What the client keeps for a device.
    type Data: Send + Sync + 'static;

    /// A device is there: it existed when the client was registered, or has appeared since.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Devices can neither come nor go until this returns, so work
    /// that takes long should be left to somebody else.
    ///
    /// # Errors
    ///
    /// Says that the client does not use the device, for whatever reason. Nobody sees the value.
    fn add(dev: &Arc<ClientDevice>) -> Result<Self::Data>;

    /// The device is about to go, or the client is unregistered.
    ///
    /// Everything that was made on the device has to be dropped, or be sure to be dropped soon
    /// without any further help; what is within `data` is, by default.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    fn remove(_dev: &Arc<ClientDevice>, _data: Self::Data) {}

    /// The device was renamed.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    fn rename(_dev: &Arc<ClientDevice>, _data: &Self::Data) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// An RDMA device in the hands of a client.
///
/// # Invariants
///
/// `dev` is registered until `released` is completed, and that is done by `drop()` only.
pub struct ClientDevice {
    dev: NonNull<bindings::ib_device>,
    user: &'static CStr,
    released: Arc<Completion>,
}

// SAFETY: Devices are not bound to a thread.
unsafe impl Send for ClientDevice {}

// SAFETY: `Device` is `Sync`, and there is nothing else to be reached through a reference.
unsafe impl Sync for ClientDevice {}

impl ClientDevice {
    /// # Safety
    ///
    /// `dev` must be registered until [`ClientDevice::released`] is completed.
    unsafe fn new(dev: *mut bindings::ib_device, user: &'static CStr) -> Result<Arc<Self>> {
        let this = Self {
            dev: NonNull::new(dev).ok_or(EINVAL)?,
            user,
            released: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        };
        // INVARIANT: By the safety requirement.
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The name for the resource tracker: that of the module that made the object.
    #[inline]
    pub(super) fn user(&self) -> *const c_char {
        self.user.as_char_ptr()
    }
}

impl Drop for ClientDevice {
    fn drop(&mut self) {
        self.released.complete_all();
    }
}

impl Deref for ClientDevice {
    type Target = Device;

    #[inline]
    fn deref(&self) -> &Device {
        // SAFETY: By the type invariant.
        unsafe { Device::from_raw(self.dev.as_ptr()) }
    }
}

impl AsRef<device::Device> for ClientDevice {
    #[inline]
    fn as_ref(&self) -> &device::Device {
        // SAFETY: By the type invariant the device is registered, so the `struct device` in it is
        // initialised.
        unsafe { device::Device::from_raw(&raw mut (*self.as_raw()).__bindgen_anon_1.dev) }
    }
}

/// The C side of a client.
///
/// It has to be a static, since C does not say which client a device was added for.
pub struct Storage<T> {
    client: Opaque<bindings::ib_client>,
    registered: Atomic<bool>,
    _p: PhantomData<fn() -> T>,
}

// SAFETY: `client` is written while `registered` is being taken only; then it belongs to C.
unsafe impl<T> Sync for Storage<T> {}

impl<T> Storage<T> {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self {
            client: Opaque::zeroed(),
            registered: Atomic::new(false),
            _p: PhantomData,
        }
    }
}

/// Clients that have a [`Storage`]. Implemented by [`impl_rdma_client!`](crate::impl_rdma_client).
///
/// # Safety
///
/// The function must always return the same reference.
pub unsafe trait HasStorage: Client {
    #[doc(hidden)]
    fn storage() -> &'static Storage<Self>;
}

/// Implements [`HasStorage`] for a type that implements [`Client`].
#[macro_export]
macro_rules! impl_rdma_client {
    ($client:ty) => {
        // SAFETY: There is one static.
        unsafe impl $crate::rdma::client::HasStorage for $client {
            fn storage() -> &'static $crate::rdma::client::Storage<Self> {
                static STORAGE: $crate::rdma::client::Storage<$client> =
                    $crate::rdma::client::Storage::new();
                &STORAGE
            }
        }
    };
}

/// The registration of a client. Dropping it takes the client away from all devices.
///
/// # Invariants
///
/// The client in `T::storage()` is registered.
///
/// # Examples
///
/// Not built, since `ib_core` may be a module and this crate is not:
///
/// ```ignore
/// struct CounterModule {
///     _registration: Registration<Counter>,
/// }
///
/// impl kernel::Module for CounterModule {
///     fn init(_module: &'static ThisModule) -> Result<Self> {
///         Ok(Self {
///             _registration: Registration::new()?,
///         })
///     }
/// }
/// ```
pub struct Registration<T: HasStorage>(PhantomData<T>);

impl<T: HasStorage> Registration<T> {
    /// Registers the client. It is told of the devices that exist before this returns.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Not from a [`Client`] call.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is registered already; `ENOMEM`.
    #[doc(alias = "ib_register_client")]
    pub fn new() -> Result<Self> {
        let storage = T::storage();
        if storage.registered.xchg(true, Full) {
            return Err(EBUSY);
        }

        let client = storage.client.get();
        // SAFETY: We have set `registered`, so the storage is ours. It is a static, and by
        // `HasStorage` the one that the callbacks use.
        let ret = unsafe {
            client.write(bindings::ib_client {
                name: T::OwnerModule::NAME.as_char_ptr(),
                add: Some(add::<T>),
                remove: Some(remove::<T>),
                rename: if T::HAS_RENAME {
                    Some(rename::<T>)
                } else {
                    None
                },
                ..pin_init::zeroed()
            });
            bindings::ib_register_client(client)
        };
        if let Err(e) = to_result(ret) {
            storage.registered.store(false, Release);
            return Err(e);
        }
        // INVARIANT: It is registered.
        Ok(Self(PhantomData))
    }
}

impl<T: HasStorage> Drop for Registration<T> {
    /// Waits for the removal from all devices; no call is running when this returns.
    fn drop(&mut self) {
        let storage = T::storage();
        // SAFETY: By the type invariant it is registered.
        unsafe { bindings::ib_unregister_client(storage.client.get()) };
        storage.registered.store(false, Release);
    }
}

/// What is kept for a device. A pointer to it is the client's data on the C side.
struct PerDevice<T: Client> {
    data: T::Data,
    dev: Arc<ClientDevice>,
}

/// # Safety
///
/// To be called as `ib_client.add`, for the client in `T::storage()`.
unsafe extern "C" fn add<T: HasStorage>(ibdev: *mut bindings::ib_device) -> c_int {
    from_result(|| {
        // SAFETY: The device is registered until `remove()` returns, or this does with an error,
        // and both wait for `released`.
        let dev = unsafe { ClientDevice::new(ibdev, T::OwnerModule::NAME) }?;
        let released = dev.released.clone();

        let per = T::add(&dev).and_then(|data| {
            let dev = dev.clone();
            Ok(KBox::new(PerDevice::<T> { data, dev }, GFP_KERNEL)?)
        });
        drop(dev);
        match per {
            Ok(per) => {
                // SAFETY: The client is registered and the device is being added to it. The type
                // of the pointer is known by `remove()` and `rename()`, since only this client
                // gets it.
                unsafe {
                    bindings::ib_set_client_data(
                        ibdev,
                        T::storage().client.get(),
                        KBox::into_raw(per).cast(),
                    )
                };
                Ok(0)
            }
            Err(e) => {
                released.wait_for_completion();
                Err(e)
            }
        }
    })
}

/// # Safety
///
/// To be called as `ib_client.remove`, for the client in `T::storage()`.
unsafe extern "C" fn remove<T: HasStorage>(_ibdev: *mut bindings::ib_device, data: *mut c_void) {
    // Storing it may have failed, for want of memory; C has warned then.
    if data.is_null() {
        return;
    }
    // SAFETY: `add()` has stored a pointer of this type, and C calls this once for it.
    let per = unsafe { KBox::from_raw(data.cast::<PerDevice<T>>()) };
    let PerDevice { data, dev } = KBox::into_inner(per);
    let released = dev.released.clone();

    T::remove(&dev, data);
    drop(dev);
    released.wait_for_completion();
}

/// # Safety
///
/// To be called as `ib_client.rename`, for the client in `T::storage()`.
unsafe extern "C" fn rename<T: HasStorage>(_ibdev: *mut bindings::ib_device, data: *mut c_void) {
    // SAFETY: `add()` has stored a pointer of this type, if any, and C holds off the removal.
    if let Some(per) = unsafe { data.cast::<PerDevice<T>>().as_ref() } {
        T::rename(&per.dev, &per.data);
    }
}
