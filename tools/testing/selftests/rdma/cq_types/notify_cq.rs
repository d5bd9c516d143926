// SPDX-License-Identifier: GPL-2.0
//! Who has a queue cannot arm it: that is for its poller.
// expect: E0624 method `req_notify` is private

use kernel::rdma::cq::{
    Cq,
    NotifyFlags, //
};

/// Asks for events at any time.
pub fn arm(queue: &Cq) {
    let _ = queue.req_notify(NotifyFlags::NEXT_COMP);
}
