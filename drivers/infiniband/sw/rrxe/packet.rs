// SPDX-License-Identifier: GPL-2.0

//! Packets: from bytes to a parsed one, and headers of one to send.
//!
//! [`RxPacket::parse`] is the border that style calls "parse, don't validate": behind it the
//! lengths are right, the headers are values, and nothing is read from the packet but payload.
//! Checks go from cheap to dear, and none does arithmetic on a length that a former one has not
//! made safe. A packet that fails one is dropped and counted by its reason.

use crate::{
    icrc::{
        Crc32,
        Icrc, //
    },
    opcode::{
        self,
        ExtKind,
        Kind,
        OpcodeInfo,
        TailKind,
        Transport,
        MAX_HDR_LEN, //
    },
    wire::{
        aeth::Aeth,
        atomic::AtomicEth,
        bth::Bth,
        deth::Deth,
        feth::Feth,
        pad,
        reth::Reth,
        ICRC_LEN, //
    }, //
};

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// Shorter than a BTH and an ICRC.
    Short,
    /// Transport header version other than 0.
    Version,
    /// Operation code that does not exist.
    Opcode,
    /// Too short for its headers and padding, or padding that makes no sense.
    Length,
    /// A payload where none may be, or one of the wrong size for the operation.
    Payload,
    /// Queue pair number 0, or a multicast one for something that is not a datagram.
    DestQp,
    /// The destination address is none of ours.
    DestAddress,
    /// No such queue pair.
    NoQp,
    /// The operation is not one of the queue pair's service.
    Service,
    /// The queue pair is in no state to receive it.
    State,
    /// The addresses are not those of the connection.
    Address,
    /// Wrong partition key.
    Pkey,
    /// Wrong queue key.
    Qkey,
    /// The ICRC does not fit.
    Icrc,
    /// IP options, which RoCEv2 does not have.
    IpOptions,
    /// The queue pair could not take it and does not answer: no receive buffer, or one that is too
    /// small, or the rest of a message that has lost its beginning.
    Refused,
}

impl DropReason {
    /// Number of reasons, for arrays of counters.
    pub(crate) const COUNT: usize = Self::Refused as usize + 1;
}

/// The IP header of a received packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NetHdr<'a> {
    /// IPv4 without options.
    V4(&'a [u8; 20]),
    /// IPv6 without extension headers.
    V6(&'a [u8; 40]),
}

impl<'a> NetHdr<'a> {
    /// Splits an IP datagram into IP header, UDP header and the rest.
    ///
    /// # Errors
    ///
    /// If the bytes are too few or the IP header has options.
    pub(crate) fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8; 8], &'a [u8]), DropReason> {
        let (ip, rest) = match bytes.first().ok_or(DropReason::Short)? {
            0x45 => {
                let (ip, rest) = bytes.split_first_chunk().ok_or(DropReason::Short)?;
                (Self::V4(ip), rest)
            }
            v if v >> 4 == 6 => {
                let (ip, rest) = bytes.split_first_chunk().ok_or(DropReason::Short)?;
                (Self::V6(ip), rest)
            }
            _ => return Err(DropReason::IpOptions),
        };
        let (udp, rest) = rest.split_first_chunk().ok_or(DropReason::Short)?;

        Ok((ip, udp, rest))
    }

    /// Starts the ICRC of a packet.
    pub(crate) fn icrc<C: Crc32>(&self, udp: &[u8; 8], bth: &[u8; Bth::LEN]) -> Icrc<C> {
        match self {
            Self::V4(ip) => Icrc::v4(ip, udp, bth),
            Self::V6(ip) => Icrc::v6(ip, udp, bth),
        }
    }
}

/// Extended transport headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ext {
    /// None.
    None,
    /// Datagram header.
    Deth(Deth),
    /// RDMA header.
    Reth(Reth),
    /// Flush header and RDMA header.
    Flush(Feth, Reth),
    /// Atomic request.
    Atomic(AtomicEth),
    /// ACK header.
    Aeth(Aeth),
    /// ACK header and original value.
    AtomicAck(Aeth, u64),
}

/// Header before the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tail {
    /// None.
    #[default]
    None,
    /// Immediate data, as on the wire.
    Imm([u8; 4]),
    /// Key to invalidate.
    Inv(u32),
}

impl Tail {
    /// Returns which one it is.
    pub(crate) const fn kind(&self) -> TailKind {
        match self {
            Self::None => TailKind::None,
            Self::Imm(_) => TailKind::Imm,
            Self::Inv(_) => TailKind::Inv,
        }
    }
}

/// A received packet.
///
/// # Invariants
///
/// Headers, payload, padding and ICRC make up the whole packet; there is no payload where the
/// operation has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RxPacket {
    /// What the operation code means.
    pub(crate) op: &'static OpcodeInfo,
    /// Base header.
    pub(crate) bth: Bth,
    /// Headers after it.
    pub(crate) ext: Ext,
    /// Header before the payload.
    pub(crate) tail: Tail,
    /// Size of the payload without padding.
    pub(crate) len: u32,
    /// It stands for so many packets; see [`TxPacket::span`](crate::env::TxPacket::span). One from
    /// a network is one.
    pub(crate) span: u32,
}

impl RxPacket {
    /// Parses a packet that is in one piece; `bytes` is all that is in the UDP datagram.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        Self::parse_head(bytes, bytes.len())
    }

    /// Parses a packet of `total` bytes of which only the first are at hand: all of it or at
    /// least [`MAX_HDR_LEN`].
    ///
    /// # Errors
    ///
    /// The reason to drop the packet.
    pub(crate) fn parse_head(head: &[u8], total: usize) -> Result<Self, DropReason> {
        let (bytes, rest) = head
            .split_first_chunk::<{ Bth::LEN }>()
            .ok_or(DropReason::Short)?;
        let bth = Bth::parse(bytes);

        if total < Bth::LEN + ICRC_LEN {
            return Err(DropReason::Short);
        }
        if bth.tver != 0 {
            return Err(DropReason::Version);
        }

        let op = opcode::lookup(bth.opcode).ok_or(DropReason::Opcode)?;

        let len = total
            .checked_sub(op.hdr_len + usize::from(bth.pad) + ICRC_LEN)
            .and_then(|len| u32::try_from(len).ok())
            .ok_or(DropReason::Length)?;

        // More than is needed to fill the last word is not padding.
        if pad(len) != bth.pad {
            return Err(DropReason::Length);
        }
        if (!op.payload && len != 0) || (op.kind == Kind::AtomicWrite && len != 8) {
            return Err(DropReason::Payload);
        }
        if bth.dest_qp == 0 || (bth.dest_qp == Bth::QPN_MASK && op.transport != Transport::Ud) {
            return Err(DropReason::DestQp);
        }

        let (ext, rest) = Self::parse_ext(op.ext, rest).ok_or(DropReason::Length)?;
        let tail = match op.tail {
            TailKind::None => Tail::None,
            TailKind::Imm => Tail::Imm(*rest.first_chunk().ok_or(DropReason::Length)?),
            TailKind::Inv => Tail::Inv(u32::from_be_bytes(
                *rest.first_chunk().ok_or(DropReason::Length)?,
            )),
        };

        // INVARIANT: `len` is what is left of the packet, and is 0 if it has to be.
        Ok(Self {
            op,
            bth,
            ext,
            tail,
            len,
            span: 1,
        })
    }

    fn parse_ext(kind: ExtKind, b: &[u8]) -> Option<(Ext, &[u8])> {
        Some(match kind {
            ExtKind::None => (Ext::None, b),
            ExtKind::Deth => {
                let (h, b) = b.split_first_chunk()?;
                (Ext::Deth(Deth::parse(h)), b)
            }
            ExtKind::Reth => {
                let (h, b) = b.split_first_chunk()?;
                (Ext::Reth(Reth::parse(h)), b)
            }
            ExtKind::FethReth => {
                let (f, b) = b.split_first_chunk()?;
                let (h, b) = b.split_first_chunk()?;
                (Ext::Flush(Feth::parse(f), Reth::parse(h)), b)
            }
            ExtKind::Atomic => {
                let (h, b) = b.split_first_chunk()?;
                (Ext::Atomic(AtomicEth::parse(h)), b)
            }
            ExtKind::Aeth => {
                let (h, b) = b.split_first_chunk()?;
                (Ext::Aeth(Aeth::parse(h)), b)
            }
            ExtKind::AethAtomic => {
                let (h, b) = b.split_first_chunk()?;
                let (v, b) = b.split_first_chunk()?;
                (Ext::AtomicAck(Aeth::parse(h), u64::from_be_bytes(*v)), b)
            }
        })
    }

    /// Where the payload starts.
    pub(crate) fn payload_at(&self) -> usize {
        self.op.hdr_len
    }

    /// Returns the payload of a packet that is in one piece.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes
            .get(self.op.hdr_len..)
            .and_then(|b| b.get(..self.len as usize))
            .unwrap_or(&[])
    }

    /// Checks the ICRC of a packet that is in one piece.
    ///
    /// # Errors
    ///
    /// [`DropReason::Icrc`] if it does not fit.
    pub(crate) fn check_icrc<C: Crc32>(
        net: &NetHdr<'_>,
        udp: &[u8; 8],
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let (bth, rest) = bytes.split_first_chunk().ok_or(DropReason::Short)?;
        let (rest, want) = rest
            .split_last_chunk::<ICRC_LEN>()
            .ok_or(DropReason::Short)?;
        let mut icrc = net.icrc::<C>(udp, bth);

        icrc.update(rest);
        if icrc.finish() == *want {
            Ok(())
        } else {
            Err(DropReason::Icrc)
        }
    }
}

/// What a queue pair lets in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Its transport service.
    pub(crate) transport: Transport,
    /// It is ready to receive or further.
    pub(crate) responds: bool,
    /// It is ready to send or further.
    pub(crate) requests: bool,
    /// The addresses of the packet are those of the connection; true for datagrams.
    pub(crate) address: bool,
    /// Its partition key.
    pub(crate) pkey: u16,
    /// Its queue key.
    pub(crate) qkey: u32,
}

impl Admission {
    /// Checks a packet against the queue pair that it is for, in all but the ICRC (IBA vol. 1,
    /// 9.6.1.1 to 9.6.1.4).
    ///
    /// # Errors
    ///
    /// The reason to drop the packet.
    pub(crate) fn admit(&self, pkt: &RxPacket) -> Result<(), DropReason> {
        if pkt.op.transport != self.transport {
            return Err(DropReason::Service);
        }
        if !(if pkt.op.kind.is_request() {
            self.responds
        } else {
            self.requests
        }) {
            return Err(DropReason::State);
        }
        if !self.address {
            return Err(DropReason::Address);
        }
        if !pkey_match(pkt.bth.pkey, self.pkey) {
            return Err(DropReason::Pkey);
        }
        match pkt.ext {
            Ext::Deth(deth) if deth.qkey != self.qkey => Err(DropReason::Qkey),
            _ => Ok(()),
        }
    }
}

/// Tells whether two partition keys let their owners talk: same partition, and at least one of
/// the two is a full member (IBA vol. 1, 10.9.3).
pub(crate) const fn pkey_match(a: u16, b: u16) -> bool {
    const FULL: u16 = 0x8000;

    a & !FULL == b & !FULL && a & !FULL != 0 && (a | b) & FULL != 0
}

/// The headers of a packet to send, without those of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxHeaders {
    bytes: [u8; MAX_HDR_LEN],
    len: usize,
}

impl TxHeaders {
    /// Puts headers together. The caller has taken `bth.opcode` from [`opcode::code`] and gives
    /// the headers that belong to it.
    pub(crate) fn new(bth: &Bth, ext: &Ext, tail: &Tail) -> Self {
        let mut this = Self {
            bytes: [0; MAX_HDR_LEN],
            len: 0,
        };

        this.push(&bth.emit());
        match ext {
            Ext::None => {}
            Ext::Deth(h) => this.push(&h.emit()),
            Ext::Reth(h) => this.push(&h.emit()),
            Ext::Flush(f, h) => {
                this.push(&f.emit());
                this.push(&h.emit());
            }
            Ext::Atomic(h) => this.push(&h.emit()),
            Ext::Aeth(h) => this.push(&h.emit()),
            Ext::AtomicAck(h, value) => {
                this.push(&h.emit());
                this.push(&value.to_be_bytes());
            }
        }
        match tail {
            Tail::None => {}
            Tail::Imm(imm) => this.push(imm),
            Tail::Inv(rkey) => this.push(&rkey.to_be_bytes()),
        }
        this
    }

    fn push<const N: usize>(&mut self, header: &[u8; N]) {
        let free = self.bytes.get_mut(self.len..).unwrap_or(&mut []);

        if let Some(place) = free.first_chunk_mut() {
            *place = *header;
            self.len += N;
        }
    }

    /// Returns the queue pair that the packet is for.
    pub(crate) fn dest_qpn(&self) -> u32 {
        self.bytes
            .first_chunk()
            .map_or(0, |bth| Bth::parse(bth).dest_qp)
    }

    /// Returns the bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[path = "packet/vectors.rs"]
mod vectors;

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_packet))]
mod tests {
    use super::{
        pkey_match,
        vectors::VECTORS,
        DropReason,
        NetHdr,
        RxPacket,
        TxHeaders, //
    };
    use crate::icrc::Portable;

    #[test]
    fn golden_packets_parse_and_emit() {
        for v in VECTORS {
            let split = NetHdr::split(v.bytes);
            assert!(split.is_ok());
            let Ok((net, udp, roce)) = split else { return };

            assert_eq!(u16::from_be_bytes([udp[2], udp[3]]), crate::wire::UDP_PORT);
            assert_eq!(RxPacket::check_icrc::<Portable>(&net, udp, roce), Ok(()));

            let pkt = RxPacket::parse(roce);
            assert!(pkt.is_ok());
            let Ok(pkt) = pkt else { return };

            assert_eq!(pkt.op.code, v.opcode);
            assert_eq!(pkt.bth.dest_qp, v.dest_qp);
            assert_eq!(pkt.bth.psn.get(), v.psn);
            assert_eq!(pkt.len, v.payload);

            // The same but for the congestion bits, which are sent as 0.
            let again = TxHeaders::new(&pkt.bth, &pkt.ext, &pkt.tail);
            assert_eq!(again.as_bytes().len(), pkt.payload_at());
            for (at, (a, b)) in again.as_bytes().iter().zip(roce).enumerate() {
                assert!(a == b || at == 4);
            }
        }
    }

    #[test]
    fn every_flipped_bit_that_counts_breaks_the_icrc() {
        for v in VECTORS.iter().take(2) {
            let v4 = v.bytes.first() == Some(&0x45);
            let udp_at = if v4 { 20 } else { 40 };

            for byte in 0..v.bytes.len() {
                let mut copy = [0; 256];
                for (to, from) in copy.iter_mut().zip(v.bytes) {
                    *to = *from;
                }
                if let Some(b) = copy.get_mut(byte) {
                    *b ^= 0x10;
                }
                let Ok((net, udp, roce)) = NetHdr::split(copy.get(..v.bytes.len()).unwrap_or(&[]))
                else {
                    // Version or header length are no longer those of IP.
                    assert_eq!(byte, 0);
                    continue;
                };
                // What routers may change: see `crate::icrc`. The bit is not in the version.
                let masked = if v4 {
                    matches!(byte, 1 | 8 | 10 | 11)
                } else {
                    matches!(byte, 1..=3 | 7)
                } || matches!(byte.wrapping_sub(udp_at), 6 | 7 | 12);

                assert_eq!(
                    RxPacket::check_icrc::<Portable>(&net, udp, roce).is_ok(),
                    masked
                );
            }
        }
    }

    #[test]
    fn short_packets_are_dropped() {
        let bytes = [
            0x04, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ];

        for len in 0..16 {
            assert_eq!(
                RxPacket::parse(bytes.get(..len).unwrap_or(&[])),
                Err(DropReason::Short)
            );
        }
        // Without padding a payload has whole words.
        for len in 16..=20 {
            let pkt = RxPacket::parse(bytes.get(..len).unwrap_or(&[]));

            assert_eq!(pkt.is_ok(), len % 4 == 0);
        }
    }

    #[test]
    fn no_opcode_and_length_makes_trouble() {
        // All codes, all paddings, all lengths around the smallest one.
        for code in 0..=u8::MAX {
            for pad in 0..4u8 {
                for len in 0..64 {
                    let mut bytes = [0xff; 64];

                    bytes[0] = code;
                    bytes[1] = pad << 4;
                    let bytes = bytes.get(..len).unwrap_or(&[]);
                    if let Ok(pkt) = RxPacket::parse(bytes) {
                        let sum = pkt.payload_at() + pkt.len as usize + usize::from(pad) + 4;

                        assert_eq!(sum, len);
                        assert_eq!(pkt.payload(bytes).len(), pkt.len as usize);
                    }
                }
            }
        }
    }

    #[test]
    fn partition_keys() {
        assert!(pkey_match(0xffff, 0xffff));
        assert!(pkey_match(0x7fff, 0xffff));
        assert!(!pkey_match(0x7fff, 0x7fff));
        assert!(!pkey_match(0xfffe, 0xffff));
        assert!(!pkey_match(0x8000, 0x8000));
    }
}
