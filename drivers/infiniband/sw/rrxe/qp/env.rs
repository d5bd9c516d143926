// SPDX-License-Identifier: GPL-2.0

//! What the protocol engine asks for, answered by the objects of the kernel.
//!
//! An [`Env`] is made for each time that a half is owned, and borrows what belongs to it.

use super::{
    direct::{
        Body,
        Link,
        Peer, //
    },
    object::Qp,
    rings::{
        RecvRing,
        RegMr,
        SendRing, //
    },
    run::Todo, //
};
use crate::{
    ah::Ah,
    cq::Cq,
    env::{
        Access,
        AtomicOp,
        Clock,
        CqSink,
        Dest,
        Mem,
        MemError,
        Overflow,
        Payload,
        RecvQueue,
        SendError,
        SendQueue,
        Source,
        Target,
        TxPacket,
        Wire, //
    },
    event::Ctx,
    fault::Misses,
    mr::{
        self,
        Key,
        Mr,
        Who, //
    },
    net::{
        roce_len,
        span_len,
        Flow,
        Train, //
    },
    opcode,
    srq::Srq,
    stats::Counter,
    table::Recent,
    wc::{
        Opcode,
        Status,
        Wc, //
    },
    wire::{
        feth::Feth,
        reth::Reth, //
    },
    wqe::{
        Malformed,
        RecvWqe,
        SendWqe,
        Work, //
    },
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// The memory that a half may access, in one go.
pub(super) struct Memory<'a> {
    /// The regions.
    pub(super) mrs: &'a Recent<'a, Mr>,
    /// What is not there of them.
    pub(super) misses: Misses,
}

/// The surroundings of one half, with its ring in `R`.
pub(super) struct Env<'a, R> {
    pub(super) qp: &'a Qp,
    pub(super) ring: &'a mut R,
    pub(super) flow: Option<&'a Arc<Flow>>,
    pub(super) cq: &'a Arc<Cq>,
    pub(super) ctx: Ctx,
    pub(super) memory: Memory<'a>,
    /// Where datagrams go to.
    ahs: Recent<'a, Ah>,
    /// The way to the other side of a connection, if that is here.
    link: Link<'a>,
    now: Cell<Option<u64>>,
    /// Packets that wait for those that come after them.
    train: Option<Waiting>,
}

/// A train, and where it goes to.
struct Waiting {
    train: Train,
    dest: Dest,
    qpn: u32,
    /// For those that do not go along the connection.
    ah: Option<Arc<Ah>>,
}

impl<'a, R> Env<'a, R> {
    /// Makes the surroundings for one go.
    pub(super) fn new(
        qp: &'a Qp,
        ring: &'a mut R,
        flow: Option<&'a Arc<Flow>>,
        cq: &'a Arc<Cq>,
        ctx: Ctx,
        memory: Memory<'a>,
        link: Link<'a>,
    ) -> Self {
        Self {
            qp,
            ring,
            flow,
            cq,
            ctx,
            ahs: qp.dev.ahs.recent(memory.mrs.guard()),
            memory,
            link,
            now: Cell::new(None),
            train: None,
        }
    }

    /// Sends what still waits, and leaves the other side. To be called at the end of a go. Returns
    /// what is to be done by the other side.
    pub(super) fn finish(&mut self) -> Todo {
        self.depart();
        self.link.close()
    }

    /// Sends what still waits.
    fn depart(&mut self) {
        let Some(Waiting { train, ah, .. }) = self.train.take() else {
            return;
        };
        let flow = match &ah {
            Some(ah) => Some(&ah.flow),
            None => self.flow.map(|flow| &**flow),
        };
        let sent = flow.map(|flow| flow.depart(train, &self.qp.in_flight));

        if !matches!(sent, Some(Ok(()))) {
            self.qp.dev.stats.inc(Counter::SendErr);
        }
    }
}

impl Qp {
    /// What memory it may access.
    pub(super) fn who<'a>(&'a self, memory: &'a Memory<'a>) -> Who<'a> {
        Who {
            pd: &self.pd,
            qpn: self.qpn,
            misses: &memory.misses,
            mrs: memory.mrs,
        }
    }

    /// Writes a payload to where it is sent from.
    pub(super) fn read_payload(
        &self,
        who: &Who<'_>,
        payload: &Payload<'_>,
        to: &mut [u8],
    ) -> Result<(), MemError> {
        let dev = &self.dev;

        match payload {
            Payload::None => {}
            Payload::Bytes(bytes) => {
                if to.len() != bytes.len() {
                    return Err(MemError::Access);
                }
                to.copy_from_slice(bytes);
            }
            Payload::Sges(sges) => {
                let mut rest = to;

                for sge in sges.clone() {
                    let (piece, more) = rest
                        .split_at_mut_checked(sge.len as usize)
                        .ok_or(MemError::Access)?;

                    mr::read(dev, who, Key::Local(sge.lkey), sge.addr, piece)?;
                    rest = more;
                }
                // What was not written is not sent.
                if !rest.is_empty() {
                    return Err(MemError::Access);
                }
            }
            Payload::Remote { rkey, va } => {
                mr::read(dev, who, Key::Remote(*rkey), *va, to)?;
            }
        }
        Ok(())
    }
}

impl<R> Env<'_, R> {
    fn who(&self) -> Who<'_> {
        self.qp.who(&self.memory)
    }

    /// Puts a packet in the train that waits, or in a new one, if it fits in and that is worth it.
    fn send_with_others(
        &mut self,
        flow: &Flow,
        ah: Option<ArcBorrow<'_, Ah>>,
        pkt: &TxPacket<'_>,
    ) -> Option<Result<Result<usize, MemError>>> {
        let roce = roce_len(pkt.hdr.as_bytes(), pkt.len);
        let qpn = pkt.hdr.dest_qpn();
        let fits = |w: &Waiting| w.dest == pkt.dest && w.qpn == qpn && w.train.takes(roce);

        if !self.train.as_ref().is_some_and(fits) {
            self.depart();
            if pkt.alike == 0 {
                return None;
            }
            self.train = Some(Waiting {
                train: flow.begin(roce, pkt.alike.saturating_add(1))?,
                dest: pkt.dest,
                qpn,
                ah: ah.map(Arc::from),
            });
        }

        let who = self.qp.who(&self.memory);
        let fill = |to: &mut [u8]| self.qp.read_payload(&who, &pkt.payload, to);
        let train = &mut self.train.as_mut()?.train;
        let sent = flow.add(train, pkt.hdr.as_bytes(), pkt.len, fill);

        if train.is_full() {
            self.depart();
        }
        Some(sent)
    }

    fn send_by(
        &mut self,
        flow: &Flow,
        ah: Option<ArcBorrow<'_, Ah>>,
        pkt: &TxPacket<'_>,
    ) -> Result<(), SendError> {
        let qp = self.qp;

        if !qp.in_flight.admits() {
            return Err(SendError::Busy);
        }

        let sent = match self.send_with_others(flow, ah, pkt) {
            Some(sent) => sent,
            None => flow.send(
                pkt.hdr.as_bytes(),
                pkt.len,
                |to| qp.read_payload(&self.who(), &pkt.payload, to),
                &qp.in_flight,
            ),
        };

        match sent {
            Ok(Ok(bytes)) => {
                self.count(pkt, bytes);
                Ok(())
            }
            Ok(Err(e)) => Err(SendError::Mem(e)),
            Err(_) => {
                // No memory or no route. It is as good as lost on its way.
                qp.dev.stats.inc(Counter::SendErr);
                Ok(())
            }
        }
    }

    /// Counts a packet that was sent.
    fn count(&self, pkt: &TxPacket<'_>, bytes: usize) {
        let stats = &self.qp.dev.stats;

        stats.add(Counter::SentPkts, pkt.span.into());
        if sends_message(pkt.hdr.as_bytes()) {
            stats.inc(Counter::Sends);
        }
        stats.add(Counter::SentBytes, bytes as u64);
    }

    /// Counts a packet that goes to the same device, as if it had gone by the network.
    fn count_direct(&self, flow: &Flow, pkt: &TxPacket<'_>) {
        let stats = &self.qp.dev.stats;
        let roce = span_len(pkt.hdr.as_bytes(), pkt.len, pkt.span);

        let bytes = roce + flow.front() * pkt.span as usize;

        self.count(pkt, bytes);
        stats.add(Counter::RcvdPkts, pkt.span.into());
        stats.add(Counter::RcvdBytes, bytes as u64);
    }

    /// Sends a datagram to a queue pair of the same device.
    fn send_datagram(
        &self,
        peer: Peer<'_>,
        flow: &Flow,
        pkt: &TxPacket<'_>,
    ) -> Result<(), SendError> {
        let mut link = Link::new(&peer, Todo::RX, self.link.mrs());
        let sent = link.send(self.qp, &self.who(), flow, pkt, self.ctx);
        let todo = link.close();

        // Datagrams are not answered, so it is seldom that there is something to do.
        if let (Peer::Here(peer), true) = (&peer, todo != Todo::NONE) {
            Qp::schedule(*peer, todo);
        }
        sent?;
        self.count_direct(flow, pkt);
        Ok(())
    }
}

/// Tells whether a packet ends a SEND.
fn sends_message(hdr: &[u8]) -> bool {
    hdr.first()
        .and_then(|&code| opcode::lookup(code))
        .is_some_and(|op| op.kind == opcode::Kind::Send && op.pos.ends())
}

impl<R> Clock for Env<'_, R> {
    /// The clock is looked at once: one go is short, and what is a little too early does no harm.
    fn now(&self) -> u64 {
        match self.now.get() {
            Some(now) => now,
            None => {
                let now = self.qp.now();

                self.now.set(Some(now));
                now
            }
        }
    }
}

impl<R> Wire for Env<'_, R> {
    fn send(&mut self, pkt: &TxPacket<'_>) -> Result<(), SendError> {
        match pkt.dest {
            Dest::Connected => {
                let flow = self.flow.ok_or(SendError::Handle)?;

                if !self.link.is_direct() {
                    return self.send_by(flow, None, pkt);
                }

                let who = self.qp.who(&self.memory);

                self.link.send(self.qp, &who, flow, pkt, self.ctx)?;
                self.count_direct(flow, pkt);
                Ok(())
            }
            Dest::Handle(ah) => {
                let ah = Ah::find(&self.ahs, &self.qp.pd, ah).ok_or(SendError::Handle)?;

                match Peer::find(self.qp, self.ahs.guard(), &ah.flow, pkt.hdr.dest_qpn()) {
                    Peer::Remote => self.send_by(&ah.flow, Some(ah), pkt),
                    peer => self.send_datagram(peer, &ah.flow, pkt),
                }
            }
        }
    }

    fn span(&mut self, dest: Dest) -> u32 {
        // Of what failed, it has to be found out which packet it was.
        if dest == Dest::Connected && !self.memory.misses.failed() && self.link.hold() {
            // As much as one go may send.
            u32::MAX
        } else {
            1
        }
    }
}

impl<R> Mem for Env<'_, R> {
    type Packet<'p> = Body<'p>;

    fn scatter(&mut self, to: Target, from: Source<'_, Body<'_>>) -> Result<(), MemError> {
        let (key, va, len) = match to {
            Target::Local(sge) => (Key::Local(sge.lkey), sge.addr, sge.len),
            Target::Remote { rkey, va, len } => (Key::Remote(rkey), va, len),
        };
        let bytes = match from {
            Source::Bytes(bytes) => Some(bytes),
            Source::Packet(Body::Bytes(bytes), at) => bytes.get(at as usize..),
            Source::Packet(Body::Lent(lent), at) => {
                let range = (va, len as usize);

                return mr::write_with(&self.qp.dev, &self.who(), key, range, |sink| {
                    lent.copy(at, len, sink)
                });
            }
            Source::Behind(head, body) => {
                let range = (va, len as usize);
                let rest = len.checked_sub(head.len() as u32).ok_or(MemError::Access)?;

                return mr::write_with(&self.qp.dev, &self.who(), key, range, |sink| {
                    sink.put(head.into());
                    body.copy(rest, sink)
                });
            }
        };
        let bytes = bytes
            .and_then(|b| b.get(..len as usize))
            .ok_or(MemError::Access)?;

        mr::write(&self.qp.dev, &self.who(), key, va, bytes)
    }

    fn check(&mut self, reth: &Reth, access: Access) -> Result<(), MemError> {
        mr::check(
            &self.qp.dev,
            &self.who(),
            reth.rkey,
            reth.va,
            reth.len,
            access,
        )
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        mr::atomic(&self.qp.dev, &self.who(), rkey, va, op)
    }

    fn atomic_write(&mut self, rkey: u32, va: u64, from: Body<'_>) -> Result<(), MemError> {
        let mut value = [0; 8];

        match from {
            Body::Bytes(bytes) => value = *bytes.first_chunk().ok_or(MemError::Access)?,
            Body::Lent(lent) => lent.read(&mut value)?,
        }
        mr::atomic_write(&self.qp.dev, &self.who(), rkey, va, value)
    }

    fn flush(&mut self, feth: &Feth, reth: &Reth) -> Result<(), MemError> {
        mr::flush(&self.qp.dev, &self.who(), feth, reth)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), MemError> {
        mr::invalidate_remote(&self.qp.dev, &self.who(), rkey)
    }
}

impl<R> CqSink for Env<'_, R> {
    fn complete(&mut self, wc: &Wc) -> Result<(), Overflow> {
        let stats = &self.qp.dev.stats;

        match (wc.status, wc.opcode) {
            (Status::Success, Opcode::Recv) => stats.inc(Counter::Recvs),
            (Status::RetryExc, _) => stats.inc(Counter::RetryExceeded),
            (Status::RnrRetryExc, _) => stats.inc(Counter::RnrRetryExceeded),
            _ => {}
        }
        Cq::complete(self.cq.as_arc_borrow(), wc, self.ctx)
    }
}

impl SendQueue for Env<'_, SendRing> {
    type Kernel = RegMr;

    fn fetch_send(&mut self, area: &mut [u8]) -> Option<Result<SendWqe<RegMr>, Malformed>> {
        match &mut *self.ring {
            SendRing::User(ring) => ring.send(area, &self.qp.sizes.limits),
            SendRing::Kernel(queue) => queue.pop(area).map(Ok),
        }
    }

    fn local(&mut self, work: &Work<RegMr>) -> Result<(), Status> {
        let dev = &self.qp.dev;

        match work {
            Work::LocalInv(key) => mr::invalidate_local(dev, &self.who(), *key),
            Work::Kernel(reg) => {
                let mr = self.memory.mrs.look_up(reg.mr).ok_or(Status::LocQpOp)?;

                mr::register(&self.who(), &mr, reg)
            }
            Work::BindMw(bind) => crate::mw::bind(dev, &self.who(), bind),
            // All others are sent.
            _ => Err(Status::LocQpOp),
        }
    }
}

impl RecvQueue for Env<'_, RecvRing> {
    fn fetch_recv(&mut self, area: &mut [u8]) -> Option<Result<RecvWqe, Malformed>> {
        match &mut *self.ring {
            RecvRing::User(ring) => ring.recv(area, self.qp.sizes.max_recv_sge),
            RecvRing::Kernel(queue) => queue.recv(area),
            RecvRing::Shared(srq) => Srq::take(srq.as_arc_borrow(), area),
        }
    }
}
