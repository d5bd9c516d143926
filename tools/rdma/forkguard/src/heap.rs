// SPDX-License-Identifier: GPL-2.0

//! What glibc's malloc has on a page: the state of an arena, and chunks.
//!
//! The layout that this reads is no interface, but it has not changed for very long, and
//! everything is checked against the rest: a heap of a thread begins with the address of its arena
//! and its size, and a chain of chunks leads to its end exactly. Memory is read through
//! `/proc/self/mem`, so a wrong guess is an error and no crash.

use crate::maps::Mapping;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const WORD: usize = size_of::<usize>();
/// Chunks are aligned to this.
const ALIGN: usize = 2 * WORD;
/// Heaps of threads are aligned to this.
const HEAP_MAX: usize = if WORD == 8 { 64 << 20 } else { 1 << 20 };
const IN_USE: usize = 1;
const FLAGS: usize = 7;
/// What the state of an arena can be large; some of it depends on the version.
const STATE: Range<usize> = 256..8192;

/// Where memory is read from.
pub(crate) trait Memory {
    /// The word at `addr`.
    fn word(&self, addr: usize) -> Option<usize>;
}

/// The memory of this process.
pub(crate) struct Own(File);

impl Own {
    /// Opens it.
    pub(crate) fn open() -> Option<Self> {
        File::open("/proc/self/mem").ok().map(Self)
    }
}

impl Memory for Own {
    fn word(&self, addr: usize) -> Option<usize> {
        let mut buf = [0; WORD];
        self.0
            .read_exact_at(&mut buf, u64::try_from(addr).ok()?)
            .ok()?;
        Some(usize::from_ne_bytes(buf))
    }
}

/// What malloc has in a mapping.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heap {
    /// The state of the arena and what is in front of it.
    pub(crate) state: Option<Range<usize>>,
    /// Memory that was handed out, with its headers.
    pub(crate) used: Vec<Range<usize>>,
}

/// Follows chunks from `at` to `end`; what is used, if the chain ends there exactly.
fn chain(memory: &dyn Memory, mut at: usize, end: usize) -> Option<Vec<Range<usize>>> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut used = Vec::new();
    while at < end {
        let size = memory.word(at + WORD)?;
        let next = at
            .checked_add(size & !FLAGS)
            .filter(|&n| n <= end && n % ALIGN == 0)?;
        if next - at < 2 * ALIGN {
            // The end of a heap that another one follows has such.
            return (next == end || end - at <= 4 * ALIGN).then_some(used);
        }
        // Whether a chunk is in use is written down in the next one.
        if let Some(last) = chunks.last().filter(|_| size & IN_USE != 0) {
            used.push(last.clone());
        }
        chunks.push(at..next);
        at = next;
    }
    (!chunks.is_empty()).then_some(used)
}

/// The heap of a thread at `start`, if there is one.
fn of_thread(memory: &dyn Memory, start: usize) -> Option<Heap> {
    let arena = memory.word(start)?;
    let previous = memory.word(start + WORD)?;
    let size = memory.word(start + 2 * WORD)?;
    if size == 0 || size > HEAP_MAX || size % 4096 != 0 || arena % ALIGN != 0 {
        return None;
    }
    let end = start + size;
    if previous != 0 || !(start..start + 256).contains(&arena) {
        // A further heap of an arena, which has no state.
        let used = (start + 3 * WORD..start + 16 * WORD)
            .filter(|at| at % ALIGN == 0)
            .find_map(|at| chain(memory, at, end))?;
        return Some(Heap { state: None, used });
    }
    (arena + STATE.start..(arena + STATE.end).min(end))
        .step_by(ALIGN)
        .find_map(|at| {
            chain(memory, at, end).map(|used| Heap {
                state: Some(start..at),
                used,
            })
        })
}

/// What malloc has around `addr`, which is in `mapping`.
pub(crate) fn find(memory: &dyn Memory, mapping: &Mapping, addr: usize) -> Option<Heap> {
    if mapping.name == "[heap]" {
        // The state of the main arena is in the C library's own data.
        let used = chain(memory, mapping.range.start, mapping.range.end)?;
        return Some(Heap { state: None, used });
    }
    of_thread(memory, addr & !(HEAP_MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Fake(HashMap<usize, usize>, Range<usize>);

    impl Memory for Fake {
        fn word(&self, addr: usize) -> Option<usize> {
            self.1
                .contains(&addr)
                .then(|| self.0.get(&addr).copied().unwrap_or(0))
        }
    }

    fn anon(range: Range<usize>) -> Mapping {
        Mapping {
            range,
            name: "[anon]".to_owned(),
        }
    }

    #[test]
    fn arena_of_a_thread() {
        let (start, arena) = (HEAP_MAX * 3, HEAP_MAX * 3 + 48);
        let first = arena + 2208;
        let end = start + 0x21000;
        let mut words = HashMap::from([(start, arena), (start + 2 * WORD, 0x21000)]);
        // Two chunks in use, one free, the top.
        for (at, size, flags) in [
            (first, 0x290, 5),
            (first + 0x290, 0x50, 5),
            (first + 0x2e0, 0x30, 5),
        ] {
            words.insert(at + WORD, size | flags);
        }
        words.insert(first + 0x310 + WORD, (end - first - 0x310) | 4);
        let memory = Fake(words, start..end);
        let heap = find(&memory, &anon(start..end), first + 0x2a0).unwrap();
        assert_eq!(heap.state, Some(start..first));
        assert_eq!(
            heap.used,
            vec![first..first + 0x290, first + 0x290..first + 0x2e0]
        );
    }

    #[test]
    fn no_heap() {
        let start = HEAP_MAX * 3;
        let zero = Fake(HashMap::new(), start..start + 0x21000);
        assert_eq!(find(&zero, &anon(start..start + 0x21000), start + 64), None);
        let gone = Fake(HashMap::new(), 0..0);
        assert_eq!(find(&gone, &anon(start..start + 4096), start + 64), None);
    }

    #[test]
    fn own_memory() {
        let value = 0x1234_5678usize;
        let memory = Own::open().unwrap();
        assert_eq!(memory.word(std::ptr::from_ref(&value).addr()), Some(value));
        assert_eq!(memory.word(8), None);
    }

    /// The real one: what a thread allocates is found, and where the state of its arena is.
    #[test]
    fn real_arena() {
        std::thread::spawn(|| {
            let addr = crate::sys::malloc(100).addr();
            let mapping = crate::maps::all()
                .into_iter()
                .find(|m| m.range.contains(&addr))
                .unwrap();
            let heap = find(&Own::open().unwrap(), &mapping, addr).unwrap();
            assert!(heap.used.iter().any(|c| c.contains(&addr)), "{heap:x?}");
            if mapping.name != "[heap]" {
                let state = heap.state.unwrap();
                assert!(
                    state.end <= addr && state.end - state.start > 1024,
                    "{state:x?}"
                );
            }
        })
        .join()
        .unwrap();
    }
}
