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
    sync::{
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
    cqs: Arc<Table<Cq>>,
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
    /// How many completion queues have room for their events. An event queue takes a page.
    const SLOTS: usize = 1024;

    fn new(cqs: &Arc<Table<Cq>>) -> Result<Arc<Self>> {
        let mut slots = KVec::with_capacity(Self::SLOTS, GFP_KERNEL)?;

        for _ in 0..Self::SLOTS {
            slots.push(Eq::<KWord, KVec<KWord>>::slot(), GFP_KERNEL)?;
        }
        let eq = Eq::new(slots).ok_or(EINVAL)?;

        Arc::pin_init(
            pin_init!(Self {
                eq,
                cqs: cqs.clone(),
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
        let _ = workqueue::system_bh().enqueue(self.clone());
    }

    fn dispatch(&self, event: Event) {
        let guard = rcu::read_lock();

        // An event of a queue that is no more is dropped.
        if let Some(cq) = self.cqs.get(&guard, event.cqn) {
            cq.handle_event(event.generation);
        }
    }

    /// Queues an event, and handles it unless that is done elsewhere.
    ///
    /// # Context
    ///
    /// Any but hard interrupts; bottom halves are off in [`Ctx::Softirq`].
    pub(crate) fn raise(self: &Arc<Self>, event: Event, ctx: Ctx) {
        match (self.eq.push(event, 0), ctx) {
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

/// The event queues of a completion vector.
#[pin_data]
pub(crate) struct Vector {
    #[pin]
    queues: Mutex<KVec<Place>>,
}

struct Place {
    eq: Arc<EventQueue>,
    users: usize,
}

impl Vector {
    /// Makes a vector without event queues.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { queues <- new_mutex!(KVec::new(), "Vector::queues") }),
            GFP_KERNEL,
        )
    }

    /// Finds room for the events of one more completion queue.
    pub(crate) fn attach(&self, cqs: &Arc<Table<Cq>>) -> Result<Arc<EventQueue>> {
        let mut queues = self.queues.lock();

        if let Some(place) = queues.iter_mut().find(|p| p.users < EventQueue::SLOTS) {
            place.users += 1;
            return Ok(place.eq.clone());
        }
        let eq = EventQueue::new(cqs)?;

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

    /// Waits until work items have ended. There are no completion queues any more.
    pub(crate) fn flush(&self) {
        for place in self.queues.lock().iter() {
            place.eq.work.flush();
        }
    }
}
