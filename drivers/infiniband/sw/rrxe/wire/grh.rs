// SPDX-License-Identifier: GPL-2.0

//! The 40 bytes in front of each datagram in a receive buffer (IBA vol. 1, 11.4.1.2; A17.9).
//!
//! With RoCEv2 they hold the IP header. An IPv4 header has 20 bytes and takes the second half; the
//! first half is zero, so that nothing of the host's memory is in it.

/// Size of the area.
pub(crate) const LEN: usize = 40;

/// Returns the area for an IPv4 header.
pub(crate) fn from_v4(ip: &[u8; 20]) -> [u8; LEN] {
    let mut grh = [0; LEN];

    if let Some((_, half)) = grh.split_last_chunk_mut::<20>() {
        *half = *ip;
    }
    grh
}

/// Returns the area for an IPv6 header.
pub(crate) const fn from_v6(ip: &[u8; 40]) -> [u8; LEN] {
    *ip
}

/// What the area holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An IPv6 header.
    Ipv6 = 1,
    /// An IPv4 header.
    Ipv4 = 2,
}

/// Returns what an area of [`from_v4`] or [`from_v6`] holds.
pub(crate) const fn kind(area: &[u8; LEN]) -> Kind {
    match area[0] >> 4 {
        6 => Kind::Ipv6,
        _ => Kind::Ipv4,
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_grh)
)]
mod tests {
    use super::{
        from_v4,
        from_v6,
        kind,
        Kind, //
    };

    #[test]
    fn ipv4_is_in_the_second_half() {
        let grh = from_v4(&[0x45; 20]);

        assert!(grh.iter().take(20).all(|&b| b == 0));
        assert!(grh.iter().skip(20).all(|&b| b == 0x45));
        assert_eq!(kind(&grh), Kind::Ipv4);
        assert_eq!(kind(&from_v6(&[0x60; 40])), Kind::Ipv6);
    }
}
