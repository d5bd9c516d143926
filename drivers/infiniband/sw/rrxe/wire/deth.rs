// SPDX-License-Identifier: GPL-2.0

//! Datagram extended transport header (IBA vol. 1, 9.3.2).

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deth {
    /// Queue key.
    pub(crate) qkey: u32,
    /// Queue pair of the sender, 24 bits.
    pub(crate) src_qp: u32,
}

impl Deth {
    /// Size on the wire.
    pub(crate) const LEN: usize = 8;

    /// Reads a header.
    pub(crate) const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            qkey: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            src_qp: u32::from_be_bytes([0, b[5], b[6], b[7]]),
        }
    }

    /// Writes the header.
    pub(crate) const fn emit(&self) -> [u8; Self::LEN] {
        let [k0, k1, k2, k3] = self.qkey.to_be_bytes();
        let [_, q0, q1, q2] = self.src_qp.to_be_bytes();

        [k0, k1, k2, k3, 0, q0, q1, q2]
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_deth)
)]
mod tests {
    use super::Deth;

    #[test]
    fn parses_and_emits() {
        const BYTES: [u8; 8] = [0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01];
        let deth = Deth {
            qkey: 0x8001_0000,
            src_qp: 1,
        };

        assert_eq!(Deth::parse(&BYTES), deth);
        assert_eq!(deth.emit(), BYTES);
        // The reserved byte is not part of the number.
        assert_eq!(Deth::parse(&[0xff; 8]).src_qp, 0xff_ffff);
    }
}
