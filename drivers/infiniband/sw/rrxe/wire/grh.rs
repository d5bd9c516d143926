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

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_grh)
)]
mod tests {
    use super::from_v4;

    #[test]
    fn ipv4_is_in_the_second_half() {
        let grh = from_v4(&[0x45; 20]);

        assert!(grh.iter().take(20).all(|&b| b == 0));
        assert!(grh.iter().skip(20).all(|&b| b == 0x45));
    }
}
