// SPDX-License-Identifier: GPL-2.0
//! The buffer for completions cannot be used after the run has been completed: from then on the
//! next run may use it on another CPU.
// expect: E0505 cannot move out of `run` because it is borrowed

use kernel::{
    irq_poll::{
        Run,
        Verdict, //
    },
    rdma::cq::{
        Polled,
        Poller, //
    },
};

/// Polls in the tail.
pub fn poll<P: Poller>(cq: &Polled<P>, mut run: Run<'_>) -> Verdict {
    let slots = cq.slots(&mut run);
    let verdict = run.complete(0);
    let _ = cq.poll(slots);
    verdict
}
