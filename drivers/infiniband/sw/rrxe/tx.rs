// SPDX-License-Identifier: GPL-2.0

//! The requester (IBA vol. 1, 9.7.3, 9.8.2 and 9.8.3), and what it shares with the completer.
//!
//! One owner at a time has both: [`Tx::run`] sends, [`Tx::receive`](crate::comp) takes responses,
//! [`Tx::timeout`] takes care of what does not come. The queue pair's state is given by
//! [`Tx::set_state`], by whoever modifies it and owns this half.
//!
//! Three positions in the sequence of packets tell where it is:
//!
//! ```text
//!     una               cursor             snd_max             next
//!      |--- on its way ---|--- to be sent ---|--- never sent ----|
//!                              again
//! ```
//!
//! `una` is the first PSN that is not acknowledged, `snd_max` the first that was never sent, `next`
//! the first of the next work request. The cursor is an entry of the table and a packet in it. To
//! send again means to put the cursor back to `una`.

use crate::{
    env::{
        Dest,
        Events,
        MemError,
        Payload,
        SendError,
        SendQueue,
        TxEnv,
        TxPacket, //
    },
    inflight::{
        Entry,
        InFlight,
        Phase, //
    },
    opcode::{
        self,
        Kind,
        Position,
        Transport, //
    },
    packet::{
        Ext,
        Tail,
        TxHeaders, //
    },
    psn::Psn,
    qp::state::QpState,
    wc::{
        Sender,
        Status,
        Wc, //
    },
    wire::{
        atomic::AtomicEth,
        bth::Bth,
        deth::Deth,
        pad,
        reth::Reth, //
    },
    wqe::{
        Data,
        SendFlags,
        Work, //
    },
};
use core::ops::DerefMut;

/// The most packets on their way.
pub(crate) const WINDOW: u32 = 128;

/// An acknowledgment is asked for at least every so many packets.
const ACK_EVERY: u32 = 32;

/// How many messages of the same kind are likely to follow if one does.
const LIKELY: u32 = 31;

/// How many work requests are flushed in one run.
const FLUSH_BUDGET: u32 = 1024;

/// A retry count that means for ever.
pub(crate) const RETRY_FOREVER: u8 = 7;

/// Attributes of the queue pair, as far as sending needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxConfig {
    /// Transport service.
    pub(crate) transport: Transport,
    /// This is the general services interface.
    pub(crate) gsi: bool,
    /// This queue pair.
    pub(crate) qpn: u32,
    /// The other one, if connected.
    pub(crate) dest_qpn: u32,
    /// Partition key.
    pub(crate) pkey: u16,
    /// Queue key.
    pub(crate) qkey: u32,
    /// Path MTU.
    pub(crate) mtu: u32,
    /// READs and atomics that may be outstanding.
    pub(crate) max_rd_atomic: u32,
    /// How often to try again without an answer.
    pub(crate) retry_cnt: u8,
    /// How often to try again without a receive buffer.
    pub(crate) rnr_retry: u8,
    /// How long to wait for an answer, in nanoseconds.
    pub(crate) timeout: Option<u64>,
    /// All work requests make completions.
    pub(crate) signal_all: bool,
    /// Ask for fewer acknowledgments than one per message.
    pub(crate) thin_acks: bool,
}

/// Requester and completer.
#[derive(Debug)]
pub(crate) struct Tx<V, A> {
    pub(crate) cfg: TxConfig,
    pub(crate) q: InFlight<V, A>,
    pub(crate) state: QpState,
    /// First PSN of the next work request.
    pub(crate) next: Psn,
    /// First PSN that is not acknowledged.
    pub(crate) una: Psn,
    /// First PSN that was never sent.
    pub(crate) snd_max: Psn,
    /// Cursor: the entry that is sent.
    cur: u32,
    /// Cursor: the packet of it that is sent next.
    cur_pkt: u32,
    /// Responder's resources that are taken.
    resources: u32,
    /// Packets since an acknowledgment was asked for.
    since_ack: u32,
    /// Retries that are left.
    pub(crate) retry_left: u8,
    /// Retries for want of a receive buffer that are left.
    pub(crate) rnr_left: u8,
    /// Sending was begun again and nothing has come since.
    pub(crate) retrying: bool,
    /// When to give up waiting for an answer.
    pub(crate) deadline: Option<u64>,
    /// Do not send before.
    pub(crate) rnr_until: Option<u64>,
    /// The last packet was not sent, because its payload is not there yet.
    payload_waits: bool,
    /// It was reported that the queue is drained.
    drained: bool,
    /// A completion was lost; there will be no more of them.
    overflowed: bool,
}

/// What is next.
enum Step {
    /// Nothing now.
    Blocked,
    /// Do what needs no packet.
    Local,
    /// Send a packet.
    Send,
}

impl<K, V, A> Tx<V, A>
where
    K: Copy,
    V: DerefMut<Target = [Option<Entry<K>>]>,
    A: DerefMut<Target = [u8]>,
{
    /// Makes a requester that is in reset.
    pub(crate) fn new(cfg: TxConfig, q: InFlight<V, A>) -> Self {
        Self {
            cfg,
            q,
            state: QpState::Reset,
            next: Psn::default(),
            una: Psn::default(),
            snd_max: Psn::default(),
            cur: 0,
            cur_pkt: 0,
            resources: 0,
            since_ack: 0,
            retry_left: cfg.retry_cnt,
            rnr_left: cfg.rnr_retry,
            retrying: false,
            deadline: None,
            rnr_until: None,
            payload_waits: false,
            drained: false,
            overflowed: false,
        }
    }

    /// Starts, on the way to RTS: PSNs begin with `psn`.
    pub(crate) fn start(&mut self, cfg: TxConfig, psn: Psn) {
        self.reset();
        self.cfg = cfg;
        self.next = psn;
        self.una = psn;
        self.snd_max = psn;
        self.retry_left = cfg.retry_cnt;
        self.rnr_left = cfg.rnr_retry;
    }

    /// Changes attributes that may change while the queue pair works; the path MTU is none of them.
    pub(crate) fn configure(&mut self, cfg: TxConfig) {
        self.cfg = TxConfig {
            mtu: self.cfg.mtu,
            ..cfg
        };
        self.retry_left = self.retry_left.min(cfg.retry_cnt);
        self.rnr_left = self.rnr_left.min(cfg.rnr_retry);
    }

    /// Forgets everything that is in flight.
    pub(crate) fn reset(&mut self) {
        self.q.clear();
        self.cur = self.q.head();
        self.cur_pkt = 0;
        self.resources = 0;
        self.since_ack = 0;
        self.retrying = false;
        self.deadline = None;
        self.rnr_until = None;
        self.una = self.next;
        self.snd_max = self.next;
        self.payload_waits = false;
        self.drained = false;
        self.overflowed = false;
    }

    /// Enters a state. Call [`Self::run`] afterwards.
    pub(crate) fn set_state(&mut self, state: QpState) {
        self.state = state;
        self.drained = false;
        if state == QpState::Reset {
            self.reset();
        }
    }

    /// Returns when [`Self::timeout`] is to be called.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        if !self.state.sends() {
            return None;
        }
        // While it waits for receive buffers there is nothing to be answered.
        self.rnr_until.or(self.deadline)
    }

    /// Sends what can be sent and completes what is done, for at most `budget` packets.
    pub(crate) fn run<E: TxEnv<Kernel = K>>(&mut self, env: &mut E, budget: u32) -> Events {
        let mut ev = Events::default();
        let mut left = budget;

        self.payload_waits = false;
        while self.state.sends() {
            if !self.retire(env, &mut ev) {
                break;
            }
            match self.step(env) {
                // What was fetched may have failed before it began.
                Step::Blocked if self.head_is_over() => {}
                Step::Blocked => {
                    self.check_drained(&mut ev);
                    return ev;
                }
                _ if left == 0 => {
                    ev.more = true;
                    return ev;
                }
                Step::Local => {
                    left -= 1;
                    self.run_local(env);
                }
                Step::Send => match self.send(env, left) {
                    Some(sent) => left -= sent.min(left),
                    None => return ev,
                },
            }
        }
        if self.state == QpState::Error {
            self.flush(env, &mut ev);
        }
        ev
    }

    /// Tells whether the first work request is to be completed.
    fn head_is_over(&self) -> bool {
        self.q
            .get(self.q.head())
            .is_some_and(|e| e.phase != Phase::Open)
    }

    fn check_drained(&mut self, ev: &mut Events) {
        if self.state == QpState::Sqd && self.q.is_empty() && !self.drained {
            self.drained = true;
            ev.drained = true;
        }
    }

    /// Completes what is done, in order. Returns false if that was the end.
    fn retire<E: TxEnv<Kernel = K>>(&mut self, env: &mut E, ev: &mut Events) -> bool {
        loop {
            let Some(entry) = self.q.get(self.q.head()) else {
                return true;
            };
            let status = match entry.phase {
                Phase::Open => return true,
                Phase::Done => Status::Success,
                Phase::Failed(status) => status,
            };
            let holds = entry.holds_resource();
            let wc = self.completion(entry, status);

            if self.cur == self.q.head() {
                self.cur = self.cur.wrapping_add(1);
                self.cur_pkt = 0;
            }
            self.q.drop_first();
            if holds {
                self.resources = self.resources.saturating_sub(1);
            }
            if !self.complete(env, wc, ev) || status != Status::Success {
                self.state = QpState::Error;
                ev.error = true;
                return false;
            }
        }
    }

    /// The completion of a work request, if there is to be one.
    fn completion(&self, entry: &Entry<K>, status: Status) -> Option<Wc> {
        let wqe = &entry.wqe;

        if status == Status::Success && !self.cfg.signal_all && !wqe.flags.has(SendFlags::SIGNALED)
        {
            return None;
        }
        Some(Wc {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.work.wc_opcode(),
            byte_len: match wqe.work {
                Work::CompareSwap { .. } | Work::FetchAdd { .. } => 8,
                _ => wqe.data.len(),
            },
            tail: Tail::None,
            qpn: self.cfg.qpn,
            from: Sender::NONE,
            solicited: false,
        })
    }

    /// Makes a completion. Returns false if there is no room for it.
    fn complete<E: TxEnv<Kernel = K>>(
        &mut self,
        env: &mut E,
        wc: Option<Wc>,
        ev: &mut Events,
    ) -> bool {
        if wc.is_none_or(|wc| env.complete(&wc).is_ok()) {
            return true;
        }
        self.overflowed = true;
        ev.overflow = true;
        false
    }

    /// Completes everything with an error, in order.
    fn flush<E: TxEnv<Kernel = K>>(&mut self, env: &mut E, ev: &mut Events) {
        self.deadline = None;
        self.rnr_until = None;
        // Once the completion queue was full, the rest is lost; that was reported.
        while !self.overflowed {
            let Some(entry) = self.q.get(self.q.head()) else {
                break;
            };
            let wc = self.completion(entry, Status::WrFlush);

            self.q.drop_first();
            self.complete(env, wc, ev);
        }
        if self.overflowed {
            return;
        }
        self.reset();
        for _ in 0..FLUSH_BUDGET {
            let scratch = self.q.tail();
            let entry = match env.fetch_send(self.q.area_mut(scratch)) {
                None => return,
                Some(Ok(wqe)) => Entry {
                    wqe,
                    ..Entry::failed(wqe.wr_id, Status::WrFlush, self.next)
                },
                Some(Err(bad)) => Entry::failed(bad.wr_id, Status::WrFlush, self.next),
            };
            let wc = self.completion(&entry, Status::WrFlush);

            if !self.complete(env, wc, ev) {
                return;
            }
        }
        ev.more = true;
    }

    /// Takes the next work request into the table.
    fn fetch<E: TxEnv<Kernel = K>>(&mut self, env: &mut E) -> bool {
        if !self.state.begins() || self.q.is_full() {
            return false;
        }

        let index = self.q.tail();
        let entry = match env.fetch_send(self.q.area_mut(index)) {
            None => return false,
            Some(Ok(wqe)) => {
                let npsn = match wqe.work {
                    Work::Send(_) | Work::Write { .. } | Work::Read { .. } => {
                        wqe.data.len().div_ceil(self.cfg.mtu.max(1)).max(1)
                    }
                    ref work if work.is_local() => 0,
                    _ => 1,
                };
                let mut entry = Entry {
                    wqe,
                    first: self.next,
                    npsn,
                    phase: Phase::Open,
                    issued: false,
                };

                if wqe.work.takes_resource() && self.cfg.max_rd_atomic == 0 {
                    // It could never be sent.
                    entry = Entry::failed(wqe.wr_id, Status::LocQpOp, self.next);
                }
                entry
            }
            Some(Err(bad)) => Entry::failed(bad.wr_id, bad.status, self.next),
        };

        self.next = self.next.add(entry.npsn);
        self.q.push(entry);
        true
    }

    /// Finds out what is next, and fetches work requests for it.
    fn step<E: TxEnv<Kernel = K>>(&mut self, env: &mut E) -> Step {
        if let Some(until) = self.rnr_until {
            if env.now() < until {
                return Step::Blocked;
            }
            self.rnr_until = None;
        }

        loop {
            let Some(entry) = self.q.get(self.cur) else {
                if self.fetch(env) {
                    continue;
                }
                return Step::Blocked;
            };

            match entry.phase {
                Phase::Failed(_) => return Step::Blocked,
                Phase::Done => {
                    self.cur = self.cur.wrapping_add(1);
                    self.cur_pkt = 0;
                    continue;
                }
                Phase::Open => {}
            }
            if entry.wqe.work.is_local() {
                let wait = match entry.wqe.work {
                    // A key is made invalid only after all that may use it.
                    Work::LocalInv(_) => self.cur != self.q.head(),
                    _ => entry.wqe.flags.has(SendFlags::FENCE) && self.resources > 0,
                };

                return if wait { Step::Blocked } else { Step::Local };
            }
            return if self.may_send(entry, entry.first.add(self.cur_pkt), self.resources) {
                Step::Send
            } else {
                Step::Blocked
            };
        }
    }

    /// Tells whether the packet with this PSN of an entry may be sent now.
    fn may_send(&self, entry: &Entry<K>, psn: Psn, resources: u32) -> bool {
        if self.cfg.transport != Transport::Rc {
            return true;
        }
        if psn.since(self.una) >= WINDOW {
            return false;
        }
        if entry.issued {
            return true;
        }
        (!entry.wqe.flags.has(SendFlags::FENCE) || resources == 0)
            && (!entry.wqe.work.takes_resource() || resources < self.cfg.max_rd_atomic)
    }

    fn run_local<E: SendQueue<Kernel = K>>(&mut self, env: &mut E) {
        if let Some(entry) = self.q.get_mut(self.cur) {
            entry.phase = match env.local(&entry.wqe.work) {
                Ok(()) => Phase::Done,
                Err(status) => Phase::Failed(status),
            };
        }
    }

    /// Marks the work request at the cursor.
    fn mark(&mut self, phase: Phase) {
        if let Some(entry) = self.q.get_mut(self.cur) {
            entry.phase = phase;
        }
    }

    /// Tells whether a packet is sure to be sent after the one with `psn` that ends the message at
    /// the cursor; only then may the latter do without an acknowledgment.
    fn another_follows<E: TxEnv<Kernel = K>>(&mut self, env: &mut E, psn: Psn) -> bool {
        let index = self.cur.wrapping_add(1);

        if self.q.get(index).is_none() && !self.fetch(env) {
            return false;
        }

        let holds = self
            .q
            .get(self.cur)
            .is_some_and(|e| !e.issued && e.wqe.work.takes_resource());

        self.q.get(index).is_some_and(|e| {
            e.phase == Phase::Open
                && !e.wqe.work.is_local()
                && self.may_send(e, psn.next(), self.resources + u32::from(holds))
        })
    }

    /// How many packets from the one at the cursor on, which has this PSN, are sent as one; not
    /// more than `most`.
    ///
    /// What is sent a second time goes packet by packet: the other side may have a part of it.
    fn span<E: TxEnv<Kernel = K>>(
        &self,
        env: &mut E,
        entry: &Entry<K>,
        psn: Psn,
        most: u32,
    ) -> u32 {
        let left = entry.npsn.saturating_sub(self.cur_pkt).min(most);

        if left <= 1
            || psn != self.snd_max
            || !matches!(entry.wqe.work, Work::Send(_) | Work::Write { .. })
        {
            return 1;
        }

        let room = match self.cfg.transport {
            Transport::Rc => WINDOW.saturating_sub(psn.since(self.una)),
            _ => left,
        };

        left.min(room).min(env.span(Dest::Connected)).max(1)
    }

    /// Sends the packet at the cursor, or several ones, but no more than `budget`, as one. Returns
    /// how many, or nothing if it has to be tried again later.
    fn send<E: TxEnv<Kernel = K>>(&mut self, env: &mut E, budget: u32) -> Option<u32> {
        let &entry = self.q.get(self.cur)?;
        let wqe = &entry.wqe;
        let mtu = self.cfg.mtu;
        let psn = entry.first.add(self.cur_pkt);
        let total = wqe.data.len();
        let at = self.cur_pkt.saturating_mul(mtu).min(total);
        let span = self.span(env, &entry, psn, budget);
        let last_psn = psn.add(span - 1);
        let more = budget > span;
        let len = (total - at).min(mtu.saturating_mul(span));
        let piece = Position::of(self.cur_pkt == 0, at + len == total);

        let (kind, pos, ext, tail, len) = match wqe.work {
            Work::Send(tail) => (Kind::Send, piece, Ext::None, tail, len),
            Work::Datagram { qkey, tail, .. } => {
                if total > mtu {
                    // Nothing is sent, and for datagrams that is no error (IBA vol. 1, C10-93.1.1).
                    self.mark(if self.cfg.gsi {
                        Phase::Failed(Status::LocLen)
                    } else {
                        Phase::Done
                    });
                    return Some(1);
                }

                let deth = Deth {
                    // IBA vol. 1, 10.2.5: the highest bit stands for the own key.
                    qkey: if qkey >> 31 != 0 { self.cfg.qkey } else { qkey },
                    src_qp: self.cfg.qpn,
                };

                (Kind::Send, Position::Only, Ext::Deth(deth), tail, len)
            }
            Work::Write { va, rkey, tail } => {
                let reth = Reth {
                    va,
                    rkey,
                    len: total,
                };

                let ext = if piece.starts() {
                    Ext::Reth(reth)
                } else {
                    Ext::None
                };

                (Kind::Write, piece, ext, tail, len)
            }
            Work::Read { va, rkey } => {
                // What has come already is not asked for again.
                let reth = Reth {
                    va: va.wrapping_add(u64::from(at)),
                    rkey,
                    len: total - at,
                };

                (
                    Kind::ReadRequest,
                    Position::Only,
                    Ext::Reth(reth),
                    Tail::None,
                    0,
                )
            }
            Work::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            } => {
                let atomic = AtomicEth {
                    va,
                    rkey,
                    swap_add: swap,
                    compare,
                };

                (
                    Kind::CompareSwap,
                    Position::Only,
                    Ext::Atomic(atomic),
                    Tail::None,
                    0,
                )
            }
            Work::FetchAdd { va, rkey, add } => {
                let atomic = AtomicEth {
                    va,
                    rkey,
                    swap_add: add,
                    compare: 0,
                };

                (
                    Kind::FetchAdd,
                    Position::Only,
                    Ext::Atomic(atomic),
                    Tail::None,
                    0,
                )
            }
            Work::Flush(feth, reth) => (
                Kind::Flush,
                Position::Only,
                Ext::Flush(feth, reth),
                Tail::None,
                0,
            ),
            Work::AtomicWrite { va, rkey } => {
                let reth = Reth { va, rkey, len: 8 };

                (
                    Kind::AtomicWrite,
                    Position::Only,
                    Ext::Reth(reth),
                    Tail::None,
                    8,
                )
            }
            Work::LocalInv(_) | Work::BindMw(_) | Work::Kernel(_) => return None,
        };
        let tail = if pos.ends() { tail } else { Tail::None };
        let Some(code) = opcode::code(self.cfg.transport, kind, pos, tail.kind()) else {
            self.mark(Phase::Failed(Status::LocQpOp));
            return Some(1);
        };

        let reliable = self.cfg.transport == Transport::Rc;
        let follows = more
            && if pos.ends() {
                self.cfg.thin_acks && self.another_follows(env, last_psn)
            } else {
                !reliable || last_psn.next().since(self.una) < WINDOW
            };
        let ack_req = reliable && (!follows || self.since_ack.saturating_add(span) >= ACK_EVERY);
        let alike = match pos {
            _ if !follows => 0,
            // What follows is likely to be the same once more.
            Position::Only | Position::Last => LIKELY,
            // The others do not have what the first one has.
            Position::First if ext != Ext::None => 0,
            Position::First | Position::Middle => (total - at - len).div_ceil(mtu.max(1)),
        };
        let (dest_qp, dest) = match wqe.work {
            Work::Datagram { ah, qpn, .. } => (qpn, Dest::Handle(ah)),
            _ => (self.cfg.dest_qpn, Dest::Connected),
        };
        let bth = Bth {
            opcode: code,
            se: wqe.flags.has(SendFlags::SOLICITED)
                && pos.ends()
                && (kind == Kind::Send || (kind == Kind::Write && tail != Tail::None)),
            mig_req: false,
            pad: pad(len),
            tver: 0,
            pkey: self.cfg.pkey,
            dest_qp,
            ack_req,
            psn,
        };
        let payload = match wqe.data {
            _ if len == 0 => Payload::None,
            Data::Inline(_) => {
                let bytes = self.q.area(self.cur).get(at as usize..);

                Payload::Bytes(bytes.and_then(|b| b.get(..len as usize)).unwrap_or(&[]))
            }
            Data::Sges { .. } => Payload::Sges(self.q.sges(self.cur).range(at, len)),
        };

        let sent = env.send(&TxPacket {
            hdr: TxHeaders::new(&bth, &ext, &tail),
            payload,
            len,
            dest,
            alike,
            span,
        });

        self.payload_waits = sent == Err(SendError::Mem(MemError::Wait));
        match sent {
            Ok(()) => self.sent(env.now(), &entry, psn, span, pos, ack_req),
            Err(SendError::Busy | SendError::Mem(MemError::Wait)) => return None,
            Err(SendError::Mem(MemError::Access)) => self.mark(Phase::Failed(Status::LocProt)),
            Err(SendError::Handle) => self.mark(Phase::Failed(Status::LocQpOp)),
            Err(SendError::Apart) if span > 1 => return self.send(env, 1),
            Err(SendError::Apart) => return None,
        }
        Some(span)
    }

    /// Moves the cursor behind the packets that were sent.
    fn sent(
        &mut self,
        now: u64,
        entry: &Entry<K>,
        psn: Psn,
        span: u32,
        pos: Position,
        ack_req: bool,
    ) {
        let reliable = self.cfg.transport == Transport::Rc;
        let end = if matches!(entry.wqe.work, Work::Read { .. }) {
            entry.first.add(entry.npsn)
        } else {
            psn.add(span)
        };

        if let Some(e) = self.q.get_mut(self.cur) {
            if !e.issued {
                e.issued = true;
                if e.wqe.work.takes_resource() {
                    self.resources += 1;
                }
            }
            if pos.ends() && !reliable {
                e.phase = Phase::Done;
            }
        }
        if pos.ends() {
            self.cur = self.cur.wrapping_add(1);
            self.cur_pkt = 0;
        } else {
            self.cur_pkt += span;
        }
        self.since_ack = if ack_req {
            0
        } else {
            self.since_ack.saturating_add(span)
        };
        if !reliable {
            self.una = end;
            self.snd_max = end;
            return;
        }
        if end.since(self.una) > self.snd_max.since(self.una) {
            self.snd_max = end;
        }
        if self.deadline.is_none() {
            self.deadline = self.cfg.timeout.map(|t| now.saturating_add(t));
        }
    }

    /// Finds the packet with a PSN: the entry and the packet in it, or the end of the table. What
    /// needs no packet and was not done yet is not passed over.
    fn seek(&self, psn: Psn) -> (u32, u32) {
        self.q
            .indices()
            .find_map(|i| {
                let e = self.q.get(i)?;

                if e.phase != Phase::Open {
                    // Nothing is sent after one that failed.
                    return (e.phase != Phase::Done).then_some((i, 0));
                }
                if e.npsn == 0 {
                    return Some((i, 0));
                }
                psn.within(e.first, e.npsn).then(|| (i, psn.since(e.first)))
            })
            .unwrap_or((self.q.tail(), 0))
    }

    /// Puts the cursor back to the first packet that is not acknowledged.
    pub(crate) fn rewind(&mut self) {
        (self.cur, self.cur_pkt) = self.seek(self.una);
        self.since_ack = 0;
    }

    /// Moves the cursor on if what it is at was acknowledged meanwhile.
    pub(crate) fn catch_up(&mut self) {
        let (index, pkt) = self.seek(self.una);
        let head = self.q.head();
        let at = |index: u32, pkt: u32| (index.wrapping_sub(head), pkt);

        if at(self.cur, self.cur_pkt) < at(index, pkt) {
            (self.cur, self.cur_pkt) = (index, pkt);
        }
    }

    /// Makes the work request that waits for an answer fail. It completes in its turn.
    pub(crate) fn fail(&mut self, status: Status) {
        let (index, _) = self.seek(self.una);

        if let Some(entry) = self.q.get_mut(index) {
            entry.phase = Phase::Failed(status);
        }
    }

    /// Tells whether something that was sent is not acknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        self.una != self.snd_max
    }

    /// Sends again from the first packet without an acknowledgment, or fails if that was done often
    /// enough.
    pub(crate) fn try_again(&mut self, now: u64) {
        if self.cfg.retry_cnt != RETRY_FOREVER {
            let Some(left) = self.retry_left.checked_sub(1) else {
                self.fail(Status::RetryExc);
                return;
            };

            self.retry_left = left;
        }
        self.retrying = true;
        self.deadline = self.cfg.timeout.map(|t| now.saturating_add(t));
        self.rewind();
    }

    /// Takes note of time; `kept` says that a response has come and is kept, because the memory for
    /// it is not there yet. Call [`Self::run`] afterwards.
    #[doc(alias = "retransmit_timer")]
    pub(crate) fn timeout<E: TxEnv<Kernel = K>>(&mut self, env: &E, kept: bool) {
        let now = env.now();

        if !self.state.sends() || self.rnr_until.is_some() {
            return;
        }
        if self.deadline.is_some_and(|d| d <= now) {
            self.deadline = None;
            if self.payload_waits || kept {
                // It is this side that takes long, and to try again does not help.
                self.deadline = self.cfg.timeout.map(|t| now.saturating_add(t));
            } else if self.is_waiting() {
                self.try_again(now);
            }
        }
    }
}
