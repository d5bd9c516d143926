// SPDX-License-Identifier: GPL-2.0

//! Scatter/gather elements of work requests.
//!
//! Elements are kept as the bytes that were copied from a ring, and read when they are needed.

use crate::abi::{
    self,
    u32_at,
    u64_at, //
};
use core::mem::{
    offset_of,
    size_of, //
};

/// Size of an element.
pub(crate) const SGE_LEN: usize = size_of::<abi::Sge>();

/// Scatter/gather element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sge {
    /// Address.
    pub(crate) addr: u64,
    /// Length.
    pub(crate) len: u32,
    /// Local key.
    pub(crate) lkey: u32,
}

impl Sge {
    /// Reads an element as it is in a ring.
    pub(crate) fn parse(b: &[u8; SGE_LEN]) -> Self {
        Self {
            addr: u64_at(b, offset_of!(abi::Sge, addr)),
            len: u32_at(b, offset_of!(abi::Sge, length)),
            lkey: u32_at(b, offset_of!(abi::Sge, lkey)),
        }
    }

    /// Writes an element as it is in a ring.
    pub(crate) fn emit(&self) -> [u8; SGE_LEN] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.addr.to_ne_bytes();
        let [l0, l1, l2, l3] = self.len.to_ne_bytes();
        let [k0, k1, k2, k3] = self.lkey.to_ne_bytes();

        [
            a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, k0, k1, k2, k3,
        ]
    }

    /// Tells whether the element ends before the end of the address space.
    pub(crate) const fn is_range(&self) -> bool {
        self.len == 0 || self.addr.checked_add(self.len as u64 - 1).is_some()
    }
}

/// Elements, as the bytes that were copied from a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SgeList<'a>(&'a [u8]);

impl<'a> SgeList<'a> {
    /// Takes all elements of `area`.
    pub(crate) fn all(area: &'a [u8]) -> Self {
        Self(area)
    }

    /// Takes the first `count` elements of `area`; fewer if there are not as many.
    pub(crate) fn new(area: &'a [u8], count: u8) -> Self {
        Self(area.get(..usize::from(count) * SGE_LEN).unwrap_or(area))
    }

    /// Returns the elements.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Sge> + 'a {
        self.0
            .chunks_exact(SGE_LEN)
            .filter_map(|b| b.first_chunk().map(Sge::parse))
    }

    /// Returns the pieces of memory that make up `len` bytes from `at` on.
    pub(crate) fn range(&self, at: u32, len: u32) -> SgeRange<'a> {
        SgeRange {
            rest: self.0,
            skip: at,
            left: len,
        }
    }

    /// Returns the length of all elements.
    pub(crate) fn total(&self) -> u64 {
        self.iter().map(|sge| u64::from(sge.len)).sum()
    }
}

/// Iterator over the pieces of a part of a message; made by [`SgeList::range`].
#[derive(Clone, Debug)]
pub(crate) struct SgeRange<'a> {
    rest: &'a [u8],
    skip: u32,
    left: u32,
}

impl SgeRange<'_> {
    /// Returns `len` bytes of it from `at` on, or what there is of them.
    pub(crate) fn part(&self, at: u32, len: u32) -> Self {
        Self {
            rest: self.rest,
            skip: self.skip.saturating_add(at),
            left: self.left.saturating_sub(at).min(len),
        }
    }
}

impl Iterator for SgeRange<'_> {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        while self.left > 0 {
            let (b, rest) = self.rest.split_first_chunk()?;
            let sge = Sge::parse(b);

            self.rest = rest;
            if self.skip >= sge.len {
                self.skip -= sge.len;
                continue;
            }

            let len = (sge.len - self.skip).min(self.left);
            let piece = Sge {
                // Elements that go past the end of the address space are not accepted.
                addr: sge.addr.wrapping_add(u64::from(self.skip)),
                len,
                lkey: sge.lkey,
            };

            self.skip = 0;
            self.left -= len;
            return Some(piece);
        }
        None
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_sge))]
mod tests {
    use super::*;

    fn area(sges: &[(u64, u32)]) -> [u8; 64] {
        let mut area = [0; 64];

        for (to, &(addr, len)) in area.chunks_exact_mut(SGE_LEN).zip(sges) {
            to.copy_from_slice(&Sge { addr, len, lkey: 1 }.emit());
        }
        area
    }

    #[test]
    fn pieces_of_a_message() {
        let area = area(&[(0x1000, 10), (0x2000, 0), (0x3000, 5), (0x4000, 100)]);
        let list = SgeList::new(&area, 4);
        // Every part of the message, byte by byte.
        let byte = |at: u32| match at {
            0..=9 => 0x1000 + u64::from(at),
            10..=14 => 0x3000 + u64::from(at) - 10,
            _ => 0x4000 + u64::from(at) - 15,
        };

        for at in 0..40 {
            for len in 0..40 {
                let mut pos = at;

                for piece in list.range(at, len) {
                    for i in 0..piece.len {
                        assert_eq!(piece.addr + u64::from(i), byte(pos + i));
                    }
                    pos += piece.len;
                }
                assert_eq!(pos, at + len);
            }
        }
        // What is not there is not made up.
        assert_eq!(list.range(110, 20).map(|p| p.len).sum::<u32>(), 5);
        assert_eq!(list.range(115, 20).next(), None);
    }
}
