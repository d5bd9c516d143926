// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! A queue pair has two halves, each with an owner of its own ([`crate::owner`]): [`crate::tx::Tx`]
//! is requester and completer, [`crate::resp::Rx`] is the responder. Whoever drives them keeps to
//! these rules:
//!
//! * Packets of one half are given in the order in which they came. One that is
//!   [`Parked`](crate::env::Parked) stays in front of those behind it. After
//!   `Parked::Replies`, [`Rx::pump`](crate::resp::Rx::pump) has to run first; after
//!   `Parked::Memory`, a context that may wait for memory has to give it again.
//! * A batch of requests is followed by `pump`, a batch of responses or a doorbell by
//!   [`Tx::run`](crate::tx::Tx::run), and so is a timeout by `run`. If `more` is set, both are to
//!   be called again soon.
//! * When [`Wire::send`](crate::env::Wire::send) says that it is busy, it remembers the half, and
//!   calls `pump` or `run` when it no longer is.
//! * After each of these calls, [`Tx::next_timeout`](crate::tx::Tx::next_timeout) says when to call
//!   [`Tx::timeout`](crate::tx::Tx::timeout). A timer that goes off too early does no harm, so it
//!   need not be moved for each acknowledgment.
//! * If `error` is set in the [`Events`](crate::env::Events) of one half, the state of the queue
//!   pair becomes error. After that, and not from within the other half, `Tx::set_state` and `run`
//!   flush the send queue, and [`Rx::flush`](crate::resp::Rx::flush) flushes the receive queue. The
//!   negative acknowledgment that the responder owes goes out with `pump` all the same. If it is
//!   the user who wants the error state, [`Rx::cancel`](crate::resp::Rx::cancel) comes first.
//! * If both halves are needed, the requester is owned first, then the responder. Halves of
//!   another queue pair are only tried; see `direct.rs`.
//! * Completion handlers are called by the owner of an event queue ([`crate::eq`]) only. One may
//!   post work to a queue pair of which a half is owned further up the stack; that work is left to
//!   the owner, and nothing waits.

#[path = "qp/state.rs"]
pub(crate) mod state;

// The rest is made of kernel types; tests on a host have something else in its place.

#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/attr.rs"]
mod attr;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/direct.rs"]
mod direct;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/env.rs"]
mod env;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/object.rs"]
mod object;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/post.rs"]
pub(crate) mod post;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/rings.rs"]
pub(crate) mod rings;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/run.rs"]
mod run;
#[cfg(CONFIG_RDMA_RRXE)]
#[path = "qp/timer.rs"]
mod timer;

#[cfg(CONFIG_RDMA_RRXE)]
pub(crate) use self::{
    object::Qp,
    run::deliver, //
};
