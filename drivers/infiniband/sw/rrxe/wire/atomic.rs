// SPDX-License-Identifier: GPL-2.0

//! Atomic extended transport headers (IBA vol. 1, 9.3.4 and 9.5.3).

/// Request of a compare-and-swap or fetch-and-add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicEth {
    /// Virtual address at the target; must be a multiple of eight.
    pub(crate) va: u64,
    /// Key of the memory region or window.
    pub(crate) rkey: u32,
    /// Value to store, or to add.
    pub(crate) swap_add: u64,
    /// Value to compare with.
    pub(crate) compare: u64,
}

impl AtomicEth {
    /// Size on the wire.
    pub(crate) const LEN: usize = 28;

    /// Reads a header.
    pub(crate) const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            va: u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            rkey: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
            swap_add: u64::from_be_bytes([b[12], b[13], b[14], b[15], b[16], b[17], b[18], b[19]]),
            compare: u64::from_be_bytes([b[20], b[21], b[22], b[23], b[24], b[25], b[26], b[27]]),
        }
    }

    /// Writes the header.
    pub(crate) const fn emit(&self) -> [u8; Self::LEN] {
        let v = self.va.to_be_bytes();
        let r = self.rkey.to_be_bytes();
        let s = self.swap_add.to_be_bytes();
        let c = self.compare.to_be_bytes();

        [
            v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], //
            r[0], r[1], r[2], r[3], //
            s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], //
            c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7],
        ]
    }
}

/// Size of the header that carries the original value back.
pub(crate) const ATOMIC_ACK_LEN: usize = 8;

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_atomic)
)]
mod tests {
    use super::AtomicEth;

    #[test]
    fn parses_and_emits() {
        const BYTES: [u8; 28] = [
            0, 0, 0, 0, 0, 0, 0x10, 0x08, 0, 0, 0x01, 0x02, 0x11, 0, 0, 0, 0, 0, 0, 0x22, 0x33, 0,
            0, 0, 0, 0, 0, 0x44,
        ];
        let atomic = AtomicEth {
            va: 0x1008,
            rkey: 0x102,
            swap_add: 0x1100_0000_0000_0022,
            compare: 0x3300_0000_0000_0044,
        };

        assert_eq!(AtomicEth::parse(&BYTES), atomic);
        assert_eq!(atomic.emit(), BYTES);
    }
}
