// SPDX-License-Identifier: GPL-2.0

//! The protocol engine against itself, over good and bad networks.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    opcode::Transport,
    packet::Tail,
    sim::*,
    wc::{
        Opcode,
        Status, //
    },
    wire::{
        feth::Feth,
        reth::Reth, //
    },
    wqe::{
        SendFlags,
        Work, //
    },
};
use proptest::prelude::*;

/// Local source, and what the other side may read.
const SRC: u32 = 1;
/// Where data of READs, of WRITEs of the other side and of SENDs goes.
const DST: u32 = 2;
/// A counter.
const CTR: u32 = 3;
/// Nobody may touch it.
const SECRET: u32 = 4;

const SIG: u32 = SendFlags::SIGNALED;

fn va(key: u32, at: u32) -> u64 {
    (u64::from(key) << 32) + u64::from(at)
}

fn world(setup: Setup, size: usize) -> World {
    let mut world = World::new(setup);

    for node in world.nodes.iter_mut() {
        node.region(SRC, size, true, false);
        node.region(DST, size, false, true);
        node.region(CTR, 64, true, true);
        node.region(SECRET, 4096, false, false);
        node.host.regions[2].bytes.fill(0);
    }
    world
}

fn statuses(wcs: &[crate::wc::Wc]) -> Vec<(u64, Status)> {
    wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// What is to be found when all is done.
enum Expect {
    /// Bytes of a side's region are those of the other side's.
    Copy {
        to: (usize, u32, u32),
        from: (usize, u32, u32),
        len: u32,
    },
    /// Eight bytes are this number.
    Value { at: (usize, u32, u32), value: u64 },
}

/// Random work for both sides, all kinds of it, and what must come of it.
struct Load {
    expect: Vec<Expect>,
    /// Work requests of each side.
    sends: [u64; 2],
    /// Receives of each side: length, opcode, immediate data, in order.
    recvs: [Vec<(u32, Opcode, Tail)>; 2],
    /// Buffers that are not posted yet.
    buffers: [Vec<(u32, u32)>; 2],
    dst: [u32; 2],
    counters: [u64; 2],
}

impl Load {
    fn new(world: &mut World, ops: u32, max: u32) -> Self {
        let mut load = Self {
            expect: Vec::new(),
            sends: [0; 2],
            recvs: Default::default(),
            buffers: Default::default(),
            dst: [0; 2],
            counters: [0; 2],
        };

        for _ in 0..ops {
            let side = world.rng.below(2) as usize;

            load.add(world, side, max);
        }
        load
    }

    /// Takes a part of a side's destination that nobody else has.
    fn place(&mut self, side: usize, len: u32) -> u32 {
        let at = self.dst[side];

        self.dst[side] += (len + 15) & !7;
        at
    }

    fn add(&mut self, world: &mut World, side: usize, max: u32) {
        let peer = 1 - side;
        let mtu = world.setup.mtu;
        let rng = &mut world.rng;
        // Lengths around the borders of packets are the interesting ones.
        let len = match rng.below(6) {
            0 => 0,
            1 => 1 + rng.below(8) as u32,
            2 => mtu * (1 + rng.below(4) as u32),
            3 => mtu * (1 + rng.below(4) as u32) + 1,
            4 => (mtu * (1 + rng.below(4) as u32)).saturating_sub(1),
            _ => rng.below(u64::from(max)) as u32,
        }
        .min(max);
        let src = rng.below(512) as u32;
        let id = self.sends[side];
        let cut = rng.below(u64::from(len) + 1) as u32;
        let out = [(SRC, src, cut), (SRC, src + cut, len - cut)];
        let mut flags = SIG;
        let rc = world.setup.transport == Transport::Rc;

        if rng.per_mille(100) {
            flags |= SendFlags::FENCE;
        }
        self.sends[side] += 1;

        let from = (side, SRC, src);
        let node = &mut world.nodes[side];
        let tail = if rng.per_mille(300) {
            Tail::Imm((id as u32).to_be_bytes())
        } else {
            Tail::None
        };

        match rng.below(if rc { 9 } else { 2 }) {
            0 => {
                let to = self.place(peer, len);

                node.post(id, flags, Work::Send(tail), &out);
                self.recvs[peer].push((len, Opcode::Recv, tail));
                self.buffers[peer].push((to, len));
                self.expect.push(Expect::Copy {
                    to: (peer, DST, to),
                    from,
                    len,
                });
            }
            1 | 2 => {
                let to = self.place(peer, len);

                node.post(
                    id,
                    flags,
                    Work::Write {
                        va: va(DST, to),
                        rkey: DST,
                        tail,
                    },
                    &out,
                );
                if tail != Tail::None {
                    self.recvs[peer].push((len, Opcode::RecvWriteImm, tail));
                    self.buffers[peer].push((0, 0));
                }
                self.expect.push(Expect::Copy {
                    to: (peer, DST, to),
                    from,
                    len,
                });
            }
            3 | 4 => {
                let to = self.place(side, len);

                node.post(
                    id,
                    flags,
                    Work::Read {
                        va: va(SRC, src),
                        rkey: SRC,
                    },
                    &[(DST, to, cut), (DST, to + cut, len - cut)],
                );
                self.expect.push(Expect::Copy {
                    to: (side, DST, to),
                    from: (peer, SRC, src),
                    len,
                });
            }
            5 => {
                let to = self.place(side, 8);
                let old = self.counters[peer];
                let add = 1 + id;

                node.post(
                    id,
                    flags,
                    Work::FetchAdd {
                        va: va(CTR, 8),
                        rkey: CTR,
                        add,
                    },
                    &[(DST, to, 8)],
                );
                self.counters[peer] += add;
                self.expect.push(Expect::Value {
                    at: (side, DST, to),
                    value: old,
                });
            }
            6 => {
                let to = self.place(side, 8);
                let old = self.counters[peer];
                let (compare, swap) = if rng.per_mille(700) {
                    (old, old ^ 0x5555)
                } else {
                    (old + 1, 7)
                };

                node.post(
                    id,
                    flags,
                    Work::CompareSwap {
                        va: va(CTR, 8),
                        rkey: CTR,
                        compare,
                        swap,
                    },
                    &[(DST, to, 3), (DST, to + 3, 5)],
                );
                if compare == old {
                    self.counters[peer] = swap;
                }
                self.expect.push(Expect::Value {
                    at: (side, DST, to),
                    value: old,
                });
            }
            7 => {
                let to = self.place(peer, 8);
                let value = rng.next();

                node.post_inline(
                    id,
                    Work::AtomicWrite {
                        va: va(DST, to),
                        rkey: DST,
                    },
                    &value.to_ne_bytes(),
                );
                self.expect.push(Expect::Value {
                    at: (peer, DST, to),
                    value,
                });
            }
            _ => match rng.below(3) {
                0 => node.post(
                    id,
                    flags,
                    Work::Flush(
                        Feth {
                            types: Feth::GLOBAL,
                            level: Feth::RANGE,
                        },
                        Reth {
                            va: va(DST, 0),
                            rkey: DST,
                            len: 64,
                        },
                    ),
                    &[],
                ),
                1 => node.post(id, flags, Work::LocalInv(9), &[]),
                _ => node.post(id, flags, Work::Kernel(id as u32), &[]),
            },
        }
    }

    /// Posts receive buffers of a side, as many as given.
    fn post_recvs(&mut self, world: &mut World, side: usize, n: usize) {
        let done = self.recvs[side].len() - self.buffers[side].len();
        let n = n.min(self.buffers[side].len());

        for (id, (at, len)) in (done..).zip(self.buffers[side].drain(..n)) {
            world.nodes[side].post_recv(id as u64, DST, at, len);
        }
    }

    fn check(&self, world: &World) {
        for side in 0..2 {
            let node = &world.nodes[side];
            let want: Vec<_> = (0..self.sends[side])
                .map(|i| (i, Status::Success))
                .collect();

            assert_eq!(statuses(&node.host.sent_wcs), want, "sends of {side}");
            let got: Vec<_> = node
                .host
                .recv_wcs
                .iter()
                .map(|wc| {
                    (
                        wc.wr_id,
                        wc.status,
                        wc.byte_len,
                        wc.opcode,
                        wc.tail,
                        wc.from.qpn,
                    )
                })
                .collect();
            let want: Vec<_> = (0..)
                .zip(&self.recvs[side])
                .map(|(i, &(len, op, tail))| (i, Status::Success, len, op, tail, qpn(1 - side)))
                .collect();

            assert_eq!(got, want, "receives of {side}");
            assert!(!node.error);
            assert!(node.tx.q.is_empty());
            assert_eq!(
                node.bytes(CTR, 8, 8),
                self.counters[side].to_ne_bytes(),
                "counter of {side}"
            );
        }
        for e in &self.expect {
            match *e {
                Expect::Copy { to, from, len } => assert!(
                    world.nodes[to.0].bytes(to.1, to.2, len)
                        == world.nodes[from.0].bytes(from.1, from.2, len)
                ),
                Expect::Value { at, value } => {
                    assert_eq!(world.nodes[at.0].bytes(at.1, at.2, 8), value.to_ne_bytes())
                }
            }
        }
    }
}

/// Runs random work until all of it is done.
pub(crate) fn exchange(setup: Setup, ops: u32, max: u32) -> World {
    // Enough room for everything to have a place of its own.
    let mut world = world(setup, (ops * (max + 16) + 4096) as usize);
    let mut load = Load::new(&mut world, ops, max);
    let mut steps = 0u64;

    loop {
        // Buffers come now and then, so there are none now and then.
        for side in 0..2 {
            if world.rng.per_mille(200) {
                let n = 1 + world.rng.below(4) as usize;

                load.post_recvs(&mut world, side, n);
            }
        }
        steps += 1;
        assert!(steps < 300_000, "no end at {} ns", world.now());
        if !world.step() && load.buffers.iter().all(|b| b.is_empty()) {
            break;
        }
    }
    load.check(&world);
    world
}

#[test]
fn quiet_network() {
    for seed in 0..40 {
        exchange(
            Setup {
                seed,
                ..Setup::QUIET
            },
            60,
            6000,
        );
    }
}

/// A response that finds no memory at the responder is not kept by the requester. It goes by the
/// network afterwards, gets lost, and has to be asked for again.
#[test]
fn response_is_lost_after_it_had_to_wait() {
    exchange(
        Setup {
            seed: 8956342978191890143,
            loss: 276,
            dup: 148,
            busy: 222,
            wait: 19,
            depth: 8,
            resources: 2,
            psn: 0,
            direct: 500,
            owned: 185,
            ..Setup::QUIET
        },
        55,
        1134,
    );
}

fn setups() -> impl Strategy<Value = Setup> {
    (
        (any::<u64>(), 0..5u32, any::<u32>()),
        (0..300u32, 0..300u32, 0..100u32, 0..500u32),
        (0..300u32, 0..100u32),
        (0..7u32, 1..6u32, any::<bool>(), any::<bool>()),
        (
            prop::sample::select(vec![0, 0, 30, 500, 970, 1000]),
            0..400u32,
        ),
    )
        .prop_map(
            |(
                (seed, mtu, psn),
                (loss, dup, corrupt, reorder),
                (busy, wait),
                (depth, res, thin, v6),
                (direct, owned),
            )| Setup {
                seed,
                mtu: 256 << mtu,
                loss,
                dup,
                corrupt,
                reorder,
                busy,
                wait,
                depth: 1 << depth,
                resources: res,
                thin_acks: thin,
                v6,
                psn: psn & 0xff_ffff,
                direct,
                owned,
                ..Setup::QUIET
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bad_network(setup in setups(), ops in 1..60u32, max in 8..9000u32) {
        exchange(setup, ops, max);
    }
}
