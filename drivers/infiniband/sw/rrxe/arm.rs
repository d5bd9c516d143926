// SPDX-License-Identifier: GPL-2.0

//! When a completion queue asks for an event, and when it gets one.
//!
//! The consumer arms the queue for the next completion or for the next solicited one; the
//! completion that fits takes the arming away and makes one event (IBA vol. 1, 11.4.2.2). The
//! event waits in an event queue until its owner calls the completion handler. All of this is in
//! one word, so each step is atomic against all the others:
//!
//! * `SOLICITED`, `NEXT`: armed. `NEXT` is the stronger one and is not taken back by the other.
//! * `QUEUED`: an event of this queue is in the event queue. There is at most one, which is why an
//!   event queue with as many slots as it has completion queues cannot overflow.
//! * `CALLING`: the handler runs.
//! * `DEAD`: the queue is being destroyed; nothing arms it, nothing makes an event, and an event
//!   that is left is dropped. When neither `QUEUED` nor `CALLING` is set, no handler runs or will.
//!
//! No completion is missed: the producer publishes its index, then a full barrier, then it looks at
//! the word; the consumer writes the word with full order, then looks at the index. One of the two
//! sees the other.

use crate::sync::Word;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// The next solicited completion, or the next one with an error.
    Solicited,
    /// The next completion.
    Next,
}

/// The word.
#[derive(Debug)]
pub(crate) struct Arm<W>(W);

const SOLICITED: u32 = 1;
const NEXT: u32 = 2;
const QUEUED: u32 = 4;
const CALLING: u32 = 8;
const DEAD: u32 = 16;

impl<W: Word> Arm<W> {
    /// Makes a word of a queue that is not armed.
    pub(crate) fn new() -> Self {
        Self(W::new(0))
    }

    /// Arms the queue. If the caller then finds it empty, the next completion that fits makes an
    /// event. If not, there may be completions that made none, and it should poll again.
    // Litmus: SB+arm-mb+fetch_or, ISA2+arm-eq-slot
    #[doc(alias = "ib_req_notify_cq")]
    pub(crate) fn arm(&self, what: Notify) {
        let flag = match what {
            Notify::Solicited => SOLICITED,
            Notify::Next => NEXT,
        };

        // Written even if it is set already, for the order.
        let _ = self.0.update(|old| (old & DEAD == 0).then_some(old | flag));
    }

    /// Tells whether to queue an event, after a completion was published. Producers of one queue
    /// call it one at a time.
    // Litmus: SB+fire-queued+begin, SB+arm-mb+fetch_or, ISA2+arm-eq-slot
    #[must_use]
    pub(crate) fn fire(&self, solicited: bool) -> bool {
        W::barrier();

        let was = self.0.update(|old| {
            let fits = old & NEXT != 0 || (solicited && old & SOLICITED != 0);

            (fits && old & DEAD == 0).then_some((old & !(NEXT | SOLICITED)) | QUEUED)
        });

        // With an event in the queue already, its handler has yet to be called, and will see this
        // completion as well.
        matches!(was, Ok(old) if old & QUEUED == 0)
    }

    /// Starts the call of the handler for an event, real or not; the owner of the event queue
    /// calls it. If it returns true, the handler is to be called and then [`Self::end`].
    // Litmus: MP+cq-kill-quiet, SB+fire-queued+begin
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        let was = self.0.update(|old| {
            Some(if old & DEAD == 0 {
                (old & !QUEUED) | CALLING
            } else {
                old & !QUEUED
            })
        });

        matches!(was, Ok(old) if old & DEAD == 0)
    }

    /// Ends the call of the handler.
    // Litmus: MP+cq-kill-quiet
    pub(crate) fn end(&self) {
        let _ = self.0.update(|old| Some(old & !CALLING));
    }

    /// Starts to destroy the queue. No producer is left.
    // Litmus: MP+cq-kill-quiet
    pub(crate) fn kill(&self) {
        let _ = self
            .0
            .update(|old| Some((old & !(NEXT | SOLICITED)) | DEAD));
    }

    /// Tells whether no handler runs or will run, after [`Self::kill`]. What handlers did is then
    /// done.
    // Litmus: MP+cq-kill-quiet
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.load_acquire() & (QUEUED | CALLING) == 0
    }

    /// Tells whether the queue is armed; the answer may be old.
    pub(crate) fn is_armed(&self) -> bool {
        self.0.load() & (NEXT | SOLICITED) != 0
    }
}
