// SPDX-License-Identifier: GPL-2.0
//! Nor is there another way to ask for an event of a queue that is polled directly.
// expect: E0599 no method named `req_notify` found for struct `Published

use kernel::rdma::cq::{
    Direct,
    NotifyFlags,
    Poller,
    Published, //
};

/// Asks for events behind the back of the stages.
pub fn arm<P: Poller>(queue: Published<Direct, P>) {
    let _ = queue.req_notify(NotifyFlags::NEXT_COMP);
}
