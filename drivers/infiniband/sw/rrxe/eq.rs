// SPDX-License-Identifier: GPL-2.0

//! Event queues: from a completion that found its queue armed to the call of the handler.
//!
//! An event queue is a ring of events that any context fills and one owner at a time empties. The
//! owner calls handlers with no lock held, and since there is only one, calls for one completion
//! queue never overlap. Ownership is [`crate::owner`]'s: whoever queues an event either becomes the
//! owner or is sure that the owner looks again.
//!
//! A slot holds an event or [`EMPTY`]. A producer claims a slot by moving `tail`, then writes it
//! with release; the owner takes it with acquire, empties it, and moves `head` with release, so a
//! producer that sees `head` sees the slot empty. A slot that is claimed and not yet written ends
//! the owner's turn: the producer is about to look for an owner itself.

use crate::{
    owner::{
        Owner,
        Released, //
    },
    sync::Word,
};
use core::ops::Deref;

/// An event: number of a completion queue, and which of those that had the number is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Number of the completion queue, 1 to 2^24 - 1.
    pub(crate) cqn: u32,
    /// Counts how often the number was used.
    pub(crate) generation: u8,
}

const EMPTY: u32 = 0;

impl Event {
    const CQN: u32 = 0x00ff_ffff;

    /// An event as a word; never [`EMPTY`], because no queue has number 0.
    fn encode(self) -> Option<u32> {
        (self.cqn != 0 && self.cqn <= Self::CQN)
            .then_some(self.cqn | u32::from(self.generation) << 24)
    }

    fn decode(word: u32) -> Option<Self> {
        (word != EMPTY).then_some(Self {
            cqn: word & Self::CQN,
            generation: (word >> 24) as u8,
        })
    }
}

/// The event was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// All slots are taken.
    Full,
    /// There is no completion queue with this number.
    BadCqn,
}

/// An event queue with its slots in `S`.
#[derive(Debug)]
pub(crate) struct Eq<W, S> {
    owner: Owner<W>,
    head: W,
    tail: W,
    mask: u32,
    slots: S,
}

impl<W: Word, S: Deref<Target = [W]>> Eq<W, S> {
    /// Makes an event queue of slots that are all [`EMPTY`]; `None` if their number is not a power
    /// of two. There must be one for each completion queue of the event queue.
    pub(crate) fn new(slots: S) -> Option<Self> {
        let len = u32::try_from(slots.len()).ok()?;

        (len.is_power_of_two()).then(|| Self {
            owner: Owner::new(),
            head: W::new(0),
            tail: W::new(0),
            mask: len - 1,
            slots,
        })
    }

    /// Returns a slot that has no event, for whoever makes the slots.
    pub(crate) fn slot() -> W {
        W::new(EMPTY)
    }

    /// Returns how many slots are taken; the answer may be old.
    pub(crate) fn depth(&self) -> u32 {
        self.tail.load().wrapping_sub(self.head.load())
    }

    /// Queues an event and leaves `keep` slots free for others. Returns true if the caller has
    /// become the owner and must [`Self::run`] the queue, now or in a context that may.
    ///
    /// Events that [`crate::arm::Arm::fire`] asked for keep no slots, and there is one for each of
    /// them. Those that a test makes up leave as many free as there are completion queues.
    ///
    /// # Errors
    ///
    /// If it was not queued.
    // Litmus: MP+eq-slot-word, S+eq-slot-empty, LB+eq-slot-reuse, ISA2+arm-eq-slot
    pub(crate) fn push(&self, event: Event, keep: u32) -> Result<bool, PushError> {
        let word = event.encode().ok_or(PushError::BadCqn)?;
        let room = (self.mask + 1).saturating_sub(keep);

        let at = loop {
            // In this order: whoever moved `tail` had seen `head` behind what it queued before, and
            // so does this load; an older one would make the queue look full when it is not.
            let tail = self.tail.load_acquire();
            let used = tail.wrapping_sub(self.head.load_acquire());

            // More than there are slots means that `tail` is old, and then `cmpxchg` will fail.
            if used >= room && used <= self.mask + 1 {
                return Err(PushError::Full);
            }
            if self.tail.cmpxchg(tail, tail.wrapping_add(1)).is_ok() {
                break tail;
            }
        };

        let slot = self
            .slots
            .get((at & self.mask) as usize)
            .ok_or(PushError::Full)?;

        slot.store_release(word);
        Ok(self.owner.own_or_pend())
    }

    /// Becomes the owner to look for events that others left; see [`Self::push`].
    #[must_use]
    pub(crate) fn own_or_pend(&self) -> bool {
        self.owner.own_or_pend()
    }

    /// Takes the first event. Only for the owner.
    // Litmus: MP+eq-slot-word, S+eq-slot-empty, LB+eq-slot-reuse, ISA2+arm-eq-slot
    fn pop(&self) -> Option<Event> {
        let head = self.head.load();
        let slot = self.slots.get((head & self.mask) as usize)?;
        let event = Event::decode(slot.load_acquire())?;

        slot.store(EMPTY);
        self.head.store_release(head.wrapping_add(1));
        Some(event)
    }

    /// Calls `dispatch` for each event, at most `budget` times. Only for the owner. Returns true
    /// if the budget is used up: then the caller still is the owner, and must call again from
    /// another context; else it is the owner no more.
    #[must_use]
    pub(crate) fn run(&self, mut budget: u32, mut dispatch: impl FnMut(Event)) -> bool {
        loop {
            while let Some(event) = self.pop() {
                dispatch(event);
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    return true;
                }
            }
            if self.owner.release() != Released::Again {
                return false;
            }
        }
    }
}
