// SPDX-License-Identifier: GPL-2.0

//! Packet sequence numbers.
//!
//! A PSN has 24 bits and wraps. Two PSNs are compared by their distance: `a` comes before `b` if
//! going forward from `a` reaches `b` within half of the number space (IBA vol. 1, 9.7.1 and
//! 9.7.2). Nothing else may compare PSNs, so the type has no `Ord` (the relation is not
//! transitive) and no arithmetic operators.

/// A 24-bit packet sequence number.
///
/// # Invariants
///
/// The value is below 2^24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Psn(u32);

impl Psn {
    /// The bits of a PSN in a 32-bit word.
    pub(crate) const MASK: u32 = 0x00ff_ffff;

    /// Half of the number space: the first distance that counts as "behind".
    const HALF: u32 = 1 << 23;

    /// Makes a PSN from the low 24 bits of `value`.
    pub(crate) const fn new(value: u32) -> Self {
        // INVARIANT: The mask leaves 24 bits.
        Self(value & Self::MASK)
    }

    /// Returns the number.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// Returns the PSN that is `n` packets later.
    pub(crate) const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// Returns the PSN that is `n` packets earlier.
    pub(crate) const fn sub(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// Returns the next PSN.
    pub(crate) const fn next(self) -> Self {
        self.add(1)
    }

    /// Returns how many packets `self` is after `other`, from 0 to 2^24 - 1.
    ///
    /// Only for PSNs that are known to be in this order.
    pub(crate) const fn since(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0) & Self::MASK
    }

    /// Returns the signed distance from `other` to `self`, from -2^23 to 2^23 - 1.
    pub(crate) const fn diff(self, other: Self) -> i32 {
        let d = self.since(other);

        // The value has 24 bits, so both casts keep it.
        if d < Self::HALF {
            d as i32
        } else {
            d as i32 - (1 << 24)
        }
    }

    /// Tells whether `self` comes before `other`.
    pub(crate) const fn before(self, other: Self) -> bool {
        self.diff(other) < 0
    }

    /// Tells whether `self` is one of the `n` PSNs from `first` on.
    pub(crate) const fn within(self, first: Self, n: u32) -> bool {
        self.since(first) < n
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_psn))]
mod tests {
    use super::Psn;

    #[test]
    fn wraps_at_24_bits() {
        assert_eq!(Psn::new(0x0100_0000).get(), 0);
        assert_eq!(Psn::new(0xff12_3456).get(), 0x12_3456);
        assert_eq!(Psn::new(0xff_ffff).next().get(), 0);
        assert_eq!(Psn::new(0).sub(1).get(), 0xff_ffff);
        assert_eq!(Psn::new(0xff_fff0).add(0x20).get(), 0x10);
    }

    #[test]
    fn compares_by_distance() {
        const CASES: [(u32, u32, i32); 8] = [
            (0, 0, 0),
            (1, 0, 1),
            (0, 1, -1),
            (0, 0xff_ffff, 1),
            (0xff_ffff, 0, -1),
            (0x7f_ffff, 0, 0x7f_ffff),
            (0x80_0000, 0, -0x80_0000),
            (5, 0x80_0006, 0x7f_ffff),
        ];

        for (a, b, want) in CASES {
            assert_eq!(Psn::new(a).diff(Psn::new(b)), want);
            assert_eq!(Psn::new(a).before(Psn::new(b)), want < 0);
        }
    }

    #[test]
    fn ranges_may_wrap() {
        let first = Psn::new(0xff_fffe);

        assert!(first.within(first, 1));
        assert!(Psn::new(1).within(first, 4));
        assert!(!Psn::new(2).within(first, 4));
        assert!(!Psn::new(0xff_fffd).within(first, 4));
        assert!(!first.within(first, 0));
        assert_eq!(Psn::new(1).since(first), 3);
    }
}
