// SPDX-License-Identifier: GPL-2.0

//! From completions to the handlers of their queues.
//!
//! Each completion vector has event queues ([`crate::eq`]), each with slots for a number of
//! completion queues. An event says which queue it is about by number and generation. The owner of
//! an event queue looks that up under RCU and calls the handler with no lock held; since there is
//! one owner at a time, calls for one completion queue never overlap.
//!
//! Who has just added a completion from within a softirq may call handlers there and then. Within
//! an operation of the device this is forbidden (`Documentation/infiniband/core_locking.rst`), so
//! there the events are left to a work item, which runs as a softirq too.

use crate::{
    cq::Cq,
    device::Device,
    eq::{
        Eq,
        Event,
        PushError, //
    },
    kword::KWord,
    table::Table, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    rdma::{
        self,
        driver::trace, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc,
        Mutex, //
    },
    workqueue::{
        self,
        Work,
        WorkItem, //
    }, //
};

/// In which context a completion is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ctx {
    /// A softirq that does not belong to an operation of the device: handlers may be called.
    Softirq,
    /// An operation of the device, or one that is not known.
    Method,
}

/// How many events are handled before others get a turn.
const BUDGET: u32 = 64;

/// An event queue.
#[pin_data]
pub(crate) struct EventQueue {
    eq: Eq<KWord, KVec<KWord>>,
    /// Of which device and vector it is.
    ib: ARef<rdma::device::Device>,
    vector: u32,
    cqs: Arc<Table<Cq>>,
    /// Events for which a handler was called. This and the next are the owner's to write.
    dispatched: Atomic<u64>,
    /// Events of completion queues that are no more, or never were.
    stale: Atomic<u64>,
    /// How often the work item was needed.
    deferred: Atomic<u64>,
    /// Events that were made up.
    injected: Atomic<u64>,
    #[pin]
    work: Work<EventQueue>,
}

impl_has_work! {
    impl HasWork<Self> for EventQueue { self.work }
}

impl WorkItem for EventQueue {
    type Pointer = Arc<EventQueue>;

    /// Goes on as the owner, which whoever has queued the work was.
    fn run(this: Arc<EventQueue>) {
        this.drain();
    }
}

impl EventQueue {
    /// How many events there is room for: a page.
    const SLOTS: usize = 1024;

    /// How many completion queues it has at most. One would be enough room for each, but events
    /// that are made up can take the place of real ones, which are then left over.
    const USERS: usize = Self::SLOTS / 2;

    fn new(dev: &Device, vector: u32) -> Result<Arc<Self>> {
        let mut slots = KVec::with_capacity(Self::SLOTS, GFP_KERNEL)?;

        for _ in 0..Self::SLOTS {
            slots.push(Eq::<KWord, KVec<KWord>>::slot(), GFP_KERNEL)?;
        }
        let eq = Eq::new(slots).ok_or(EINVAL)?;

        Arc::pin_init(
            pin_init!(Self {
                eq,
                ib: dev.ib().into(),
                vector,
                cqs: dev.cqs.clone(),
                dispatched: Atomic::new(0),
                stale: Atomic::new(0),
                deferred: Atomic::new(0),
                injected: Atomic::new(0),
                work <- new_work!("EventQueue::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Calls handlers. Only for the owner, which the caller is no more afterwards.
    fn drain(self: &Arc<Self>) {
        if self.eq.run(BUDGET, |event| self.dispatch(event)) {
            self.later();
        }
    }

    /// Leaves the events to the work item. Only for the owner; so it cannot be queued already.
    fn later(self: &Arc<Self>) {
        self.deferred.add(1u64, Relaxed);
        trace::deferred(&self.ib, self.vector, self.eq.depth());
        let _ = workqueue::system_bh().enqueue(self.clone());
    }

    // Litmus: RCU+cqn-erase+free
    fn dispatch(&self, event: Event) {
        let guard = rcu::read_lock();
        // An event of a queue that is no more is dropped, and so is one that has come to the wrong
        // event queue: the owner of another one may be calling the handler.
        let called = self.cqs.get(&guard, event.cqn).is_some_and(|cq| {
            core::ptr::eq(self, cq.event_queue()) && cq.handle_event(event.generation)
        });
        let count = if called {
            trace::dispatched(&self.ib, self.vector, event.cqn, event.generation);
            &self.dispatched
        } else {
            trace::stale(&self.ib, self.vector, event.cqn, event.generation);
            &self.stale
        };

        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// What the event queue has done so far.
    pub(crate) fn state(&self) -> State {
        State {
            depth: self.eq.depth(),
            dispatched: self.dispatched.load(Relaxed),
            stale: self.stale.load(Relaxed),
            deferred: self.deferred.load(Relaxed),
            injected: self.injected.load(Relaxed),
        }
    }

    /// Puts an event into the queue; see [`Eq::push`].
    fn push(&self, event: Event, keep: u32) -> Result<bool, PushError> {
        let pushed = self.eq.push(event, keep);

        if pushed.is_ok() {
            trace::posted(&self.ib, self.vector, event.cqn, event.generation);
        }
        pushed
    }

    /// Queues an event that is none, if there is room besides that for `users` real ones.
    ///
    /// # Context
    ///
    /// As [`Self::raise`].
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    pub(crate) fn inject(self: &Arc<Self>, event: Event, users: usize, ctx: Ctx) {
        crate::debug::hostile::as_softirq(ctx, |ctx| {
            match (self.push(event, users as u32), ctx) {
                (Ok(true), Ctx::Softirq) => self.drain(),
                (Ok(true), Ctx::Method) => self.later(),
                (Ok(false), _) => (),
                (Err(_), _) => return,
            }
            self.injected.add(1u64, Relaxed);
        });
    }

    /// Queues an event, and handles it unless that is done elsewhere.
    ///
    /// # Context
    ///
    /// Any but hard interrupts; bottom halves are off in [`Ctx::Softirq`].
    pub(crate) fn raise(self: &Arc<Self>, event: Event, ctx: Ctx) {
        match (self.push(event, 0), ctx) {
            (Ok(true), Ctx::Softirq) => self.drain(),
            (Ok(true), Ctx::Method) => self.later(),
            (Ok(false), _) => (),
            // There is a slot for each completion queue that is here.
            (Err(PushError::Full | PushError::BadCqn), _) => {
                kernel::pr_warn_once!("lost an event of completion queue {}\n", event.cqn);
            }
        }
    }
}

/// What an event queue has done so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) depth: u32,
    pub(crate) dispatched: u64,
    pub(crate) stale: u64,
    pub(crate) deferred: u64,
    pub(crate) injected: u64,
}

/// The event queues of a completion vector.
#[pin_data]
pub(crate) struct Vector {
    number: u32,
    #[pin]
    queues: Mutex<KVec<Place>>,
}

struct Place {
    eq: Arc<EventQueue>,
    users: usize,
}

impl Vector {
    /// Makes a vector without event queues.
    pub(crate) fn new(number: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                number,
                queues <- new_mutex!(KVec::new(), "Vector::queues"),
            }),
            GFP_KERNEL,
        )
    }

    /// Finds room for the events of one more completion queue.
    pub(crate) fn attach(&self, dev: &Device) -> Result<Arc<EventQueue>> {
        let mut queues = self.queues.lock();

        if let Some(place) = queues.iter_mut().find(|p| p.users < EventQueue::USERS) {
            place.users += 1;
            return Ok(place.eq.clone());
        }
        let eq = EventQueue::new(dev, self.number)?;

        queues.push(
            Place {
                eq: eq.clone(),
                users: 1,
            },
            GFP_KERNEL,
        )?;
        Ok(eq)
    }

    /// Gives that back, when no event of the completion queue is left.
    pub(crate) fn detach(&self, eq: &Arc<EventQueue>) {
        let mut queues = self.queues.lock();

        if let Some(place) = queues.iter_mut().find(|p| Arc::ptr_eq(&p.eq, eq)) {
            place.users -= 1;
        }
    }

    /// How many completion queues an event queue has; for contexts that may not sleep, at least as
    /// many.
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    pub(crate) fn users(&self, eq: &Arc<EventQueue>) -> usize {
        match self.queues.try_lock() {
            Some(queues) => queues
                .iter()
                .find(|p| Arc::ptr_eq(&p.eq, eq))
                .map_or(EventQueue::SLOTS, |p| p.users),
            None => EventQueue::SLOTS,
        }
    }

    /// Returns the event queues, and how many completion queues each has.
    pub(crate) fn snapshot(&self) -> Result<KVec<(Arc<EventQueue>, usize)>> {
        let queues = self.queues.lock();
        let mut copy = KVec::with_capacity(queues.len(), GFP_KERNEL)?;

        for place in queues.iter() {
            copy.push((place.eq.clone(), place.users), GFP_KERNEL)?;
        }
        Ok(copy)
    }

    /// Waits until work items have ended. There are no completion queues any more.
    pub(crate) fn flush(&self) {
        for place in self.queues.lock().iter() {
            place.eq.work.flush();
        }
    }
}
