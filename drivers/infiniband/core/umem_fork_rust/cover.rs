// SPDX-License-Identifier: GPL-2.0-only

//! Which bytes of its first and last page a range leaves uncovered.

use core::ops::Range;

/// The bytes beside a range that are on pages of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncovered {
    /// In front of it, on its first page.
    pub(crate) before: usize,
    /// Behind it, on its last page.
    pub(crate) behind: usize,
}

impl Uncovered {
    /// Computes them for `range`; `first` and `last` are the sizes of its first and last page, or
    /// `None` where nothing matters.
    ///
    /// Sizes are powers of two.
    pub(crate) fn new(range: &Range<usize>, first: Option<usize>, last: Option<usize>) -> Self {
        Self {
            before: first.map_or(0, |page| range.start & (page - 1)),
            // Up to the next multiple of the size: this is right for the last page of all memory
            // too, whose end is not a number.
            behind: last.map_or(0, |page| range.end.wrapping_neg() & (page - 1)),
        }
    }

    /// Whether the range covers all of its pages that matter.
    pub(crate) fn is_nothing(&self) -> bool {
        self.before == 0 && self.behind == 0
    }
}

#[cfg(CONFIG_INFINIBAND_RUST_UMEM_FORK_KUNIT_TEST)]
#[kernel::macros::kunit_tests(ib_umem_fork)]
mod tests {
    use super::*;

    const SMALL: usize = 1 << 12;
    const HUGE: usize = 1 << 21;

    fn lost(
        range: Range<usize>,
        first: impl Into<Option<usize>>,
        last: impl Into<Option<usize>>,
    ) -> (usize, usize) {
        let lost = Uncovered::new(&range, first.into(), last.into());

        assert_eq!(lost.is_nothing(), lost.before + lost.behind == 0);
        (lost.before, lost.behind)
    }

    #[test]
    fn whole_pages_lose_nothing() {
        for pages in 1..4 {
            assert_eq!(lost(7 * SMALL..(7 + pages) * SMALL, SMALL, SMALL), (0, 0));
        }
    }

    #[test]
    fn inside_one_page() {
        assert_eq!(
            lost(SMALL + 100..SMALL + 164, SMALL, SMALL),
            (100, SMALL - 164)
        );
    }

    #[test]
    fn every_length_and_offset() {
        for start in [0, 1, 64, SMALL - 1] {
            for len in [1, 63, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL] {
                let range = 9 * SMALL + start..9 * SMALL + start + len;
                let (before, behind) = lost(range.clone(), SMALL, SMALL);

                assert!(before < SMALL && behind < SMALL);
                // Together these are whole pages, and no page too many.
                assert_eq!((range.start - before) % SMALL, 0);
                assert_eq!((range.end + behind) % SMALL, 0);
                assert_eq!(before + len + behind, (start + len).div_ceil(SMALL) * SMALL);
            }
        }
    }

    #[test]
    fn one_end_only() {
        assert_eq!(lost(SMALL + 8..2 * SMALL, SMALL, SMALL), (8, 0));
        assert_eq!(lost(SMALL..2 * SMALL - 8, SMALL, SMALL), (0, 8));
    }

    #[test]
    fn mappings_that_are_copied_do_not_matter() {
        let range = SMALL + 8..5 * SMALL - 8;

        assert_eq!(lost(range.clone(), None, None), (0, 0));
        assert_eq!(lost(range.clone(), SMALL, None), (8, 0));
        assert_eq!(lost(range, None, SMALL), (0, 8));
    }

    #[test]
    fn huge_pages() {
        // Aligned to small pages, but this is not what is lost.
        assert_eq!(
            lost(3 * HUGE + SMALL..3 * HUGE + 2 * SMALL, HUGE, HUGE),
            (SMALL, HUGE - 2 * SMALL)
        );
        assert_eq!(lost(3 * HUGE..4 * HUGE, HUGE, HUGE), (0, 0));
        assert_eq!(
            lost(HUGE - SMALL - 1..HUGE + 1, SMALL, HUGE),
            (SMALL - 1, HUGE - 1)
        );
    }

    #[test]
    fn end_of_memory() {
        assert_eq!(lost(usize::MAX - 10..usize::MAX, None, SMALL), (0, 1));
        assert_eq!(lost(0..1, SMALL, SMALL), (0, SMALL - 1));
    }
}
