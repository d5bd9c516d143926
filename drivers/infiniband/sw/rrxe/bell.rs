// SPDX-License-Identifier: GPL-2.0

//! Doorbells of user space: which of them is answered at once, and which together with others.
//!
//! Whoever waits for the answer to a message wants it to be sent at once. Whoever posts one after
//! another without looking at completions in between wants them to be sent together: packets, their
//! acknowledgments and the events that they cause cost much less then. So the first doorbells of a
//! row are answered at once, and later ones are counted until there is a batch of them. A timer
//! that is short makes sure that the last ones of a row do not wait for long.
//!
//! How large a batch is depends on what the user does. If the timer goes off, there were fewer in
//! the row, and next time as many are a batch; if a row goes on behind a batch, the next one is
//! twice as large.
//!
//! Who has posted a long row waits for none of its messages, and is likely to post another one of
//! that length. So only the first one of the next row is answered at once then, batches may be
//! larger and end where the row does, and the timer may take longer.
//!
//! # Nothing is left behind
//!
//! A work request is in the ring before its doorbell is counted. Who counts the first one arms the
//! timer ([`Answer::Arm`]); the timer and whoever runs the requester call [`Bell::take`] first,
//! which is fully ordered, and look at the ring after that. So a doorbell either is counted before
//! `take()`, and its work request is seen, or finds no other and arms the timer.

use crate::sync::Word;

/// Doorbells of a row that are answered at once.
const ALONE: u32 = 4;

/// A row of so many is long: none of those who send and wait for answers makes one.
const LONG: u32 = 64;

/// The largest batch.
const MOST: u32 = 32;

/// The same behind a row that was long.
const LONG_MOST: u32 = 64;

/// How long doorbells wait for others, in nanoseconds.
const PATIENCE: u64 = 50_000;

/// The same behind a row that was long.
const LONG_PATIENCE: u64 = 200_000;

/// What to do about a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Run the requester.
    Now,
    /// Somebody will: nothing.
    Later,
    /// Arm the timer.
    Arm,
}

/// The doorbells of a queue pair.
///
/// All words but `waiting` are guesses about the user. Two threads that ring at the same time may
/// make them wrong, which costs a moment.
#[derive(Debug)]
pub(crate) struct Bell<W> {
    /// What the user had consumed at the last doorbell.
    consumed: W,
    /// Doorbells since the user has consumed something.
    row: W,
    /// How many they were last time.
    last: W,
    /// Doorbells that wait.
    waiting: W,
    /// How many are a batch.
    batch: W,
}

impl<W: Word> Bell<W> {
    /// Makes one that nobody has rung.
    pub(crate) fn new() -> Self {
        Self {
            consumed: W::new(0),
            row: W::new(0),
            last: W::new(0),
            waiting: W::new(0),
            batch: W::new(MOST),
        }
    }

    /// Takes a doorbell. `consumed` differs from what it was if the user has consumed completions
    /// meanwhile.
    // Litmus: MP+bell-ring+take
    pub(crate) fn ring(&self, consumed: u32) -> Answer {
        if self.consumed.load() != consumed {
            self.consumed.store(consumed);
            self.last.store(self.row.load());
            self.row.store(0);
        }

        let row = self.row.load().saturating_add(1);
        let long = self.is_behind_long_row();
        let (alone, most) = if long { (1, LONG_MOST) } else { (ALONE, MOST) };

        self.row.store(row);
        if row <= alone {
            return Answer::Now;
        }

        let batch = self.batch.load().min(most);
        let waiting = match self.waiting.update(|n| Some(n.saturating_add(1))) {
            Ok(n) | Err(n) => n,
        };

        let full = waiting.saturating_add(1) >= batch;

        if full || (long && row == self.last.load()) {
            self.take();
            if full && row - alone > batch {
                self.batch.store(batch.saturating_mul(2).min(most));
            }
            return Answer::Now;
        }
        if waiting == 0 {
            Answer::Arm
        } else {
            Answer::Later
        }
    }

    /// Tells whether the row before this one was long.
    fn is_behind_long_row(&self) -> bool {
        self.last.load() >= LONG
    }

    /// How long doorbells may wait, in nanoseconds.
    pub(crate) fn patience(&self) -> u64 {
        if self.is_behind_long_row() {
            LONG_PATIENCE
        } else {
            PATIENCE
        }
    }

    /// Takes care of those that wait: look at the ring after this. Returns how many there are.
    // Litmus: MP+bell-ring+take
    pub(crate) fn take(&self) -> u32 {
        match self.waiting.update(|_| Some(0)) {
            Ok(n) | Err(n) => n,
        }
    }

    /// The same, because the timer went off.
    pub(crate) fn time_is_up(&self) {
        let waiting = self.take();

        if waiting != 0 {
            self.batch.store(waiting);
        }
    }

    /// Tells whether some wait; the answer may be old.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load() != 0
    }
}
