// SPDX-License-Identifier: GPL-2.0
//! A queue that the device does not know yet cannot be armed.
// expect: E0599 no method named `arm` found for struct `Initialised

use kernel::rdma::cq::{
    Evented,
    Initialised,
    Poller, //
};

/// Arms too early.
pub fn arm<P: Poller>(queue: Initialised<Evented, P>) {
    let _ = queue.arm();
}
