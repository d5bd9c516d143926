// SPDX-License-Identifier: GPL-2.0

//! Which memory is registered, how often, and which is left out at fork.
//!
//! Nothing in here knows of the process it runs in, so all of it can be tested.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Rounds `range` outwards to whole pages of a size that is a power of two.
///
/// The last page of all memory cannot be named; it is cut off.
pub(crate) fn round_out(range: &Range<usize>, page: usize) -> Range<usize> {
    let mask = page - 1;
    let end = range.end.saturating_add(mask) & !mask;
    (range.start & !mask)..end
}

/// What is in `outer` but not in `inner`, which lies within it: in front of it and behind it.
pub(crate) fn rims(outer: &Range<usize>, inner: &Range<usize>) -> [Range<usize>; 2] {
    [
        outer.start..inner.start,
        inner.end..outer.end.max(inner.end),
    ]
}

/// What is known about a piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// How many registrations have it.
    pub(crate) count: u32,
    /// Whether it is left out at fork.
    pub(crate) dontfork: bool,
}

/// The state of all memory, as pieces that do not overlap; what is in no piece has the default.
#[derive(Debug, Default)]
pub(crate) struct Pieces(BTreeMap<usize, (usize, State)>);

impl Pieces {
    fn split_at(&mut self, at: usize) {
        let Some((&start, &(end, state))) = self.0.range(..at).next_back() else {
            return;
        };
        if at < end {
            self.0.insert(start, (at, state));
            self.0.insert(at, (end, state));
        }
    }

    /// Changes the state of all of `range`.
    pub(crate) fn update(&mut self, range: &Range<usize>, f: impl Fn(&mut State)) {
        if range.is_empty() {
            return;
        }
        self.split_at(range.start);
        self.split_at(range.end);
        let mut pieces = Vec::new();
        let mut at = range.start;
        for (&start, &(end, state)) in self.0.range(range.clone()) {
            if at < start {
                pieces.push((at..start, State::default()));
            }
            pieces.push((start..end, state));
            at = end;
        }
        if at < range.end {
            pieces.push((at..range.end, State::default()));
        }
        for (piece, mut state) in pieces {
            f(&mut state);
            self.0.remove(&piece.start);
            if state != State::default() {
                self.0.insert(piece.start, (piece.end, state));
            }
        }
        self.join(range);
    }

    /// Joins neighbours with the same state from the piece in front of `range` to the one behind.
    fn join(&mut self, range: &Range<usize>) {
        let first = self
            .0
            .range(..range.start)
            .next_back()
            .map_or(range.start, |(&s, _)| s);
        let pieces: Vec<_> = self
            .0
            .range(first..=range.end)
            .map(|(&s, &(e, t))| (s, e, t))
            .collect();
        let mut last: Option<(usize, usize, State)> = None;
        for (start, end, state) in pieces {
            match &mut last {
                Some((s, e, t)) if *e == start && *t == state => {
                    *e = end;
                    self.0.remove(&start);
                    self.0.insert(*s, (end, state));
                }
                _ => last = Some((start, end, state)),
            }
        }
    }

    /// The parts of `range` whose state is as `wanted` says.
    pub(crate) fn parts(
        &self,
        range: &Range<usize>,
        wanted: impl Fn(State) -> bool,
    ) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut put = |part: Range<usize>, state| {
            if part.is_empty() || !wanted(state) {
                return;
            }
            match found.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => found.push(part),
            }
        };
        let mut at = range.start;
        let first = self
            .0
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(&s, _)| s);
        for (&start, &(end, state)) in self.0.range(first..range.end.max(first)) {
            let part = start.max(range.start)..end.min(range.end);
            if part.is_empty() {
                continue;
            }
            put(at..part.start, State::default());
            at = part.end;
            put(part, state);
        }
        put(at..range.end, State::default());
        found
    }
}

/// Memory regions by the address of their handle, and what follows for memory.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    regions: HashMap<usize, Range<usize>>,
    /// Exact bytes.
    bytes: Pieces,
    /// Whole pages.
    pages: Pieces,
}

impl Registry {
    /// A registration succeeded; `page` is the size of its pages.
    pub(crate) fn add(&mut self, handle: usize, range: Range<usize>, page: usize) {
        self.bytes.update(&range, |s| s.count += 1);
        self.pages
            .update(&round_out(&range, page), |s| s.count += 1);
        self.regions.insert(handle, range);
    }

    /// A registration ends. What it was, if it is known.
    pub(crate) fn remove(&mut self, handle: usize, page: usize) -> Option<Range<usize>> {
        let range = self.regions.remove(&handle)?;
        self.bytes.update(&range, |s| s.count -= 1);
        self.pages
            .update(&round_out(&range, page), |s| s.count -= 1);
        Some(range)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whole pages are left out at fork from now on, or not any more.
    pub(crate) fn mark(&mut self, range: &Range<usize>, dontfork: bool) {
        self.pages.update(range, |s| s.dontfork = dontfork);
    }

    /// What would be lost with `range`: the bytes beside it on its pages that no registration has.
    ///
    /// With `marked_only`, only on pages that are left out at fork already.
    pub(crate) fn foreign(
        &self,
        range: &Range<usize>,
        page: usize,
        marked_only: bool,
    ) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for rim in rims(&round_out(range, page), range) {
            let lost = if marked_only {
                self.pages.parts(&rim, |s| s.dontfork)
            } else {
                vec![rim]
            };
            for part in lost {
                found.extend(self.bytes.parts(&part, |s| s.count == 0));
            }
        }
        found.retain(|part| !part.is_empty());
        found
    }

    /// The pages in `range` that are left out at fork and that are still registered.
    pub(crate) fn still_needed(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.pages.parts(range, |s| s.dontfork && s.count > 0)
    }

    /// The pages that are left out at fork though nothing there is registered.
    pub(crate) fn left_over(&self) -> Vec<Range<usize>> {
        self.pages
            .parts(&(0..usize::MAX), |s| s.dontfork && s.count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: usize = 4096;

    #[test]
    fn rounding() {
        assert_eq!(round_out(&(P..2 * P), P), P..2 * P);
        assert_eq!(round_out(&(P + 1..P + 2), P), P..2 * P);
        assert_eq!(round_out(&(0..P + 1), P), 0..2 * P);
        assert_eq!(
            round_out(&(usize::MAX - 5..usize::MAX), P).start,
            usize::MAX - P + 1
        );
        assert_eq!(rims(&(0..P), &(8..16)), [0..8, 16..P]);
    }

    #[test]
    fn foreign_bytes_are_those_of_nobody_else() {
        let mut r = Registry::default();
        let range = P + 100..P + 164;
        assert_eq!(
            r.foreign(&range, P, false),
            vec![P..P + 100, P + 164..2 * P]
        );
        assert_eq!(r.foreign(&(P..2 * P), P, false), vec![]);
        // Neighbours that are registered themselves lose nothing.
        r.add(1, P..P + 100, P);
        r.add(2, P + 200..3 * P, P);
        assert_eq!(r.foreign(&range, P, false), vec![P + 164..P + 200]);
    }

    #[test]
    fn foreign_bytes_on_marked_pages_only() {
        let mut r = Registry::default();
        let range = P + 100..3 * P - 100;
        assert_eq!(r.foreign(&range, P, true), vec![]);
        r.mark(&(2 * P..3 * P), true);
        assert_eq!(r.foreign(&range, P, true), vec![3 * P - 100..3 * P]);
        r.mark(&(2 * P..3 * P), false);
        assert_eq!(r.foreign(&range, P, true), vec![]);
    }

    #[test]
    fn counts_of_overlapping_registrations() {
        let mut r = Registry::default();
        // The same range for two protection domains, and one that overlaps.
        r.add(1, P..P + 64, P);
        r.add(2, P..P + 64, P);
        r.add(3, P + 32..2 * P + 8, P);
        r.mark(&(P..3 * P), true);
        assert_eq!(r.remove(1, P), Some(P..P + 64));
        assert_eq!(r.still_needed(&(P..2 * P)), vec![P..2 * P]);
        r.remove(3, P);
        assert_eq!(r.still_needed(&(P..3 * P)), vec![P..2 * P]);
        assert_eq!(r.left_over(), vec![2 * P..3 * P]);
        r.remove(2, P);
        assert_eq!(r.still_needed(&(P..3 * P)), vec![]);
        assert_eq!(r.left_over(), vec![P..3 * P]);
        r.mark(&(P..3 * P), false);
        assert_eq!(r.left_over(), vec![]);
        assert_eq!(r.remove(2, P), None);
        assert_eq!(r.len(), 0);
        assert!(r.pages.0.is_empty() && r.bytes.0.is_empty());
    }

    /// Against an array with one entry for each unit of memory.
    #[test]
    fn pieces_against_a_model() {
        let mut seed = 1u64;
        let mut random = |n: usize| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            usize::try_from(seed >> 33).unwrap() % n
        };
        for _ in 0..200 {
            let mut pieces = Pieces::default();
            let mut model = [State::default(); 64];
            for _ in 0..60 {
                let (a, b) = (random(65), random(65));
                let range = a.min(b)..a.max(b);
                let kind = random(4);
                let change = |s: &mut State| match kind {
                    0 => s.count += 1,
                    1 => s.count = s.count.saturating_sub(1),
                    2 => s.dontfork = true,
                    _ => s.dontfork = false,
                };
                pieces.update(&range, change);
                model[range].iter_mut().for_each(change);
                let wanted = |s: State| s.dontfork && s.count > 0;
                let (a, b) = (random(65), random(65));
                let asked = a.min(b)..a.max(b);
                let mut flat = [false; 64];
                for part in pieces.parts(&asked, wanted) {
                    assert!(!part.is_empty());
                    flat[part].fill(true);
                }
                for (i, &state) in model.iter().enumerate() {
                    assert_eq!(flat[i], asked.contains(&i) && wanted(state));
                }
                // Nothing is kept in more pieces than needed.
                let mut last = None;
                for (&start, &(end, state)) in &pieces.0 {
                    assert!(start < end && state != State::default());
                    assert_ne!(last, Some((start, state)));
                    last = Some((end, state));
                }
            }
        }
    }
}
