// SPDX-License-Identifier: GPL-2.0-only

//! Events and completions: the poller of every queue of the core.

use super::context::{
    BATCH_DIRECT,
    BUDGET_SOFTIRQ,
    BUDGET_WORKQUEUE,
    MODERATION, //
};
use core::mem::MaybeUninit;
use kernel::{
    ffi::c_int,
    irq_poll::Verdict,
    rdma::{
        cq::{
            Armed,
            Cq,
            Moderation,
            NotifyFlags,
            Poller,
            SoftirqEvent,
            SoftirqRun,
            WcSlot,
            WorkEvent,
            WorkRun, //
        },
        trace, //
    },
    warn_once,
};

/// Needed by `warn_once!`.
const __LOG_PREFIX: &[u8] = super::__LOG_PREFIX;

/// Handles up to `budget` completions, fetched as many at a time as `slots` has room for.
///
/// Returns how many there were; fewer than the budget means that the queue was found empty.
#[inline(always)]
fn process(cq: &Cq, budget: u32, slots: &mut [WcSlot]) -> u32 {
    let batch = slots.len();
    let mut left = budget;

    trace::process(cq);
    loop {
        let found = cq.poll(&mut slots[..batch.min(left as usize)]);
        let n = found.len();
        if n == 0 {
            break;
        }
        found.dispatch();

        left -= n as u32;
        if n != batch || left == 0 {
            break;
        }
    }
    budget - left
}

/// See [`ib_process_cq_direct`](super::ib_process_cq_direct).
pub(super) fn process_direct(cq: &Cq, budget: c_int) -> c_int {
    let mut slots: [WcSlot; BATCH_DIRECT] = [const { MaybeUninit::uninit() }; BATCH_DIRECT];

    // -1 is no limit, or one that is not reached; anything else below zero ends after one batch.
    let limit = if budget < -1 {
        BATCH_DIRECT as u32
    } else {
        budget as u32
    };

    process(cq, limit, &mut slots) as c_int
}

/// What the core does with events and completions.
pub(super) struct CorePoller;

impl Poller for CorePoller {
    const SOFTIRQ_BUDGET: i32 = BUDGET_SOFTIRQ;
    const MODERATION: &'static [Moderation] = MODERATION;

    fn event_direct(cq: &Cq) {
        warn_once!(
            true,
            "got unsolicited completion for CQ {:p}\n",
            cq.as_raw()
        );
    }

    #[inline(always)]
    fn event_softirq(event: SoftirqEvent<'_, Self>) {
        trace::schedule(event.cq());
        event.sched();
    }

    #[inline(always)]
    fn event_workqueue(event: WorkEvent<'_, Self>) {
        trace::schedule(event.cq());
        event.queue();
    }

    // Litmus: MP+complete-arm+rmw
    #[inline(always)]
    fn poll_softirq<'a>(mut run: SoftirqRun<'a, Self>) -> Verdict<'a> {
        let cq = run.cq();
        let budget = run.budget();
        let completed = process(cq, budget as u32, run.slots()) as c_int;
        // While the run is ours nobody else feeds the algorithm.
        run.moderate(completed);

        if completed >= budget {
            return run.exhausted();
        }

        let tail = run.complete(completed);
        // An event from here on schedules the next run, on any CPU. A completion that came before
        // the queue was armed makes no event, but the device tells.
        if tail.req_notify(NotifyFlags::NEXT_COMP_OR_MISSED) == Armed::Missed {
            trace::reschedule(cq);
            tail.sched();
        }
        tail.end()
    }

    #[inline(always)]
    fn poll_work(mut run: WorkRun<'_, Self>) {
        let completed = process(run.cq(), BUDGET_WORKQUEUE as u32, run.slots()) as c_int;

        if completed >= BUDGET_WORKQUEUE
            || run.req_notify(NotifyFlags::NEXT_COMP_OR_MISSED) == Armed::Missed
        {
            run.again();
        } else {
            run.moderate(completed);
        }
    }
}
