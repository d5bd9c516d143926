// SPDX-License-Identifier: GPL-2.0

//! Properties of the pure parts, for random values.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    icrc::{
        Crc32,
        Portable, //
    },
    opcode::{
        self,
        ExtKind,
        TailKind, //
    },
    packet::{
        Ext,
        RxPacket,
        Tail,
        TxHeaders, //
    },
    psn::Psn,
    ring::{
        Consumer,
        Geometry,
        Producer, //
    },
    sge::{
        Sge,
        SgeList,
        SGE_LEN, //
    },
    wire::{
        aeth::Aeth,
        atomic::AtomicEth,
        bth::Bth,
        deth::Deth,
        feth::Feth,
        pad,
        reth::Reth, //
    },
    wqe::{
        decode_user,
        Data,
        Limits,
        MAX_MSG,
        SEND_LEN, //
    }, //
};
use proptest::prelude::*;
use std::collections::VecDeque;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn psn_arithmetic(a: u32, n: u32, b: u32) {
        let (a, b) = (Psn::new(a), Psn::new(b));

        prop_assert_eq!(a.add(n).sub(n), a);
        prop_assert_eq!(a.add(n).since(a), n & Psn::MASK);
        prop_assert_eq!(a.since(b).wrapping_add(b.since(a)) & Psn::MASK, 0);
        // Exactly one comes before the other, unless they are the same or opposite.
        if a != b && a.since(b) != 1 << 23 {
            prop_assert_ne!(a.before(b), b.before(a));
            prop_assert_eq!(a.diff(b), -b.diff(a));
        }
    }

    #[test]
    fn packets_round_trip(
        code: u8,
        flags: u8,
        qpn in 1..0xff_ffffu32,
        x: [u64; 4],
        len in 0..4097u32,
    ) {
        let Some(op) = opcode::lookup(code) else {
            return Ok(());
        };
        let len = match op.kind {
            opcode::Kind::AtomicWrite => 8,
            _ if op.payload => len,
            _ => 0,
        };
        let reth = Reth { va: x[0], rkey: x[1] as u32, len: x[2] as u32 };
        let aeth = Aeth { syndrome: x[0] as u8, msn: x[1] as u32 & Psn::MASK };
        let ext = match op.ext {
            ExtKind::None => Ext::None,
            ExtKind::Deth => Ext::Deth(Deth { qkey: x[0] as u32, src_qp: x[1] as u32 & Psn::MASK }),
            ExtKind::Reth => Ext::Reth(reth),
            ExtKind::FethReth => Ext::Flush(
                Feth { types: x[3] as u8 & 15, level: flags & 3 },
                reth,
            ),
            ExtKind::Atomic => Ext::Atomic(AtomicEth {
                va: x[0],
                rkey: x[1] as u32,
                swap_add: x[2],
                compare: x[3],
            }),
            ExtKind::Aeth => Ext::Aeth(aeth),
            ExtKind::AethAtomic => Ext::AtomicAck(aeth, x[2]),
        };
        let tail = match op.tail {
            TailKind::None => Tail::None,
            TailKind::Imm => Tail::Imm((x[3] as u32).to_be_bytes()),
            TailKind::Inv => Tail::Inv(x[3] as u32),
        };
        let bth = Bth {
            opcode: code,
            se: flags & 1 != 0,
            mig_req: flags & 2 != 0,
            pad: pad(len),
            tver: 0,
            pkey: x[0] as u16,
            dest_qp: qpn,
            ack_req: flags & 4 != 0,
            psn: Psn::new(x[2] as u32),
        };
        let mut bytes = TxHeaders::new(&bth, &ext, &tail).as_bytes().to_vec();

        prop_assert_eq!(bytes.len(), op.hdr_len);
        bytes.resize(op.hdr_len + (len as usize).next_multiple_of(4) + 4, 0x5a);
        prop_assert_eq!(RxPacket::parse(&bytes), Ok(RxPacket { op, bth, ext, tail, len, span: 1 }));
        // Only the headers are needed.
        let head = &bytes[..bytes.len().min(opcode::MAX_HDR_LEN)];
        prop_assert!(RxPacket::parse_head(head, bytes.len()).is_ok());
    }

    #[test]
    fn parsing_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..128),
        total in 0..usize::MAX,
    ) {
        if let Ok(pkt) = RxPacket::parse(&bytes) {
            prop_assert_eq!(pkt.payload(&bytes).len(), pkt.len as usize);
        }
        let _ = RxPacket::parse_head(&bytes, total);
    }

    #[test]
    fn crc_in_pieces(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        cut: prop::sample::Index,
    ) {
        let cut = cut.index(bytes.len() + 1);
        let part = Portable::update(7, &bytes[..cut]);

        prop_assert_eq!(Portable::update(part, &bytes[cut..]), Portable::update(7, &bytes));
        // Bit by bit, without a table.
        let slow = bytes.iter().fold(7u32, |crc, b| {
            (0..8).fold(crc ^ u32::from(*b), |crc, _| {
                crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 }
            })
        });
        prop_assert_eq!(slow, Portable::update(7, &bytes));
    }

    #[test]
    fn rings_are_queues(
        entries in 1..40u32,
        size in 1..600u32,
        ops in prop::collection::vec(any::<bool>(), 0..400),
    ) {
        let geo = Geometry::new(entries, size).unwrap();
        let mut memory = vec![0u32; geo.bytes() / geo.elem()];
        let (mut p, mut c) = (Producer::new(geo), Consumer::new(geo));
        let mut model = VecDeque::new();

        prop_assert!(geo.capacity() >= entries && geo.elem() >= size as usize);
        for (n, push) in (1..).zip(ops) {
            prop_assert_eq!(c.pending(p.index()).unwrap() as usize, model.len());
            prop_assert_eq!(p.is_full(c.index()), model.len() == geo.capacity() as usize);
            if push && !p.is_full(c.index()) {
                memory[p.offset() / geo.elem()] = n;
                p.advance();
                model.push_back(n);
            } else if let Some(want) = model.pop_front() {
                prop_assert_eq!(memory[c.offset() / geo.elem()], want);
                c.advance();
            }
        }
    }

    #[test]
    fn elements_cover_what_they_should(
        lens in prop::collection::vec(0..50u32, 0..32),
        at in 0..400u32,
        len in 0..400u32,
    ) {
        let mut area = Vec::new();
        let mut all = Vec::new();

        for (i, n) in lens.iter().enumerate() {
            let addr = 1000 * i as u64;

            area.extend(Sge { addr, len: *n, lkey: i as u32 }.emit());
            all.extend((0..u64::from(*n)).map(|b| (i as u32, addr + b)));
        }
        let got: Vec<_> = SgeList::new(&area, lens.len() as u8)
            .range(at, len)
            .flat_map(|s| (0..u64::from(s.len)).map(move |b| (s.lkey, s.addr + b)))
            .collect();
        let want: Vec<_> = all.into_iter().skip(at as usize).take(len as usize).collect();

        prop_assert_eq!(&got, &want);

        let (from, most) = (len / 3, at);
        let part: Vec<_> = SgeList::new(&area, lens.len() as u8)
            .range(at, len)
            .part(from, most)
            .flat_map(|s| (0..u64::from(s.len)).map(move |b| (s.lkey, s.addr + b)))
            .collect();
        let want: Vec<_> = want.into_iter().skip(from as usize).take(most as usize).collect();

        prop_assert_eq!(part, want);
    }

    #[test]
    fn send_entries_of_any_bytes(
        head in prop::collection::vec(any::<u8>(), SEND_LEN),
        area in prop::collection::vec(any::<u8>(), 0..700),
        op in 0..17u8,
        count in 0..40u8,
        max_sge in 0..33u8,
        max_inline in 0..513u16,
    ) {
        let mut head: [u8; SEND_LEN] = head.try_into().unwrap();

        head[12..16].copy_from_slice(&[op, 0, 0, 0]);
        head[184..188].copy_from_slice(&[count, count & 1, 0, 0]);
        head[196..200].copy_from_slice(&[count, 0, 0, 0]);
        for transport in [opcode::Transport::Rc, opcode::Transport::Uc, opcode::Transport::Ud] {
            let limits = Limits { transport, max_sge, max_inline };

            if let Ok(wqe) = decode_user::<()>(&head, &area, &limits) {
                prop_assert!(wqe.work.is_allowed(transport));
                match wqe.data {
                    Data::Inline(n) => prop_assert!(n as usize <= area.len().min(limits.area())),
                    Data::Sges { count, len } => {
                        prop_assert!(count <= max_sge && len <= MAX_MSG);
                        prop_assert!(usize::from(count) * SGE_LEN <= area.len());
                        let sum: u64 = SgeList::new(&area, count)
                            .iter()
                            .map(|s| u64::from(s.len))
                            .sum();
                        prop_assert_eq!(sum, u64::from(len));
                    }
                }
            }
        }
    }
}
