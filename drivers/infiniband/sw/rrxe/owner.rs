// SPDX-License-Identifier: GPL-2.0

//! One owner at a time, without waiting: who comes while there is one leaves its work behind.
//!
//! Both halves of a queue pair and each event queue have an owner word. A context that has
//! something to do puts it where the owner looks for work, and calls [`Owner::own_or_pend`]. Either
//! it becomes the owner, or the owner that there is will look again before it leaves. So no work
//! is stranded and nobody spins, and an owner may even sleep.
//!
//! ```text
//!            try_own, own_or_pend               own_or_pend (returns false)
//!   IDLE ----------------------------> OWNED ------------------------------> OWNED|PENDING
//!    ^                                  | ^                                    |
//!    +----------- release: Idle --------+ +---------- release: Again ----------+
//! ```
//!
//! `WAITER` may be added to both owned states by a context that will sleep; the last release takes
//! it away and says so.

use crate::sync::Word;

/// What the owner has to do after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Nothing: it is the owner no more.
    Idle,
    /// It is the owner no more, and somebody sleeps until then.
    Wake,
    /// It still is the owner: work has come; look again, then release again.
    Again,
}

/// The word.
#[derive(Debug)]
pub(crate) struct Owner<W>(W);

const IDLE: u32 = 0;
const OWNED: u32 = 1;
const PENDING: u32 = 2;
const WAITER: u32 = 4;

impl<W: Word> Owner<W> {
    /// Makes a word without an owner.
    pub(crate) fn new() -> Self {
        Self(W::new(IDLE))
    }

    /// Tells whether there is an owner; the answer may be old.
    pub(crate) fn is_owned(&self) -> bool {
        self.0.load() & OWNED != 0
    }

    /// Becomes the owner if there is none.
    #[must_use]
    pub(crate) fn try_own(&self) -> bool {
        self.0.cmpxchg(IDLE, OWNED).is_ok()
    }

    /// Becomes the owner, or makes the owner look for work again. Call it after the work is where
    /// the owner finds it.
    ///
    /// A word that is `PENDING` already is written all the same: the owner's next acquire reads
    /// from this write, and so sees the work of this caller, not only of the one that was first.
    // Litmus: MP+eq-owner-pend, MP+eq-owner-pend-again
    #[must_use]
    pub(crate) fn own_or_pend(&self) -> bool {
        let was = self.0.update(|old| {
            Some(if old & OWNED == 0 {
                OWNED
            } else {
                old | PENDING
            })
        });

        matches!(was, Ok(old) if old & OWNED == 0)
    }

    /// Becomes the owner, or asks the owner for a wake-up when it leaves. Returns whether it is
    /// the owner; if not, sleep and call again.
    #[must_use]
    pub(crate) fn own_or_wait(&self) -> bool {
        let was = self.0.update(|old| {
            Some(if old & OWNED == 0 {
                OWNED
            } else {
                old | WAITER
            })
        });

        matches!(was, Ok(old) if old & OWNED == 0)
    }

    /// Stops being the owner, unless work has come. Only for the owner.
    // Litmus: MP+eq-owner-pend, MP+eq-owner-pend-again
    #[must_use]
    pub(crate) fn release(&self) -> Released {
        let was = self.0.update(|old| {
            Some(if old & PENDING != 0 {
                old & !PENDING
            } else {
                IDLE
            })
        });

        match was {
            Ok(old) if old & PENDING != 0 => Released::Again,
            Ok(old) if old & WAITER != 0 => Released::Wake,
            _ => Released::Idle,
        }
    }
}
