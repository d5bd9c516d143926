// SPDX-License-Identifier: GPL-2.0

//! Receiving: from a UDP datagram to a packet for a queue pair.

use super::{
    mcast::MAX_MEMBERS,
    ns::{
        Port,
        Ports, //
    },
    IpAddr,
    KernelCrc, //
};
use crate::{
    device::Device,
    opcode::Transport,
    packet::{
        self,
        DropReason,
        NetHdr, //
    },
    qp,
    stats::Counter,
    wire::{
        bth::Bth,
        grh, //
    },
};
use core::ops::Range;
use kernel::{
    net::{
        netdevice::NetDevice,
        skb::SkBuff, //
    },
    prelude::*,
    sync::{
        rcu,
        ArcBorrow, //
    }, //
};

/// Size of the UDP header.
const UDP_LEN: usize = 8;

/// A datagram whose parts are all there.
struct View<'a> {
    net: NetHdr<'a>,
    udp: &'a [u8; UDP_LEN],
    roce: &'a [u8],
}

impl<'a> View<'a> {
    /// Looks at a buffer that is in one piece and whose data begins with the UDP header.
    fn new(skb: &'a SkBuff) -> Result<Self, DropReason> {
        let (net, udp, roce) = NetHdr::split(skb.network_bytes())?;
        let len = match net {
            NetHdr::V4(ip) => ip.len(),
            NetHdr::V6(ip) => ip.len(),
        };

        // Extension headers of IPv6.
        if skb.data_at() != len {
            return Err(DropReason::IpOptions);
        }
        Ok(Self { net, udp, roce })
    }

    /// Returns the addresses of source and destination.
    fn addrs(&self) -> (IpAddr, IpAddr) {
        match self.net {
            NetHdr::V4(&[_, _, _, _, _, _, _, _, _, _, _, _, s0, s1, s2, s3, d0, d1, d2, d3]) => {
                (IpAddr::V4([s0, s1, s2, s3]), IpAddr::V4([d0, d1, d2, d3]))
            }
            NetHdr::V6(ip) => {
                let (_, addrs) = ip.split_at(8);
                let (source, dest) = addrs.split_at(16);

                (
                    IpAddr::V6(*source.first_chunk().unwrap_or(&[0; 16])),
                    IpAddr::V6(*dest.first_chunk().unwrap_or(&[0; 16])),
                )
            }
        }
    }
}

/// A packet that was received, whose headers are all right and whose ICRC fits.
///
/// # Invariants
///
/// The buffer is in one piece, and `hdr` is what was parsed from it.
pub(crate) struct RxPacket {
    /// Headers.
    pub(crate) hdr: packet::RxPacket,
    src: IpAddr,
    dst: IpAddr,
    /// Where the packet is in what is behind the UDP header.
    range: Range<usize>,
    skb: SkBuff,
}

/// Where the packet that begins at `at` ends: at the end of the datagram, or where the next one of
/// a train begins.
fn range(skb: &SkBuff, at: usize) -> Range<usize> {
    let end = skb.len().saturating_sub(UDP_LEN);

    at..match skb.train(super::ETHER_TYPE) {
        Some(size) => end.min(at.saturating_add(size.get())),
        None => end,
    }
}

impl RxPacket {
    /// Takes back a packet from what [`RxPacket::into_skb`] has returned. The ICRC is not checked
    /// again.
    pub(crate) fn from_skb(skb: SkBuff) -> Option<Self> {
        let view = View::new(&skb).ok()?;
        let range = range(&skb, skb.note() as usize);
        let hdr = packet::RxPacket::parse(view.roce.get(range.clone())?).ok()?;
        let (src, dst) = view.addrs();

        // INVARIANT: It has just been parsed. What is not in one piece does not have the headers in
        // the piece that there is, or is too short for what they say.
        Some(Self {
            hdr,
            src,
            dst,
            range,
            skb,
        })
    }

    /// Returns the buffer, to put it in a list. What is behind the packet in a train stays there.
    pub(crate) fn into_skb(mut self) -> SkBuff {
        // No datagram is that long.
        self.skb.set_note(self.range.start as u32);
        self.skb
    }

    /// Goes on to the packet behind this one in a train. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// If it makes no sense, or is not one for the same queue pair. This packet is what it was.
    pub(crate) fn advance(&mut self) -> Result<bool, DropReason> {
        let at = self.range.end;

        if at.saturating_add(UDP_LEN) >= self.skb.len() {
            return Ok(false);
        }

        let range = range(&self.skb, at);
        let bytes = self
            .skb
            .bytes()
            .get(UDP_LEN..)
            .and_then(|b| b.get(range.clone()));
        let hdr = packet::RxPacket::parse(bytes.ok_or(DropReason::Short)?)?;

        if hdr.bth.dest_qp != self.hdr.bth.dest_qp {
            return Err(DropReason::DestQp);
        }
        if hdr.op.transport != self.hdr.op.transport
            || hdr.op.kind.is_request() != self.hdr.op.kind.is_request()
        {
            return Err(DropReason::Service);
        }
        // INVARIANT: It has just been parsed.
        self.hdr = hdr;
        self.range = range;
        Ok(true)
    }

    /// Returns the same packet in another buffer that has the same data.
    fn with(&self, skb: SkBuff) -> Self {
        // INVARIANT: What is true of one buffer is true of the other.
        Self {
            hdr: self.hdr,
            src: self.src,
            dst: self.dst,
            range: self.range.clone(),
            skb,
        }
    }

    /// The payload.
    pub(crate) fn payload(&self) -> &[u8] {
        let bytes = self.skb.bytes().get(UDP_LEN..);

        self.hdr
            .payload(bytes.and_then(|b| b.get(self.range.clone())).unwrap_or(&[]))
    }

    /// Where it comes from.
    pub(crate) fn src(&self) -> &IpAddr {
        &self.src
    }

    /// Where it goes to.
    pub(crate) fn dst(&self) -> &IpAddr {
        &self.dst
    }

    /// What is in front of a datagram in a receive buffer.
    pub(crate) fn grh(&self) -> [u8; grh::LEN] {
        match NetHdr::split(self.skb.network_bytes()) {
            Ok((NetHdr::V4(ip), ..)) => grh::from_v4(ip),
            Ok((NetHdr::V6(ip), ..)) => grh::from_v6(ip),
            Err(_) => [0; grh::LEN],
        }
    }
}

/// What is known of a packet that was let in.
struct Checked<'g> {
    port: ArcBorrow<'g, Port>,
    hdr: packet::RxPacket,
    src: IpAddr,
    dst: IpAddr,
    range: Range<usize>,
    /// How many packets there are.
    count: usize,
}

/// Why a packet was not let in, and by whom.
struct Refused<'g>(Option<ArcBorrow<'g, Port>>, DropReason);

/// Checks a packet, from cheap to dear. What only the queue pair knows is not checked.
fn check<'g>(
    ports: &'g Ports,
    guard: &'g rcu::Guard,
    ndev: &NetDevice,
    skb: &SkBuff,
) -> Result<Checked<'g>, Refused<'g>> {
    let found = |dst| ports.find(guard, ndev, dst);
    let view = View::new(skb).map_err(|why| {
        // Without the address those from loop-back cannot be assigned.
        Refused(found(&IpAddr::V4([0; 4])), why)
    })?;
    let (src, dst) = view.addrs();
    let port = found(&dst).ok_or(Refused(None, DropReason::DestAddress))?;
    let refused = |why| Refused(Some(port), why);
    let range = range(skb, 0);
    let first = view.roce.get(range.clone()).unwrap_or(&[]);
    let hdr = packet::RxPacket::parse(first).map_err(refused)?;

    // The queue pairs of the other services compare addresses themselves.
    if hdr.op.transport == Transport::Ud {
        let known = if dst.is_multicast() {
            port.dev.groups.has(&dst)
        } else {
            port.owns(guard, &dst)
        };

        if !known {
            return Err(refused(DropReason::DestAddress));
        }
        if dst.is_multicast() != (hdr.bth.dest_qp == Bth::QPN_MASK) {
            return Err(refused(DropReason::DestQp));
        }
    }
    // A train has not left this machine.
    let count = match skb.train(super::ETHER_TYPE) {
        // Not by `div_ceil()`: with KCSAN the compiler left half of its check for 0, and objtool
        // found that the function goes on into the next one.
        Some(size) => view.roce.len() / size + usize::from(view.roce.len() % size != 0),
        None => {
            packet::RxPacket::check_icrc::<KernelCrc>(&view.net, view.udp, first)
                .map_err(refused)?;
            1
        }
    };

    Ok(Checked {
        port,
        hdr,
        src,
        dst,
        range,
        count,
    })
}

/// Gives a packet to all queue pairs in the group that it is for.
fn deliver_all(dev: &Device, pkt: RxPacket) {
    let mut qpns = [0; MAX_MEMBERS];
    let n = dev.groups.members(&pkt.dst, &mut qpns);
    let Some((last, others)) = qpns.get(..n).and_then(|q| q.split_last()) else {
        return;
    };

    for &qpn in others {
        // Datagrams may get lost.
        if let Ok(skb) = pkt.skb.try_clone() {
            qp::deliver(dev, qpn, pkt.with(skb));
        }
    }
    qp::deliver(dev, *last, pkt);
}

/// Receives a datagram. Softirq context, or the like; see [`kernel::net::udp_tunnel::Receiver`].
pub(super) fn receive(ports: &Ports, ndev: &NetDevice, mut skb: SkBuff) {
    let guard = rcu::read_lock();

    if skb.linearize().is_err() {
        skb.discard();
        return;
    }

    match check(ports, &guard, ndev, &skb) {
        Ok(ok) => {
            let dev = &ok.port.dev;
            let roce = skb.len().saturating_sub(UDP_LEN);
            // Each packet of a train had these headers. What is sent is counted with them, too.
            let front = skb.network_bytes().len().saturating_sub(roce);
            let bytes = roce + front * ok.count;

            dev.stats.add(Counter::RcvdPkts, ok.count as u64);
            dev.stats.add(Counter::RcvdBytes, bytes as u64);
            // It may be kept for longer than RCU's lock is held.
            skb.detach();

            // INVARIANT: It was put in one piece, and `hdr` was parsed from it.
            let pkt = RxPacket {
                hdr: ok.hdr,
                src: ok.src,
                dst: ok.dst,
                range: ok.range,
                skb,
            };

            if pkt.dst.is_multicast() {
                deliver_all(dev, pkt);
            } else {
                qp::deliver(dev, pkt.hdr.bth.dest_qp, pkt);
            }
        }
        Err(Refused(port, why)) => {
            if let Some(port) = port {
                port.dev.drops.inc(why);
            }
            skb.discard();
        }
    }
}
