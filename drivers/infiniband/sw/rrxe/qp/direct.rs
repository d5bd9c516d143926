// SPDX-License-Identifier: GPL-2.0

//! Direct delivery: what is sent to a queue pair of the same device is given to its engine at once.
//!
//! There is no network in between, nothing is summed, and the payload is copied once, from where
//! the sender has it to where the receiver wants it. All else is as by packets: they are the same
//! headers, the same checks and the same engines, so what cannot be done ends in the same way.
//!
//! # Who owns what
//!
//! A half that sends owns itself, and now also the half of the other side that takes the packets:
//! the requester that one's responder, the responder that one's requester. Nobody waits for the
//! other half: if it has an owner, or something waits for it, the packet is put behind what waits,
//! as a copy, and the owner looks at that before it leaves. So there is no order in which halves
//! have to be owned, and two that send to each other, or one that sends to itself, cannot get in
//! each other's way.
//!
//! A half that was given packets is not run by the one that has given them, but after that one was
//! left ([`Qp::drive`]): its answers go to a half that has no owner any more. So it does not matter
//! how long two of them go on, and the stack does not grow.
//!
//! The other side is found under RCU, which is held for the time of a go. Whoever destroys it waits
//! until it has no owner, and then for a grace period, before what waits for it is dropped.

use super::{
    env::{
        Env,
        Memory, //
    },
    object::{
        Qp,
        RxHalf,
        TxHalf, //
    },
    run::{
        Ctx,
        Todo, //
    },
};
use crate::{
    env::{
        MemError,
        Payload,
        SendError,
        TxPacket, //
    },
    fault::Misses,
    mr::{
        self,
        Key,
        Mr,
        Sink,
        Who, //
    },
    net::{
        self,
        roce_len,
        Flow,
        IpAddr, //
    },
    opcode::Transport,
    packet::{
        self,
        DropReason, //
    },
    stats::Counter,
    table::Recent,
    wire::grh, //
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    rdma::driver::mem::Piece,
    sync::{
        exclusive::Borrowed,
        rcu,
        ArcBorrow, //
    },
};

/// Payload of a packet.
#[derive(Clone, Copy)]
pub(super) enum Body<'p> {
    /// These bytes.
    Bytes(&'p [u8]),
    /// What the sender has in its memory.
    Lent(&'p Lent<'p>),
}

impl Body<'_> {
    /// Copies as much as `sink` takes, which is `len`, from the start on.
    pub(super) fn copy(&self, len: u32, sink: &mut Sink<'_>) -> Result<(), MemError> {
        match self {
            Self::Bytes(bytes) => {
                sink.put(bytes.get(..len as usize).ok_or(MemError::Access)?.into());
                Ok(())
            }
            Self::Lent(lent) => lent.copy(0, len, sink),
        }
    }
}

/// A payload that still is in the memory of the sender.
///
/// If it cannot be read, the receiver is told that it has to wait, and so does nothing; the sender
/// learns it from [`Lent::error`].
pub(super) struct Lent<'p> {
    from: &'p Qp,
    who: &'p Who<'p>,
    payload: &'p Payload<'p>,
    error: Cell<Option<MemError>>,
}

impl<'p> Lent<'p> {
    fn new(from: &'p Qp, who: &'p Who<'p>, payload: &'p Payload<'p>) -> Self {
        Self {
            from,
            who,
            payload,
            error: Cell::new(None),
        }
    }

    /// Why the payload could not be read.
    fn error(&self) -> Option<MemError> {
        self.error.get()
    }

    /// Checks that it can be read. What is wrong on this side must be found before the other side
    /// hears of the packet. For memory that the other side asked for, that was done.
    fn check(&self) -> Result<(), MemError> {
        let Payload::Sges(sges) = self.payload else {
            return Ok(());
        };

        sges.clone().try_for_each(|sge| {
            let range = (sge.addr, sge.len as usize);

            mr::may_read(self.from.device(), self.who, Key::Local(sge.lkey), range)
        })
    }

    fn note(&self, result: Result<(), MemError>) -> Result<(), MemError> {
        result.map_err(|e| {
            self.error.set(Some(e));
            MemError::Wait
        })
    }

    /// Copies as much as `sink` takes, which is `len`, from an offset on.
    pub(super) fn copy(&self, at: u32, len: u32, sink: &mut Sink<'_>) -> Result<(), MemError> {
        let (dev, who) = (self.from.device(), self.who);

        self.note(match self.payload {
            Payload::None => Err(MemError::Access),
            Payload::Bytes(bytes) => bytes
                .get(at as usize..)
                .and_then(|b| b.get(..len as usize))
                .ok_or(MemError::Access)
                .map(|bytes| sink.put(bytes.into())),
            Payload::Sges(sges) => sges.part(at, len).try_for_each(|sge| {
                let range = (sge.addr, sge.len as usize);

                mr::lend(dev, who, Key::Local(sge.lkey), range, |p: Piece<'_>| {
                    sink.put(p)
                })
            }),
            Payload::Remote { rkey, va } => {
                let range = (va.wrapping_add(u64::from(at)), len as usize);

                mr::lend(dev, who, Key::Remote(*rkey), range, |p: Piece<'_>| {
                    sink.put(p)
                })
            }
        })
    }

    /// Reads all of it.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<(), MemError> {
        self.note(self.from.read_payload(self.who, self.payload, to))
    }
}

/// A packet that has come to a queue pair, in whichever way.
pub(super) struct Arrival<'p> {
    pub(super) hdr: &'p packet::RxPacket,
    pub(super) src: &'p IpAddr,
    pub(super) dst: &'p IpAddr,
    pub(super) body: Body<'p>,
    /// What is in front of a datagram.
    pub(super) grh: Option<[u8; grh::LEN]>,
}

/// The other side of a connection.
pub(super) enum Peer<'g> {
    /// It is reached by the network.
    Remote,
    /// It would be here, but is not.
    Gone,
    /// It is here.
    Here(ArcBorrow<'g, Qp>),
}

impl<'g> Peer<'g> {
    /// Finds the queue pair that a flow of a device leads to.
    pub(super) fn find(from: &'g Qp, guard: &'g rcu::Guard, flow: &Flow, qpn: u32) -> Self {
        if !flow.is_own() || !net::is_direct() {
            return Self::Remote;
        }
        match from.device().qps.get(guard, qpn) {
            Some(qp) => Self::Here(qp),
            None => Self::Gone,
        }
    }
}

/// A half of the other side that was taken.
enum Held<'a> {
    Nothing,
    Rx(Borrowed<'a, RxHalf>),
    Tx(Borrowed<'a, TxHalf>),
}

/// The way to the other side, for one go of a half. It has to be [closed](Link::close) in the end.
pub(super) struct Link<'a> {
    peer: &'a Peer<'a>,
    /// Which half packets go to.
    half: Todo,
    held: Held<'a>,
    /// What is to be done there.
    todo: Todo,
    /// Memory there.
    mrs: &'a Recent<'a, Mr>,
}

impl<'a> Link<'a> {
    /// Makes one that leads to a half of the other side.
    pub(super) fn new(peer: &'a Peer<'a>, half: Todo, mrs: &'a Recent<'a, Mr>) -> Self {
        Self {
            peer,
            half,
            held: Held::Nothing,
            todo: Todo::NONE,
            mrs,
        }
    }

    /// The regions of the other side.
    pub(super) fn mrs(&self) -> &'a Recent<'a, Mr> {
        self.mrs
    }

    /// Tells whether packets go this way.
    pub(super) fn is_direct(&self) -> bool {
        !matches!(self.peer, Peer::Remote)
    }

    /// Takes the half of the other side, if it has no owner, and tells whether a packet may be
    /// given to it: not if something waits that has come before.
    pub(super) fn hold(&mut self) -> bool {
        let Peer::Here(peer) = self.peer else {
            return false;
        };

        if matches!(self.held, Held::Nothing) {
            self.held = if self.half == Todo::RX {
                peer.rx.try_own().map_or(Held::Nothing, Held::Rx)
            } else {
                peer.tx.try_own().map_or(Held::Nothing, Held::Tx)
            };
        }
        match &self.held {
            Held::Nothing => false,
            Held::Rx(rx) => rx.parked.is_none() && peer.requests.len() == 0,
            Held::Tx(tx) => tx.parked.is_none() && peer.responses.len() == 0,
        }
    }

    /// Gives a packet of `from` to the other side, which `flow` leads to.
    pub(super) fn send(
        &mut self,
        from: &Qp,
        who: &Who<'_>,
        flow: &Flow,
        pkt: &TxPacket<'_>,
        ctx: Ctx,
    ) -> Result<(), SendError> {
        let dev = from.device();
        let hdr = pkt.hdr.as_bytes();
        let roce = roce_len(hdr, pkt.len);
        let parsed = match (self.peer, packet::RxPacket::parse_head(hdr, roce)) {
            (Peer::Here(_), Ok(parsed)) => packet::RxPacket {
                span: pkt.span,
                ..parsed
            },
            (_, Err(reason)) => {
                dev.drops.inc(reason);
                return Ok(());
            }
            (_, Ok(_)) => {
                dev.drops.inc(DropReason::NoQp);
                return Ok(());
            }
        };
        let lent = Lent::new(from, who, &pkt.payload);

        lent.check().map_err(SendError::Mem)?;

        let taken = self.hold()
            && self.give(
                &Arrival {
                    hdr: &parsed,
                    src: flow.local(),
                    dst: flow.peer(),
                    body: Body::Lent(&lent),
                    grh: match parsed.op.transport {
                        Transport::Ud => Some(flow.grh(roce)),
                        _ => None,
                    },
                },
                ctx,
            );

        if let Some(e) = lent.error() {
            return Err(SendError::Mem(e));
        }
        if taken {
            return Ok(());
        }
        if pkt.span > 1 {
            return Err(SendError::Apart);
        }
        self.leave_behind(from, who, flow, pkt)
    }

    /// Gives a packet to the half that was taken. Returns false if it has to be kept.
    fn give(&mut self, arrival: &Arrival<'_>, ctx: Ctx) -> bool {
        let Peer::Here(peer) = self.peer else {
            return false;
        };
        let (nowhere, mrs) = (Peer::Remote, self.mrs);
        // If memory is not there, the packet is kept, and then its owner finds out.
        let memory = Memory {
            mrs,
            misses: Misses::new(None),
        };
        // What comes of a packet is sent later.
        let taken = match &mut self.held {
            Held::Nothing => return false,
            Held::Rx(rx) => {
                let RxHalf {
                    engine,
                    ring,
                    flow,
                    qkey,
                    ..
                } = &mut **rx;
                let link = Link::new(&nowhere, Todo::TX, mrs);
                let cq = &peer.recv_cq;
                let mut env = Env::new(peer, ring, flow.as_ref(), cq, ctx, memory, link);

                Qp::take_request(*peer, &mut env, engine, *qkey, arrival)
            }
            Held::Tx(tx) => {
                let TxHalf {
                    engine, ring, flow, ..
                } = &mut **tx;
                let link = Link::new(&nowhere, Todo::RX, mrs);
                let cq = &peer.send_cq;
                let mut env = Env::new(peer, ring, flow.as_ref(), cq, ctx, memory, link);

                Qp::take_response(*peer, &mut env, engine, arrival).map(|()| Todo::TX)
            }
        };

        taken.is_ok_and(|todo| {
            self.todo = self.todo.and(todo);
            true
        })
    }

    /// Puts a packet behind those that wait for the half of the other side.
    #[cold]
    fn leave_behind(
        &mut self,
        from: &Qp,
        who: &Who<'_>,
        flow: &Flow,
        pkt: &TxPacket<'_>,
    ) -> Result<(), SendError> {
        let Peer::Here(peer) = self.peer else {
            return Ok(());
        };
        let fill = |to: &mut [u8]| from.read_payload(who, &pkt.payload, to);

        match flow.received(pkt.hdr.as_bytes(), pkt.len, fill) {
            Ok(Ok(skb)) => {
                if let Some(it) = net::RxPacket::from_skb(skb) {
                    peer.keep(self.half, it);
                }
            }
            Ok(Err(e)) => return Err(SendError::Mem(e)),
            // No memory. It is as good as lost on its way.
            Err(_) => from.device().stats.inc(Counter::SendErr),
        }
        self.todo = self.todo.and(self.half);
        Ok(())
    }

    /// Leaves the half of the other side. Returns what is to be done there, by whoever owns none of
    /// the halves that it may send to.
    pub(super) fn close(&mut self) -> Todo {
        let Peer::Here(peer) = self.peer else {
            return Todo::NONE;
        };
        let again = match core::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => false,
            Held::Rx(rx) => {
                let replies = rx.engine.has_replies();

                peer.rx.leave(rx) || replies
            }
            Held::Tx(tx) => peer.tx.leave(tx),
        };
        let todo = core::mem::replace(&mut self.todo, Todo::NONE);

        if again {
            todo.and(self.half)
        } else {
            todo
        }
    }
}
