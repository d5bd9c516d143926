// SPDX-License-Identifier: GPL-2.0

//! Index arithmetic of the rings that user space maps.
//!
//! A ring has a power of two of slots and two indices below that number, of which each side
//! writes one. One slot stays free, so that full and empty differ. The other side's index comes
//! from memory that a hostile process writes at any time: it is a parameter here, read once by
//! the caller, and whatever it is, a slot inside of the ring comes out and no more than a ring
//! full of entries is pending. The own index is never read back from shared memory.

/// Number and size of the slots of a ring.
///
/// # Invariants
///
/// `mask` + 1 and the size of an element are powers of two, and all slots together have less than
/// 2^31 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    mask: u32,
    shift: u32,
}

/// An index of the other side is none that the ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadIndex;

impl Geometry {
    /// The smallest size of an element: entries of two slots share no cache line.
    const MIN_ELEM: u32 = 64;

    /// Makes a ring for at least `entries` entries of `size` bytes; `None` if that is too much.
    pub(crate) fn new(entries: u32, size: u32) -> Option<Self> {
        let slots = entries.checked_add(1)?.checked_next_power_of_two()?;
        let elem = size.max(Self::MIN_ELEM).checked_next_power_of_two()?;

        if u64::from(slots) * u64::from(elem) >= 1 << 31 {
            return None;
        }
        // INVARIANT: Both are powers of two, and the product was checked.
        Some(Self {
            mask: slots - 1,
            shift: elem.trailing_zeros(),
        })
    }

    /// Returns how many entries fit.
    pub(crate) const fn capacity(&self) -> u32 {
        self.mask
    }

    /// Returns the mask for indices.
    pub(crate) const fn mask(&self) -> u32 {
        self.mask
    }

    /// Returns the logarithm of the size of an element.
    pub(crate) const fn log2_elem(&self) -> u32 {
        self.shift
    }

    /// Returns the size of an element.
    pub(crate) const fn elem(&self) -> usize {
        1 << self.shift
    }

    /// Returns the size of all slots.
    pub(crate) const fn bytes(&self) -> usize {
        (self.mask as usize + 1) << self.shift
    }

    /// Returns where the slot with an index starts, for any index.
    pub(crate) const fn offset(&self, index: u32) -> usize {
        ((index & self.mask) as usize) << self.shift
    }
}

/// The side that takes entries out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumer {
    geo: Geometry,
    index: u32,
}

impl Consumer {
    /// Starts at an empty ring.
    pub(crate) const fn new(geo: Geometry) -> Self {
        Self { geo, index: 0 }
    }

    /// Returns how many entries may be taken.
    ///
    /// # Errors
    ///
    /// [`BadIndex`] if the producer's index does not exist; taking it for a large number would
    /// process old entries for ever.
    pub(crate) const fn pending(&self, producer: u32) -> Result<u32, BadIndex> {
        if producer > self.geo.mask {
            return Err(BadIndex);
        }
        Ok(producer.wrapping_sub(self.index) & self.geo.mask)
    }

    /// Returns where the next entry is.
    pub(crate) const fn offset(&self) -> usize {
        self.geo.offset(self.index)
    }

    /// Goes on behind the next entry.
    pub(crate) fn advance(&mut self) {
        self.index = self.index.wrapping_add(1) & self.geo.mask;
    }

    /// Returns the index to publish.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }
}

/// The side that puts entries in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    geo: Geometry,
    index: u32,
}

impl Producer {
    /// Starts at an empty ring.
    pub(crate) const fn new(geo: Geometry) -> Self {
        Self { geo, index: 0 }
    }

    /// Returns how many entries the consumer has not taken. A false index of the consumer only
    /// makes its own ring look fuller or emptier than it is.
    pub(crate) const fn used(&self, consumer: u32) -> u32 {
        self.index.wrapping_sub(consumer) & self.geo.mask
    }

    /// Tells whether there is no room for an entry.
    pub(crate) const fn is_full(&self, consumer: u32) -> bool {
        self.used(consumer) == self.geo.mask
    }

    /// Returns where the next entry goes.
    pub(crate) const fn offset(&self) -> usize {
        self.geo.offset(self.index)
    }

    /// Goes on behind the next entry.
    pub(crate) fn advance(&mut self) {
        self.index = self.index.wrapping_add(1) & self.geo.mask;
    }

    /// Returns the index to publish.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_ring))]
mod tests {
    use super::{
        BadIndex,
        Consumer,
        Geometry,
        Producer, //
    };

    #[test]
    fn sizes() {
        // Entries wanted, size of an entry; capacity, size of a slot.
        const CASES: [(u32, u32, u32, usize); 6] = [
            (1, 48, 1, 64),
            (2, 48, 3, 64),
            (3, 64, 3, 64),
            (4, 65, 7, 128),
            (100, 208 + 32, 127, 256),
            (32767, 48, 32767, 64),
        ];

        for (entries, size, capacity, elem) in CASES {
            let geo = Geometry::new(entries, size);

            assert_eq!(geo.map(|g| g.capacity()), Some(capacity));
            assert_eq!(geo.map(|g| g.elem()), Some(elem));
            assert_eq!(geo.map(|g| g.bytes()), Some((capacity as usize + 1) * elem));
        }
        assert_eq!(Geometry::new(u32::MAX, 64), None);
        assert_eq!(Geometry::new(1 << 20, u32::MAX), None);
        assert_eq!(Geometry::new(1 << 25, 64), None);
    }

    #[test]
    fn fill_and_drain() {
        let Some(geo) = Geometry::new(3, 64) else {
            return;
        };
        let mut p = Producer::new(geo);
        let mut c = Consumer::new(geo);

        for round in 0..10 {
            for i in 0..3 {
                assert!(!p.is_full(c.index()));
                assert_eq!(p.offset(), ((round * 3 + i) & 3) * 64);
                p.advance();
            }
            assert!(p.is_full(c.index()));
            for left in [3, 2, 1] {
                assert_eq!(c.pending(p.index()), Ok(left));
                c.advance();
            }
            assert_eq!(c.pending(p.index()), Ok(0));
            assert_eq!(p.used(c.index()), 0);
        }
    }

    #[test]
    fn lies_about_an_index() {
        let Some(geo) = Geometry::new(7, 64) else {
            return;
        };
        let mut c = Consumer::new(geo);
        let mut p = Producer::new(geo);

        c.advance();
        for lie in [8, 9, 0x100, 0x8000_0000, u32::MAX] {
            assert_eq!(c.pending(lie), Err(BadIndex));
        }
        for lie in 0..=u32::from(u16::MAX) {
            assert!(c.pending(lie).map_or(true, |n| n <= geo.capacity()));
            assert!(p.used(lie.wrapping_mul(0x1001_0003)) <= geo.capacity());
            assert!(p.offset() < geo.bytes());
            assert!(geo.offset(lie.wrapping_mul(0x1001_0003)) <= geo.bytes() - geo.elem());
            p.advance();
        }
    }
}
