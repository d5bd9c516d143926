// SPDX-License-Identifier: GPL-2.0

//! Routes, and sending packets along them.
//!
//! A sender of many packets to the same destination keeps the route in a [`Cache`]. For each packet
//! it takes it out under RCU, without counting a reference, and uses it in the same read-side
//! section:
//!
//! ```text
//! let guard = rcu::read_lock();
//! let dst = match cache.get(&guard) {
//!     Some(dst) => dst,                                     // still good
//!     None => cache.put(&guard, key.look_up(net)?)?,        // there was none, or it is obsolete
//! };
//! let skb = TxBuff::new(dst.headroom(&guard), len, GFP_ATOMIC)?;
//! // ... write IP header and what follows ...
//! dst.send(&guard, skb)?;
//! ```
//!
//! C header: [`include/net/dst.h`](srctree/include/net/dst.h)

use crate::{
    bindings,
    error::from_err_ptr,
    ffi::c_int,
    net::{
        addr::{
            be32,
            IpAddr, //
        },
        namespace::Namespace,
        skb::{
            Track,
            TxBuff, //
        }, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        rcu, //
    },
    types::Opaque,
};
use core::ptr::{
    null_mut,
    NonNull, //
};

/// What a route is looked up for.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Where from.
    pub source: IpAddr,
    /// Where to; of the same family.
    pub dest: IpAddr,
    /// Index of the device to go out through, or 0 if that does not matter.
    pub device: u32,
    /// Traffic class, or type of service.
    pub class: u8,
    /// Protocol.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub dest_port: u16,
}

impl Key {
    /// Looks up the route. Any context but hard interrupts.
    ///
    /// # Errors
    ///
    /// Those of the look-up, for example `ENETUNREACH`; `EINVAL` if the families differ.
    pub fn look_up(&self, net: &Namespace) -> Result<Route> {
        match (self.source, self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => self.look_up4(net, source, dest),
            #[cfg(CONFIG_IPV6)]
            (IpAddr::V6(source), IpAddr::V6(dest)) => self.look_up6(net, source, dest),
            _ => Err(EINVAL),
        }
    }

    fn look_up4(&self, net: &Namespace, source: [u8; 4], dest: [u8; 4]) -> Result<Route> {
        let mut flow = bindings::flowi4::default();
        let device = c_int::try_from(self.device).map_err(|_| EINVAL)?;

        // SAFETY: Fills in the structure; then the name space and it are valid.
        let dst = unsafe {
            bindings::flowi4_init_output(
                &mut flow,
                device,
                self.class,
                self.protocol,
                be32(dest),
                be32(source),
                self.dest_port.to_be(),
                self.source_port.to_be(),
            );
            from_err_ptr(bindings::ip_route_output_dst(net.as_raw(), &mut flow))?
        };

        // INVARIANT: The look-up has taken a reference.
        Ok(Route {
            dst: NonNull::new(dst).ok_or(EHOSTUNREACH)?,
            cookie: 0,
        })
    }

    #[cfg(CONFIG_IPV6)]
    fn look_up6(&self, net: &Namespace, source: [u8; 16], dest: [u8; 16]) -> Result<Route> {
        let mut flow = bindings::flowi6 {
            saddr: super::addr::in6(source),
            daddr: super::addr::in6(dest),
            // SAFETY: Just computes.
            flowlabel: unsafe { bindings::ip6_make_flowinfo(self.class.into(), 0) },
            ..Default::default()
        };

        flow.__fl_common.flowic_oif = c_int::try_from(self.device).map_err(|_| EINVAL)?;
        flow.__fl_common.flowic_proto = self.protocol;
        flow.uli.ports = bindings::flowi_uli__bindgen_ty_1 {
            dport: self.dest_port.to_be(),
            sport: self.source_port.to_be(),
        };

        // SAFETY: The name space and the structure are valid; neither a socket nor another
        // destination is needed.
        let dst = from_err_ptr(unsafe {
            bindings::ip6_dst_lookup_flow(
                net.as_raw(),
                core::ptr::null(),
                &mut flow,
                core::ptr::null(),
            )
        })?;
        let dst = NonNull::new(dst).ok_or(EHOSTUNREACH)?;

        // INVARIANT: The look-up has taken a reference.
        Ok(Route {
            dst,
            // SAFETY: It is a route of IPv6.
            cookie: unsafe { bindings::dst_rt6_cookie(dst.as_ptr()) },
        })
    }
}

/// A route with a reference of its own.
///
/// # Invariants
///
/// `dst` is valid, and one reference to it is owned.
pub struct Route {
    dst: NonNull<bindings::dst_entry>,
    cookie: u32,
}

// SAFETY: References can be dropped on any thread.
unsafe impl Send for Route {}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the reference is owned. The route is freed only after a
        // grace period.
        unsafe { bindings::dst_release(self.dst.as_ptr()) };
    }
}

/// A route that is used in an RCU read-side section.
///
/// Wraps the kernel's C `struct dst_entry`.
///
/// # Invariants
///
/// The object is valid as long as the reference is, which is not longer than the section.
#[repr(transparent)]
pub struct Dst(Opaque<bindings::dst_entry>);

impl Dst {
    #[inline]
    fn as_raw(&self) -> *mut bindings::dst_entry {
        self.0.get()
    }

    /// How much room for headers the device wants to have in front of the IP header.
    #[inline]
    pub fn headroom(&self, _guard: &rcu::Guard) -> usize {
        // SAFETY: By the type invariants the route is valid; its device is, under RCU.
        unsafe { bindings::ll_reserved_space(bindings::dst_dev_rcu(self.as_raw())) as usize }
    }

    /// Tells how the device takes trains of up to `len` bytes, from the IP header on, if it does
    /// not cut them; see [`TxBuff::couple`].
    #[inline]
    pub fn track(&self, _guard: &rcu::Guard, len: usize) -> Option<Track> {
        // SAFETY: As above.
        let (offload, loopback, mtu) = unsafe {
            let dev = bindings::dst_dev_rcu(self.as_raw());

            (
                bindings::dev_takes_trains(dev),
                bindings::dev_is_loopback(dev),
                bindings::dst_mtu(self.as_raw()),
            )
        };

        if offload {
            Some(Track::Offload)
        } else if loopback && len <= mtu as usize {
            Some(Track::Whole)
        } else {
            None
        }
    }

    /// Sends a packet, which begins with an IP header. The length and the checksum in an IPv4
    /// header, and the length in an IPv6 header, are filled in.
    ///
    /// Process or softirq context. The packet is gone in any case; that no error is returned does
    /// not mean that it will arrive.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no proper header, or it is not of the family of the route; `ENOBUFS` if
    /// a queue is full; others of the stack.
    #[inline]
    pub fn send(&self, _guard: &rcu::Guard, mut skb: TxBuff) -> Result {
        // SAFETY: By the type invariants the route is valid; its operations are constant.
        let family = c_int::from(unsafe { (*(*self.as_raw()).ops).family });
        let (header, v4) = match skb.bytes() {
            [0x45, rest @ ..] if rest.len() >= 20 + 7 => (20, true),
            [v, rest @ ..] if v >> 4 == 6 && rest.len() >= 40 + 7 => (40, false),
            _ => return Err(EINVAL),
        };

        if family
            != if v4 {
                bindings::AF_INET
            } else {
                bindings::AF_INET6
            } as c_int
        {
            return Err(EINVAL);
        }

        // SAFETY: The buffer is valid, and has a header of that size and some bytes behind it. The
        // route is used under RCU, which whoever keeps the buffer longer takes into account. The
        // function takes the buffer.
        let ret = unsafe {
            let net = bindings::dev_net_rcu(bindings::dst_dev_rcu(self.as_raw()));

            bindings::skb_set_network_header(skb.as_raw(), 0);
            bindings::skb_set_transport_header(skb.as_raw(), header);
            bindings::skb_dst_set_noref(skb.as_raw(), self.as_raw());
            if v4 {
                bindings::ip_local_out(net, null_mut(), skb.into_raw())
            } else {
                Self::ip6_local_out(net, skb)
            }
        };

        match ret {
            0 => Ok(()),
            // That one was sent, but the queue gets full.
            ret if ret == bindings::NET_XMIT_CN as c_int => Ok(()),
            ret if ret < 0 => Err(Error::from_errno(ret)),
            _ => Err(ENOBUFS),
        }
    }

    /// # Safety
    ///
    /// `net` must be valid, and the buffer have a route of IPv6 and header offsets.
    #[cfg(CONFIG_IPV6)]
    #[inline]
    unsafe fn ip6_local_out(net: *mut bindings::net, skb: TxBuff) -> c_int {
        // SAFETY: By the safety requirements.
        unsafe { bindings::ip6_local_out(net, null_mut(), skb.into_raw()) }
    }

    /// # Safety
    ///
    /// None.
    #[cfg(not(CONFIG_IPV6))]
    unsafe fn ip6_local_out(_net: *mut bindings::net, _skb: TxBuff) -> c_int {
        EAFNOSUPPORT.to_errno()
    }
}

/// What a cache points to.
///
/// `rcu` is the first field, so that a pointer to it is one to the entry.
#[repr(C)]
struct Entry {
    rcu: Opaque<bindings::callback_head>,
    route: Route,
}

/// A place for a route that is looked up seldom and used often.
///
/// # Invariants
///
/// The pointer is null or from a box, which is owned and freed only a grace period after it was
/// replaced.
pub struct Cache(Atomic<*mut Entry>);

// SAFETY: What is in it may be used and dropped on any thread.
unsafe impl Send for Cache {}
// SAFETY: As above.
unsafe impl Sync for Cache {}

impl Cache {
    /// Creates an empty cache.
    pub const fn new() -> Self {
        // INVARIANT: The pointer is null.
        Self(Atomic::new(null_mut()))
    }

    /// Returns the route if there is one and it is still good. Any context.
    #[inline]
    pub fn get<'g>(&'g self, _guard: &'g rcu::Guard) -> Option<&'g Dst> {
        // ORDERING: Pairs with the exchange in `put`.
        let entry = NonNull::new(self.0.load(Acquire))?;
        // SAFETY: By the type invariants it is not freed before the section ends.
        let route = unsafe { &entry.as_ref().route };
        // SAFETY: The route is valid, as the entry has a reference to it.
        let dst = unsafe { bindings::dst_check(route.dst.as_ptr(), route.cookie) };

        // INVARIANT: The entry keeps its reference for a grace period at least.
        // SAFETY: As above; this is a transparent wrapper.
        NonNull::new(dst).map(|dst| unsafe { dst.cast::<Dst>().as_ref() })
    }

    /// Puts a route in, and returns it. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn put<'g>(&'g self, _guard: &'g rcu::Guard, route: Route) -> Result<&'g Dst> {
        let dst = route.dst;
        let entry = KBox::new(
            Entry {
                rcu: Opaque::uninit(),
                route,
            },
            GFP_ATOMIC,
        )?;

        // ORDERING: The entry must be seen as it is by whoever sees the pointer.
        //
        // INVARIANT: The pointer is from a box. Whoever replaces it frees it after a grace period.
        let old = self.0.xchg(KBox::into_raw(entry), Full);

        if let Some(old) = NonNull::new(old) {
            // SAFETY: By the type invariants it is from a box; it was taken out here and so is
            // ours. `free_entry` is code of the kernel itself, so nobody needs to wait for it.
            unsafe { bindings::call_rcu(old.as_ptr().cast(), Some(free_entry)) };
        }

        // INVARIANT: Even if somebody replaces the entry meanwhile, it keeps its reference for a
        // grace period.
        // SAFETY: As above; this is a transparent wrapper.
        Ok(unsafe { dst.cast::<Dst>().as_ref() })
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Some(entry) = NonNull::new(*self.0.get_mut()) {
            // SAFETY: By the type invariants it is from a box, and ours. Nobody looks at it, as
            // that borrows the cache.
            drop(unsafe { KBox::from_raw(entry.as_ptr()) });
        }
    }
}

/// # Safety
///
/// `rcu` is the first field of an [`Entry`] from a box that is owned by the call.
unsafe extern "C" fn free_entry(rcu: *mut bindings::callback_head) {
    // SAFETY: By the safety requirements, and because `Entry` is `repr(C)`.
    drop(unsafe { KBox::from_raw(rcu.cast::<Entry>()) });
}
