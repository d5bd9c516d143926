// SPDX-License-Identifier: GPL-2.0

//! Addresses of the Internet protocols.

use crate::{
    bindings,
    fmt, //
};

/// An IPv4 or IPv6 address, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpAddr {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

/// What an IPv4 address has in front of it as an IPv6 address.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl IpAddr {
    /// Takes an address of 16 bytes, in which an IPv4 address is mapped: `::ffff:a.b.c.d`.
    ///
    /// RDMA calls such 16 bytes a GID.
    ///
    /// # Examples
    ///
    /// ```
    /// use kernel::net::addr::IpAddr;
    ///
    /// let v4 = IpAddr::V4([10, 0, 0, 1]);
    ///
    /// assert_eq!(v4.gid()[10..], [0xff, 0xff, 10, 0, 0, 1]);
    /// assert_eq!(IpAddr::from_gid(&v4.gid()), v4);
    /// assert_eq!(IpAddr::from_gid(&[1; 16]), IpAddr::V6([1; 16]));
    /// ```
    pub fn from_gid(bytes: &[u8; 16]) -> Self {
        match bytes.split_last_chunk::<4>() {
            Some((front, v4)) if *front == MAPPED => Self::V4(*v4),
            _ => Self::V6(*bytes),
        }
    }

    /// Returns the address in 16 bytes, as [`IpAddr::from_gid`] takes it.
    pub fn gid(self) -> [u8; 16] {
        match self {
            Self::V4([a, b, c, d]) => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            Self::V6(bytes) => bytes,
        }
    }

    /// Tells whether this is an IPv4 address.
    pub const fn is_v4(&self) -> bool {
        matches!(self, Self::V4(_))
    }

    /// Tells whether this is the address of a multicast group.
    pub const fn is_multicast(&self) -> bool {
        matches!(self, Self::V4([224..=239, ..]) | Self::V6([0xff, ..]))
    }

    /// Tells whether this is an IPv6 link-local address.
    pub const fn is_link_local(&self) -> bool {
        matches!(self, Self::V6([0xfe, b, ..]) if *b & 0xc0 == 0x80)
    }
}

impl fmt::Display for IpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4([a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d}"),
            Self::V6(bytes) => {
                for (i, pair) in bytes.chunks_exact(2).enumerate() {
                    if i != 0 {
                        f.write_str(":")?;
                    }
                    for byte in pair {
                        write!(f, "{byte:02x}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns an IPv4 address as C has it, in network byte order.
pub(super) fn be32(bytes: [u8; 4]) -> bindings::__be32 {
    u32::from_ne_bytes(bytes)
}

/// Returns an IPv6 address as C has it.
#[cfg(CONFIG_IPV6)]
pub(super) fn in6(bytes: [u8; 16]) -> bindings::in6_addr {
    bindings::in6_addr {
        in6_u: bindings::in6_addr__bindgen_ty_1 { u6_addr8: bytes },
    }
}
