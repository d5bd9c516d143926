// SPDX-License-Identifier: GPL-2.0

//! Owner words, event queues and arming under all interleavings, as loom makes them.
//!
//! loom explores the executions that C11 allows for these few threads. A full order of the kernel
//! (a successful `cmpxchg()`) is a sequentially consistent fence before and after here.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    arm::{
        Arm,
        Notify, //
    },
    bell::{
        Answer,
        Bell, //
    },
    eq::{
        Eq,
        Event, //
    },
    owner::{
        Owner,
        Released, //
    },
    sync::Word, //
};
use loom::{
    cell::UnsafeCell,
    sync::{
        atomic::{
            fence,
            AtomicU32,
            Ordering, //
        },
        Arc, //
    },
    thread, //
};

struct Loom(AtomicU32);

impl Word for Loom {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn load_acquire(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn store(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn store_release(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }

    fn cmpxchg(&self, old: u32, new: u32) -> Result<(), u32> {
        fence(Ordering::SeqCst);
        let result = self
            .0
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        result.map(|_| ())
    }

    fn barrier() {
        fence(Ordering::SeqCst);
    }
}

/// Explores with up to `bound` preemptions per execution.
fn model_with(bound: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();

    builder.preemption_bound = Some(bound);
    builder.check(f);
}

/// Explores with up to three preemptions, which is where nearly all mistakes show.
fn model(f: impl Fn() + Sync + Send + 'static) {
    model_with(3, f);
}

/// Something that only one context may touch at a time; loom fails if two do.
///
/// For loom an access to a cell is part of the step before it, and it looks for other orders of two
/// steps only if they write to the same atomic. So that others may come right before the access, it
/// has a step of its own: a store that orders nothing.
struct Exclusive(UnsafeCell<u32>, Loom);

// The point of the tests is that the algorithms serialise the access.
#[expect(unsafe_code)]
// SAFETY: loom checks each access, and fails the test if two of them overlap.
unsafe impl Sync for Exclusive {}
#[expect(unsafe_code)]
// SAFETY: A number may be sent anywhere.
unsafe impl Send for Exclusive {}

impl Exclusive {
    fn new() -> Self {
        Self(UnsafeCell::new(0), Loom::new(0))
    }

    #[expect(unsafe_code)]
    fn add(&self, n: u32) -> u32 {
        self.1.store(0);
        self.0.with_mut(|p| {
            // SAFETY: loom has checked that nobody else accesses it.
            unsafe {
                *p += n;
                *p
            }
        })
    }
}

/// A half of a queue pair: work that others leave, and a count of what was done with it.
struct Half {
    owner: Owner<Loom>,
    backlog: Loom,
    done: Exclusive,
}

impl Half {
    fn drain(&self) -> u32 {
        let n = self.backlog.update(|_| Some(0)).unwrap();

        self.done.add(n)
    }

    fn submit(&self) {
        self.backlog.update(|n| Some(n + 1)).unwrap();
        if self.owner.own_or_pend() {
            loop {
                self.drain();
                if self.owner.release() != Released::Again {
                    break;
                }
            }
        }
    }
}

fn work_is_done(threads: usize) {
    model(move || {
        let half = Arc::new(Half {
            owner: Owner::new(),
            backlog: Loom::new(0),
            done: Exclusive::new(),
        });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let half = half.clone();
                thread::spawn(move || half.submit())
            })
            .collect();

        half.submit();
        for other in others {
            other.join().unwrap();
        }
        assert!(!half.owner.is_owned());
        assert_eq!(half.done.add(0), threads as u32);
    });
}

#[test]
fn owner_does_all_work_of_two() {
    work_is_done(2);
}

#[test]
fn owner_does_all_work_of_three() {
    work_is_done(3);
}

/// The same with work that has no order of its own: the owner word has to bring it.
#[test]
fn owner_sees_work_left_without_order() {
    type Left = (Owner<Loom>, [Loom; 2], Exclusive);

    fn submit(half: &Left, who: usize) {
        half.1[who].store(1);
        if half.0.own_or_pend() {
            loop {
                for work in &half.1 {
                    if work.load() != 0 {
                        work.store(0);
                        half.2.add(1);
                    }
                }
                if half.0.release() != Released::Again {
                    break;
                }
            }
        }
    }

    model(|| {
        let half: Arc<Left> =
            Arc::new((Owner::new(), [Loom::new(0), Loom::new(0)], Exclusive::new()));
        let other = {
            let half = half.clone();

            thread::spawn(move || submit(&half, 1))
        };

        submit(&half, 0);
        other.join().unwrap();
        assert_eq!(half.2.add(0), 2);
    });
}

/// A half that queue pairs of the same device give packets to. They are digits; those that wait are
/// the digits of a number, and so are those that were taken.
struct Target {
    owner: Owner<Loom>,
    waiting: Loom,
    taken: Exclusive,
}

impl Target {
    fn take(&self, packet: u32) {
        let before = self.taken.add(0);

        self.taken.add(before * 9 + packet);
    }

    fn queue(&self, packet: u32) {
        self.waiting.update(|old| Some(old * 10 + packet)).unwrap();
    }

    /// Gives it a packet at once if it has no owner and nothing waits; else the packet waits, and
    /// the half is run when that of the sender was left.
    fn give(&self, packet: u32) {
        let held = self.owner.try_own();
        let mut later = !held || self.waiting.load() != 0;

        if later {
            self.queue(packet);
        } else {
            self.take(packet);
        }
        while held && self.owner.release() == Released::Again {
            later = true;
        }
        if later {
            self.drive();
        }
    }

    /// Runs it, or makes its owner look again.
    fn drive(&self) {
        if self.owner.own_or_pend() {
            loop {
                let all = self.waiting.update(|_| Some(0)).unwrap();

                for digit in [100, 10, 1] {
                    if all / digit > 0 {
                        self.take(all / digit % 10);
                    }
                }
                if self.owner.release() != Released::Again {
                    break;
                }
            }
        }
    }
}

#[test]
fn direct_packets_are_taken_in_order() {
    model(|| {
        let target = Arc::new(Target {
            owner: Owner::new(),
            waiting: Loom::new(0),
            taken: Exclusive::new(),
        });
        let other = {
            let target = target.clone();

            // One comes by the network.
            thread::spawn(move || {
                target.queue(3);
                target.drive();
            })
        };

        target.give(1);
        target.give(2);
        other.join().unwrap();
        assert!(!target.owner.is_owned());
        assert_eq!(target.waiting.load(), 0);

        // All of them, and the two of a sender in their order.
        let all = [[3, 1, 2], [1, 3, 2], [1, 2, 3]];

        assert!(all
            .map(|[a, b, c]| a * 100 + b * 10 + c)
            .contains(&target.taken.add(0)));
    });
}

/// Two halves that send to each other: the owner of each takes what waits and sends what is posted.
#[test]
fn direct_packets_of_both_sides_cross() {
    fn run(own: &(Target, Loom), other: &(Target, Loom)) {
        let mut later = false;

        if !own.0.owner.own_or_pend() {
            return;
        }
        loop {
            let waiting = own.0.waiting.update(|_| Some(0)).unwrap();

            if waiting != 0 {
                own.0.take(waiting);
            }
            if own.1.update(|_| Some(0)).unwrap() != 0 {
                if other.0.owner.try_own() {
                    other.0.take(1);
                    while other.0.owner.release() == Released::Again {
                        later = true;
                    }
                } else {
                    other.0.queue(1);
                    later = true;
                }
            }
            if own.0.owner.release() != Released::Again {
                break;
            }
        }
        if later {
            run(other, own);
        }
    }

    fn post(sides: &[(Target, Loom); 2], side: usize) {
        sides[side].1.update(|_| Some(1)).unwrap();
        run(&sides[side], &sides[1 - side]);
    }

    model(|| {
        let sides = Arc::new([0, 1].map(|_| {
            let target = Target {
                owner: Owner::new(),
                waiting: Loom::new(0),
                taken: Exclusive::new(),
            };

            (target, Loom::new(0))
        }));
        let other = {
            let sides = sides.clone();

            thread::spawn(move || post(&sides, 1))
        };

        post(&sides, 0);
        other.join().unwrap();
        for (side, posted) in &*sides {
            assert!(!side.owner.is_owned());
            assert_eq!((posted.load(), side.waiting.load()), (0, 0));
            assert_eq!(side.taken.add(0), 1);
        }
    });
}

#[test]
fn sleeper_is_woken_or_owns() {
    model(|| {
        let half = Arc::new((Owner::<Loom>::new(), Exclusive::new(), Loom::new(0)));
        let other = {
            let half = half.clone();
            thread::spawn(move || {
                if half.0.try_own() {
                    half.1.add(1);
                    match half.0.release() {
                        Released::Wake => half.2.store_release(1),
                        released => assert_eq!(released, Released::Idle),
                    }
                }
            })
        };

        let mut slept = false;
        if half.0.own_or_wait() {
            half.1.add(1);
            assert_eq!(half.0.release(), Released::Idle);
        } else {
            slept = true;
        }
        other.join().unwrap();
        assert_eq!(half.2.load_acquire(), u32::from(slept));
        assert!(half.0.try_own());
    });
}

fn event_queue(slots: u32) -> Eq<Loom, Vec<Loom>> {
    Eq::new((0..slots).map(|_| Eq::<Loom, Vec<Loom>>::slot()).collect()).unwrap()
}

struct Device {
    eq: Eq<Loom, Vec<Loom>>,
    arm: Arm<Loom>,
    /// Index of the producer: how many completions there are.
    producer: Loom,
    /// Completions that were polled; the consumer's own.
    polled: Loom,
    /// What the handler touches.
    context: Exclusive,
    calls: Loom,
}

const EVENT: Event = Event {
    cqn: 1,
    generation: 0,
};

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            eq: event_queue(2),
            arm: Arm::new(),
            producer: Loom::new(0),
            polled: Loom::new(0),
            context: Exclusive::new(),
            calls: Loom::new(0),
        })
    }

    fn poll(&self) -> u32 {
        let n = self.producer.load_acquire();

        self.polled.update(|old| Some(old.max(n))).unwrap();
        n
    }

    /// The handler: polls, arms again, and polls once more as it must.
    fn handler(&self) {
        self.context.add(1);
        self.calls.update(|n| Some(n + 1)).unwrap();
        self.poll();
        self.arm.arm(Notify::Next);
        self.poll();
    }

    fn dispatch(&self) {
        let more = self.eq.run(u32::MAX, |event| {
            assert_eq!(event, EVENT);
            if self.arm.begin() {
                self.handler();
                self.arm.end();
            }
        });
        assert!(!more);
    }

    fn complete(&self, n: u32) {
        self.producer.store_release(n);
        if self.arm.fire(false) && self.eq.push(EVENT, 0).unwrap() {
            self.dispatch();
        }
    }
}

#[test]
fn no_completion_is_missed_by_arming() {
    model(|| {
        let dev = Device::new();
        let producer = {
            let dev = dev.clone();
            thread::spawn(move || {
                dev.complete(1);
                dev.complete(2);
            })
        };

        // A consumer that arms and then polls once.
        dev.arm.arm(Notify::Next);
        dev.poll();
        producer.join().unwrap();
        // Either it saw the last completion, or the handler did.
        assert_eq!(dev.polled.load(), 2);
    });
}

/// As many completion queues on one event queue as there are producers.
fn events_are_dispatched(producers: u32) {
    type Queue = (Eq<Loom, Vec<Loom>>, Exclusive);

    fn push(eq: &Queue, cqn: u32) {
        let event = Event { cqn, generation: 7 };

        if eq.0.push(event, 0).unwrap() {
            let more = eq.0.run(u32::MAX, |event| {
                assert_eq!(event.generation, 7);
                eq.1.add(1 << (4 * (event.cqn - 1)));
            });
            assert!(!more);
        }
    }

    // With three threads, three preemptions take minutes.
    model_with(if producers > 2 { 2 } else { 3 }, move || {
        let slots = producers.next_power_of_two();
        let eq: Arc<Queue> = Arc::new((event_queue(slots), Exclusive::new()));
        let others: Vec<_> = (2..=producers)
            .map(|cqn| {
                let eq = eq.clone();
                thread::spawn(move || push(&eq, cqn))
            })
            .collect();

        push(&eq, 1);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(eq.0.depth(), 0);
        assert_eq!(eq.1.add(0), 0x111 & ((1 << (4 * producers)) - 1));
    });
}

#[test]
fn events_of_two_are_dispatched_once_and_one_at_a_time() {
    events_are_dispatched(2);
}

/// Three of them: one that owns the queue, one that finds it owned, one that finds that known.
#[test]
fn events_of_three_are_dispatched_once_and_one_at_a_time() {
    events_are_dispatched(3);
}

/// Whoever gets an event sees what was done before it was queued, and does not have to be the one
/// who was told to look.
#[test]
fn event_brings_what_came_before() {
    type Queue = (Eq<Loom, Vec<Loom>>, [Loom; 2]);

    fn push(eq: &Queue, cqn: u32) {
        eq.1[cqn as usize - 1].store(1);
        if eq.0.push(Event { cqn, generation: 0 }, 0).unwrap() {
            let _ = eq.0.run(u32::MAX, |event| {
                assert_eq!(eq.1[event.cqn as usize - 1].load(), 1);
            });
        }
    }

    model(|| {
        let eq: Arc<Queue> = Arc::new((event_queue(2), [Loom::new(0), Loom::new(0)]));
        let other = {
            let eq = eq.clone();

            thread::spawn(move || push(&eq, 2))
        };

        push(&eq, 1);
        other.join().unwrap();
        assert_eq!(eq.0.depth(), 0);
    });
}

/// Two push events to an event queue with one slot, one of them so many times.
fn one_slot_loses_nothing(times: usize) {
    type Queue = (Eq<Loom, Vec<Loom>>, Exclusive);

    fn push(eq: &Queue) -> u32 {
        match eq.0.push(EVENT, 0) {
            Ok(owner) => {
                if owner {
                    let _ = eq.0.run(u32::MAX, |_| {
                        eq.1.add(1);
                    });
                }
                1
            }
            Err(_) => 0,
        }
    }

    model(move || {
        let eq: Arc<Queue> = Arc::new((event_queue(1), Exclusive::new()));
        let other = {
            let eq = eq.clone();

            thread::spawn(move || push(&eq))
        };
        let queued = (0..times).map(|_| push(&eq)).sum::<u32>() + other.join().unwrap();

        assert!(queued >= 1);
        assert_eq!(eq.1.add(0), queued);
        assert_eq!(eq.0.depth(), 0);
    });
}

#[test]
fn full_event_queue_says_so_and_loses_nothing() {
    one_slot_loses_nothing(1);
}

/// A slot that was used before is not taken for a free one while it has an event again.
#[test]
fn slot_is_used_again_and_loses_nothing() {
    one_slot_loses_nothing(2);
}

#[test]
fn handler_of_one_queue_does_not_overlap() {
    model(|| {
        let dev = Device::new();
        // A device that makes up an event while a real one is on its way.
        let hostile = {
            let dev = dev.clone();
            thread::spawn(move || {
                if let Ok(true) = dev.eq.push(EVENT, 1) {
                    dev.dispatch();
                }
            })
        };

        dev.arm.arm(Notify::Next);
        dev.complete(1);
        hostile.join().unwrap();
        assert!(dev.calls.load() >= 1);
        assert_eq!(dev.context.add(0), dev.calls.load());
        assert_eq!(dev.eq.depth(), 0);
    });
}

#[test]
fn nothing_is_called_after_destroy() {
    model(|| {
        let dev = Device::new();

        dev.arm.arm(Notify::Next);
        let other = {
            let dev = dev.clone();
            thread::spawn(move || {
                // Its handler does nothing that orders.
                if dev.arm.fire(false) && dev.arm.begin() {
                    dev.context.add(1);
                    dev.arm.end();
                }
            })
        };

        dev.arm.kill();
        if dev.arm.is_quiet() {
            // As if the memory were freed: the handler may not touch it any more.
            dev.context.add(100);
        }
        other.join().unwrap();
        assert!(dev.arm.is_quiet());
        assert!(!dev.arm.is_armed());
        // An event that comes late is dropped.
        assert!(!dev.arm.begin());
    });
}

/// That a queue looks armed is no reason to leave it at that: it may be an old look.
#[test]
fn arming_again_orders_as_well() {
    model(|| {
        let dev = Device::new();

        dev.arm.arm(Notify::Next);
        let producer = {
            let dev = dev.clone();

            thread::spawn(move || {
                for n in 1..=2 {
                    dev.producer.store_release(n);
                    // Whose handler only polls.
                    if dev.arm.fire(false) && dev.arm.begin() {
                        dev.poll();
                        dev.arm.end();
                        dev.calls.store(n);
                    }
                }
            })
        };

        // The first event is over, which does not say that all of it is seen.
        let again = dev.calls.load() == 1;

        if again {
            dev.arm.arm(Notify::Next);
            dev.poll();
        }
        producer.join().unwrap();
        assert!(!again || dev.polled.load() == 2);
    });
}

/// There is one event of a queue at a time, and its handler sees what made no other one.
#[test]
fn queued_event_stands_for_later_completions() {
    model(|| {
        let dev = Device::new();

        dev.arm.arm(Notify::Next);
        dev.producer.store_release(1);
        assert!(dev.arm.fire(false));
        // Its handler is not called yet, and the queue is armed again.
        dev.arm.arm(Notify::Next);
        let producer = {
            let dev = dev.clone();

            thread::spawn(move || {
                dev.producer.store(2);
                dev.arm.fire(false)
            })
        };

        assert!(dev.arm.begin());
        dev.poll();
        dev.arm.end();

        let another = producer.join().unwrap();

        assert!(another || dev.polled.load() == 2);
        assert!(!dev.arm.is_armed());
    });
}

#[test]
fn one_event_at_a_time() {
    model(|| {
        let dev = Device::new();

        dev.arm.arm(Notify::Next);
        assert!(dev.arm.fire(false));
        dev.arm.arm(Notify::Next);
        assert!(!dev.arm.fire(false));
        assert!(dev.arm.begin());
        dev.arm.end();
        // It took the arming with it.
        assert!(!dev.arm.fire(true));
    });
}

#[test]
fn solicited_arming() {
    model(|| {
        let dev = Device::new();

        dev.arm.arm(Notify::Solicited);
        assert!(!dev.arm.fire(false));
        let other = {
            let dev = dev.clone();
            // The stronger arming is not lost, whichever comes first.
            thread::spawn(move || dev.arm.arm(Notify::Next))
        };

        dev.arm.arm(Notify::Solicited);
        other.join().unwrap();
        assert!(dev.arm.fire(false));
        assert!(!dev.arm.fire(true));
    });
}

/// A send queue that is rung for: work requests that were posted, and those that the requester has
/// taken.
struct Rung {
    bell: Bell<Loom>,
    /// By each of the two who post. It is the doorbell that brings it to the requester.
    posted: [Loom; 2],
    taken: Loom,
    /// The timer is armed and has not gone off.
    armed: Loom,
}

impl Rung {
    /// Posts a work request and rings, as the queue pair does it.
    fn post(&self, who: usize) {
        self.posted[who].store(self.posted[who].load() + 1);
        match self.bell.ring(0) {
            Answer::Now => self.send(),
            Answer::Later => {}
            Answer::Arm => {
                let _ = self.armed.update(|_| Some(1));
            }
        }
    }

    /// The requester: takes what there is in the ring.
    fn send(&self) {
        self.bell.take();

        let posted = self.posted();
        let _ = self.taken.update(|n| Some(n.max(posted)));
    }

    fn posted(&self) -> u32 {
        self.posted.iter().map(Loom::load).sum()
    }

    /// The timer goes off, if it is armed.
    fn time_is_up(&self) {
        if self.armed.cmpxchg(1, 0).is_ok() {
            self.bell.time_is_up();
            self.send();
        }
    }
}

#[test]
fn no_doorbell_is_left_without_a_timer() {
    model(|| {
        let it = Arc::new(Rung {
            bell: Bell::new(),
            posted: [Loom::new(0), Loom::new(0)],
            taken: Loom::new(0),
            armed: Loom::new(0),
        });

        // Those that are answered at once.
        while it.taken.load() == it.posted() && it.armed.load() == 0 {
            it.post(0);
        }
        assert_eq!(it.armed.load(), 1);

        let other = {
            let it = it.clone();

            thread::spawn(move || it.post(1))
        };

        it.time_is_up();
        other.join().unwrap();
        // What was not sent has a timer that will see to it.
        assert!(it.taken.load() == it.posted() || it.armed.load() == 1);
        it.time_is_up();
        assert_eq!(it.taken.load(), it.posted());
    });
}

#[test]
fn batches_follow_the_user() {
    model(|| {
        let bell = Bell::<Loom>::new();
        // How many of so many doorbells in a row are answered at once.
        let row = |consumed, n| {
            (0..n)
                .filter(|_| bell.ring(consumed) == Answer::Now)
                .count()
        };

        // Whoever looks at completions in between is never made to wait.
        for consumed in 1..8 {
            assert_eq!(row(consumed, 1), 1);
        }
        // A row of ten: the timer goes off once.
        assert_eq!(row(21, 10), 4);
        assert!(bell.is_waiting());
        bell.time_is_up();
        assert!(!bell.is_waiting());
        assert_eq!(row(22, 10), 4 + 1);
        assert!(!bell.is_waiting());
        // It goes on: batches of 6, 6, 12 and so on.
        assert_eq!(row(23, 4 + 6 + 6 + 12), 4 + 3);
        assert!(!bell.is_waiting());
    });
}

#[test]
fn long_rows_are_sent_by_few_batches() {
    let mut builder = loom::model::Builder::new();

    builder.max_branches = 10_000;
    builder.check(|| {
        let bell = Bell::<Loom>::new();
        let row = |consumed, n| {
            (0..n)
                .filter(|_| bell.ring(consumed) == Answer::Now)
                .inspect(|_| _ = bell.take())
                .count()
        };

        // Four alone, and three batches of 32.
        assert_eq!((row(1, 100), bell.patience()), (7, 50_000));
        assert!(!bell.is_waiting());
        // One alone, and batches of 32 and 64, and 3 because the row was as long before.
        assert_eq!((row(2, 100), bell.patience()), (4, 200_000));
        assert!(!bell.is_waiting());
        assert_eq!(row(3, 100), 3);
        assert!(!bell.is_waiting());
        // A row that is shorter waits for the timer, and what comes then is as ever.
        assert_eq!(row(4, 10), 1);
        bell.time_is_up();
        assert_eq!((row(5, 4), bell.patience()), (4, 50_000));
    });
}
