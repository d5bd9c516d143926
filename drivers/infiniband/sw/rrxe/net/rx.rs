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
    skb: SkBuff,
}

impl RxPacket {
    /// Takes back a packet from what [`RxPacket::into_skb`] has returned. The ICRC is not checked
    /// again.
    pub(crate) fn from_skb(skb: SkBuff) -> Option<Self> {
        let view = View::new(&skb).ok()?;
        let hdr = packet::RxPacket::parse(view.roce).ok()?;
        let (src, dst) = view.addrs();

        // INVARIANT: It has just been parsed. What is not in one piece does not have the headers in
        // the piece that there is, or is too short for what they say.
        Some(Self { hdr, src, dst, skb })
    }

    /// Returns the buffer, to put it in a list.
    pub(crate) fn into_skb(self) -> SkBuff {
        self.skb
    }

    /// Returns the same packet in another buffer that has the same data.
    fn with(&self, skb: SkBuff) -> Self {
        // INVARIANT: What is true of one buffer is true of the other.
        Self {
            hdr: self.hdr,
            src: self.src,
            dst: self.dst,
            skb,
        }
    }

    /// The payload.
    pub(crate) fn payload(&self) -> &[u8] {
        self.hdr
            .payload(self.skb.bytes().get(UDP_LEN..).unwrap_or(&[]))
    }

    /// Where it comes from.
    pub(crate) fn src(&self) -> IpAddr {
        self.src
    }

    /// Where it goes to.
    pub(crate) fn dst(&self) -> IpAddr {
        self.dst
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
    let hdr = packet::RxPacket::parse(view.roce).map_err(refused)?;

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
    packet::RxPacket::check_icrc::<KernelCrc>(&view.net, view.udp, view.roce).map_err(refused)?;

    Ok(Checked {
        port,
        hdr,
        src,
        dst,
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

            dev.stats.inc(Counter::RcvdPkts);
            dev.stats
                .add(Counter::RcvdBytes, skb.len().saturating_sub(UDP_LEN) as u64);
            // It may be kept for longer than RCU's lock is held.
            skb.detach();

            // INVARIANT: It was put in one piece, and `hdr` was parsed from it.
            let pkt = RxPacket {
                hdr: ok.hdr,
                src: ok.src,
                dst: ok.dst,
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
