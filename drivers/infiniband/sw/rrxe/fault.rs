// SPDX-License-Identifier: GPL-2.0

//! Faults: memory of on-demand regions that is not there when it is needed.
//!
//! A half of a queue pair runs where it must not wait for memory, and looks regions up under RCU.
//! What it cannot access it notes in its [`Misses`], and stops in front of it; packets that it was
//! given are kept. Its [`Pager`] then has the memory made available by a work item that may sleep,
//! and has the half run again:
//!
//! ```text
//!          request()            run()                 run()
//!   Idle ------------> Wanted --------> Busy ---------------------> Idle
//!    ^                                     \  there is no such memory
//!    |                                      +---------------------> Failed
//!    |                               look()                            |
//!    +-----------------------------------------------------------------+
//! ```
//!
//! Memory may go again before the half runs; then all of this is repeated. If there is no such
//! memory, the half has to be told so, or it would ask for ever: accesses in its next run that miss
//! just what failed are refused.
//!
//! The responder could also say RNR NAK, as devices do that fetch pages slowly. That is only
//! possible for some requests and not for the answers to READs, it counts against the RNR retries
//! of the other side, and then everything behind it is sent again. To keep the packet is right for
//! all of them: those behind it queue up, and if too many do, they are lost and sent again. If it
//! takes very long, the other side asks again by its own timeout, and is answered from what is
//! kept.

use crate::{
    device::Device,
    mr, //
};
use core::cell::Cell;
use kernel::{
    impl_has_work,
    new_spinlock_irq,
    new_work,
    prelude::*,
    rdma::driver::umem_odp::Want,
    sync::{
        Arc,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// A range of a region that is to be made available.
///
/// It names the region by its key and does not keep it: to give up a region one has to sleep, which
/// those who find out that memory is missing must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The region's own key, also if it was accessed by a window.
    pub(crate) key: u32,
    /// Where the range starts in the region.
    pub(crate) at: usize,
    /// How long it is.
    pub(crate) len: usize,
    /// What it is wanted for.
    pub(crate) want: Want,
}

/// What a half misses in one go.
pub(crate) struct Misses {
    wanted: Cell<Option<Fault>>,
    failed: Option<Fault>,
}

impl Misses {
    /// Begins with what could not be made available before.
    pub(crate) fn new(failed: Option<Fault>) -> Self {
        Self {
            wanted: Cell::new(None),
            failed,
        }
    }

    /// Notes what is missing. Returns whether it may come.
    ///
    /// Of all that is missing the first counts: a response that waits is in front of what is to be
    /// sent, and so it does not wait for ever.
    pub(crate) fn note(&self, fault: Fault) -> bool {
        if self.failed == Some(fault) {
            return false;
        }
        self.wanted.set(self.wanted.get().or(Some(fault)));
        true
    }

    /// Tells whether there is something that could not be made available.
    pub(crate) fn failed(&self) -> bool {
        self.failed.is_some()
    }

    /// What was noted first.
    pub(crate) fn take(&self) -> Option<Fault> {
        self.wanted.take()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Wanted(Fault),
    Busy,
    Failed(Fault),
    /// The queue pair is gone.
    Closed,
}

/// Who makes memory available for a half.
#[pin_data]
pub(crate) struct Pager {
    #[pin]
    state: SpinLockIrq<State>,
}

impl Pager {
    /// Makes one that has nothing to do.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock_irq!(State::Idle, "rrxe::Pager::state"),
        })
    }

    /// Asks for memory. Returns whether the work item is to be queued; if not, something else is
    /// under way, and the half runs again after that.
    ///
    /// # Context
    ///
    /// Any.
    #[must_use]
    pub(crate) fn request(&self, fault: Fault) -> bool {
        let mut state = self.state.lock();

        if *state != State::Idle {
            return false;
        }
        *state = State::Wanted(fault);
        true
    }

    /// Tells what has become of what was asked for: whether it is decided, and what failed.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn look(&self) -> (bool, Option<Fault>) {
        let mut state = self.state.lock();

        match *state {
            State::Idle => (true, None),
            State::Failed(fault) => {
                *state = State::Idle;
                (true, Some(fault))
            }
            _ => (false, None),
        }
    }

    /// Does what was asked for, and then `again`, unless the queue pair is gone. From the work
    /// item.
    ///
    /// # Context
    ///
    /// Process context, may sleep. `again` must not.
    pub(crate) fn run(&self, dev: &Device, again: impl FnOnce()) {
        let fault = {
            let mut state = self.state.lock();
            let State::Wanted(fault) = *state else {
                return;
            };

            *state = State::Busy;
            fault
        };
        let next = match mr::resolve(dev, &fault) {
            Ok(()) => State::Idle,
            Err(_) => State::Failed(fault),
        };
        let mut state = self.state.lock();

        if *state != State::Closed {
            *state = next;
            // With the lock, so that nothing is queued once `close` has returned.
            again();
        }
    }

    /// Ends it: from now on the half is not made to run again.
    pub(crate) fn close(&self) {
        *self.state.lock() = State::Closed;
    }
}

/// Advice that memory will be needed soon, which is followed when there is time.
#[pin_data]
pub(crate) struct Prefetch {
    dev: Arc<Device>,
    faults: KVec<Fault>,
    #[pin]
    work: Work<Prefetch>,
}

impl_has_work! {
    impl HasWork<Self> for Prefetch { self.work }
}

impl WorkItem for Prefetch {
    type Pointer = Arc<Prefetch>;

    fn run(this: Arc<Prefetch>) {
        for fault in &this.faults {
            // Whoever accesses what is not there will find out.
            let _ = mr::resolve(&this.dev, fault);
        }
    }
}

impl Prefetch {
    /// Follows advice some time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn start(dev: &Arc<Device>, faults: KVec<Fault>) -> Result {
        let this = Arc::pin_init(
            pin_init!(Self {
                dev: dev.clone(),
                faults,
                work <- new_work!("rrxe::Prefetch::work"),
            }),
            GFP_KERNEL,
        )?;

        let _ = dev.faults().enqueue(this);
        Ok(())
    }
}
