// SPDX-License-Identifier: GPL-2.0

//! RDMA extended transport header (IBA vol. 1, 9.3.3).

/// Target of an RDMA READ, WRITE, FLUSH or ATOMIC WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reth {
    /// Virtual address at the target.
    pub(crate) va: u64,
    /// Key of the memory region or window.
    pub(crate) rkey: u32,
    /// Length of the whole message.
    pub(crate) len: u32,
}

impl Reth {
    /// Size on the wire.
    pub(crate) const LEN: usize = 16;

    /// Reads a header.
    pub(crate) const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            va: u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            rkey: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
            len: u32::from_be_bytes([b[12], b[13], b[14], b[15]]),
        }
    }

    /// Writes the header.
    pub(crate) const fn emit(&self) -> [u8; Self::LEN] {
        let v = self.va.to_be_bytes();
        let r = self.rkey.to_be_bytes();
        let l = self.len.to_be_bytes();

        [
            v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], //
            r[0], r[1], r[2], r[3], l[0], l[1], l[2], l[3],
        ]
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_reth)
)]
mod tests {
    use super::Reth;

    #[test]
    fn parses_and_emits() {
        const BYTES: [u8; 16] = [
            0x00, 0x00, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xde, 0xad, 0xbe, 0xef, 0x00, 0x00,
            0x10, 0x01,
        ];
        let reth = Reth {
            va: 0x7f12_3456_789a,
            rkey: 0xdead_beef,
            len: 0x1001,
        };

        assert_eq!(Reth::parse(&BYTES), reth);
        assert_eq!(reth.emit(), BYTES);
    }
}
