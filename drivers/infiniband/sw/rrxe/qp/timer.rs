// SPDX-License-Identifier: GPL-2.0

//! The timer of a queue pair: answers that do not come, and receivers that are not ready.
//!
//! It is moved to an earlier moment only. While packets and answers come and go it stays where it
//! is, goes off once in a while, finds that it is too early, and is armed for what is next.
//!
//! Doorbells that wait for others ([`crate::bell`]) use it as well.

use super::{
    object::{
        Armed,
        Qp,
        TxHalf, //
    },
    run::Todo,
};
use crate::sync::Word;
use kernel::{
    impl_has_hr_timer,
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::{
        hrtimer::{
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeSoftMode, //
        },
        Delta,
        Monotonic, //
    },
};

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Qp {
        mode: RelativeSoftMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for Qp {
    type Pointer<'a> = Arc<Self>;

    /// Runs in a softirq. The timer is disarmed by the owner of the half, who waits for this to
    /// return, so the half must not be owned here.
    fn run(this: ArcBorrow<'_, Self>, _ctx: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        this.bell.time_is_up();
        this.expired.store_release(1);
        Qp::schedule(this, Todo::TX);
        HrTimerRestart::NoRestart
    }
}

impl Qp {
    /// Nanoseconds since the queue pair was made.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(0)
    }

    /// Arms the timer for what the requester waits for.
    pub(super) fn arm(this: ArcBorrow<'_, Qp>, tx: &mut TxHalf) {
        if let Some(at) = tx.engine.next_timeout() {
            Self::arm_for(this, tx, at);
        }
    }

    /// Makes the timer go off at a moment at the latest.
    pub(super) fn arm_for(this: ArcBorrow<'_, Qp>, tx: &mut TxHalf, at: u64) {
        if tx.timer.as_ref().is_some_and(|armed| armed.at <= at) {
            return;
        }
        // The old one is disarmed before the new one is armed: they are the same timer.
        tx.timer = None;

        let delay = at.saturating_sub(this.now());

        tx.timer = Some(Armed {
            at,
            _timer: Arc::from(this)
                .start(Delta::from_nanos(i64::try_from(delay).unwrap_or(i64::MAX))),
        });
    }
}
