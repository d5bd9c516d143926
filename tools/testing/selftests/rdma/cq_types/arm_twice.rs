// SPDX-License-Identifier: GPL-2.0
//! A stage is used up by the step to the next one.
// expect: E0382 use of moved value: `queue`

use kernel::rdma::cq::{
    Evented,
    Poller,
    Published, //
};

/// Makes two owners of one queue.
pub fn arm<P: Poller>(queue: Published<Evented, P>) {
    let _first = queue.arm();
    let _second = queue.arm();
}
