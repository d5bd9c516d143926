// SPDX-License-Identifier: GPL-2.0

//! Base transport header (IBA vol. 1, 9.2).

use crate::psn::Psn;

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bth {
    /// Operation code; may be one that is not defined.
    pub(crate) opcode: u8,
    /// Solicited event.
    pub(crate) se: bool,
    /// Migration request. Nothing here migrates, so it is sent as 0 and ignored.
    pub(crate) mig_req: bool,
    /// Bytes of padding between payload and ICRC, 0 to 3.
    pub(crate) pad: u8,
    /// Transport header version, 0 to 15; only 0 is defined.
    pub(crate) tver: u8,
    /// Partition key.
    pub(crate) pkey: u16,
    /// Destination queue pair, 24 bits.
    pub(crate) dest_qp: u32,
    /// The sender asks for an acknowledgment.
    pub(crate) ack_req: bool,
    /// Packet sequence number.
    pub(crate) psn: Psn,
}

impl Bth {
    /// Size on the wire.
    pub(crate) const LEN: usize = 12;

    /// Where the byte that the ICRC replaces by ones is: congestion bits and reserved ones.
    pub(crate) const RESV8: usize = 4;

    /// Bits of a queue pair number.
    pub(crate) const QPN_MASK: u32 = 0x00ff_ffff;

    /// Reads a header. Congestion bits and reserved bits are not looked at.
    pub(crate) const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            opcode: b[0],
            se: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad: (b[1] >> 4) & 3,
            tver: b[1] & 0x0f,
            pkey: u16::from_be_bytes([b[2], b[3]]),
            dest_qp: u32::from_be_bytes([0, b[5], b[6], b[7]]),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, b[9], b[10], b[11]])),
        }
    }

    /// Writes the header; reserved bits are 0.
    pub(crate) const fn emit(&self) -> [u8; Self::LEN] {
        let [p0, p1] = self.pkey.to_be_bytes();
        let [_, q0, q1, q2] = self.dest_qp.to_be_bytes();
        let [_, s0, s1, s2] = self.psn.get().to_be_bytes();
        let flags = (self.se as u8) << 7
            | (self.mig_req as u8) << 6
            | (self.pad & 3) << 4
            | (self.tver & 0x0f);

        [
            self.opcode,
            flags,
            p0,
            p1,
            0,
            q0,
            q1,
            q2,
            (self.ack_req as u8) << 7,
            s0,
            s1,
            s2,
        ]
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_bth)
)]
mod tests {
    use super::{
        Bth,
        Psn, //
    };

    const BYTES: [u8; 12] = [
        0x04, 0xa0, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x12, 0x34, 0x56,
    ];

    const BTH: Bth = Bth {
        opcode: 0x04,
        se: true,
        mig_req: false,
        pad: 2,
        tver: 0,
        pkey: 0xffff,
        dest_qp: 0x11,
        ack_req: true,
        psn: Psn::new(0x12_3456),
    };

    #[test]
    fn parses() {
        assert_eq!(Bth::parse(&BYTES), BTH);
    }

    #[test]
    fn emits() {
        assert_eq!(BTH.emit(), BYTES);
    }

    #[test]
    fn ignores_reserved_bits() {
        let mut bytes = BYTES;

        bytes[Bth::RESV8] = 0xff;
        bytes[8] |= 0x7f;
        assert_eq!(Bth::parse(&bytes), BTH);
    }

    #[test]
    fn fields_do_not_overlap() {
        let all = Bth::parse(&[0xff; 12]);

        assert_eq!(all.pad, 3);
        assert_eq!(all.tver, 15);
        assert_eq!(all.dest_qp, Bth::QPN_MASK);
        assert_eq!(all.psn.get(), Psn::MASK);
        // A field that is too large does not spill into its neighbours.
        let big = Bth {
            pad: 0xff,
            tver: 0xff,
            dest_qp: u32::MAX,
            ..BTH
        };
        assert_eq!(big.emit()[1], 0x80 | 0x3f);
        assert_eq!(big.emit()[4], 0);
    }
}
