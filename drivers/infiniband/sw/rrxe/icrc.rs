// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC of RoCEv2 packets (IBA vol. 1, 7.8.1 and annex A17.3).
//!
//! The ICRC is the CRC-32 of Ethernet over everything that does not change on the way: a
//! pseudo-header of eight bytes of ones (the local route header of InfiniBand, which RoCEv2 has
//! not), IP, UDP, BTH, the other headers, payload and padding. What routers change counts as ones:
//! of IPv4 TOS, TTL and header checksum; of IPv6 traffic class, flow label and hop limit; the UDP
//! checksum; and the byte of the BTH that has the congestion bits. Lengths and the IPv4
//! identification do count.

use crate::wire::bth::Bth;

/// Something that can compute the reflected CRC-32 (polynomial 0xedb88320).
///
/// The kernel has faster ones than [`Portable`].
pub(crate) trait Crc32 {
    /// Returns `crc` after `data`. No inversion is done at the start or at the end.
    fn update(crc: u32, data: &[u8]) -> u32;
}

/// The CRC byte by byte with a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

// An index out of bounds would not compile here.
#[allow(clippy::indexing_slicing)]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;

    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;

        while bit < 8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

impl Crc32 for Portable {
    fn update(crc: u32, data: &[u8]) -> u32 {
        data.iter().fold(crc, |crc, &byte| {
            let index = (crc as u8 ^ byte) as usize;

            // A byte cannot be out of the bounds of a table of 256.
            TABLE.get(index).map_or(0, |t| crc >> 8 ^ t)
        })
    }
}

/// An ICRC that is being computed.
pub(crate) struct Icrc<C> {
    crc: u32,
    _c: core::marker::PhantomData<C>,
}

/// The CRC after the eight bytes of ones, started with ones.
const SEED: u32 = 0xdebb_20e3;

impl<C: Crc32> Icrc<C> {
    /// Starts with the headers of a packet over IPv4 without options.
    pub(crate) fn v4(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; Bth::LEN]) -> Self {
        let [vihl, _, l0, l1, i0, i1, f0, f1, _, proto, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *ip;

        Self::start(
            [
                vihl, 0xff, l0, l1, i0, i1, f0, f1, 0xff, proto, 0xff, 0xff, s0, s1, s2, s3, d0,
                d1, d2, d3,
            ],
            udp,
            bth,
        )
    }

    /// Starts with the headers of a packet over IPv6 without extension headers.
    pub(crate) fn v6(ip: &[u8; 40], udp: &[u8; 8], bth: &[u8; Bth::LEN]) -> Self {
        let mut ip = *ip;

        // The version stays; traffic class and flow label are the other 28 bits.
        ip[0] |= 0x0f;
        ip[1] = 0xff;
        ip[2] = 0xff;
        ip[3] = 0xff;
        ip[7] = 0xff;
        Self::start(ip, udp, bth)
    }

    /// Starts with masked IP headers. One call for all of them: with the kernel's CRC each call
    /// costs the use of the vector unit.
    fn start<const N: usize>(ip: [u8; N], udp: &[u8; 8], bth: &[u8; Bth::LEN]) -> Self {
        let mut buf = [0; 40 + 8 + Bth::LEN];
        let [s0, s1, d0, d1, l0, l1, _, _] = *udp;
        let mut bth = *bth;

        bth[Bth::RESV8] = 0xff;
        if let Some((to, rest)) = buf.split_first_chunk_mut() {
            *to = ip;
            if let Some((to, rest)) = rest.split_first_chunk_mut() {
                *to = [s0, s1, d0, d1, l0, l1, 0xff, 0xff];
                if let Some((to, _)) = rest.split_first_chunk_mut() {
                    *to = bth;
                }
            }
        }

        let len = N + 8 + Bth::LEN;

        Self {
            crc: C::update(SEED, buf.get(..len).unwrap_or(&buf)),
            _c: core::marker::PhantomData,
        }
    }

    /// Goes on with bytes that follow.
    pub(crate) fn update(&mut self, data: &[u8]) {
        self.crc = C::update(self.crc, data);
    }

    /// Returns the bytes of the ICRC field.
    pub(crate) fn finish(self) -> [u8; 4] {
        (!self.crc).to_le_bytes()
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_icrc))]
mod tests {
    use super::{
        Crc32,
        Portable,
        SEED, //
    };

    #[test]
    fn crc_of_the_check_string() {
        // The check value that every description of CRC-32 gives.
        assert_eq!(!Portable::update(u32::MAX, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn crc_is_incremental() {
        let all = Portable::update(u32::MAX, b"123456789");
        let part = Portable::update(u32::MAX, b"1234");

        assert_eq!(Portable::update(part, b"56789"), all);
        assert_eq!(Portable::update(part, b""), part);
    }

    #[test]
    fn seed_is_that_of_eight_ones() {
        assert_eq!(Portable::update(u32::MAX, &[0xff; 8]), SEED);
    }
}
