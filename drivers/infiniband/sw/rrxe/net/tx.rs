// SPDX-License-Identifier: GPL-2.0

//! Sending: from a packet of a queue pair to a UDP datagram.

use super::{
    InFlight,
    IpAddr,
    KernelCrc,
    TrainMode, //
};
use crate::{
    ah::Av,
    device::Device,
    packet::NetHdr,
    wire::{
        self,
        bth::Bth,
        grh,
        ICRC_LEN,
        UDP_PORT, //
    }, //
};
use kernel::{
    net::{
        dst::{
            self,
            Dst, //
        },
        netdevice::NetDevice,
        skb::{
            Finish,
            SkBuff,
            Track,
            TxBuff, //
        }, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        rcu, //
    }, //
};

/// Number of UDP as a protocol of IP.
const PROTOCOL: u8 = 17;

/// Size of the UDP header.
const UDP_LEN: usize = 8;

/// Hop limit if none was asked for.
const HOP_LIMIT: u8 = 64;

/// Source port of a flow label, which has 20 bits (IBA vol. 1, annex A17, 17.9.2 recommends to make
/// it so that the network spreads flows).
const fn source_port(label: u32) -> u16 {
    // The mask leaves 14 bits.
    (0xc000 | ((label ^ label >> 14) & 0x3fff)) as u16
}

/// Makes a flow label of a number that is likely to differ between flows.
const fn label_of(entropy: u32) -> u32 {
    // The upper bits of this product depend on all of the number; the constant is that of the
    // golden ratio.
    let label = entropy.wrapping_mul(0x9e37_79b1) >> 12;

    if label == 0 {
        1
    } else {
        label
    }
}

/// An IP header in which only the length is missing.
#[derive(Clone, Copy)]
enum Template {
    V4([u8; 20]),
    V6([u8; 40]),
}

impl Template {
    const fn len(&self) -> usize {
        match self {
            Self::V4(ip) => ip.len(),
            Self::V6(ip) => ip.len(),
        }
    }

    fn new(source: IpAddr, dest: IpAddr, class: u8, hop_limit: u8, label: u32) -> Result<Self> {
        match (source, dest) {
            (IpAddr::V4([s0, s1, s2, s3]), IpAddr::V4([d0, d1, d2, d3])) => Ok(Self::V4([
                // A header of 20 bytes. With "don't fragment" set the identification need not
                // differ from packet to packet.
                0x45, class, 0, 0, 0, 0, 0x40, 0, hop_limit, PROTOCOL, 0, 0, s0, s1, s2, s3, d0, d1,
                d2, d3,
            ])),
            (IpAddr::V6(source), IpAddr::V6(dest)) => {
                let word = 6 << 28 | u32::from(class) << 20 | (label & 0x000f_ffff);
                let [w0, w1, w2, w3] = word.to_be_bytes();
                let mut ip = [0; 40];
                let (front, addrs) = ip.split_at_mut(8);
                let (s, d) = addrs.split_at_mut(16);

                front.copy_from_slice(&[w0, w1, w2, w3, 0, 0, PROTOCOL, hop_limit]);
                s.copy_from_slice(&source);
                d.copy_from_slice(&dest);
                Ok(Self::V6(ip))
            }
            _ => Err(EINVAL),
        }
    }

    /// Fills in the length: `udp` bytes come after the header.
    fn with_len(mut self, udp: usize) -> Result<Self> {
        let (total, place) = match &mut self {
            Self::V4([_, _, l0, l1, ..]) => (20 + udp, [l0, l1]),
            Self::V6([_, _, _, _, l0, l1, ..]) => (udp, [l0, l1]),
        };
        let total = u16::try_from(total).map_err(|_| EMSGSIZE)?;
        let [l0, l1] = place;

        [*l0, *l1] = total.to_be_bytes();
        Ok(self)
    }

    /// Fills in the checksum (RFC 1071), as the stack does for what it is given.
    fn with_checksum(mut self) -> Self {
        if let Self::V4(ip) = &mut self {
            let sum: u32 = ip
                .chunks_exact(2)
                .filter_map(|word| Some(u32::from(u16::from_be_bytes(*word.first_chunk()?))))
                .sum();
            // Ten words make no more than one carry, and that none.
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;

            if let Some(place) = ip.get_mut(10..12) {
                place.copy_from_slice(&sum.to_be_bytes());
            }
        }
        self
    }

    const fn as_hdr(&self) -> NetHdr<'_> {
        match self {
            Self::V4(ip) => NetHdr::V4(ip),
            Self::V6(ip) => NetHdr::V6(ip),
        }
    }

    const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::V4(ip) => ip,
            Self::V6(ip) => ip,
        }
    }
}

/// How many bytes a packet has from the BTH on.
pub(crate) fn roce_len(hdr: &[u8], len: u32) -> usize {
    hdr.len() + len as usize + usize::from(wire::pad(len)) + ICRC_LEN
}

/// The same for one that stands for several: what these have together.
pub(crate) fn span_len(hdr: &[u8], len: u32, span: u32) -> usize {
    roce_len(hdr, len) + span.saturating_sub(1) as usize * (Bth::LEN + ICRC_LEN)
}

/// Writes a packet from the BTH on, but for the ICRC. `bytes` has the right size.
fn write_roce<E>(
    bytes: &mut [u8],
    hdr: &[u8],
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<Result<(), E>> {
    let (roce, _) = bytes.split_last_chunk_mut::<ICRC_LEN>().ok_or(EINVAL)?;
    let (to, rest) = roce.split_at_mut_checked(hdr.len()).ok_or(EINVAL)?;

    to.copy_from_slice(hdr);

    let (payload, pad) = rest.split_at_mut_checked(len).ok_or(EINVAL)?;

    if let Err(e) = fill(payload) {
        return Ok(Err(e));
    }
    pad.fill(0);
    Ok(Ok(()))
}

/// Computes the ICRC of a packet, of which `roce` is from the BTH to the padding.
fn icrc_of(ip: &NetHdr<'_>, udp: &[u8; UDP_LEN], roce: &[u8]) -> Result<[u8; ICRC_LEN]> {
    let (bth, rest) = roce.split_first_chunk::<{ Bth::LEN }>().ok_or(EINVAL)?;
    let mut icrc = ip.icrc::<KernelCrc>(udp, bth);

    icrc.update(rest);
    Ok(icrc.finish())
}

/// Several packets of the same size, the last of which may be shorter, that are sent as one; see
/// [`kernel::net::skb::TxBuff::couple`]. They have no ICRC: as with other checksums, that is left
/// to whoever has to cut the train, and what does not leave this machine needs none.
pub(crate) struct Train {
    skb: TxBuff,
    size: u16,
    most: u16,
    count: u16,
    track: Track,
    closed: bool,
}

impl Train {
    /// How large a buffer is, with room for what the stack has at its end. Larger blocks of memory
    /// are not easy to get in a softirq.
    const ROOM: usize = 32768 - 512;

    /// The most packets.
    const MOST: usize = 64;

    /// Tells whether a packet of `roce` bytes may be the next one.
    pub(crate) fn takes(&self, roce: usize) -> bool {
        !self.closed
            && match self.track {
                Track::Offload => roce <= usize::from(self.size),
                Track::Whole => roce == usize::from(self.size),
            }
    }

    /// Tells whether nothing more can be added.
    pub(crate) fn is_full(&self) -> bool {
        self.closed
    }
}

/// Makes packets whole that were cut off a train.
pub(super) struct Finisher;

impl Finish for Finisher {
    fn finish(headers: &[u8], payload: &mut [u8], index: u16) {
        let Some((roce, icrc)) = payload.split_last_chunk_mut::<ICRC_LEN>() else {
            return;
        };
        // This is what `Flow::add` has left there.
        let ip_len = u32::from_be_bytes(*icrc) as usize;
        let udp_len = (UDP_LEN + roce.len() + ICRC_LEN) as u16;
        let Some((rest, udp)) = headers.split_last_chunk::<UDP_LEN>() else {
            return;
        };
        let ip = rest
            .len()
            .checked_sub(ip_len)
            .and_then(|at| rest.get(at..))
            .unwrap_or(&[]);
        let [s0, s1, d0, d1, ..] = *udp;
        let [l0, l1] = udp_len.to_be_bytes();
        let udp = [s0, s1, d0, d1, l0, l1, 0, 0];

        let found = if let Ok(mut ip) = <[u8; 20]>::try_from(ip) {
            let [t0, t1] = udp_len.wrapping_add(20).to_be_bytes();
            let [_, _, _, _, i0, i1, ..] = ip;
            let [j0, j1] = u16::from_be_bytes([i0, i1])
                .wrapping_add(index)
                .to_be_bytes();

            for (to, from) in ip.iter_mut().skip(2).zip([t0, t1, j0, j1]) {
                *to = from;
            }
            icrc_of(&NetHdr::V4(&ip), &udp, roce)
        } else if let Ok(mut ip) = <[u8; 40]>::try_from(ip) {
            for (to, from) in ip.iter_mut().skip(4).zip([l0, l1]) {
                *to = from;
            }
            icrc_of(&NetHdr::V6(&ip), &udp, roce)
        } else {
            return;
        };

        if let Ok(found) = found {
            *icrc = found;
        }
    }
}

/// The way to a destination: all that packets to it have in common.
pub(crate) struct Flow {
    ndev: ARef<NetDevice>,
    route: dst::Cache,
    key: dst::Key,
    ip: Template,
    hash: u32,
    /// The other side is of the same device.
    own: bool,
}

impl Flow {
    /// Makes the way that an address vector describes. `entropy` is a number that is likely to
    /// differ from that of other flows, for the source port, in case that there is no flow label.
    ///
    /// Any context. Whether there is a route turns out only when something is sent.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the addresses are not of the same family.
    pub(crate) fn new(dev: &Device, av: &Av, entropy: u32) -> Result<Self> {
        let ndev: ARef<NetDevice> = dev.netdev().into();
        let index = match av.ifindex {
            0 => ndev.ifindex(),
            index => index,
        };
        let label = match av.flow_label & 0x000f_ffff {
            0 => label_of(entropy),
            label => label,
        };
        let (source, dest) = (IpAddr::from_gid(&av.sgid), IpAddr::from_gid(&av.dgid));
        let hop_limit = match av.hop_limit {
            0 => HOP_LIMIT,
            limit => limit,
        };

        Ok(Self {
            ndev,
            route: dst::Cache::new(),
            key: dst::Key {
                source,
                dest,
                device: index,
                class: av.traffic_class,
                protocol: PROTOCOL,
                source_port: source_port(label),
                dest_port: UDP_PORT,
            },
            ip: Template::new(source, dest, av.traffic_class, hop_limit, av.flow_label)?,
            hash: label_of(entropy ^ label) << 12 | label,
            own: super::ns::owns(&rcu::read_lock(), dev.netdev(), &dest),
        })
    }

    /// Tells whether the other side was an address of the same device when this was made.
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// How many bytes of headers are in front of the BTH.
    pub(crate) fn front(&self) -> usize {
        self.ip.len() + UDP_LEN
    }

    /// What is in front of a datagram of `roce` bytes in a receive buffer.
    pub(crate) fn grh(&self, roce: usize) -> [u8; grh::LEN] {
        match self
            .ip
            .with_len(UDP_LEN + roce)
            .map(Template::with_checksum)
        {
            Ok(Template::V4(ip)) => grh::from_v4(&ip),
            Ok(Template::V6(ip)) => grh::from_v6(&ip),
            Err(_) => [0; grh::LEN],
        }
    }

    /// Makes a packet as [`Self::send`] does, but as one that was received, for a queue pair of the
    /// same device. It has no ICRC.
    ///
    /// Any context.
    ///
    /// # Errors
    ///
    /// The inner error is the one of `fill`; `ENOMEM`.
    pub(crate) fn received<E>(
        &self,
        hdr: &[u8],
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<SkBuff, E>> {
        let mut skb = TxBuff::new(0, self.front() + roce_len(hdr, len), GFP_ATOMIC)?;
        let (ip, _) = self.write_headers(skb.bytes_mut())?;
        let (front, roce) = skb
            .bytes_mut()
            .split_at_mut_checked(self.front())
            .ok_or(EINVAL)?;

        if let Some(to) = front.get_mut(..ip.len()) {
            to.copy_from_slice(ip.with_checksum().as_bytes());
        }
        if let Err(e) = write_roce(roce, hdr, len as usize, fill)? {
            return Ok(Err(e));
        }
        if let Some(icrc) = roce.last_chunk_mut::<ICRC_LEN>() {
            *icrc = [0; ICRC_LEN];
        }
        skb.into_received(ip.len()).map(Ok)
    }

    /// The address of the other side.
    pub(crate) fn peer(&self) -> &IpAddr {
        &self.key.dest
    }

    /// The address of this side.
    pub(crate) fn local(&self) -> &IpAddr {
        &self.key.source
    }

    /// Looks the route up, and keeps it.
    #[cold]
    fn look_up<'g>(&'g self, guard: &'g rcu::Guard) -> Result<&'g Dst> {
        let route = self.key.look_up(self.ndev.namespace(guard))?;

        self.route.put(guard, route)
    }

    /// Writes IP and UDP headers at the start of `bytes`, which are the whole packet.
    fn write_headers(&self, bytes: &mut [u8]) -> Result<(Template, [u8; UDP_LEN])> {
        let udp_len = bytes.len().checked_sub(self.ip.len()).ok_or(EINVAL)?;
        let ip = self.ip.with_len(udp_len)?;
        let [s0, s1] = self.key.source_port.to_be_bytes();
        let [d0, d1] = self.key.dest_port.to_be_bytes();
        // The IP header was longer than what the function has checked to fit.
        let [l0, l1] = u16::try_from(udp_len).map_err(|_| EMSGSIZE)?.to_be_bytes();
        // Without a checksum: the ICRC is better.
        let udp = [s0, s1, d0, d1, l0, l1, 0, 0];

        let (to, rest) = bytes.split_at_mut_checked(ip.len()).ok_or(EINVAL)?;

        to.copy_from_slice(ip.as_bytes());
        *rest.first_chunk_mut::<UDP_LEN>().ok_or(EINVAL)? = udp;
        Ok((ip, udp))
    }

    /// Writes a packet. `bytes` has the right size.
    fn write<E>(
        &self,
        bytes: &mut [u8],
        hdr: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>> {
        let (ip, udp) = self.write_headers(bytes)?;
        let (_, roce) = bytes
            .split_at_mut_checked(ip.len() + UDP_LEN)
            .ok_or(EINVAL)?;

        if let Err(e) = write_roce(roce, hdr, len, fill)? {
            return Ok(Err(e));
        }

        let (roce, icrc) = roce.split_last_chunk_mut::<ICRC_LEN>().ok_or(EINVAL)?;

        *icrc = icrc_of(&ip.as_hdr(), &udp, roce)?;
        Ok(Ok(()))
    }

    /// Begins a train, of packets of `roce` bytes that are no more than `expected`, if the way
    /// there is one for trains.
    ///
    /// Process or softirq context.
    pub(crate) fn begin(&self, roce: usize, expected: u32) -> Option<Train> {
        let mode = super::TRAINS.load(Relaxed);
        let guard = rcu::read_lock();
        let dst = self.route.get(&guard)?;
        let track = match mode {
            TrainMode::NEVER => None,
            TrainMode::ALWAYS => Some(Track::Offload),
            _ => dst.track(&guard, Train::ROOM),
        }?;
        let front = self.ip.len() + UDP_LEN;
        let room = Train::ROOM.checked_sub(dst.headroom(&guard) + front)?;
        let most = (room / roce).min(expected as usize).min(Train::MOST);

        if most < 2 {
            return None;
        }

        let mut skb =
            TxBuff::with_room(dst.headroom(&guard), front + most * roce, GFP_ATOMIC).ok()?;

        skb.put(front)?;
        Some(Train {
            skb,
            size: u16::try_from(roce).ok()?,
            most: most as u16,
            count: 0,
            track,
            closed: false,
        })
    }

    /// Adds a packet to a train that [`Train::takes`] it; as [`Self::send`], but for the errors of
    /// the stack.
    pub(crate) fn add<E>(
        &self,
        train: &mut Train,
        hdr: &[u8],
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<usize, E>> {
        let roce = roce_len(hdr, len);
        let before = train.skb.bytes().len();
        let bytes = train.skb.put(roce).ok_or(ENOBUFS)?;
        let written = write_roce(bytes, hdr, len as usize, fill);

        // What the packet is finished with when the train is cut: how long the IP header is.
        if let Some(place) = bytes.last_chunk_mut::<ICRC_LEN>() {
            *place = (self.ip.len() as u32).to_be_bytes();
        }
        if !matches!(written, Ok(Ok(()))) {
            train.skb.truncate(before);
        }
        if let Err(e) = written? {
            return Ok(Err(e));
        }
        train.count += 1;
        train.closed |= roce < usize::from(train.size) || train.count == train.most;
        Ok(Ok(self.ip.len() + UDP_LEN + roce))
    }

    /// Sends a train.
    ///
    /// # Errors
    ///
    /// As the outer one of [`Self::send`].
    pub(crate) fn depart(&self, mut train: Train, inflight: &InFlight) -> Result {
        if train.count == 0 {
            return Ok(());
        }

        let guard = rcu::read_lock();
        let dst = match self.route.get(&guard) {
            Some(dst) => dst,
            None => self.look_up(&guard)?,
        };

        let (ip, udp) = self.write_headers(train.skb.bytes_mut())?;
        let front = ip.len() + UDP_LEN;

        if train.count == 1 {
            // An ordinary packet after all.
            let (_, roce) = train
                .skb
                .bytes_mut()
                .split_at_mut_checked(front)
                .ok_or(EINVAL)?;
            let (roce, icrc) = roce.split_last_chunk_mut::<ICRC_LEN>().ok_or(EINVAL)?;

            *icrc = icrc_of(&ip.as_hdr(), &udp, roce)?;
        } else {
            train.skb.couple(
                super::ETHER_TYPE,
                front,
                train.size,
                train.count,
                train.track,
            );
        }
        train.skb.set_hash(self.hash);
        train.skb.charge(inflight);
        dst.send(&guard, train.skb)
    }

    /// Sends a packet: transport headers `hdr`, then `len` bytes that `fill` writes, then padding
    /// and ICRC. Returns how many bytes it has from the IP header on.
    ///
    /// Process or softirq context. `fill` is called once at most, in an RCU read-side section. What
    /// it gets holds rubbish, and it must write all of it. The packet counts on `inflight` until it
    /// has left the stack; whether there is room is not asked here, see [`InFlight::admits`].
    ///
    /// # Errors
    ///
    /// The inner error is the one of `fill`, and nothing was sent. The outer one says that the
    /// packet was not sent for another reason, for which the protocol is used to lose packets.
    pub(crate) fn send<E>(
        &self,
        hdr: &[u8],
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
        inflight: &InFlight,
    ) -> Result<Result<usize, E>> {
        let guard = rcu::read_lock();
        let dst = match self.route.get(&guard) {
            Some(dst) => dst,
            None => self.look_up(&guard)?,
        };
        let roce = roce_len(hdr, len);
        let total = self.ip.len() + UDP_LEN + roce;
        let mut skb = TxBuff::new(dst.headroom(&guard), total, GFP_ATOMIC)?;

        if let Err(e) = self.write(skb.bytes_mut(), hdr, len as usize, fill)? {
            return Ok(Err(e));
        }
        skb.set_hash(self.hash);
        skb.charge(inflight);
        dst.send(&guard, skb)?;
        Ok(Ok(total))
    }
}
