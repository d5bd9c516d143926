// SPDX-License-Identifier: GPL-2.0

//! A peer that sends garbage.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    faults::{
        world_of,
        write,
        DST,
        SECRET,
        SIG,
        SRC, //
    },
    opcode::{
        self,
        ExtKind,
        Transport, //
    },
    packet::{
        Ext,
        RxPacket,
        Tail,
        TxHeaders, //
    },
    psn::Psn,
    sim::*,
    wire::{
        aeth::Aeth,
        atomic::AtomicEth,
        bth::Bth,
        deth::Deth,
        feth::Feth,
        pad,
        reth::Reth, //
    },
    wqe::Work, //
};

fn va(key: u32, at: u32) -> u64 {
    (u64::from(key) << 32) + u64::from(at)
}

/// Size of the regions that garbage is aimed at.
const SIZE: usize = 1 << 14;

/// A packet of random content that is not refused at once.
fn garbage(rng: &mut Rng, near: &[Psn; 2]) -> Vec<u8> {
    let code = loop {
        let code = rng.next() as u8 & 0x7f;

        if rng.per_mille(20) || opcode::lookup(code).is_some_and(|o| o.transport == Transport::Rc) {
            break code;
        }
    };
    let len = match rng.below(5) {
        0 => 0,
        1 => 8,
        2 => 1024,
        3 => rng.below(1100),
        _ => rng.below(64),
    } as u32;
    let key = |rng: &mut Rng| [SRC, DST, SECRET, 77][rng.below(4) as usize];
    let rkey = key(rng);
    let base = va(key(rng), 0);
    let address = match rng.below(4) {
        0 => rng.next(),
        1 => base.wrapping_sub(rng.below(16)),
        2 => base + (SIZE as u64) - rng.below(2048),
        _ => base + rng.below(SIZE as u64),
    };
    let reth = Reth {
        va: address,
        rkey,
        len: [len, 0, 2048, 1 << 31, u32::MAX, rng.next() as u32][rng.below(6) as usize],
    };
    let aeth = Aeth {
        syndrome: [0x1f, 0x60, 0x2c, rng.next() as u8][rng.below(4) as usize],
        msn: 0,
    };
    let op = opcode::lookup(code);
    let ext = match op.map(|o| o.ext) {
        None | Some(ExtKind::None) => Ext::None,
        Some(ExtKind::Deth) => Ext::Deth(Deth {
            qkey: QKEY,
            src_qp: 1,
        }),
        Some(ExtKind::Reth) => Ext::Reth(reth),
        Some(ExtKind::FethReth) => Ext::Flush(
            Feth {
                types: rng.next() as u8,
                level: rng.next() as u8,
            },
            reth,
        ),
        Some(ExtKind::Atomic) => Ext::Atomic(AtomicEth {
            va: address & if rng.per_mille(900) { !7 } else { !0 },
            rkey,
            swap_add: rng.next(),
            compare: rng.next(),
        }),
        Some(ExtKind::Aeth) => Ext::Aeth(aeth),
        Some(ExtKind::AethAtomic) => Ext::AtomicAck(aeth, rng.next()),
    };
    let tail = match op.map(|o| o.tail) {
        Some(opcode::TailKind::Imm) => Tail::Imm([1, 2, 3, 4]),
        Some(opcode::TailKind::Inv) => Tail::Inv(key(rng)),
        _ => Tail::None,
    };
    let response = op.is_some_and(|o| !o.kind.is_request());
    let mut psn = near[usize::from(response)];

    if rng.per_mille(400) {
        psn = psn.add(rng.below(140) as u32).sub(8);
    } else if rng.per_mille(50) {
        psn = Psn::new(rng.next() as u32);
    }
    let len = if op.is_some_and(|o| !o.payload) && rng.per_mille(900) {
        0
    } else {
        len
    };
    let bth = Bth {
        opcode: code,
        se: rng.per_mille(500),
        mig_req: false,
        pad: if rng.per_mille(950) {
            pad(len)
        } else {
            rng.below(4) as u8
        },
        tver: u8::from(rng.per_mille(10)),
        pkey: 0xffff,
        dest_qp: qpn(0),
        ack_req: rng.per_mille(500),
        psn,
    };
    let mut roce = TxHeaders::new(&bth, &ext, &tail).as_bytes().to_vec();

    roce.extend((0..len).map(|_| rng.next() as u8));
    roce.extend(&[0; 3][..usize::from(bth.pad)]);
    if rng.per_mille(20) {
        roce.truncate(12 + rng.below(roce.len() as u64 - 11) as usize);
    }
    roce
}

/// A hundred thousand packets of a peer that is out for trouble, all with a good ICRC.
#[test]
fn garbage_does_no_harm() {
    let packets: u32 = std::env::var("RRXE_GARBAGE")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(100_000);
    let mut rng = Rng::new(4711);
    let mut worlds = 0u64;
    let mut errors = 0;
    let mut completed = 0;
    let mut given = 0;

    while given < packets {
        worlds += 1;
        let mut world = world_of(
            Setup {
                seed: worlds,
                wait: 20,
                busy: 20,
                ..Setup::QUIET
            },
            SIZE,
        );
        let node = &mut world.nodes[0];
        node.host.regions[2].bytes.fill(0xa5);
        let source = node.bytes(SRC, 0, SIZE as u32).to_vec();

        for id in 0..20 {
            let work = match id % 4 {
                0 => SEND,
                1 => write(va(DST, 0), DST),
                2 => Work::Read {
                    va: va(SRC, 0),
                    rkey: SRC,
                },
                _ => Work::FetchAdd {
                    va: va(DST, 0),
                    rkey: DST,
                    add: 1,
                },
            };
            let key = if id % 4 < 2 { SRC } else { DST };

            node.post(id, SIG, work, &[(key, 0, 8 + 400 * id as u32)]);
            node.post_recv(id, DST, 0, 1000 * id as u32);
        }

        for _ in 0..200 {
            node.work();
            for frame in node.host.out.drain(..) {
                // Nothing of the secret goes out.
                let pkt = RxPacket::parse(&frame[28..]).unwrap();
                let payload = pkt.payload(&frame[28..]);

                assert!(payload.len() < 32 || payload.iter().any(|b| *b != 0xa5));
            }
            if node.error {
                errors += 1;
                break;
            }
            let roce = garbage(&mut rng, &[node.rx.expected(), node.tx.una]);
            let frame = node.host.frame(&roce);

            // Nobody but this driver itself says that a packet stands for several.
            let span = if rng.per_mille(800) {
                1
            } else {
                rng.next() as u32 >> rng.below(32)
            };

            node.receive_span(frame, span);
            given += 1;
        }
        node.work();
        completed += node.host.sent_wcs.len() + node.host.recv_wcs.len();
        assert!(node.bytes(SECRET, 0, 4096).iter().all(|b| *b == 0xa5));
        assert!(source == node.bytes(SRC, 0, SIZE as u32));
        if node.error {
            node.assert_completed_once(20);
        }
    }
    // The packets did reach the inside.
    assert!(worlds > 100 && errors > 100 && completed > 1000);
}
