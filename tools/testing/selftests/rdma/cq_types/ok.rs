// SPDX-License-Identifier: GPL-2.0
//! The right order compiles: without this the others would prove nothing.
// expect: ok

use kernel::{
    prelude::*,
    rdma::cq::{
        Allocated,
        EventContext,
        Live,
        Poller, //
    },
};

/// A queue with events is armed after it is published.
pub fn evented<P: Poller>(queue: Allocated) -> Result<Live<P>> {
    Ok(queue.set_events(EventContext::Softirq).publish()?.arm())
}

/// A queue without events is not.
pub fn direct<P: Poller>(queue: Allocated) -> Result<Live<P>> {
    Ok(queue.set_direct().publish()?.unarmed())
}
