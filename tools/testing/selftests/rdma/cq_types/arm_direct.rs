// SPDX-License-Identifier: GPL-2.0
//! A queue that is polled directly can never be armed.
// expect: E0599 no method named `arm` found for struct `Published

use kernel::rdma::cq::{
    Direct,
    Poller,
    Published, //
};

/// Arms what wants no events.
pub fn arm<P: Poller>(queue: Published<Direct, P>) {
    let _ = queue.arm();
}
