// SPDX-License-Identifier: GPL-2.0

//! Taking work requests out of rings that user space maps.
//!
//! The order of copies is here, so that it is the same for all rings and can be tested: what is
//! needed of the fixed part once, then what belongs to it once, by a count that was checked in the
//! copy. A [`Slot`] is the only access to the ring. What it returns is what it has read once, and
//! the compiler cannot read it again, because user space writes at the same time.

use crate::{
    abi,
    wqe::{
        decode_user,
        recv_area_len,
        send_area_len,
        Limits,
        Malformed,
        RecvWqe,
        SendWqe,
        RECV_LEN,
        SEND_LEN, //
    }, //
};
use core::mem::{
    offset_of,
    size_of, //
};

/// Size of a word.
const WORD: usize = size_of::<u64>();

/// Of the work request, all but what libraries put there for datagrams when there is no address
/// handle.
const WR_WORDS: usize = (offset_of!(abi::SendWr, wr) + size_of::<abi::WrAtomic>()) / WORD;
const _: () = assert!(size_of::<abi::WrMw>() <= size_of::<abi::WrAtomic>());
const _: () = assert!(size_of::<abi::WrFlush>() <= size_of::<abi::WrAtomic>());
const _: () = assert!(offset_of!(abi::WrUd, av) <= size_of::<abi::WrAtomic>());

/// Length, and number of elements.
const DMA_WORDS: usize = offset_of!(abi::DmaInfo, sge_offset) / WORD;

const RECV_WORDS: usize = RECV_LEN / WORD;

/// An entry of a ring, which user space changes meanwhile.
pub(crate) trait Slot {
    /// Reads words at an offset that is a multiple of their size, each once.
    fn words<const N: usize>(&mut self, at: usize) -> [u64; N];

    /// Copies bytes at an offset, each once.
    fn copy(&mut self, at: usize, to: &mut [u8]);
}

/// Puts words into the image of an entry.
fn put<const N: usize>(image: &mut [u8], at: usize, words: [u64; N]) {
    let places = image.get_mut(at..).unwrap_or(&mut []);

    for (place, word) in places.chunks_exact_mut(WORD).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
}

/// Takes a send work request; its elements or inline bytes are in `area` afterwards, which has as
/// many bytes as [`Limits::area`] says.
///
/// # Errors
///
/// If the entry does not describe something that this queue pair can do.
// Litmus: CoRR+uring-read-once
pub(crate) fn send<K>(
    slot: &mut impl Slot,
    area: &mut [u8],
    limits: &Limits,
) -> Result<SendWqe<K>, Malformed> {
    let mut head = [0; SEND_LEN];
    let (wr, dma) = (offset_of!(abi::SendWqe, wr), offset_of!(abi::SendWqe, dma));

    put::<WR_WORDS>(&mut head, wr, slot.words(wr));
    put::<DMA_WORDS>(&mut head, dma, slot.words(dma));

    let len = send_area_len(&head, limits)?;
    let area = area.get_mut(..len).unwrap_or(&mut []);

    if !area.is_empty() {
        slot.copy(SEND_LEN, area);
    }
    decode_user(&head, area, limits)
}

/// Takes a receive work request; its elements are in `area` afterwards, which has room for as many
/// as it may have.
///
/// # Errors
///
/// If the entry has more elements than fit into a slot, or one that is no range of memory.
// Litmus: CoRR+uring-read-once
pub(crate) fn recv(
    slot: &mut impl Slot,
    area: &mut [u8],
    max_sge: u8,
) -> Result<RecvWqe, Malformed> {
    let mut head = [0; RECV_LEN];

    put::<RECV_WORDS>(&mut head, 0, slot.words(0));

    let len = recv_area_len(&head, max_sge)?;
    let area = area.get_mut(..len).unwrap_or(&mut []);

    if !area.is_empty() {
        slot.copy(RECV_LEN, area);
    }
    RecvWqe::decode(&head, area, max_sge)
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_fetch))]
mod tests {
    use super::*;
    use crate::{
        opcode::Transport,
        wqe::Data, //
    };

    const LIMITS: Limits = Limits {
        transport: Transport::Rc,
        max_sge: 2,
        max_inline: 32,
    };

    /// Size of a slot for these limits.
    const SLOT: usize = SEND_LEN + 32;

    /// A slot in which user space changes every byte as soon as it was read.
    struct Hostile {
        slot: [u8; SLOT],
        again: bool,
        outside: bool,
        seen: [bool; SLOT],
    }

    impl Hostile {
        fn new(fields: &[(usize, u32)]) -> Self {
            let mut slot = [0; SLOT];

            for &(at, value) in fields {
                for (to, from) in slot.iter_mut().skip(at).zip(value.to_ne_bytes()) {
                    *to = from;
                }
            }
            Self {
                slot,
                again: false,
                outside: false,
                seen: [false; SLOT],
            }
        }
    }

    impl Slot for Hostile {
        fn words<const N: usize>(&mut self, at: usize) -> [u64; N] {
            core::array::from_fn(|i| {
                let mut word = [0; WORD];

                self.copy(at + i * WORD, &mut word);
                u64::from_ne_bytes(word)
            })
        }

        fn copy(&mut self, at: usize, to: &mut [u8]) {
            self.outside |= at + to.len() > SLOT;
            for ((to, from), seen) in to
                .iter_mut()
                .zip(self.slot.iter_mut().skip(at))
                .zip(self.seen.iter_mut().skip(at))
            {
                *to = *from;
                *from = 0xff;
                self.again |= *seen;
                *seen = true;
            }
        }
    }

    #[test]
    fn nothing_is_read_twice_or_outside() {
        // Number of elements of a SEND; number of bytes of an inline one.
        for (flags, length, num_sge, good) in [
            (0, 0, 0, true),
            (0, 0, 2, true),
            (0, 0, 3, false),
            (0, 0, u32::MAX, false),
            (8, 32, 0, true),
            (8, 33, 0, false),
            (8, u32::MAX, 0, false),
        ] {
            let mut area = [0; 32];
            let mut ring = Hostile::new(&[(12, 2), (16, flags), (184, length), (196, num_sge)]);
            let wqe = send::<()>(&mut ring, &mut area, &LIMITS);

            assert_eq!(wqe.is_ok(), good);
            assert!(!ring.again && !ring.outside);
            if let Ok(wqe) = wqe {
                let want = if flags == 8 {
                    Data::Inline(length)
                } else {
                    Data::Sges {
                        count: num_sge as u8,
                        len: 0,
                    }
                };

                assert_eq!(wqe.data, want);
            }
        }
    }

    #[test]
    fn receive_entries_are_read_once() {
        for (num_sge, good) in [(0, true), (2, true), (3, false), (0x102, false)] {
            let mut ring = Hostile::new(&[(28, num_sge)]);
            let mut area = [0; 32];
            let wqe = recv(&mut ring, &mut area, 2);

            assert_eq!(wqe.is_ok(), good);
            assert!(!ring.again && !ring.outside);
            if let Ok(wqe) = wqe {
                assert_eq!(u32::from(wqe.count), num_sge);
            }
        }
    }
}
