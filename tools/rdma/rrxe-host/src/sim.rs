// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs and a network between them that loses, repeats, delays, reorders and corrupts
//! packets, all from one seed.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    env::*,
    icrc::Portable,
    inflight::{
        Entry,
        InFlight, //
    },
    lent::{
        Body,
        Nodes,
        Way, //
    },
    opcode::Transport,
    packet::{
        Admission,
        NetHdr,
        RxPacket,
        Tail, //
    },
    psn::Psn,
    qp::state::QpState,
    resp::{
        Resource,
        Rights,
        Rx,
        RxConfig, //
    },
    sge::Sge,
    tx::{
        Tx,
        TxConfig, //
    },
    wc::{
        Status,
        Wc, //
    },
    wire::{
        bth::Bth,
        feth::Feth,
        grh,
        pad,
        reth::Reth, //
    },
    wqe::{
        Data,
        Malformed,
        RecvWqe,
        SendFlags,
        SendWqe,
        Work, //
    },
};
use std::{
    cell::Cell,
    collections::VecDeque,
    rc::Rc, //
};

/// xorshift64*: small, and the same everywhere.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, or 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }

    /// True in so many of 1000 cases.
    pub(crate) fn per_mille(&mut self, n: u32) -> bool {
        self.below(1000) < u64::from(n)
    }
}

/// A memory region; its key is local and remote.
pub(crate) struct Region {
    pub(crate) key: u32,
    pub(crate) base: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Region {
    fn range(&mut self, va: u64, len: u32) -> Option<&mut [u8]> {
        let at = usize::try_from(va.checked_sub(self.base)?).ok()?;

        self.bytes.get_mut(at..at.checked_add(len as usize)?)
    }
}

/// What a work request of the tests has for the kernel only.
pub(crate) type Kernel = u32;

/// An entry of a send queue: the work request, and its elements or inline bytes.
pub(crate) type Posted = Result<(SendWqe<Kernel>, Vec<u8>), Malformed>;

/// Surroundings of one queue pair.
pub(crate) struct Host {
    clock: Rc<Cell<u64>>,
    pub(crate) rng: Rng,
    pub(crate) regions: Vec<Region>,
    pub(crate) sq: VecDeque<Posted>,
    pub(crate) rq: VecDeque<Result<(RecvWqe, Vec<u8>), Malformed>>,
    pub(crate) sent_wcs: Vec<Wc>,
    pub(crate) recv_wcs: Vec<Wc>,
    /// Packets that were sent and not taken by the network yet.
    pub(crate) out: VecDeque<Vec<u8>>,
    /// Local operations that were done.
    pub(crate) local: Vec<Work<Kernel>>,
    /// In so many of 1000 cases there is no room for a packet.
    pub(crate) busy: u32,
    /// In so many of 1000 cases memory has to be waited for.
    pub(crate) wait: u32,
    /// Packets of a flow differ in their identification.
    id: u16,
    pub(crate) v6: bool,
    pub(crate) handles: u32,
    pub(crate) invalidated: Vec<u32>,
    /// Room of both completion queues together.
    pub(crate) room: usize,
    /// In so many of 1000 cases a packet does not go by the network if it need not.
    pub(crate) direct: u32,
    /// In so many of 1000 cases the half that it is for has an owner.
    pub(crate) owned: u32,
    /// The other side, while this one is at work.
    pub(crate) peer: Option<Box<Node>>,
    /// How the next packet goes, if that was decided.
    pub(crate) way: Option<Way>,
    /// Packets that did not go by the network.
    pub(crate) handed: u64,
}

impl Host {
    fn new(clock: Rc<Cell<u64>>, seed: u64) -> Self {
        Self {
            clock,
            rng: Rng::new(seed),
            regions: Vec::new(),
            sq: VecDeque::new(),
            rq: VecDeque::new(),
            sent_wcs: Vec::new(),
            recv_wcs: Vec::new(),
            out: VecDeque::new(),
            local: Vec::new(),
            busy: 0,
            wait: 0,
            id: 0,
            v6: false,
            handles: 1,
            invalidated: Vec::new(),
            room: usize::MAX,
            direct: 0,
            owned: 0,
            peer: None,
            way: None,
            handed: 0,
        }
    }

    fn region(&mut self, key: u32) -> Result<&mut Region, MemError> {
        if self.rng.per_mille(self.wait) {
            return Err(MemError::Wait);
        }
        self.regions
            .iter_mut()
            .find(|r| r.key == key)
            .ok_or(MemError::Access)
    }

    /// Makes IP and UDP header for so many bytes.
    pub(crate) fn network_headers(&mut self, len: usize) -> Vec<u8> {
        let udp = (8 + len) as u16;

        self.id = self.id.wrapping_add(1);
        let mut ip = if self.v6 {
            let mut ip = vec![0x60, 0, 0, 0];

            ip.extend(udp.to_be_bytes());
            ip.extend([17, 64]);
            ip.extend([0xfe; 32]);
            ip
        } else {
            let mut ip = vec![0x45, 0];

            ip.extend((20 + udp).to_be_bytes());
            ip.extend(self.id.to_be_bytes());
            ip.extend([0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            ip
        };

        ip.extend(0xc123u16.to_be_bytes());
        ip.extend(4791u16.to_be_bytes());
        ip.extend(udp.to_be_bytes());
        ip.extend([0, 0]);
        ip
    }

    /// Adds network headers and ICRC to headers and payload.
    pub(crate) fn frame(&mut self, roce: &[u8]) -> Vec<u8> {
        let mut frame = self.network_headers(roce.len() + 4);

        frame.extend(roce);

        let (net, udp, roce) = NetHdr::split(&frame).unwrap();
        let (bth, rest) = roce.split_first_chunk::<{ Bth::LEN }>().unwrap();
        let mut icrc = net.icrc::<Portable>(udp, bth);

        icrc.update(rest);
        let icrc = icrc.finish();
        frame.extend(icrc);
        frame
    }

    /// Reads a part of a payload.
    pub(crate) fn gather(
        &mut self,
        payload: &Payload<'_>,
        at: u32,
        len: u32,
    ) -> Result<Vec<u8>, MemError> {
        let mut out = Vec::new();
        let (at, end) = (at as usize, (at + len) as usize);

        match payload {
            Payload::None => assert_eq!(len, 0),
            Payload::Bytes(bytes) => out.extend(&bytes[at..end]),
            Payload::Sges(sges) => {
                // All that there is before it is read as well; that is for tests.
                for sge in sges.clone() {
                    let region = self.region(sge.lkey)?;

                    out.extend(&*region.range(sge.addr, sge.len).ok_or(MemError::Access)?);
                }
                out = out[at..end].to_vec();
            }
            Payload::Remote { rkey, va } => {
                let region = self.region(*rkey)?;

                if !region.read {
                    return Err(MemError::Access);
                }
                let va = va.wrapping_add(at as u64);

                out.extend(&*region.range(va, len).ok_or(MemError::Access)?);
            }
        }
        Ok(out)
    }

    /// Makes a frame of a packet.
    pub(crate) fn frame_of(&mut self, pkt: &TxPacket<'_>) -> Result<Vec<u8>, SendError> {
        let payload = self
            .gather(&pkt.payload, 0, pkt.len)
            .map_err(SendError::Mem)?;
        let mut roce = pkt.hdr.as_bytes().to_vec();

        roce.extend(payload);
        roce.extend(&[0; 3][..usize::from(pad(pkt.len))]);
        Ok(self.frame(&roce))
    }
}

impl Clock for Host {
    fn now(&self) -> u64 {
        self.clock.get()
    }
}

impl Wire for Host {
    fn send(&mut self, pkt: &TxPacket<'_>) -> Result<(), SendError> {
        if self.rng.per_mille(self.busy) {
            return Err(SendError::Busy);
        }
        if let Dest::Handle(ah) = pkt.dest {
            if ah != self.handles {
                return Err(SendError::Handle);
            }
        }

        match self.way.take().unwrap_or_else(|| self.choose()) {
            Way::Engine => return self.hand_over(pkt),
            Way::Queue => {
                let frame = self.frame_of(pkt)?;

                self.queue(frame);
            }
            Way::Network => {
                let frame = self.frame_of(pkt)?;

                assert_eq!(pkt.span, 1);
                self.out.push_back(frame);
            }
        }
        Ok(())
    }

    fn span(&mut self, _dest: Dest) -> u32 {
        self.choose_span()
    }
}

impl Mem for Host {
    type Packet<'p> = Body<'p>;

    fn scatter(&mut self, to: Target, from: Source<'_, Body<'_>>) -> Result<(), MemError> {
        let (key, va, len, remote) = match to {
            Target::Local(sge) => (sge.lkey, sge.addr, sge.len, false),
            Target::Remote { rkey, va, len } => (rkey, va, len, true),
        };
        let region = self.region(key)?;

        if !region.write && remote {
            return Err(MemError::Access);
        }

        let dst = region.range(va, len).ok_or(MemError::Access)?;

        match from {
            Source::Bytes(bytes) => dst.copy_from_slice(&bytes[..len as usize]),
            Source::Packet(body, at) => dst.copy_from_slice(&body.get(at, len)?),
            Source::Behind(head, body) => {
                let (front, rest) = dst.split_at_mut(head.len());

                front.copy_from_slice(head);
                rest.copy_from_slice(&body.get(0, rest.len() as u32)?);
            }
        }
        Ok(())
    }

    fn check(&mut self, reth: &Reth, access: Access) -> Result<(), MemError> {
        let region = self.region(reth.rkey)?;
        let right = match access {
            Access::Read => region.read,
            Access::Write => region.write,
        };

        assert!(reth.len > 0);
        region
            .range(reth.va, reth.len)
            .filter(|_| right)
            .map(|_| ())
            .ok_or(MemError::Access)
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        let region = self.region(rkey)?;

        assert_eq!(va % 8, 0);
        if !region.write {
            return Err(MemError::Access);
        }

        let place = region.range(va, 8).ok_or(MemError::Access)?;
        let old = u64::from_ne_bytes(place.try_into().unwrap());
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if old == compare => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd(n) => old.wrapping_add(n),
        };

        place.copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }

    fn atomic_write(&mut self, rkey: u32, va: u64, from: Body<'_>) -> Result<(), MemError> {
        assert_eq!(va % 8, 0);
        self.scatter(Target::Remote { rkey, va, len: 8 }, Source::Packet(from, 0))
    }

    fn flush(&mut self, feth: &Feth, reth: &Reth) -> Result<(), MemError> {
        assert!(feth.is_valid());
        let region = self.region(reth.rkey)?;

        if feth.level == Feth::RANGE {
            region.range(reth.va, reth.len).ok_or(MemError::Access)?;
        }
        Ok(())
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), MemError> {
        self.region(rkey)?;
        self.invalidated.push(rkey);
        Ok(())
    }
}

impl SendQueue for Host {
    type Kernel = Kernel;

    fn fetch_send(&mut self, area: &mut [u8]) -> Option<Result<SendWqe<Kernel>, Malformed>> {
        Some(self.sq.pop_front()?.map(|(wqe, bytes)| {
            area[..bytes.len()].copy_from_slice(&bytes);
            wqe
        }))
    }

    fn local(&mut self, work: &Work<Kernel>) -> Result<(), Status> {
        self.local.push(*work);
        match work {
            Work::LocalInv(0) => Err(Status::LocQpOp),
            Work::BindMw(bind) if bind.len == 0 => Err(Status::MwBind),
            _ => Ok(()),
        }
    }
}

impl RecvQueue for Host {
    fn fetch_recv(&mut self, area: &mut [u8]) -> Option<Result<RecvWqe, Malformed>> {
        Some(self.rq.pop_front()?.map(|(wqe, bytes)| {
            area[..bytes.len()].copy_from_slice(&bytes);
            wqe
        }))
    }
}

impl CqSink for Host {
    fn complete(&mut self, wc: &Wc) -> Result<(), Overflow> {
        if self.sent_wcs.len() + self.recv_wcs.len() >= self.room {
            return Err(Overflow);
        }
        if wc.is_recv() {
            self.recv_wcs.push(*wc);
        } else {
            self.sent_wcs.push(*wc);
        }
        Ok(())
    }
}

/// What the network and the queue pairs are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) transport: Transport,
    pub(crate) mtu: u32,
    /// Per mille of packets.
    pub(crate) loss: u32,
    pub(crate) dup: u32,
    pub(crate) corrupt: u32,
    pub(crate) reorder: u32,
    /// Per mille of attempts.
    pub(crate) busy: u32,
    pub(crate) wait: u32,
    pub(crate) depth: u32,
    pub(crate) resources: u32,
    pub(crate) thin_acks: bool,
    pub(crate) v6: bool,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) psn: u32,
    /// Per mille of packets that do not go by the network, and of those that find an owner.
    pub(crate) direct: u32,
    pub(crate) owned: u32,
}

impl Setup {
    pub(crate) const QUIET: Self = Self {
        seed: 1,
        transport: Transport::Rc,
        mtu: 1024,
        loss: 0,
        dup: 0,
        corrupt: 0,
        reorder: 0,
        busy: 0,
        wait: 0,
        depth: 64,
        resources: 4,
        thin_acks: true,
        v6: false,
        retry_cnt: 7,
        rnr_retry: 7,
        psn: 0xff_fff0,
        direct: 0,
        owned: 0,
    };
}

const AREA: usize = 512;

pub(crate) type Requester = Tx<Vec<Option<Entry<Kernel>>>, Vec<u8>>;
pub(crate) type Responder = Rx<Vec<Option<Resource>>>;

/// A queue pair and its surroundings.
pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) tx: Requester,
    pub(crate) rx: Responder,
    transport: Transport,
    qkey: u32,
    /// Responses and requests that wait for something.
    parked: [VecDeque<(Vec<u8>, u32)>; 2],
    pub(crate) error: bool,
    pub(crate) overflow: bool,
    pub(crate) access: bool,
    pub(crate) request: bool,
    pub(crate) drained: u32,
    pub(crate) dropped: u32,
}

pub(crate) const QKEY: u32 = 0x1111_1111;

/// Number of the queue pair on a side.
pub(crate) const fn qpn(side: usize) -> u32 {
    0x11 + side as u32
}

impl Node {
    fn new(clock: Rc<Cell<u64>>, side: usize, s: &Setup) -> Self {
        let cfg = TxConfig {
            transport: s.transport,
            gsi: false,
            qpn: qpn(side),
            dest_qpn: qpn(1 - side),
            pkey: 0xffff,
            qkey: QKEY,
            mtu: s.mtu,
            max_rd_atomic: s.resources,
            retry_cnt: s.retry_cnt,
            rnr_retry: s.rnr_retry,
            timeout: Some(1_000_000),
            signal_all: false,
            thin_acks: s.thin_acks,
        };
        let table = InFlight::new(
            (0..s.depth).map(|_| None).collect(),
            vec![0; AREA * s.depth as usize],
            AREA,
        )
        .unwrap();
        let mut tx = Tx::new(cfg, table);
        let mut rx = Rx::new(
            RxConfig {
                transport: s.transport,
                qpn: qpn(side),
                dest_qpn: qpn(1 - side),
                pkey: 0xffff,
                mtu: s.mtu,
                rights: Rights {
                    write: true,
                    read: true,
                    atomic: true,
                    flush: true,
                },
                min_rnr_timer: 12,
                resume_in_place: s.seed % 2 == 0,
                shared: false,
            },
            (0..s.resources).map(|_| None).collect::<Vec<_>>(),
        );
        let cfg_rx = *rx.config();

        // Each side counts from a place of its own.
        rx.start(
            cfg_rx,
            (0..s.resources).map(|_| None).collect(),
            Psn::new(s.psn + 1000 * (1 - side as u32)),
        );
        tx.start(cfg, Psn::new(s.psn + 1000 * side as u32));
        tx.set_state(QpState::Rts);

        let mut host = Host::new(clock, s.seed ^ (side as u64 + 77));

        host.busy = s.busy;
        host.wait = s.wait;
        host.v6 = s.v6;
        host.direct = s.direct;
        host.owned = s.owned;
        Self {
            host,
            tx,
            rx,
            transport: s.transport,
            qkey: QKEY,
            parked: Default::default(),
            error: false,
            overflow: false,
            access: false,
            request: false,
            drained: 0,
            dropped: 0,
        }
    }

    fn note(&mut self, ev: Events) -> bool {
        self.error |= ev.error;
        self.overflow |= ev.overflow;
        self.access |= ev.access;
        self.request |= ev.request;
        self.drained += u32::from(ev.drained);
        ev.more
    }

    /// Does all that can be done now.
    pub(crate) fn work(&mut self) {
        loop {
            let ev = self.rx.pump(&mut self.host, 16);
            let mut more = self.note(ev);
            let ev = self.tx.run(&mut self.host, 16);

            more |= self.note(ev);
            if self.error && self.tx.state != QpState::Error {
                self.tx.set_state(QpState::Error);
                more = true;
            }
            if self.error {
                let ev = self.rx.flush(&mut self.host);

                more |= self.note(ev);
            }
            if !more {
                break;
            }
        }
    }

    /// Takes a packet from the network.
    pub(crate) fn receive(&mut self, frame: Vec<u8>) {
        self.receive_span(frame, 1);
    }

    /// The same for one that is said to stand for several.
    pub(crate) fn receive_span(&mut self, frame: Vec<u8>, span: u32) {
        if self.parse(&frame).is_none() {
            self.dropped += 1;
        } else {
            self.park(frame, span);
        }
        self.resume();
    }

    /// Puts a packet behind those that wait.
    pub(crate) fn park(&mut self, frame: Vec<u8>, span: u32) {
        let (_, _, roce) = NetHdr::split(&frame).unwrap();
        let queue = usize::from(RxPacket::parse(roce).unwrap().op.kind.is_request());

        self.parked[queue].push_back((frame, span));
    }

    /// Tells whether nothing waits in front of a packet.
    pub(crate) fn is_free_for(&self, pkt: &RxPacket) -> bool {
        self.parked[usize::from(pkt.op.kind.is_request())].is_empty()
    }

    /// Lets a packet in, or not.
    pub(crate) fn admit(&self, pkt: &RxPacket) -> Option<()> {
        Admission {
            transport: self.transport,
            responds: true,
            requests: true,
            address: true,
            pkey: 0xffff,
            qkey: self.qkey,
        }
        .admit(pkt)
        .ok()
    }

    /// Lets a packet in that the network has brought, or not.
    pub(crate) fn parse(&self, frame: &[u8]) -> Option<RxPacket> {
        let (net, udp, roce) = NetHdr::split(frame).ok()?;
        let pkt = RxPacket::parse(roce).ok()?;

        self.admit(&pkt)?;
        RxPacket::check_icrc::<Portable>(&net, udp, roce).ok()?;
        Some(pkt)
    }

    /// Gives a packet to the engine; returns whether it was taken.
    pub(crate) fn take(&mut self, pkt: &RxPacket, payload: Body<'_>, ip: &[u8; grh::LEN]) -> bool {
        if !pkt.op.kind.is_request() {
            return self.tx.receive(&mut self.host, pkt, payload).is_ok();
        }
        match self.rx.receive(&mut self.host, pkt, payload, ip) {
            Ok(received) => {
                self.dropped += u32::from(received.dropped);
                self.note(received.events);
                true
            }
            Err(_) => false,
        }
    }

    /// Gives waiting packets to the engine, in order.
    pub(crate) fn resume(&mut self) {
        for queue in 0..2 {
            while let Some((frame, span)) = self.parked[queue].front().cloned() {
                let (net, _, roce) = NetHdr::split(&frame).unwrap();
                let pkt = RxPacket {
                    span,
                    ..RxPacket::parse(roce).unwrap()
                };
                let ip = match net {
                    NetHdr::V4(ip) => grh::from_v4(ip),
                    NetHdr::V6(ip) => grh::from_v6(ip),
                };

                if !self.take(&pkt, Body::Bytes(pkt.payload(roce)), &ip) {
                    break;
                }
                self.parked[queue].pop_front();
            }
        }
    }

    fn is_parked(&self) -> bool {
        self.parked.iter().any(|q| !q.is_empty())
    }

    /// Adds a region of random bytes.
    pub(crate) fn region(&mut self, key: u32, len: usize, read: bool, write: bool) {
        let bytes = (0..len).map(|_| self.host.rng.next() as u8).collect();

        self.host.regions.push(Region {
            key,
            base: u64::from(key) << 32,
            bytes,
            read,
            write,
        });
    }

    /// Posts a send work request with elements, which are (key, offset, length).
    pub(crate) fn post(
        &mut self,
        wr_id: u64,
        flags: u32,
        work: Work<Kernel>,
        sges: &[(u32, u32, u32)],
    ) {
        let mut area = Vec::new();
        let mut len = 0;

        for &(key, at, n) in sges {
            let sge = Sge {
                addr: (u64::from(key) << 32) + u64::from(at),
                len: n,
                lkey: key,
            };

            area.extend(sge.emit());
            len += n;
        }
        self.host.sq.push_back(Ok((
            SendWqe {
                wr_id,
                work,
                flags: SendFlags(flags),
                data: Data::Sges {
                    count: sges.len() as u8,
                    len,
                },
            },
            area,
        )));
    }

    /// Posts a send work request with inline data.
    pub(crate) fn post_inline(&mut self, wr_id: u64, work: Work<Kernel>, data: &[u8]) {
        self.host.sq.push_back(Ok((
            SendWqe {
                wr_id,
                work,
                flags: SendFlags(SendFlags::SIGNALED | SendFlags::INLINE),
                data: Data::Inline(data.len() as u32),
            },
            data.to_vec(),
        )));
    }

    /// Posts a receive buffer in a region.
    pub(crate) fn post_recv(&mut self, wr_id: u64, key: u32, at: u32, len: u32) {
        let half = len / 2;
        let addr = (u64::from(key) << 32) + u64::from(at);
        let sges = [
            Sge {
                addr,
                len: half,
                lkey: key,
            },
            Sge {
                addr: addr + u64::from(half),
                len: len - half,
                lkey: key,
            },
        ];

        let area: Vec<u8> = sges.iter().flat_map(Sge::emit).collect();

        self.host
            .rq
            .push_back(RecvWqe::new(wr_id, &area).map(|wqe| (wqe, area)));
    }

    pub(crate) fn bytes(&self, key: u32, at: u32, len: u32) -> &[u8] {
        let region = self.host.regions.iter().find(|r| r.key == key).unwrap();

        &region.bytes[at as usize..(at + len) as usize]
    }

    /// All of the first `n` work requests of each kind completed, once and in order.
    pub(crate) fn assert_completed_once(&self, n: u64) {
        for wcs in [&self.host.sent_wcs, &self.host.recv_wcs] {
            let ids: Vec<_> = wcs.iter().map(|wc| wc.wr_id).collect();

            assert_eq!(ids, (0..n).collect::<Vec<_>>());
        }
    }
}

/// Both sides and the network.
pub(crate) struct World {
    pub(crate) setup: Setup,
    clock: Rc<Cell<u64>>,
    pub(crate) rng: Rng,
    pub(crate) nodes: Nodes,
    /// Packets on their way: when they come, to whom, in which order.
    flying: Vec<(u64, usize, u64, Vec<u8>)>,
    count: u64,
    pub(crate) delivered: u64,
    /// Headers of what was sent, by which side.
    pub(crate) seen: Vec<(usize, RxPacket)>,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let clock = Rc::new(Cell::new(0));

        Self {
            setup,
            nodes: Nodes::new(
                Node::new(clock.clone(), 0, &setup),
                Node::new(clock.clone(), 1, &setup),
            ),
            clock,
            rng: Rng::new(setup.seed),
            flying: Vec::new(),
            count: 0,
            delivered: 0,
            seen: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.get()
    }

    /// Gives what was sent to the network.
    fn transmit(&mut self) {
        for side in 0..2 {
            while let Some(mut frame) = self.nodes[side].host.out.pop_front() {
                let (_, _, roce) = NetHdr::split(&frame).unwrap();

                self.seen.push((side, RxPacket::parse(roce).unwrap()));
                if self.rng.per_mille(self.setup.loss) {
                    continue;
                }
                if self.rng.per_mille(self.setup.corrupt) {
                    let at = self.rng.below(frame.len() as u64) as usize;

                    frame[at] ^= 1 << self.rng.below(8);
                }
                let copies = 1 + u64::from(self.rng.per_mille(self.setup.dup));

                for _ in 0..copies {
                    let mut at = self.clock.get() + 10_000;

                    if self.rng.per_mille(self.setup.reorder) {
                        at += self.rng.below(200_000);
                    }
                    self.count += 1;
                    self.flying.push((at, 1 - side, self.count, frame.clone()));
                }
            }
        }
    }

    /// Lets both sides work until neither has given the other something to do.
    fn work(&mut self) {
        loop {
            let mut handed = 0;

            for side in 0..2 {
                handed += self.nodes.with(side, |node| {
                    let before = node.host.handed;

                    node.resume();
                    node.work();
                    node.host.handed - before
                });
            }
            if handed == 0 {
                return;
            }
        }
    }

    /// Lets both sides work, then lets the next thing happen. Returns false if nothing will.
    pub(crate) fn step(&mut self) -> bool {
        self.work();
        self.transmit();

        let packet = self
            .flying
            .iter()
            .enumerate()
            .min_by_key(|(_, (at, _, n, _))| (*at, *n))
            .map(|(i, p)| (p.0, i));
        let mut timer = self.nodes.iter().filter_map(|n| n.tx.next_timeout()).min();
        // What had no room or had to wait is tried again a little later.
        if self.setup.busy + self.setup.wait > 0 || self.nodes.iter().any(Node::is_parked) {
            let soon = self.clock.get() + 5_000;
            let open = self
                .nodes
                .iter()
                .any(|n| n.is_parked() || n.rx.has_replies() || !n.tx.q.is_empty());

            if open {
                timer = Some(timer.map_or(soon, |t| t.min(soon)));
            }
        }

        match (packet, timer) {
            (None, None) => return false,
            (Some((at, i)), timer) if timer.is_none_or(|t| at <= t) => {
                let (_, side, _, frame) = self.flying.swap_remove(i);

                self.clock.set(at.max(self.clock.get()));
                self.delivered += 1;
                self.nodes[side].receive(frame);
            }
            (_, timer) => {
                let t = timer.unwrap_or(0);

                self.clock.set(t.max(self.clock.get()));
                for node in self.nodes.iter_mut() {
                    let kept = !node.parked[0].is_empty();

                    node.tx.timeout(&node.host, kept);
                }
            }
        }
        true
    }

    /// Goes on until nothing happens any more; fails if that takes too long.
    pub(crate) fn settle(&mut self, limit: u64) {
        for _ in 0..limit {
            if !self.step() {
                return;
            }
        }
        panic!("still busy after {limit} steps at {} ns", self.now());
    }
}

/// A SEND.
pub(crate) const SEND: Work<Kernel> = Work::Send(Tail::None);
