// SPDX-License-Identifier: GPL-2.0

//! Multicast groups.
//!
//! C headers: [`include/linux/igmp.h`](srctree/include/linux/igmp.h),
//! [`include/net/addrconf.h`](srctree/include/net/addrconf.h)

#[cfg(CONFIG_IPV6)]
use crate::error::to_result;
use crate::{
    bindings,
    net::{
        addr::{
            be32,
            IpAddr, //
        },
        netdevice::NetDevice, //
    },
    prelude::*,
    sync::aref::ARef,
};

/// That a device is in a multicast group: routers and switches are told so, the hardware lets the
/// packets in, and so does the stack. Several of them for the same group are counted.
///
/// Dropping it leaves the group; process context, RTNL is not held.
pub struct Membership {
    dev: ARef<NetDevice>,
    group: IpAddr,
}

impl Membership {
    /// Joins a group. Process context, RTNL is not held.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this is no address of a group; `ENODEV` if the device does not have the
    /// protocol, or not any more; `ENOMEM`.
    pub fn new(dev: &NetDevice, group: IpAddr) -> Result<Self> {
        if !group.is_multicast() {
            return Err(EINVAL);
        }

        match group {
            IpAddr::V4(group) => {
                let _rtnl = Rtnl::lock();
                // SAFETY: The device is valid and RTNL is held.
                let in_dev = unsafe { bindings::__in_dev_get_rtnl(dev.as_raw()) };

                if in_dev.is_null() {
                    return Err(ENODEV);
                }
                // SAFETY: It is there as long as RTNL is held.
                unsafe { bindings::ip_mc_inc_group(in_dev, be32(group)) };
            }
            #[cfg(CONFIG_IPV6)]
            IpAddr::V6(group) => {
                // SAFETY: The device is valid, and so is the address, which is copied.
                to_result(unsafe {
                    bindings::ipv6_dev_mc_inc(dev.as_raw(), &super::addr::in6(group))
                })?;
            }
            #[cfg(not(CONFIG_IPV6))]
            IpAddr::V6(_) => return Err(ENODEV),
        }

        Ok(Self {
            dev: dev.into(),
            group,
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // If the device does not have the protocol any more, its memberships are gone too.
        match self.group {
            IpAddr::V4(group) => {
                let _rtnl = Rtnl::lock();
                // SAFETY: The device is valid and RTNL is held.
                let in_dev = unsafe { bindings::__in_dev_get_rtnl(self.dev.as_raw()) };

                if !in_dev.is_null() {
                    // SAFETY: It is there as long as RTNL is held.
                    unsafe { bindings::ip_mc_dec_group(in_dev, be32(group)) };
                }
            }
            #[cfg(CONFIG_IPV6)]
            IpAddr::V6(group) => {
                // SAFETY: The device is valid, and so is the address, which is only read.
                unsafe { bindings::ipv6_dev_mc_dec(self.dev.as_raw(), &super::addr::in6(group)) };
            }
            #[cfg(not(CONFIG_IPV6))]
            IpAddr::V6(_) => {}
        }
    }
}

/// That RTNL is held.
struct Rtnl(crate::types::NotThreadSafe);

impl Rtnl {
    fn lock() -> Self {
        // SAFETY: Nobody here holds it; see the methods above.
        unsafe { bindings::rtnl_lock() };
        Self(crate::types::NotThreadSafe)
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: It was locked by this thread.
        unsafe { bindings::rtnl_unlock() };
    }
}
