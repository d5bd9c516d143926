// SPDX-License-Identifier: GPL-2.0

//! Drivers of RDMA devices.
//!
//! A driver implements [`Operations`] for a marker type `T`, and makes devices with
//! [`device::Unregistered`]. The core allocates most of the objects of a device (`ib_pd`, `ib_cq`,
//! `ib_qp` and so on) itself and gives them to the driver by pointer; what the driver wants to keep
//! with each of them is an associated type of [`Operations`], which is put behind the C object in
//! the same memory ([`object`]) and dropped when the core is done with the object. Memory regions
//! are allocated by the driver's side, but look the same to it.
//!
//! What has to be said back to the core about an object, completion events above all, goes through
//! a [`gate`]: the driver may use it at any time, and when the core frees the object nothing gets
//! through it any more.
//!
//! - [`device`]: making and registering devices, and what they say about themselves;
//! - [`link`]: `rdma link add` and the life of the driver itself;
//! - [`cq`], [`qp`], [`srq`], [`wr`], [`attr`]: what the operations are called with;
//! - [`mem`]: memory that is registered, and memory that user space maps;
//! - `umem_odp`: memory that is registered and not pinned;
//! - [`udata`]: what a user space library and its driver tell each other;
//! - [`stats`], [`mad`]: counters, and how others ask for them;
//! - `trace`: trace events of the event queues of `rrxe`.
//!
//! As everywhere in [`rdma`](super), what names a symbol of `ib_core` is generic or `#[inline]`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    build_error,
    error::VTABLE_DEFAULT_ERROR,
    prelude::*,
    sync::Arc, //
};

pub mod attr;
pub mod cq;
pub mod device;
pub mod gate;
pub mod link;
pub mod mad;
pub mod mem;
pub mod object;
pub mod qp;
pub mod srq;
pub mod stats;
#[cfg(CONFIG_RDMA_RRXE)]
pub mod trace;
pub mod udata;
#[cfg(CONFIG_INFINIBAND_ON_DEMAND_PAGING)]
pub mod umem_odp;
pub mod wr;

mod vtable;

/// Marks what lives for `'a` and belongs to the driver `T`.
type Bound<'a, T> = core::marker::PhantomData<(&'a (), fn(T))>;

pub use udata::Udata;

/// A memory region that the driver has made.
pub struct NewMr<M> {
    /// What the driver keeps with it.
    pub data: M,
    /// Its local key.
    pub lkey: u32,
    /// Its remote key.
    pub rkey: u32,
}

/// A request to register memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct UserMr {
    /// Where the memory starts in the address space of the process.
    pub start: u64,
    /// How long it is.
    pub length: u64,
    /// The address that work requests use for the start.
    pub iova: u64,
    /// Rights, as in `enum ib_access_flags`.
    pub access: u32,
}

/// What to change of a region that is registered.
#[derive(Clone, Copy, Debug)]
pub struct MrChange {
    /// Its rights; `None` leaves them as they are.
    pub access: Option<u32>,
    /// Its memory, as start, length, and the address that work requests use for the start; `None`
    /// leaves it as it is.
    pub memory: Option<(u64, u64, u64)>,
}

/// What a process says about memory that is paged on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read.
    Prefetch,
    /// It will be written.
    PrefetchWrite,
    /// It will be needed as far as the process has it.
    PrefetchPresent,
}

/// Kind of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwKind {
    /// Bound to a protection domain, and bound anew at any time.
    One,
    /// Bound to a queue pair, and bound anew only when it was made invalid.
    Two,
}

/// What a device can do.
///
/// Where no context is given, a method is called in process context and may sleep. Objects that
/// other objects use are not destroyed before those.
///
/// Methods that destroy cannot fail: when they return, the core frees the object.
#[vtable]
pub trait Operations: Sized + 'static {
    /// What the driver keeps with each device.
    type Device: Send + Sync + 'static;
    /// What it keeps with each open file of user space.
    type Ucontext: Send + Sync + 'static;
    /// What it keeps with each protection domain.
    type Pd: Send + Sync + 'static;
    /// What it keeps with each address handle.
    type Ah: Send + Sync + 'static;
    /// What it keeps with each completion queue.
    type Cq: Send + Sync + 'static;
    /// What it keeps with each queue pair.
    type Qp: Send + Sync + 'static;
    /// What it keeps with each memory region.
    type Mr: Send + Sync + 'static;
    /// What it keeps with each memory window.
    type Mw: Send + Sync + 'static;
    /// What it keeps with each shared receive queue.
    type Srq: Send + Sync + 'static;

    /// Version of the interface with the library in user space.
    const UVERBS_ABI_VERSION: u32;

    /// The counters of a port.
    const PORT_STATS: &'static [stats::Desc];

    /// The device goes away: nobody uses it any more, and `dev` is dropped after this.
    fn dealloc(dev: &Self::Device);

    /// The device is registered and about to be used.
    ///
    /// # Errors
    ///
    /// With one, registering fails.
    fn enable(dev: &Self::Device) -> Result;

    /// Limits and abilities.
    fn query_device(dev: &Self::Device) -> attr::DeviceAttr;

    /// Changes the description of the device or the system's GUID.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if that cannot be changed.
    fn modify_device(dev: &Self::Device, change: attr::DeviceChange) -> Result;

    /// State of the port. There is one, number 1.
    ///
    /// # Errors
    ///
    /// `ENODEV` if its network interface is gone.
    fn query_port(dev: &Self::Device) -> Result<attr::PortAttr>;

    /// Adds and removes abilities that the port tells others about.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn modify_port(dev: &Self::Device, change: attr::PortChange) -> Result;

    /// The hardware address of the port.
    fn hw_address(dev: &Self::Device) -> [u8; 6];

    /// Reads the counters of the port, in the order of [`Self::PORT_STATS`].
    fn port_stats(dev: &Self::Device, values: &mut [u64]);

    /// The name of what the device is made on, for `parent` in sysfs.
    fn parent_name(dev: &Self::Device) -> [u8; 16];

    /// Answers a management datagram.
    fn process_mad(dev: &Self::Device, input: &mad::Mad, output: &mut mad::Mad) -> mad::Outcome;

    /// Opens the device for user space.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn alloc_ucontext(dev: &Self::Device, udata: &Udata<'_, Self>) -> Result<Self::Ucontext>;

    /// Closes it.
    fn dealloc_ucontext(uctx: &Self::Ucontext);

    /// Maps memory of the driver into a process.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is nothing at this offset.
    fn mmap(uctx: &Self::Ucontext, request: &mem::MapRequest<'_>) -> Result;

    /// Makes a protection domain.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn alloc_pd(dev: &Self::Device, udata: Option<&Udata<'_, Self>>) -> Result<Self::Pd>;

    /// Destroys one.
    fn dealloc_pd(pd: &Self::Pd);

    /// Makes an address handle.
    ///
    /// # Context
    ///
    /// Any if `flags` says so, see [`attr::AhInit`].
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn create_ah(
        dev: &Self::Device,
        pd: &Self::Pd,
        init: &attr::AhInit<'_>,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<Self::Ah>;

    /// Lets an address handle point to somewhere else.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn modify_ah(ah: &Self::Ah, attr: &attr::AhAttr<'_>) -> Result;

    /// Where an address handle points to.
    ///
    /// # Context
    ///
    /// Any.
    fn query_ah(ah: &Self::Ah) -> attr::AhInfo;

    /// Destroys an address handle.
    ///
    /// # Context
    ///
    /// Any unless `sleepable`.
    fn destroy_ah(ah: &Self::Ah, sleepable: bool);

    /// Makes a completion queue; also returns how many entries it has.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn create_cq(
        dev: &Self::Device,
        init: &attr::CqInit,
        handle: cq::CqHandle,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<(Self::Cq, u32)>;

    /// Destroys one. Nobody adds completions any more.
    fn destroy_cq(cq: &Self::Cq);

    /// Changes the number of entries of one of user space, and returns how many it has.
    ///
    /// # Errors
    ///
    /// `EINVAL` if more completions are there than there would be room for.
    fn resize_user_cq(cq: &Self::Cq, cqe: u32, udata: &Udata<'_, Self>) -> Result<u32>;

    /// Takes completions.
    ///
    /// # Context
    ///
    /// Any.
    fn poll_cq(cq: &Self::Cq, out: &mut cq::Polled<'_>);

    /// How many completions there are, up to a number that is enough.
    ///
    /// # Context
    ///
    /// Any.
    fn peek_cq(cq: &Self::Cq, enough: u32) -> u32;

    /// Asks for an event. Returns whether completions are there that make none.
    ///
    /// # Context
    ///
    /// Any.
    fn req_notify_cq(cq: &Self::Cq, what: cq::Notify) -> bool;

    /// Makes a queue pair.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn create_qp(
        dev: &Self::Device,
        init: &attr::QpInit<'_, Self>,
        handle: qp::QpHandle,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<attr::NewQp<Self::Qp>>;

    /// Changes a queue pair.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn modify_qp(qp: &Self::Qp, attr: &attr::QpAttr<'_>) -> Result;

    /// Attributes of a queue pair.
    fn query_qp(qp: &Self::Qp) -> attr::QpInfo;

    /// Destroys a queue pair.
    fn destroy_qp(qp: &Self::Qp);

    /// Takes work requests for the send queue. With an error, the one that was taken last is the
    /// one that was refused. For a queue pair of user space there are none, and this is its
    /// doorbell.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn post_send(qp: &Self::Qp, wrs: &mut wr::SendWrs<'_, Self>) -> Result;

    /// Takes work requests for the receive queue; as [`Self::post_send`].
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn post_recv(qp: &Self::Qp, wrs: &mut wr::RecvWrs<'_>) -> Result;

    /// Makes a region that is all memory of the kernel.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn get_dma_mr(pd: &Self::Pd, dma: mem::KernelMemory, access: u32) -> Result<NewMr<Self::Mr>>;

    /// Registers memory of a process.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn reg_user_mr(pd: &Self::Pd, request: &UserMr) -> Result<NewMr<Self::Mr>>;

    /// Changes a region: its protection domain is `pd` from now on, which may be what it was.
    ///
    /// Either the region is what was asked for, or another one is that has other keys; then the
    /// core destroys this one, which must not fail.
    ///
    /// # Errors
    ///
    /// That of the driver. Nothing has changed then.
    fn rereg_user_mr(
        mr: &Self::Mr,
        pd: &Self::Pd,
        change: &MrChange,
    ) -> Result<Option<NewMr<Self::Mr>>>;

    /// Takes advice about memory: elements name regions by their local keys. If `wait`, it is
    /// followed before this returns.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn advise_mr(_pd: &Self::Pd, _advice: Advice, _wait: bool, _sges: wr::Sges<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a region for fast registration, of `pages`: the client says later what they are.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn alloc_mr(pd: &Self::Pd, pages: Arc<mem::FastPages>) -> Result<NewMr<Self::Mr>>;

    /// Destroys a region. After that nothing accesses the memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if memory windows are bound to it; it then stays.
    fn dereg_mr(mr: &Self::Mr) -> Result;

    /// Makes a memory window; also returns its key.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn alloc_mw(pd: &Self::Pd, kind: MwKind) -> Result<(Self::Mw, u32)>;

    /// Destroys a memory window. After that nobody gets through it.
    fn dealloc_mw(mw: &Self::Mw);

    /// Makes a shared receive queue.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn create_srq(
        pd: &Self::Pd,
        attr: &srq::SrqAttr,
        handle: srq::SrqHandle,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<srq::NewSrq<Self::Srq>>;

    /// Changes one.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn modify_srq(
        srq: &Self::Srq,
        change: &srq::SrqChange,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result;

    /// Attributes of one.
    fn query_srq(srq: &Self::Srq) -> srq::SrqAttr;

    /// Destroys one.
    fn destroy_srq(srq: &Self::Srq);

    /// Takes work requests for one; as [`Self::post_recv`].
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn post_srq_recv(srq: &Self::Srq, wrs: &mut wr::RecvWrs<'_>) -> Result;

    /// Adds a queue pair to a multicast group.
    ///
    /// # Errors
    ///
    /// That of the driver.
    fn attach_mcast(_qp: &Self::Qp, _gid: &[u8; 16]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Takes it out again.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not there.
    fn detach_mcast(_qp: &Self::Qp, _gid: &[u8; 16]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}
