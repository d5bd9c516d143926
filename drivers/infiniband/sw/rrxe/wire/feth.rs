// SPDX-License-Identifier: GPL-2.0

//! FLUSH extended transport header (IBA memory placement extensions, A19).

/// FLUSH extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feth {
    /// Placement types asked for: bit 0 global visibility, bit 1 persistence.
    pub(crate) types: u8,
    /// How much to flush: 0 the range, 1 the whole memory region.
    pub(crate) level: u8,
}

impl Feth {
    /// Size on the wire.
    pub(crate) const LEN: usize = 4;

    /// Visible to all of the target's system.
    pub(crate) const GLOBAL: u8 = 1;
    /// Kept over a loss of power.
    pub(crate) const PERSISTENT: u8 = 2;

    /// Flush the range that the RETH names.
    pub(crate) const RANGE: u8 = 0;
    /// Flush all of the region that the RETH names.
    pub(crate) const REGION: u8 = 1;

    /// Reads a header.
    pub(crate) const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            types: b[3] & 0x0f,
            level: (b[3] >> 4) & 3,
        }
    }

    /// Writes the header.
    pub(crate) const fn emit(&self) -> [u8; Self::LEN] {
        [0, 0, 0, (self.level & 3) << 4 | (self.types & 0x0f)]
    }

    /// Tells whether the header asks for something that exists.
    pub(crate) const fn is_valid(&self) -> bool {
        self.types != 0
            && self.types & !(Self::GLOBAL | Self::PERSISTENT) == 0
            && self.level <= Self::REGION
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_feth)
)]
mod tests {
    use super::Feth;

    #[test]
    fn parses_and_emits() {
        let feth = Feth {
            types: Feth::PERSISTENT,
            level: Feth::REGION,
        };

        assert_eq!(Feth::parse(&[0, 0, 0, 0x12]), feth);
        assert_eq!(feth.emit(), [0, 0, 0, 0x12]);
        assert!(feth.is_valid());
    }

    #[test]
    fn undefined_requests_are_not_valid() {
        let mut valid = 0;

        for b in 0..=u8::MAX {
            if Feth::parse(&[0, 0, 0, b]).is_valid() {
                valid += 1;
            }
        }
        // Three placement types, two levels, two reserved bits that are ignored.
        assert_eq!(valid, 3 * 2 * 4);
    }
}
