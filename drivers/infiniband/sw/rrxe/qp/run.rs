// SPDX-License-Identifier: GPL-2.0

//! Who runs the halves of a queue pair, and when.
//!
//! A half runs where its work comes from: the requester in the system call or function that posts,
//! responder and completer in the softirq that received a packet. Whoever comes while a half has
//! an owner leaves the work to it. What is too much for one go, what comes from a context that
//! must not run a half, and events for the consumer are done by a work item in a softirq.
//!
//! Bottom halves are off while a half is owned, but for `ib_modify_qp()` and the like, so an owner
//! is never interrupted by who would have to wait for it.

use super::{
    direct::{
        Arrival,
        Body,
        Link,
        Peer, //
    },
    env::{
        Env,
        Memory, //
    },
    object::{
        Half,
        Qp,
        Requester,
        Responder,
        RxHalf,
        TxHalf, //
    },
    rings::{
        RecvRing,
        SendRing, //
    },
    state::QpState, //
};
pub(crate) use crate::event::Ctx;
use crate::{
    device::Device,
    env::{
        Events,
        Parked, //
    },
    fault::{
        Misses,
        Pager, //
    },
    mr::Mr,
    net::{
        Flow,
        RxPacket,
        Wake, //
    },
    opcode::Transport,
    packet::{
        self,
        Admission,
        DropReason,
        Ext, //
    },
    stats::Counter,
    sync::Word,
    table::Recent,
    wire::{
        aeth::{
            Nak,
            Syndrome, //
        },
        grh, //
    },
};
use kernel::{
    impl_has_work,
    net::skb::SkBuffList,
    rdma::driver::qp::QpEvent,
    sync::{
        bh,
        exclusive::Borrowed,
        rcu,
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        self,
        WorkItem, //
    },
};

/// Packets that one go may send.
const BUDGET: u32 = 64;

/// How often an owner looks again before it leaves the rest to the work item.
const ROUNDS: u32 = 16;

/// How often two queue pairs that talk directly take turns before the rest is left to the work
/// item.
const TURNS: u32 = 8;

/// The most packets that wait for a half. More are dropped, as on a network that is too slow.
const BACKLOG: u32 = 1024;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Todo(pub(super) u32);

impl Todo {
    /// Nothing.
    pub(super) const NONE: Self = Self(0);
    /// Run requester and completer.
    pub(super) const TX: Self = Self(1 << 0);
    /// Run the responder.
    pub(super) const RX: Self = Self(1 << 1);
    /// Run both.
    pub(super) const BOTH: Self = Self(Self::TX.0 | Self::RX.0);
    /// The send queue is drained.
    pub(super) const DRAINED: Self = Self(1 << 3);
    /// The other side accessed what it may not.
    pub(super) const ACCESS: Self = Self(1 << 4);
    /// The other side asked for nonsense.
    pub(super) const REQUEST: Self = Self(1 << 5);
    /// No more is taken from the shared receive queue.
    pub(super) const LAST_WQE: Self = Self(1 << 6);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Makes of what the other side is to do something that can be returned among other things.
    fn across(self) -> Self {
        Self((self.0 & Self::BOTH.0) << Self::ACROSS)
    }

    /// Takes that out again.
    fn of_peer(self) -> Self {
        Self(self.0 >> Self::ACROSS & Self::BOTH.0)
    }

    /// Where the halves of the other side are among the bits.
    const ACROSS: u32 = 16;
}

/// The work item that runs halves.
const RUN: u64 = 0;

impl_has_work! {
    impl HasWork<Self> for Qp { self.work }
}

impl WorkItem for Qp {
    type Pointer = Arc<Qp>;

    /// Runs in a softirq, with nothing of the consumer up the stack.
    fn run(this: Arc<Qp>) {
        let mut todo = Todo::NONE;

        let _ = this.todo.update(|old| {
            todo = Todo(old);
            Some(Todo::NONE.0)
        });
        Qp::drive(this.as_arc_borrow(), todo, Ctx::Softirq);
        for (bit, event) in [
            (Todo::DRAINED, QpEvent::SqDrained),
            (Todo::ACCESS, QpEvent::AccessErr),
            (Todo::REQUEST, QpEvent::ReqErr),
            (Todo::LAST_WQE, QpEvent::LastWqeReached),
        ] {
            if todo.has(bit) {
                this.handle().event(event);
            }
        }
    }
}

/// Of the two work items that wait for memory, that of requester and completer.
pub(super) const TX_FAULT: u64 = 1;

/// That of the responder.
pub(super) const RX_FAULT: u64 = 2;

impl_has_work! {
    impl HasWork<Self, TX_FAULT> for Qp { self.tx_fault }
    impl HasWork<Self, RX_FAULT> for Qp { self.rx_fault }
}

impl WorkItem<TX_FAULT> for Qp {
    type Pointer = Arc<Qp>;

    /// Runs in process context and may sleep.
    fn run(this: Arc<Qp>) {
        this.tx_pager.run(&this.dev, || {
            Qp::schedule(this.as_arc_borrow(), Todo::TX);
        });
    }
}

impl WorkItem<RX_FAULT> for Qp {
    type Pointer = Arc<Qp>;

    /// Runs in process context and may sleep.
    fn run(this: Arc<Qp>) {
        this.rx_pager.run(&this.dev, || {
            Qp::schedule(this.as_arc_borrow(), Todo::RX);
        });
    }
}

/// The memory for a go, and what became of that which was asked for, if any was.
fn memory<'a>(mrs: &'a Recent<'a, Mr>, pager: &Pager, paging: &mut bool) -> Memory<'a> {
    let mut failed = None;

    if *paging {
        let decided;

        (decided, failed) = pager.look();
        *paging = !decided;
    }

    Memory {
        mrs,
        misses: Misses::new(failed),
    }
}

/// Asks for memory that was missed in a go. Returns whether the work item is to be queued.
fn ask(pager: &Pager, paging: &mut bool, misses: &Misses) -> bool {
    let Some(fault) = misses.take() else {
        return false;
    };

    *paging = true;
    pager.request(fault)
}

impl Wake for Qp {
    /// There is room for more packets.
    fn wake(self: Arc<Self>) {
        Qp::schedule(self.as_arc_borrow(), Todo::BOTH);
    }
}

impl Qp {
    /// Has something done soon, in a softirq.
    ///
    /// # Context
    ///
    /// Any.
    pub(super) fn schedule(this: ArcBorrow<'_, Qp>, todo: Todo) {
        let _ = this.todo.update(|old| Some(old | todo.0));
        // If it is queued already, it will look at the bits after this.
        let _ = workqueue::system_bh().enqueue::<_, RUN>(Arc::from(this));
    }

    /// Does something now if this context allows it, or soon. For those who are called by the
    /// consumer: its handlers are not called from here.
    ///
    /// # Context
    ///
    /// Any.
    pub(super) fn kick(this: ArcBorrow<'_, Qp>, todo: Todo) {
        match bh::disable() {
            Some(_bh) => Self::drive(this, todo, Ctx::Method),
            None => Self::schedule(this, todo),
        }
    }

    /// Runs halves until there is nothing to do for them, and for those of queue pairs of the same
    /// device that they talk to. The latter run when the former were left, in turns.
    ///
    /// # Context
    ///
    /// Bottom halves are off.
    pub(super) fn drive(this: ArcBorrow<'_, Qp>, todo: Todo, ctx: Ctx) {
        let mut todo = Self::drive_one(this, todo, ctx);

        if todo == Todo::NONE {
            return;
        }

        let guard = rcu::read_lock();
        let dev = this.device();
        let mut qpn = Word::load(&this.dest_qpn);

        for turn in 0..=TURNS {
            let Some(qp) = dev.qps.get(&guard, qpn) else {
                return;
            };

            if turn == TURNS {
                Self::schedule(qp, todo);
                return;
            }
            todo = Self::drive_one(qp, todo, ctx);
            if todo == Todo::NONE {
                return;
            }
            qpn = Word::load(&qp.dest_qpn);
        }
    }

    /// Runs halves until there is nothing to do for them. Returns what the other side is to do.
    fn drive_one(this: ArcBorrow<'_, Qp>, mut todo: Todo, ctx: Ctx) -> Todo {
        // A half makes the other one run at most when the queue pair enters the error state, and
        // that happens once.
        while todo.has(Todo::BOTH) {
            if todo.has(Todo::TX) {
                todo = todo.without(Todo::TX);
                if let Some(tx) = this.tx.own_or_pend() {
                    todo = todo.and(Self::drive_tx(this, tx, &mut None, ctx));
                }
            }
            if todo.has(Todo::RX) {
                todo = todo.without(Todo::RX);
                if let Some(rx) = this.rx.own_or_pend() {
                    todo = todo.and(Self::drive_rx(this, rx, &mut None, ctx));
                }
            }
        }
        todo.of_peer()
    }

    /// Finds the other side of a connection.
    fn peer<'g>(&'g self, guard: &'g rcu::Guard, flow: Option<&Arc<Flow>>) -> Peer<'g> {
        match flow {
            Some(flow) => Peer::find(self, guard, flow, Word::load(&self.dest_qpn)),
            None => Peer::Remote,
        }
    }

    /// Runs requester and completer, with a packet that has just come, and leaves them.
    fn drive_tx(
        this: ArcBorrow<'_, Qp>,
        tx: Borrowed<'_, TxHalf>,
        pkt: &mut Option<RxPacket>,
        ctx: Ctx,
    ) -> Todo {
        Self::drive_half(this, &this.tx, tx, Todo::TX, |tx| {
            Self::run_tx(this, tx, pkt, ctx)
        })
    }

    /// Runs the responder, with a packet that has just come, and leaves it.
    fn drive_rx(
        this: ArcBorrow<'_, Qp>,
        rx: Borrowed<'_, RxHalf>,
        pkt: &mut Option<RxPacket>,
        ctx: Ctx,
    ) -> Todo {
        Self::drive_half(this, &this.rx, rx, Todo::RX, |rx| {
            Self::run_rx(this, rx, pkt, ctx)
        })
    }

    /// Runs a half as long as there is work for it, and leaves it. What is too much for one go is
    /// left to the work item, as `same`.
    #[inline]
    fn drive_half<'a, T>(
        this: ArcBorrow<'_, Qp>,
        half: &'a Half<T>,
        owned: Borrowed<'a, T>,
        same: Todo,
        mut run: impl FnMut(&mut T) -> Todo,
    ) -> Todo {
        let mut todo = Todo::NONE;
        let mut rounds = ROUNDS;
        let mut owned = Some(owned);

        while let Some(mut data) = owned {
            todo = todo.and(run(&mut data));
            rounds -= 1;
            if rounds == 0 {
                if half.leave(data) {
                    Self::schedule(this, same);
                }
                break;
            }
            owned = half.release(data);
        }
        todo
    }

    /// Takes what events ask for. Returns what is to be done after the half was left.
    fn note(this: ArcBorrow<'_, Qp>, ev: &Events, same: Todo) -> Todo {
        let mut later = Todo::NONE;
        let mut todo = Todo::NONE;

        if ev.error && this.fail() {
            todo = Todo::BOTH;
        }
        if ev.more {
            later = later.and(same);
        }
        if ev.drained {
            later = later.and(Todo::DRAINED);
        }
        if ev.access {
            later = later.and(Todo::ACCESS);
        }
        if ev.request {
            later = later.and(Todo::REQUEST);
        }
        if later != Todo::NONE {
            Self::schedule(this, later);
        }
        todo
    }

    /// What is let in, but for addresses and queue key.
    fn admission(&self, state: QpState) -> Admission {
        Admission {
            transport: self.transport,
            responds: state.receives(),
            requests: state.sends(),
            address: true,
            pkey: 0xffff,
            qkey: 0,
        }
    }

    /// One go of requester and completer.
    fn run_tx(
        this: ArcBorrow<'_, Qp>,
        tx: &mut TxHalf,
        pkt: &mut Option<RxPacket>,
        ctx: Ctx,
    ) -> Todo {
        let state = this.state();

        if this.bell.is_waiting() {
            this.bell.take();
        }
        if state == QpState::Error && tx.engine.state != QpState::Error {
            tx.engine.set_state(QpState::Error);
        }

        let TxHalf {
            engine,
            ring,
            flow,
            timer,
            parked,
            paging,
        } = &mut *tx;
        let guard = rcu::read_lock();
        let peer = this.peer(&guard, flow.as_ref());
        let (mrs, theirs) = (this.dev.mrs.recent(&guard), this.dev.mrs.recent(&guard));
        let link = Link::new(&peer, Todo::RX, &theirs);
        let memory = memory(&mrs, &this.tx_pager, paging);
        let cq = &this.send_cq;
        let mut env = Env::new(&this, ring, flow.as_ref(), cq, ctx, memory, link);

        if this.expired.load_acquire() != 0 {
            // In this order: once it is disarmed, nobody sets the word until it is armed again.
            *timer = None;
            Word::store(&this.expired, 0);

            let retrying = engine.retrying;

            engine.timeout(&env, parked.is_some() || this.responses.len() != 0);
            this.count_retry(engine, retrying);
        }
        keep_order(pkt, &this.responses, parked.is_some());
        loop {
            if pkt.is_none() {
                *pkt = parked.take().or_else(|| next(&this.responses));
            }

            let Some(it) = pkt else {
                break;
            };
            let arrival = it.arrival();

            if Self::take_response(this, &mut env, engine, &arrival).is_err() {
                *parked = pkt.take();
                break;
            }
            Self::follow(&this.dev, pkt);
        }

        let ev = engine.run(&mut env, BUDGET);
        let across = env.finish().across();

        if ask(&this.tx_pager, paging, &env.memory.misses) {
            let _ = this.dev.faults().enqueue::<_, TX_FAULT>(Arc::from(this));
        }
        drop(env);

        let todo = Self::note(this, &ev, Todo::TX);

        Self::arm(this, tx);
        todo.and(across)
    }

    /// Takes a response, if it is let in; one that is not is dropped.
    ///
    /// # Errors
    ///
    /// If it has to be kept and given again.
    pub(super) fn take_response(
        this: ArcBorrow<'_, Qp>,
        env: &mut Env<'_, SendRing>,
        engine: &mut Requester,
        it: &Arrival<'_>,
    ) -> Result<(), Parked> {
        let admission = Admission {
            address: env
                .flow
                .is_some_and(|f| it.src == f.peer() && it.dst == f.local()),
            ..this.admission(this.state())
        };

        match admission.admit(it.hdr) {
            Ok(()) => {
                let retrying = engine.retrying;

                this.count_response(it.hdr);
                engine.receive(env, it.hdr, it.body)?;
                this.count_retry(engine, retrying);
                Ok(())
            }
            Err(reason) => {
                this.dev.drops.inc(reason);
                Ok(())
            }
        }
    }

    /// Takes a request, if it is let in; one that is not is dropped. Returns what is to be done
    /// because of it, when the half was left.
    ///
    /// # Errors
    ///
    /// If it has to be kept and given again.
    pub(super) fn take_request(
        this: ArcBorrow<'_, Qp>,
        env: &mut Env<'_, RecvRing>,
        engine: &mut Responder,
        qkey: u32,
        it: &Arrival<'_>,
    ) -> Result<Todo, Parked> {
        let admission = Admission {
            address: env
                .flow
                .is_none_or(|f| it.src == f.peer() && it.dst == f.local()),
            qkey,
            ..this.admission(this.state())
        };

        if let Err(reason) = admission.admit(it.hdr) {
            this.dev.drops.inc(reason);
            return Ok(Todo::NONE);
        }

        let grh = it.grh.as_ref().unwrap_or(&[0; grh::LEN]);
        let received = engine.receive(env, it.hdr, it.body, grh)?;
        let stats = &this.dev.stats;

        if received.duplicate {
            stats.inc(Counter::DuplicateRequest);
        }
        if received.out_of_sequence {
            stats.inc(Counter::OutOfSeqRequest);
        }
        if received.not_ready {
            stats.inc(Counter::SendRnrErr);
        }
        if received.dropped {
            this.dev.drops.inc(DropReason::Refused);
        }
        Ok(Self::note(this, &received.events, Todo::RX))
    }

    /// One go of the responder.
    fn run_rx(
        this: ArcBorrow<'_, Qp>,
        rx: &mut RxHalf,
        pkt: &mut Option<RxPacket>,
        ctx: Ctx,
    ) -> Todo {
        let mut todo = Todo::NONE;
        let RxHalf {
            engine,
            ring,
            flow,
            qkey,
            parked,
            paging,
            last_told,
            ..
        } = rx;
        let guard = rcu::read_lock();
        let peer = this.peer(&guard, flow.as_ref());
        let (mrs, theirs) = (this.dev.mrs.recent(&guard), this.dev.mrs.recent(&guard));
        let link = Link::new(&peer, Todo::TX, &theirs);
        let memory = memory(&mrs, &this.rx_pager, paging);
        let cq = &this.recv_cq;
        let mut env = Env::new(&this, ring, flow.as_ref(), cq, ctx, memory, link);
        let mut waits = false;

        keep_order(pkt, &this.requests, parked.is_some());
        loop {
            loop {
                if pkt.is_none() {
                    *pkt = parked.take().or_else(|| next(&this.requests));
                }

                let Some(it) = pkt else {
                    break;
                };
                let taken = Self::take_request(this, &mut env, engine, *qkey, &it.arrival());

                match taken {
                    Ok(more) => {
                        todo = todo.and(more);
                        Self::follow(&this.dev, pkt);
                    }
                    Err(why) => {
                        waits = why == Parked::Memory;
                        *parked = pkt.take();
                        break;
                    }
                }
            }

            let ev = engine.pump(&mut env, BUDGET);

            todo = todo.and(env.finish().across());
            todo = todo.and(Self::note(this, &ev, Todo::RX));
            // What had to wait for replies does not any more, if all were sent.
            if parked.is_none() || waits || engine.has_replies() {
                break;
            }
        }
        if ask(&this.rx_pager, paging, &env.memory.misses) {
            let _ = this.dev.faults().enqueue::<_, RX_FAULT>(Arc::from(this));
        }
        if this.state() == QpState::Error {
            let ev = engine.flush(&mut env);

            todo = todo.and(Self::note(this, &ev, Todo::RX));
            // This half has done it; the other one has not.
            todo = todo.without(Todo::RX);
            if this.shared && !core::mem::replace(last_told, true) {
                Self::schedule(this, Todo::LAST_WQE);
            }
        } else {
            *last_told = false;
        }
        todo
    }

    /// Goes on to the packet behind this one.
    fn follow(dev: &Device, pkt: &mut Option<RxPacket>) {
        match pkt.as_mut().map(RxPacket::advance) {
            Some(Ok(true)) => return,
            Some(Ok(false)) | None => (),
            // What is behind that has no better chance.
            Some(Err(reason)) => dev.drops.inc(reason),
        }
        *pkt = None;
    }

    /// Takes a packet that is for this queue pair.
    fn receive(this: ArcBorrow<'_, Qp>, pkt: RxPacket) {
        let ctx = Ctx::Softirq;
        let qp = &*this;

        if pkt.hdr.op.kind.is_request() {
            let todo = match qp.rx.try_own() {
                Some(rx) => Self::drive_rx(this, rx, &mut Some(pkt), ctx),
                None => {
                    qp.keep(Todo::RX, pkt);
                    Todo::RX
                }
            };

            Self::drive(this, todo, ctx);
        } else {
            let todo = match qp.tx.try_own() {
                Some(tx) => Self::drive_tx(this, tx, &mut Some(pkt), ctx),
                None => {
                    qp.keep(Todo::TX, pkt);
                    Todo::TX
                }
            };

            Self::drive(this, todo, ctx);
        }
    }

    /// Counts a response that says that something is wrong.
    fn count_response(&self, pkt: &packet::RxPacket) {
        let Ext::Aeth(aeth) = pkt.ext else {
            return;
        };

        match Syndrome::parse(aeth.syndrome) {
            Some(Syndrome::Rnr(_)) => self.dev.stats.inc(Counter::RcvdRnrErr),
            Some(Syndrome::Nak(Nak::PsnSequence)) => self.dev.stats.inc(Counter::RcvdSeqErr),
            _ => {}
        }
    }

    /// Counts it if the requester has begun to send again, which it did not do before.
    fn count_retry(&self, engine: &Requester, before: bool) {
        if engine.retrying && !before {
            self.dev.stats.inc(Counter::CompleterRetry);
        }
    }

    /// Keeps a packet for the owner of a half.
    pub(super) fn keep(&self, half: Todo, pkt: RxPacket) {
        let packets = if half == Todo::RX {
            &self.requests
        } else {
            &self.responses
        };

        if packets.len() >= BACKLOG {
            self.dev.drops.inc(DropReason::State);
        } else {
            packets.push_back(pkt.into_skb());
        }
    }
}

impl RxPacket {
    /// The packet as the halves see it.
    fn arrival(&self) -> Arrival<'_> {
        Arrival {
            hdr: &self.hdr,
            src: self.src(),
            dst: self.dst(),
            body: Body::Bytes(self.payload()),
            grh: match self.hdr.op.transport {
                Transport::Ud => Some(self.grh()),
                _ => None,
            },
        }
    }
}

/// Makes the packet that has just come to the owner of a half wait in its place if something came
/// before it.
fn keep_order(pkt: &mut Option<RxPacket>, packets: &SkBuffList, parked: bool) {
    if parked || packets.len() != 0 {
        if let Some(pkt) = pkt.take() {
            packets.push_back(pkt.into_skb());
        }
    }
}

/// Takes the next packet that waits for a half.
fn next(packets: &SkBuffList) -> Option<RxPacket> {
    loop {
        // It was one before, so this does not fail.
        if let Some(pkt) = RxPacket::from_skb(packets.pop_front()?) {
            return Some(pkt);
        }
    }
}

/// Gives a packet to the queue pair that it is for. It was checked in all that does not depend on
/// the queue pair.
///
/// # Context
///
/// Softirq, bottom halves off.
pub(crate) fn deliver(dev: &Device, qpn: u32, pkt: RxPacket) {
    let guard = rcu::read_lock();

    match dev.qps.get(&guard, qpn) {
        Some(qp) => Qp::receive(qp, pkt),
        None => dev.drops.inc(DropReason::NoQp),
    }
}
