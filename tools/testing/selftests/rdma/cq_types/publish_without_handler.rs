// SPDX-License-Identifier: GPL-2.0
//! A queue without a handler cannot be shown to the device.
// expect: E0599 no method named `publish` found for struct `Allocated

use kernel::rdma::cq::Allocated;

/// Publishes too early.
pub fn publish(queue: Allocated) {
    let _ = queue.publish();
}
