// SPDX-License-Identifier: GPL-2.0

//! Ports and their global identifiers (GIDs).
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/ib_cache.h`](srctree/include/rdma/ib_cache.h)

use super::client::ClientDevice;
use crate::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_int,
    prelude::*, //
};
use core::{
    marker::PhantomData,
    net::Ipv6Addr,
    ptr::NonNull, //
};

/// What carries the packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand's transport over Ethernet, in either version of RoCE.
    Roce,
    /// iWARP, that is RDMA over TCP.
    Iwarp,
    /// InfiniBand and everything else.
    Other,
}

/// A port of a device.
///
/// # Invariants
///
/// The device has a port of this number.
#[derive(Clone, Copy)]
pub struct Port<'d> {
    dev: &'d ClientDevice,
    num: u32,
}

impl<'d> Port<'d> {
    /// The first port of a device.
    #[inline]
    pub fn first(dev: &'d ClientDevice) -> Self {
        // INVARIANT: Each device has one port at least.
        Self {
            dev,
            // SAFETY: The device is registered.
            num: unsafe { bindings::rdma_start_port(dev.as_raw()) },
        }
    }

    /// The number of the port.
    #[inline]
    pub fn number(&self) -> u32 {
        self.num
    }

    /// What carries the packets.
    #[inline]
    pub fn transport(&self) -> Transport {
        // SAFETY: The device is registered, and by the type invariant it has this port.
        let (roce, iwarp) = unsafe {
            (
                bindings::rdma_protocol_roce(self.dev.as_raw(), self.num),
                bindings::rdma_protocol_iwarp(self.dev.as_raw(), self.num),
            )
        };
        match (roce, iwarp) {
            (true, _) => Transport::Roce,
            (_, true) => Transport::Iwarp,
            _ => Transport::Other,
        }
    }

    /// The path MTU that is possible now, as the value of the C enumeration.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// That of the driver.
    #[doc(alias = "ib_query_port")]
    #[inline]
    pub(super) fn active_mtu(&self) -> Result<bindings::ib_mtu> {
        let mut attr = bindings::ib_port_attr::default();
        // SAFETY: The device is registered, and `attr` is valid for writes.
        to_result(unsafe { bindings::ib_query_port(self.dev.as_raw(), self.num, &mut attr) })?;
        Ok(attr.active_mtu)
    }

    /// The entry `index` of the GID table, or `None` if there is nothing.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the table is not that long.
    #[doc(alias = "rdma_get_gid_attr")]
    #[inline]
    pub fn gid(&self, index: u16) -> Result<Option<Gid<'d>>> {
        // SAFETY: The device is registered.
        let attr = from_err_ptr(unsafe {
            bindings::rdma_get_gid_attr(self.dev.as_raw(), self.num, c_int::from(index)).cast_mut()
        });
        match attr {
            // INVARIANT: We have got a reference.
            Ok(attr) => Ok(NonNull::new(attr).map(|attr| Gid {
                attr,
                _dev: PhantomData,
            })),
            Err(e) if e == ENODATA => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All entries of the GID table that there are at this moment.
    #[inline]
    pub fn gids(&self) -> impl Iterator<Item = Gid<'d>> {
        let port = *self;
        (0..=u16::MAX)
            .map_while(move |i| port.gid(i).ok())
            .flatten()
    }
}

/// A reference to an entry of a GID table, which stays what it is meanwhile.
///
/// Wraps the kernel's C `const struct ib_gid_attr`.
///
/// # Invariants
///
/// `attr` is a reference that is ours to put, and its device is registered for `'d`.
pub struct Gid<'d> {
    attr: NonNull<bindings::ib_gid_attr>,
    _dev: PhantomData<&'d ClientDevice>,
}

impl Gid<'_> {
    /// Returns the pointer for the C side.
    #[inline]
    pub(super) fn as_raw(&self) -> *const bindings::ib_gid_attr {
        self.attr.as_ptr()
    }

    /// The GID; those of a RoCE port are IP addresses. An IPv4 address is mapped to an IPv6 one.
    #[inline]
    pub fn address(&self) -> Ipv6Addr {
        // SAFETY: By the type invariant; all variants of the union are 16 bytes.
        unsafe { (*self.as_raw()).gid.raw }.into()
    }

    /// Its index in the table.
    #[inline]
    pub fn index(&self) -> u16 {
        // SAFETY: By the type invariant.
        unsafe { (*self.as_raw()).index }
    }

    /// The MAC address of the interface that it belongs to.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none.
    #[doc(alias = "rdma_read_gid_l2_fields")]
    #[inline]
    pub(super) fn mac(&self) -> Result<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: By the type invariant, and `mac` has the size of a MAC address.
        to_result(unsafe {
            bindings::rdma_read_gid_l2_fields(
                self.as_raw(),
                core::ptr::null_mut(),
                mac.as_mut_ptr(),
            )
        })?;
        Ok(mac)
    }
}

impl Drop for Gid<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rdma_put_gid_attr(self.as_raw()) };
    }
}
