// SPDX-License-Identifier: GPL-2.0

//! The responder (IBA vol. 1, 9.7.4, 9.7.5, 9.8.2 and 9.8.3).
//!
//! [`Rx::receive`] takes requests and sends nothing; [`Rx::pump`] sends what is to be answered. In
//! between a caller may give all the packets that it has, and acknowledgments are then combined:
//! one for a PSN acknowledges all before it.
//!
//! Answers go out in the order of the requests. READs and atomics are put into a ring of resources,
//! which also is what repeated requests are answered from (IBA vol. 1, 9.7.5.1.4); behind all of
//! them there is at most one acknowledgment, positive or negative. An answer to a READ acknowledges
//! what is before it, so none of the ones in the ring needs an acknowledgment of its own.

#[path = "resp/answer.rs"]
mod answer;
#[path = "resp/datagram.rs"]
mod datagram;

use crate::{
    env::{
        Access,
        AtomicOp,
        CqSink,
        Events,
        Mem,
        MemError,
        Parked,
        RxEnv,
        Source,
        Target, //
    },
    opcode::{
        Kind,
        Position,
        TailKind,
        Transport, //
    },
    packet::{
        Ext,
        RxPacket,
        Tail, //
    },
    psn::Psn,
    sge::{
        SgeList,
        SGE_LEN, //
    },
    wc::{
        Opcode,
        Sender,
        Status,
        Wc, //
    },
    wire::{
        aeth::{
            Nak,
            Syndrome, //
        },
        grh,
        reth::Reth, //
    },
    wqe::{
        RecvWqe,
        MAX_MSG,
        MAX_SGE, //
    },
};
use core::ops::DerefMut;

/// How many work requests are flushed in one call.
const FLUSH_BUDGET: u32 = 1024;

/// What the other side may do (`qp_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// RDMA WRITE.
    pub(crate) write: bool,
    /// RDMA READ.
    pub(crate) read: bool,
    /// Atomic operations.
    pub(crate) atomic: bool,
    /// Flush.
    pub(crate) flush: bool,
}

/// Attributes of the queue pair, as far as receiving needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxConfig {
    /// Transport service.
    pub(crate) transport: Transport,
    /// This queue pair.
    pub(crate) qpn: u32,
    /// The other one, if connected.
    pub(crate) dest_qpn: u32,
    /// Partition key.
    pub(crate) pkey: u16,
    /// Path MTU.
    pub(crate) mtu: u32,
    /// What the other side may do.
    pub(crate) rights: Rights,
    /// Code of the time that the other side waits for receive buffers.
    pub(crate) min_rnr_timer: u8,
    /// The answer to a repeated request for the rest of a READ goes on with "middle" and "last", as
    /// if it were the first answer. The C driver's requester takes nothing else once it has a part
    /// of the data, although the repeated request is a READ of its own, whose answer begins with
    /// "first" or "only". Our requester takes both.
    pub(crate) resume_in_place: bool,
    /// Receive buffers are of a shared queue, which is not flushed.
    pub(crate) shared: bool,
}

/// What a resource is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Read,
    Atomic(u64),
    /// Flush or atomic write, which are answered by an empty READ response.
    Done(Kind),
}

/// An answer that is to be sent, or sent again.
#[derive(Clone, Copy, Debug)]
struct Job {
    psn: Psn,
    va: u64,
    len: u32,
    sent: u32,
    /// It is for a request that was repeated.
    again: bool,
}

/// A request that has an answer of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    what: What,
    psn: Psn,
    npsn: u32,
    reth: Reth,
    msn: u32,
    job: Option<Job>,
}

/// The message that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Msg {
    Idle,
    /// A SEND; so much of it is in the buffer.
    Send(u32),
    /// A WRITE; this is what is left to be written.
    Write {
        reth: Reth,
        total: u32,
    },
}

/// Why a request is not done.
enum Refusal {
    /// Negative acknowledgment, and what the completion of the receive buffer says.
    Nak(Nak, Status),
    /// No receive buffer.
    NotReady,
    /// Later.
    Parked(Parked),
}

impl From<MemError> for Refusal {
    fn from(error: MemError) -> Self {
        match error {
            MemError::Access => Self::Nak(Nak::RemoteAccess, Status::LocAccess),
            MemError::Wait => Self::Parked(Parked::Memory),
        }
    }
}

const INVALID: Refusal = Refusal::Nak(Nak::InvalidRequest, Status::RemInvReq);

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// What the caller has to do.
    pub(crate) events: Events,
    /// It was one that came before.
    pub(crate) duplicate: bool,
    /// One before it is missing.
    pub(crate) out_of_sequence: bool,
    /// There was no receive buffer.
    pub(crate) not_ready: bool,
    /// It was dropped without an answer.
    pub(crate) dropped: bool,
}

/// The responder, with resources in `V`.
#[derive(Debug)]
pub(crate) struct Rx<V> {
    cfg: RxConfig,
    /// The next PSN.
    expected: Psn,
    /// Messages so far.
    msn: u32,
    /// Packets behind a missing one are dropped until it comes.
    silent: bool,
    /// Nothing more is taken.
    dead: bool,
    /// A completion was lost; there will be no more of them.
    overflowed: bool,
    msg: Msg,
    recv: Option<RecvWqe>,
    /// Its elements.
    area: [u8; MAX_SGE * SGE_LEN],
    resources: V,
    /// Count of resources so far; the next one goes to this place in the ring.
    next: usize,
    /// A resource may have a job; if not, there is no need to look.
    jobs: bool,
    /// What goes out behind all resources.
    reply: Option<(Psn, Syndrome)>,
}

impl<V> Rx<V>
where
    V: DerefMut<Target = [Option<Resource>]>,
{
    /// Makes a responder with room for as many READs and atomics as the other side may have
    /// outstanding.
    pub(crate) fn new(cfg: RxConfig, resources: V) -> Self {
        Self {
            cfg,
            expected: Psn::default(),
            msn: 0,
            silent: false,
            dead: false,
            overflowed: false,
            msg: Msg::Idle,
            recv: None,
            area: [0; MAX_SGE * SGE_LEN],
            resources,
            next: 0,
            jobs: false,
            reply: None,
        }
    }

    /// Starts, on the way to RTR, with another number of resources maybe.
    pub(crate) fn start(&mut self, cfg: RxConfig, resources: V, psn: Psn) {
        *self = Self::new(cfg, resources);
        self.expected = psn;
    }

    /// Makes room for more READs and atomics that the other side may have outstanding, which is
    /// what the empty `to` has. It never gets less: what was answered may be asked for again.
    pub(crate) fn grow(&mut self, mut to: V) {
        let old = self.resources.len();

        if to.len() <= old {
            return;
        }
        for count in self.next.saturating_sub(old)..self.next {
            if let (Some(from), Some(place)) = (
                count
                    .checked_rem(old)
                    .and_then(|at| self.resources.get_mut(at)),
                count.checked_rem(to.len()).and_then(|at| to.get_mut(at)),
            ) {
                *place = from.take();
            }
        }
        self.resources = to;
    }

    /// Changes attributes that may change while the queue pair works.
    pub(crate) fn configure(&mut self, cfg: RxConfig) {
        self.cfg = cfg;
    }

    /// Returns the attributes.
    pub(crate) fn config(&self) -> &RxConfig {
        &self.cfg
    }

    /// Returns the PSN that is expected (`rq_psn` of a query).
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// Tells whether there is something to send.
    pub(crate) fn has_replies(&self) -> bool {
        self.reply.is_some() || self.jobs
    }

    /// Takes a request, which was let in by [`crate::packet::Admission`]. `ip` is what
    /// [`crate::wire::grh`] makes of the IP header, for datagrams.
    ///
    /// # Errors
    ///
    /// If the packet has to be kept and given again.
    pub(crate) fn receive<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        ip: &[u8; grh::LEN],
    ) -> Result<Received, Parked> {
        let mut out = Received::default();

        if self.dead {
            out.dropped = true;
            return Ok(out);
        }
        match self.cfg.transport {
            Transport::Rc => self.receive_rc(env, pkt, payload, &mut out)?,
            Transport::Uc => self.receive_uc(env, pkt, payload, &mut out)?,
            Transport::Ud => self.receive_ud(env, pkt, payload, ip, &mut out)?,
        }
        Ok(out)
    }

    fn receive_rc<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        out: &mut Received,
    ) -> Result<(), Parked> {
        match pkt.bth.psn.diff(self.expected) {
            0 => {}
            d if d < 0 => {
                out.duplicate = true;
                self.repeat(pkt);
                return Ok(());
            }
            _ => {
                out.out_of_sequence = true;
                if !self.silent {
                    self.silent = true;
                    self.reply = Some((self.expected, Syndrome::Nak(Nak::PsnSequence)));
                }
                return Ok(());
            }
        }

        match self.request(env, pkt, payload, &mut out.events) {
            Ok(npsn) => {
                self.silent = false;
                self.expected = self.expected.add(npsn);
                if !matches!(self.reply, Some((_, Syndrome::Ack(_)))) {
                    // What was missing has come before the other side was told so.
                    self.reply = None;
                }
                if pkt.bth.ack_req && matches!(pkt.op.kind, Kind::Send | Kind::Write) {
                    self.reply = Some((self.expected.sub(1), Syndrome::ACK));
                }
            }
            Err(Refusal::Parked(parked)) => return Err(parked),
            Err(Refusal::NotReady) => {
                out.not_ready = true;
                // What is behind it comes again with it.
                self.silent = true;
                self.reply = Some((self.expected, Syndrome::Rnr(self.cfg.min_rnr_timer)));
            }
            Err(Refusal::Nak(nak, status)) => self.refuse(env, nak, status, &mut out.events),
        }
        Ok(())
    }

    /// Ends it all because of a request that cannot be done (IBA vol. 1, 9.9.3: class A to C).
    fn refuse<E: CqSink>(&mut self, env: &mut E, nak: Nak, status: Status, ev: &mut Events) {
        self.reply = Some((self.expected, Syndrome::Nak(nak)));
        self.dead = true;
        ev.error = true;
        match self.recv.take() {
            Some(recv) => self.complete_failed(env, recv.wr_id, status, ev),
            // There is no work request that could say it.
            None if nak == Nak::RemoteAccess => ev.access = true,
            None if nak == Nak::InvalidRequest => ev.request = true,
            None => {}
        }
    }

    fn complete_failed<E: CqSink>(
        &mut self,
        env: &mut E,
        wr_id: u64,
        status: Status,
        ev: &mut Events,
    ) {
        let wc = Wc::failed(wr_id, status, Opcode::Recv, self.cfg.qpn);

        if env.complete(&wc).is_err() {
            self.overflowed = true;
            ev.overflow = true;
        }
    }

    /// Checks that a packet is a possible one at this point of a message (IBA vol. 1, 9.7.4.1.2 to
    /// 9.7.4.1.7), but for memory.
    fn in_order(&self, pkt: &RxPacket) -> bool {
        let op = pkt.op;
        let mtu = self.cfg.mtu;

        let sequence = match (op.kind, self.msg) {
            (Kind::Send, Msg::Send(_)) | (Kind::Write, Msg::Write { .. }) => !op.pos.starts(),
            (_, Msg::Idle) => op.pos.starts(),
            _ => false,
        };
        // What the packets before the last one have, if it stands for several, and all of them.
        let before = mtu.saturating_mul(pkt.span.saturating_sub(1));
        let most = before.saturating_add(mtu);
        let length = match op.pos {
            Position::First | Position::Middle => pkt.len == most,
            Position::Last => before < pkt.len && pkt.len <= most,
            Position::Only => (pkt.span == 1 || before < pkt.len) && pkt.len <= most,
        };

        sequence && length
    }

    fn may(&self, kind: Kind) -> bool {
        let rights = self.cfg.rights;

        match kind {
            Kind::Write | Kind::AtomicWrite => rights.write,
            Kind::ReadRequest => rights.read,
            Kind::CompareSwap | Kind::FetchAdd => rights.atomic,
            Kind::Flush => rights.flush,
            _ => true,
        }
    }

    /// Does the request with the next PSN. Returns how many PSNs it has.
    fn request<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        ev: &mut Events,
    ) -> Result<u32, Refusal> {
        if !self.in_order(pkt) || !self.may(pkt.op.kind) {
            return Err(INVALID);
        }

        match (pkt.op.kind, pkt.ext) {
            (Kind::Send, _) => self.send(env, pkt, payload, ev),
            (Kind::Write, _) => self.write(env, pkt, payload, ev),
            (Kind::ReadRequest, Ext::Reth(reth)) => self.read(env, &reth),
            (Kind::CompareSwap | Kind::FetchAdd, Ext::Atomic(a)) => {
                if a.va % 8 != 0 {
                    return Err(INVALID);
                }
                self.has_room()?;

                let op = if pkt.op.kind == Kind::FetchAdd {
                    AtomicOp::FetchAdd(a.swap_add)
                } else {
                    AtomicOp::CompareSwap {
                        compare: a.compare,
                        swap: a.swap_add,
                    }
                };
                let reth = Reth {
                    va: a.va,
                    rkey: a.rkey,
                    len: 0,
                };
                let value = env.atomic(a.rkey, a.va, op)?;

                self.add(What::Atomic(value), reth, 1);
                Ok(1)
            }
            (Kind::Flush, Ext::Flush(feth, reth)) => {
                if !feth.is_valid() {
                    return Err(INVALID);
                }
                self.has_room()?;
                env.flush(&feth, &reth)?;
                self.add(What::Done(Kind::Flush), Reth { len: 0, ..reth }, 1);
                Ok(1)
            }
            (Kind::AtomicWrite, Ext::Reth(reth)) => {
                if reth.va % 8 != 0 || reth.len != 8 {
                    return Err(INVALID);
                }
                self.has_room()?;
                env.atomic_write(reth.rkey, reth.va, payload)?;
                self.add(What::Done(Kind::AtomicWrite), Reth { len: 0, ..reth }, 1);
                Ok(1)
            }
            _ => Err(INVALID),
        }
    }

    /// Makes sure that there is a receive buffer.
    fn need_buffer<E: RxEnv>(&mut self, env: &mut E, ev: &mut Events) -> Result<(), Refusal> {
        if self.recv.is_some() {
            return Ok(());
        }
        match env.fetch_recv(&mut self.area) {
            None => Err(Refusal::NotReady),
            Some(Ok(wqe)) => {
                self.recv = Some(wqe);
                Ok(())
            }
            Some(Err(bad)) => {
                self.complete_failed(env, bad.wr_id, bad.status, ev);
                Err(Refusal::Nak(Nak::RemoteOperational, bad.status))
            }
        }
    }

    /// Puts a payload into the receive buffer.
    fn fill<E: Mem>(
        &self,
        env: &mut E,
        at: u32,
        len: u32,
        payload: E::Packet<'_>,
    ) -> Result<(), MemError> {
        let Some(recv) = &self.recv else {
            return Err(MemError::Access);
        };
        let mut done = 0;

        for sge in SgeList::new(&self.area, recv.count).range(at, len) {
            env.scatter(Target::Local(sge), Source::Packet(payload, done))?;
            done += sge.len;
        }
        Ok(())
    }

    /// Completes the receive buffer.
    fn complete<E: CqSink>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        opcode: Opcode,
        byte_len: u32,
        from: Sender,
        ev: &mut Events,
    ) {
        let Some(recv) = self.recv.take() else {
            return;
        };
        let wc = Wc {
            wr_id: recv.wr_id,
            status: Status::Success,
            opcode,
            byte_len,
            tail: pkt.tail,
            qpn: self.cfg.qpn,
            from,
            solicited: pkt.bth.se,
        };

        if env.complete(&wc).is_err() {
            self.overflowed = true;
            ev.overflow = true;
            ev.error = true;
            self.dead = true;
        }
    }

    /// The other side of the connection.
    fn peer(&self) -> Sender {
        Sender::connected(self.cfg.dest_qpn)
    }

    fn send<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        ev: &mut Events,
    ) -> Result<u32, Refusal> {
        let at = match self.msg {
            Msg::Send(at) => at,
            _ => 0,
        };

        self.need_buffer(env, ev)?;

        let end = at
            .checked_add(pkt.len)
            .filter(|end| self.recv.as_ref().is_some_and(|r| *end <= r.capacity))
            .ok_or(Refusal::Nak(Nak::InvalidRequest, Status::LocLen))?;

        self.fill(env, at, pkt.len, payload).map_err(|e| match e {
            // The buffer is the fault of this side.
            MemError::Access => Refusal::Nak(Nak::RemoteOperational, Status::LocProt),
            MemError::Wait => Refusal::Parked(Parked::Memory),
        })?;
        if !pkt.op.pos.ends() {
            self.msg = Msg::Send(end);
            return Ok(pkt.span);
        }
        if let Tail::Inv(rkey) = pkt.tail {
            env.invalidate(rkey)?;
        }
        self.msg = Msg::Idle;
        self.message_done();
        self.complete(env, pkt, Opcode::Recv, end, self.peer(), ev);
        Ok(pkt.span)
    }

    fn write<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        ev: &mut Events,
    ) -> Result<u32, Refusal> {
        let (reth, total) = match (pkt.ext, self.msg) {
            (Ext::Reth(reth), _) => (reth, reth.len),
            (_, Msg::Write { reth, total }) => (reth, total),
            _ => return Err(INVALID),
        };

        let fits = match pkt.op.pos {
            Position::First | Position::Middle => pkt.len < reth.len,
            Position::Last | Position::Only => pkt.len == reth.len,
        };

        if total > MAX_MSG || !fits {
            return Err(INVALID);
        }
        if pkt.op.tail == TailKind::Imm {
            self.need_buffer(env, ev)?;
        }
        if pkt.op.pos.starts() && total > 0 {
            env.check(&reth, Access::Write)?;
        }
        if pkt.len > 0 {
            env.scatter(
                Target::Remote {
                    rkey: reth.rkey,
                    va: reth.va,
                    len: pkt.len,
                },
                Source::Packet(payload, 0),
            )?;
        }
        if !pkt.op.pos.ends() {
            self.msg = Msg::Write {
                reth: Reth {
                    va: reth.va.wrapping_add(u64::from(pkt.len)),
                    len: reth.len - pkt.len,
                    ..reth
                },
                total,
            };
            return Ok(pkt.span);
        }
        self.msg = Msg::Idle;
        self.message_done();
        if pkt.op.tail == TailKind::Imm {
            self.complete(env, pkt, Opcode::RecvWriteImm, total, self.peer(), ev);
        }
        Ok(pkt.span)
    }

    fn read<E: Mem>(&mut self, env: &mut E, reth: &Reth) -> Result<u32, Refusal> {
        if reth.len > MAX_MSG {
            return Err(INVALID);
        }
        self.has_room()?;
        // Nothing is read, so the key does not matter (IBA vol. 1, 9.7.4.1.5).
        if reth.len > 0 {
            env.check(reth, Access::Read)?;
        }

        let npsn = self.packets(reth.len);

        self.add(What::Read, *reth, npsn);
        Ok(npsn)
    }

    /// Returns how many packets a READ response of a length has.
    fn packets(&self, len: u32) -> u32 {
        len.div_ceil(self.cfg.mtu.max(1)).max(1)
    }

    fn message_done(&mut self) {
        self.msn = self.msn.wrapping_add(1) & Psn::MASK;
    }

    /// Place of the next resource in the ring.
    fn place(&self, count: usize) -> Option<usize> {
        count.checked_rem(self.resources.len())
    }

    /// Makes sure that there is room for another resource.
    fn has_room(&self) -> Result<(), Refusal> {
        let place = self.place(self.next).ok_or(INVALID)?;

        match self.resources.get(place) {
            // The other side has more outstanding than was agreed. It can have its way once the
            // oldest one is answered.
            Some(Some(Resource { job: Some(_), .. })) => Err(Refusal::Parked(Parked::Replies)),
            _ => Ok(()),
        }
    }

    /// Adds a resource that is to be answered.
    fn add(&mut self, what: What, reth: Reth, npsn: u32) {
        self.message_done();

        let resource = Resource {
            what,
            psn: self.expected,
            npsn,
            reth,
            msn: self.msn,
            job: Some(Job {
                psn: self.expected,
                va: reth.va,
                len: reth.len,
                sent: 0,
                again: false,
            }),
        };

        if let Some(place) = self
            .place(self.next)
            .and_then(|place| self.resources.get_mut(place))
        {
            *place = Some(resource);
        }
        self.next = self.next.wrapping_add(1);
        self.jobs = true;
        // The answer acknowledges what is before it.
        self.reply = None;
    }

    /// Answers a request that came before (IBA vol. 1, 9.7.5.1.4).
    fn repeat(&mut self, pkt: &RxPacket) {
        let psn = pkt.bth.psn;

        if matches!(pkt.op.kind, Kind::Send | Kind::Write) {
            if self.reply.is_none() {
                self.reply = Some((self.expected.sub(1), Syndrome::ACK));
            }
            return;
        }

        let mtu = self.cfg.mtu;
        let npackets = |len: u32| len.div_ceil(mtu.max(1)).max(1);
        let Some(res) = self
            .resources
            .iter_mut()
            .flatten()
            .find(|r| psn.within(r.psn, r.npsn))
        else {
            return;
        };
        let job = match (pkt.op.kind, pkt.ext, res.what) {
            (Kind::ReadRequest, Ext::Reth(reth), What::Read) => {
                // Only a part of what was asked for before, up to its end.
                let at = psn.since(res.psn).saturating_mul(mtu).min(res.reth.len);

                if reth.va != res.reth.va.wrapping_add(u64::from(at))
                    || reth.rkey != res.reth.rkey
                    || reth.len > res.reth.len - at
                    || npackets(reth.len) > res.npsn - psn.since(res.psn)
                {
                    return;
                }
                Job {
                    psn,
                    va: reth.va,
                    len: reth.len,
                    sent: 0,
                    again: true,
                }
            }
            (Kind::CompareSwap | Kind::FetchAdd, _, What::Atomic(_)) => Job {
                psn,
                va: 0,
                len: 0,
                sent: 0,
                again: true,
            },
            (kind, _, What::Done(of)) if kind == of => Job {
                psn,
                va: 0,
                len: 0,
                sent: 0,
                again: true,
            },
            _ => return,
        };

        res.job = Some(job);
        self.jobs = true;
    }

    fn receive_uc<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        out: &mut Received,
    ) -> Result<(), Parked> {
        // A lost packet makes the rest of its message useless; the next one is not concerned. The
        // buffer stays for it (IBA vol. 1, 9.8.2.2).
        if pkt.op.pos.starts() {
            self.msg = Msg::Idle;
        } else if pkt.bth.psn != self.expected {
            out.out_of_sequence = true;
            self.msg = Msg::Idle;
        }

        let result = self.request(env, pkt, payload, &mut out.events);

        if let Err(Refusal::Parked(parked)) = result {
            return Err(parked);
        }
        self.expected = pkt.bth.psn.add(pkt.span);
        if let Err(refusal) = result {
            self.msg = Msg::Idle;
            out.dropped = true;
            match refusal {
                // A buffer that is no good has to be reported; all else is the other side's fault
                // and is dropped.
                Refusal::Nak(nak @ Nak::RemoteOperational, status) => {
                    self.refuse(env, nak, status, &mut out.events);
                    self.reply = None;
                }
                Refusal::NotReady => out.not_ready = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Completes all receive buffers with an error, because the queue pair is in error. Answers
    /// that are left go out with [`Self::pump`]. Call it again if `more` is set.
    pub(crate) fn flush<E: RxEnv>(&mut self, env: &mut E) -> Events {
        let mut ev = Events::default();

        self.dead = true;
        self.msg = Msg::Idle;
        if self.overflowed {
            return ev;
        }
        if let Some(recv) = self.recv.take() {
            self.complete_failed(env, recv.wr_id, Status::WrFlush, &mut ev);
        }
        if self.cfg.shared {
            return ev;
        }
        for _ in 0..FLUSH_BUDGET {
            if self.overflowed {
                return ev;
            }
            match env.fetch_recv(&mut self.area) {
                None => return ev,
                Some(Ok(recv)) => {
                    self.complete_failed(env, recv.wr_id, Status::WrFlush, &mut ev);
                }
                Some(Err(bad)) => {
                    self.complete_failed(env, bad.wr_id, Status::WrFlush, &mut ev);
                }
            }
        }
        ev.more = true;
        ev
    }

    /// Drops what is left to be answered, because the user moved the queue pair to error or reset.
    pub(crate) fn cancel(&mut self) {
        for r in self.resources.iter_mut().flatten() {
            r.job = None;
        }
        self.jobs = false;
        self.reply = None;
        self.dead = true;
    }
}
