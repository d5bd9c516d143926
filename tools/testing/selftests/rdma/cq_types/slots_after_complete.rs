// SPDX-License-Identifier: GPL-2.0
//! The buffer for completions cannot be used after the run has been completed: from then on the
//! next run may use it on another CPU.
// expect: E0505 cannot move out of `run` because it is borrowed

use kernel::{
    irq_poll::Verdict,
    rdma::cq::{
        Poller,
        SoftirqRun, //
    },
};

/// Polls in the tail.
pub fn poll<'a, P: Poller>(mut run: SoftirqRun<'a, P>) -> Verdict<'a> {
    let cq = run.cq();
    let slots = run.slots();
    let tail = run.complete(0);
    let _ = cq.poll(slots);
    tail.end()
}
