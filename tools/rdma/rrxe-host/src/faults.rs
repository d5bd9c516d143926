// SPDX-License-Identifier: GPL-2.0

//! What goes wrong ends as it should: in the right status, in order, and without harm to the rest.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
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
    qp::state::QpState,
    sim::*,
    wc::{
        Opcode,
        Status, //
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
        BindMw,
        Malformed,
        SendFlags,
        Work, //
    }, //
};

const SRC: u32 = 1;
const DST: u32 = 2;
const SECRET: u32 = 4;
const SIG: u32 = SendFlags::SIGNALED;

fn va(key: u32, at: u32) -> u64 {
    (u64::from(key) << 32) + u64::from(at)
}

fn world(setup: Setup) -> World {
    world_of(setup, 1 << 20)
}

fn world_of(setup: Setup, size: usize) -> World {
    let mut world = World::new(setup);

    for node in &mut world.nodes {
        node.region(SRC, size, true, false);
        node.region(DST, size, false, true);
        node.region(SECRET, 4096, false, false);
    }
    world
}

fn write(at: u64, rkey: u32) -> Work<Kernel> {
    Work::Write {
        va: at,
        rkey,
        tail: Tail::None,
    }
}

fn sent(world: &World) -> Vec<(u64, Status)> {
    let wcs = &world.nodes[0].host.sent_wcs;

    wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

fn received(world: &World) -> Vec<(u64, Status)> {
    let wcs = &world.nodes[1].host.recv_wcs;

    wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// Does one work request between two good ones; returns how the three ended and the receives.
fn one(work: Work<Kernel>, sges: &[(u32, u32, u32)]) -> (World, Status) {
    let mut world = world(Setup::QUIET);

    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 3000)]);
    // Not signaled: an error is reported all the same.
    world.nodes[0].post(1, 0, work, sges);
    world.nodes[0].post(2, 0, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.settle(10_000);
    let got = sent(&world);

    assert_eq!(got.len(), 3);
    assert_eq!(got[0], (0, Status::Success));
    assert_eq!(got[2], (2, Status::WrFlush));
    assert_eq!(world.nodes[0].tx.state, QpState::Error);
    assert_eq!(
        world.nodes[1].bytes(DST, 0, 3000),
        world.nodes[0].bytes(SRC, 0, 3000)
    );
    let status = got[1].1;

    (world, status)
}

#[test]
fn remote_access_errors() {
    let cases = [
        (write(va(SECRET, 0), SECRET), 8),
        (write(va(SRC, 0), SRC), 8),
        (write(va(DST, 0), 99), 8),
        (write(va(DST, (1 << 20) - 7), DST), 8),
        (write(va(DST, 0).wrapping_sub(1), DST), 8),
        (write(u64::MAX - 3, DST), 8),
        (write(u64::MAX - 3, DST), 5000),
        (
            Work::Read {
                va: va(DST, 0),
                rkey: DST,
            },
            8,
        ),
        (
            Work::Read {
                va: u64::MAX,
                rkey: SRC,
            },
            5000,
        ),
        (
            Work::FetchAdd {
                va: va(SECRET, 0),
                rkey: SECRET,
                add: 1,
            },
            8,
        ),
        (
            Work::Flush(
                Feth {
                    types: Feth::GLOBAL,
                    level: Feth::RANGE,
                },
                Reth {
                    va: u64::MAX,
                    rkey: DST,
                    len: 64,
                },
            ),
            0,
        ),
        (Work::Send(Tail::Inv(99)), 0),
    ];

    for (work, len) in cases {
        let reads = matches!(work, Work::Read { .. } | Work::FetchAdd { .. });
        let (world, status) = if matches!(work, Work::Send(_)) {
            // Needs a buffer, so it is done by hand.
            let mut world = self::world(Setup::QUIET);

            world.nodes[1].post_recv(0, DST, 0, 8);
            world.nodes[0].post(1, 0, work, &[]);
            world.settle(1000);
            assert_eq!(received(&world), [(0, Status::LocAccess)]);
            let status = sent(&world)[0].1;
            (world, status)
        } else {
            one(work, &[(if reads { DST } else { SRC }, 0, len)])
        };

        assert_eq!(status, Status::RemAccess, "{work:?}");
        assert!(world.nodes[1].error);
        assert_eq!(world.nodes[1].access, !matches!(work, Work::Send(_)));
    }
}

#[test]
fn invalid_requests() {
    for (work, len) in [
        (
            Work::FetchAdd {
                va: va(DST, 4),
                rkey: DST,
                add: 1,
            },
            8,
        ),
        (
            Work::CompareSwap {
                va: va(DST, 1),
                rkey: DST,
                compare: 0,
                swap: 0,
            },
            8,
        ),
    ] {
        let (world, status) = one(work, &[(DST, 0, len)]);

        assert_eq!(status, Status::RemInvReq);
        assert!(world.nodes[1].error && world.nodes[1].request && !world.nodes[1].access);
    }
}

#[test]
fn local_errors() {
    // Unknown key, outside of the region, address that wraps.
    for sge in [(99, 0, 8), (SRC, (1 << 20) - 4, 8), (SRC, u32::MAX, 8)] {
        let (world, status) = one(write(va(DST, 0), DST), &[sge]);

        assert_eq!(status, Status::LocProt);
        assert!(!world.nodes[1].error);
    }
    // A READ whose data may not be put where it should go.
    let read = Work::Read {
        va: va(SRC, 0),
        rkey: SRC,
    };
    assert_eq!(one(read, &[(99, 0, 5000)]).1, Status::LocProt);

    assert_eq!(one(Work::LocalInv(0), &[]).1, Status::LocQpOp);
    let bind = BindMw {
        addr: 0,
        len: 0,
        mr_lkey: 1,
        mw_rkey: 2,
        rkey: 3,
        access: 0,
    };
    assert_eq!(one(Work::BindMw(bind), &[]).1, Status::MwBind);
}

#[test]
fn malformed_send_entry() {
    let mut world = world(Setup::QUIET);

    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.nodes[0].host.sq.push_back(Err(Malformed {
        wr_id: 1,
        status: Status::LocQpOp,
    }));
    world.nodes[0].post(2, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.nodes[0].host.sq.push_back(Err(Malformed {
        wr_id: 3,
        status: Status::LocQpOp,
    }));
    world.settle(1000);
    assert_eq!(world.nodes[0].tx.state, QpState::Error);
    assert_eq!(
        sent(&world),
        [
            (0, Status::Success),
            (1, Status::LocQpOp),
            (2, Status::WrFlush),
            (3, Status::WrFlush)
        ]
    );
}

#[test]
fn receive_buffer_is_no_good() {
    // Too small; with a key that does not exist; not to be decoded at all.
    for (case, here, there) in [
        (0, Status::LocLen, Status::RemInvReq),
        (1, Status::LocProt, Status::RemOp),
        (2, Status::LocQpOp, Status::RemOp),
    ] {
        let mut world = world(Setup::QUIET);

        match case {
            0 => world.nodes[1].post_recv(0, DST, 0, 2999),
            1 => world.nodes[1].post_recv(0, 99, 0, 3000),
            _ => world.nodes[1].host.rq.push_back(Err(Malformed {
                wr_id: 0,
                status: Status::LocQpOp,
            })),
        }
        world.nodes[1].post_recv(1, DST, 0, 3000);
        world.nodes[0].post(0, 0, SEND, &[(SRC, 0, 3000)]);
        world.settle(1000);
        assert_eq!(received(&world), [(0, here), (1, Status::WrFlush)]);
        assert_eq!(sent(&world), [(0, there)]);
        assert!(!world.nodes[1].access && !world.nodes[1].request);
    }
}

#[test]
fn dead_network() {
    for retries in [0, 3] {
        let mut world = world(Setup {
            loss: 1000,
            retry_cnt: retries,
            ..Setup::QUIET
        });

        for id in 0..3 {
            world.nodes[0].post(id, 0, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
        }
        world.settle(1000);
        assert_eq!(
            sent(&world),
            [
                (0, Status::RetryExc),
                (1, Status::WrFlush),
                (2, Status::WrFlush)
            ]
        );
        // One timeout more than there are retries.
        assert_eq!(world.now(), 1_000_000 * (u64::from(retries) + 1));
    }
}

#[test]
fn receiver_never_ready() {
    for retries in [0, 5] {
        let mut world = world(Setup {
            rnr_retry: retries,
            ..Setup::QUIET
        });

        world.nodes[0].post(0, 0, SEND, &[(SRC, 0, 8)]);
        world.nodes[0].post(1, 0, SEND, &[(SRC, 0, 8)]);
        world.settle(1000);
        assert_eq!(
            sent(&world),
            [(0, Status::RnrRetryExc), (1, Status::WrFlush)]
        );
        // Code 12 is 640 us, and each way takes 10 us.
        assert_eq!(world.now(), 20_000 + u64::from(retries) * 660_000);
        assert!(!world.nodes[1].error);
    }
}

#[test]
fn receiver_ready_later() {
    let mut world = world(Setup::QUIET);

    for id in 0..10 {
        world.nodes[0].post(id, SIG, SEND, &[(SRC, 0, 2500)]);
    }
    while world.now() < 3_000_000 {
        world.step();
    }
    assert_eq!(sent(&world), []);
    for id in 0..10 {
        world.nodes[1].post_recv(id, DST, 3000 * id as u32, 2500);
    }
    world.settle(1000);
    assert_eq!(sent(&world).len(), 10);
    assert_eq!(received(&world).len(), 10);
}

#[test]
fn no_resources() {
    // Of one's own: the request can never be sent.
    let mut world = world(Setup {
        resources: 0,
        ..Setup::QUIET
    });
    let read = Work::Read {
        va: va(SRC, 0),
        rkey: SRC,
    };

    world.nodes[0].post(0, SIG, read, &[(DST, 0, 8)]);
    world.settle(1000);
    assert_eq!(sent(&world), [(0, Status::LocQpOp)]);

    // Of the other side: the request is invalid.
    let mut world = self::world(Setup::QUIET);
    let cfg = *world.nodes[1].rx.config();
    let psn = world.nodes[1].rx.expected();

    world.nodes[1].rx.start(cfg, Vec::new(), psn);
    world.nodes[0].post(0, SIG, read, &[(DST, 0, 8)]);
    world.settle(1000);
    assert_eq!(sent(&world), [(0, Status::RemInvReq)]);
}

#[test]
fn fewer_resources_than_agreed() {
    let mut world = world(Setup {
        resources: 8,
        ..Setup::QUIET
    });
    let cfg = *world.nodes[1].rx.config();
    let psn = world.nodes[1].rx.expected();

    world.nodes[1].rx.start(cfg, vec![None; 1], psn);
    for id in 0..20 {
        let at = id as u32 * 3000;

        world.nodes[0].post(
            id,
            SIG,
            Work::Read {
                va: va(SRC, at),
                rkey: SRC,
            },
            &[(DST, at, 3000)],
        );
    }
    world.settle(10_000);
    assert_eq!(sent(&world).len(), 20);
    assert!(sent(&world).iter().all(|s| s.1 == Status::Success));
    assert_eq!(
        world.nodes[0].bytes(DST, 0, 60_000),
        world.nodes[1].bytes(SRC, 0, 60_000)
    );
}

#[test]
fn empty_requests_need_no_key() {
    let mut world = world(Setup {
        dup: 1000,
        loss: 200,
        ..Setup::QUIET
    });

    for id in 0..20 {
        let work = if id % 2 == 0 {
            Work::Read {
                va: u64::MAX,
                rkey: 0xdead,
            }
        } else {
            write(u64::MAX, 0xdead)
        };

        world.nodes[0].post(id, SIG, work, &[]);
    }
    world.settle(10_000);
    assert!(sent(&world).iter().all(|s| s.1 == Status::Success));
    assert_eq!(sent(&world).len(), 20);
}

/// Returns how many packets of a side have a syndrome.
fn syndromes(world: &World, side: usize, syndrome: u8) -> usize {
    world
        .seen
        .iter()
        .filter(|(s, pkt)| {
            *s == side && matches!(pkt.ext, Ext::Aeth(aeth) if aeth.syndrome == syndrome)
        })
        .count()
}

#[test]
fn lost_packet_is_reported_once() {
    for lost in 0..19 {
        let mut world = world(Setup::QUIET);

        world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 5, 20 * 1024)]);
        world.nodes[0].work();
        assert_eq!(world.nodes[0].host.out.len(), 20);
        world.nodes[0].host.out.remove(lost);
        world.settle(1000);
        assert_eq!(sent(&world), [(0, Status::Success)]);
        assert_eq!(
            world.nodes[0].bytes(SRC, 5, 20480),
            world.nodes[1].bytes(DST, 0, 20480)
        );
        // One report, and all from the lost packet on again; no waiting for the timeout.
        assert_eq!(syndromes(&world, 1, 0x60), 1);
        assert_eq!(
            world.seen.iter().filter(|s| s.0 == 0).count(),
            19 + 20 - lost
        );
        assert!(world.now() < 100_000);
    }
}

#[test]
fn receiver_says_once_that_it_is_not_ready() {
    let mut world = world(Setup::QUIET);

    for id in 0..10 {
        world.nodes[0].post(id, SIG, SEND, &[(SRC, 0, 8)]);
    }
    while world.now() < 600_000 {
        world.step();
        if world.now() == 10_000 && world.nodes[1].host.rq.is_empty() {
            for id in 0..10 {
                world.nodes[1].post_recv(id, DST, 0, 8);
            }
        }
    }
    world.settle(1000);
    assert_eq!(sent(&world).len(), 10);
    assert_eq!(syndromes(&world, 1, 0x20 | 12), 1);
    assert_eq!(syndromes(&world, 1, 0x60), 0);
}

/// Repeated requests are answered, but not done again.
#[test]
fn repeated_requests() {
    for work in [
        SEND,
        write(va(DST, 0), DST),
        Work::FetchAdd {
            va: va(DST, 0),
            rkey: DST,
            add: 5,
        },
        Work::Read {
            va: va(SRC, 0),
            rkey: SRC,
        },
    ] {
        let mut world = world(Setup::QUIET);
        let from = if matches!(work, Work::Send(_) | Work::Write { .. }) {
            SRC
        } else {
            DST
        };

        world.nodes[1].post_recv(0, DST, 64, 8);
        world.nodes[1].post_recv(1, DST, 64, 8);
        world.nodes[0].post(0, SIG, work, &[(from, 0, 8)]);
        world.nodes[0].work();

        let request = world.nodes[0].host.out[0].clone();
        let mut answers = Vec::new();
        let mut after = Vec::new();

        for _ in 0..3 {
            world.nodes[1].receive(request.clone());
            world.nodes[1].work();
            assert_eq!(world.nodes[1].host.out.len(), 1, "{work:?}");
            let frame = world.nodes[1].host.out.pop_front().unwrap();

            // Without IP header and ICRC.
            answers.push(frame[28..frame.len() - 4].to_vec());
            after.push(world.nodes[1].bytes(DST, 0, 100).to_vec());
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0], answers[2]);
        assert_eq!(after[0], after[1]);
        assert_eq!(after[0], after[2]);
        assert!(received(&world).len() <= 1);
    }
}

/// The rest of a READ whose end was lost, in the two ways to answer it.
#[test]
fn rest_of_a_read() {
    for (resume_in_place, want) in [(true, [0x0e, 0x0e, 0x0f]), (false, [0x0d, 0x0e, 0x0f])] {
        let mut world = world(Setup::QUIET);
        let mut cfg = *world.nodes[1].rx.config();
        let read = Work::Read {
            va: va(SRC, 3),
            rkey: SRC,
        };

        cfg.resume_in_place = resume_in_place;
        world.nodes[1].rx.configure(cfg);
        world.nodes[0].post(0, SIG, read, &[(DST, 0, 5000)]);
        world.nodes[0].work();
        let request = world.nodes[0].host.out.pop_front().unwrap();

        world.nodes[1].receive(request);
        world.nodes[1].work();
        assert_eq!(world.nodes[1].host.out.len(), 5);
        for _ in 0..2 {
            let answer = world.nodes[1].host.out.pop_front().unwrap();

            world.nodes[0].receive(answer);
        }
        world.nodes[1].host.out.clear();
        assert_eq!(sent(&world), []);

        // Until the timeout asks for the rest.
        while world.nodes[1].host.out.is_empty() {
            assert!(world.step());
            world.nodes[1].work();
        }
        let codes: Vec<_> = world.nodes[1]
            .host
            .out
            .iter()
            .map(|f| RxPacket::parse(&f[28..]).unwrap().op.code)
            .collect();

        assert_eq!(codes, want);
        world.settle(1000);
        assert_eq!(sent(&world), [(0, Status::Success)]);
        assert_eq!(
            world.nodes[0].bytes(DST, 0, 5000),
            world.nodes[1].bytes(SRC, 3, 5000)
        );
    }
}

#[test]
fn rights_of_the_queue_pair() {
    let mut world = world(Setup::QUIET);
    let mut cfg = *world.nodes[1].rx.config();

    cfg.rights.write = false;
    world.nodes[1].rx.configure(cfg);
    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.settle(1000);
    assert_eq!(sent(&world), [(0, Status::RemInvReq)]);
}

#[test]
fn draining() {
    let mut world = world(Setup::QUIET);

    for id in 0..5 {
        world.nodes[0].post(id, SIG, write(va(DST, 0), DST), &[(SRC, 0, 200_000)]);
    }
    for _ in 0..100 {
        world.step();
    }
    world.nodes[0].tx.set_state(QpState::Sqd);
    world.settle(10_000);
    let begun = sent(&world).len();

    assert!((1..5).contains(&begun));
    assert_eq!(world.nodes[0].drained, 1);
    assert_eq!(world.nodes[0].host.sq.len(), 5 - begun);
    world.nodes[0].tx.set_state(QpState::Rts);
    world.settle(10_000);
    assert_eq!(sent(&world).len(), 5);
    assert_eq!(world.nodes[0].drained, 1);
}

#[test]
fn completions_that_were_not_asked_for() {
    let mut world = world(Setup::QUIET);

    for id in 0..50 {
        let flags = if id % 10 == 9 { SIG } else { 0 };

        world.nodes[0].post(id, flags, write(va(DST, 0), DST), &[(SRC, 0, 100)]);
    }
    world.settle(10_000);
    let ids: Vec<_> = sent(&world).iter().map(|s| s.0).collect();
    assert_eq!(ids, [9, 19, 29, 39, 49]);
}

#[test]
fn window_and_acknowledgments() {
    // Nothing comes back: no more than the window is sent.
    let mut world = world(Setup {
        loss: 1000,
        retry_cnt: 0,
        ..Setup::QUIET
    });

    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 1 << 20)]);
    world.nodes[0].work();
    assert_eq!(world.nodes[0].host.out.len(), 128);

    // The last packet asks for an acknowledgment, whatever else does.
    for thin_acks in [false, true] {
        let mut world = self::world(Setup {
            thin_acks,
            ..Setup::QUIET
        });

        for id in 0..100 {
            world.nodes[0].post(id, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
        }
        world.nodes[0].work();
        let asks: Vec<_> = world.nodes[0]
            .host
            .out
            .iter()
            .map(|f| RxPacket::parse(&f[28..]).unwrap().bth.ack_req)
            .collect();
        // The table has 64 entries here.
        let count = asks.iter().filter(|a| **a).count();

        assert_eq!(asks.len(), 64);
        assert!(asks[63]);
        assert_eq!(count, if thin_acks { 4 } else { 64 });
        world.settle(10_000);
        assert_eq!(sent(&world).len(), 100);
    }
}

#[test]
fn fence_waits_for_reads() {
    let mut world = world(Setup::QUIET);

    world.nodes[0].post(
        0,
        SIG,
        Work::Read {
            va: va(SRC, 0),
            rkey: SRC,
        },
        &[(DST, 0, 8)],
    );
    world.nodes[0].post(1, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.nodes[0].post(
        2,
        SIG | SendFlags::FENCE,
        write(va(DST, 0), DST),
        &[(SRC, 0, 8)],
    );
    world.nodes[0].work();
    assert_eq!(world.nodes[0].host.out.len(), 2);
    world.settle(1000);
    assert_eq!(sent(&world).len(), 3);
}

#[test]
fn invalidation_waits_for_everything() {
    let mut world = world(Setup::QUIET);

    world.nodes[0].post(0, 0, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.nodes[0].post(1, 0, Work::Kernel(5), &[]);
    world.nodes[0].post(2, SIG, Work::LocalInv(7), &[]);
    world.nodes[0].post(3, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    world.nodes[0].work();
    assert_eq!(world.nodes[0].host.local, [Work::Kernel(5)]);
    assert_eq!(world.nodes[0].host.out.len(), 1);
    world.settle(1000);
    assert_eq!(
        world.nodes[0].host.local,
        [Work::Kernel(5), Work::LocalInv(7)]
    );
    assert_eq!(sent(&world), [(2, Status::Success), (3, Status::Success)]);
}

#[test]
fn send_with_invalidate() {
    let mut world = world(Setup {
        dup: 500,
        loss: 300,
        ..Setup::QUIET
    });

    for id in 0..20 {
        world.nodes[1].post_recv(id, DST, 0, 8);
        world.nodes[0].post(id, SIG, Work::Send(Tail::Inv(SRC)), &[(SRC, 0, 8)]);
    }
    world.settle(10_000);
    assert_eq!(world.nodes[1].host.invalidated, [SRC; 20]);
    assert!(world.nodes[1]
        .host
        .recv_wcs
        .iter()
        .all(|wc| wc.tail == Tail::Inv(SRC)));
}

#[test]
fn full_completion_queue() {
    let mut world = world(Setup::QUIET);

    world.nodes[0].host.room = 3;
    for id in 0..10 {
        world.nodes[0].post(id, SIG, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
    }
    world.settle(1000);
    assert_eq!(sent(&world).len(), 3);
    assert!(world.nodes[0].error && world.nodes[0].overflow);

    let mut world = self::world(Setup {
        retry_cnt: 1,
        ..Setup::QUIET
    });

    world.nodes[1].host.room = 3;
    for id in 0..10 {
        world.nodes[1].post_recv(id, DST, 0, 8);
        world.nodes[0].post(id, 0, SEND, &[(SRC, 0, 8)]);
    }
    world.settle(100_000);
    assert_eq!(received(&world).len(), 3);
    assert!(world.nodes[1].error && world.nodes[1].overflow);
}

/// Every AETH as the answer to a SEND (R08): success only for an acknowledgment.
#[test]
fn every_syndrome() {
    for syndrome in 0..=u8::MAX {
        let mut world = world(Setup::QUIET);

        world.nodes[0].post(0, SIG, SEND, &[(SRC, 0, 8)]);
        world.nodes[0].work();
        let frame = response(&mut world, 0x11, syndrome, 0, &[]);

        world.nodes[0].receive(frame);
        world.nodes[0].work();
        let want: &[Status] = match syndrome {
            0..=0x1f => &[Status::Success],
            0x61 => &[Status::RemInvReq],
            0x62 => &[Status::RemAccess],
            0x63 => &[Status::RemOp],
            _ => &[],
        };
        let got: Vec<_> = sent(&world).iter().map(|s| s.1).collect();

        assert_eq!(got, want, "syndrome {syndrome:#x}");
    }
}

/// A response to side 0, whose PSN is `ahead` of the first one without an acknowledgment.
fn response(world: &mut World, code: u8, syndrome: u8, ahead: u32, payload: &[u8]) -> Vec<u8> {
    let op = opcode::lookup(code).unwrap();
    let aeth = Aeth { syndrome, msn: 0 };
    let ext = match op.ext {
        ExtKind::Aeth => Ext::Aeth(aeth),
        ExtKind::AethAtomic => Ext::AtomicAck(aeth, 5),
        _ => Ext::None,
    };
    let bth = Bth {
        opcode: code,
        se: false,
        mig_req: false,
        pad: pad(payload.len() as u32),
        tver: 0,
        pkey: 0xffff,
        dest_qp: qpn(0),
        ack_req: false,
        psn: world.nodes[0].tx.una.add(ahead),
    };
    let mut roce = TxHeaders::new(&bth, &ext, &Tail::None).as_bytes().to_vec();

    roce.extend(payload);
    roce.extend(&[0; 3][..usize::from(bth.pad)]);
    world.nodes[1].host.frame(&roce)
}

/// Every response to every request, of which only the right ones may succeed.
#[test]
fn every_response() {
    let read = Work::Read {
        va: va(SRC, 0),
        rkey: SRC,
    };
    let add = Work::FetchAdd {
        va: va(DST, 0),
        rkey: DST,
        add: 1,
    };
    let flush = Work::Flush(
        Feth { types: 1, level: 0 },
        Reth {
            va: va(DST, 0),
            rkey: DST,
            len: 8,
        },
    );

    for (work, len, code, payload) in [
        (SEND, 8, 0x11, 0),
        (read, 1500, 0x0d, 1024),
        (read, 8, 0x10, 8),
        (add, 8, 0x12, 0),
        (flush, 0, 0x10, 0),
    ] {
        for answer in 0x0d..=0x12u8 {
            for n in [0, 1, 7, 8, 9, 1023, 1024, 1025] {
                if !opcode::lookup(answer).unwrap().payload && n > 0 {
                    continue;
                }

                let mut world = world(Setup::QUIET);
                let key = if len == 8 && work == SEND { SRC } else { DST };

                world.nodes[0].post(0, SIG, work, &[(key, 0, len)]);
                world.nodes[0].work();
                let frame = response(&mut world, answer, 0x1f, 0, &vec![7; n]);

                world.nodes[0].receive(frame);
                world.nodes[0].work();

                let got: Vec<_> = sent(&world).iter().map(|s| s.1).collect();
                let right = answer == code && n == payload;
                let what = format!("{work:?} {answer:#x} {n}");

                if right && len == 1500 {
                    // Only the first half has come.
                    assert_eq!(got, [], "{what}");
                } else if right {
                    assert_eq!(got, [Status::Success], "{what}");
                } else if answer == 0x11 {
                    // An acknowledgment says that the answer was lost.
                    assert_eq!(got, [], "{what}");
                    assert_eq!(world.nodes[0].host.out.len(), 2, "{what}");
                } else {
                    assert_eq!(got, [Status::BadResp], "{what}");
                }
            }
        }
    }
}

#[test]
fn unreliable_connection() {
    for seed in 0..50 {
        let mut world = world(Setup {
            seed,
            transport: Transport::Uc,
            loss: 150,
            dup: 50,
            reorder: 50,
            ..Setup::QUIET
        });

        for id in 0..40u32 {
            world.nodes[1].post_recv(id.into(), DST, id * 8192, 8192);
            // The immediate data is the number of the message.
            world.nodes[0].post(
                id.into(),
                SIG,
                Work::Send(Tail::Imm(id.to_be_bytes())),
                &[(SRC, id * 16, id * 100)],
            );
        }
        world.settle(100_000);
        assert_eq!(sent(&world).len(), 40);
        assert!(sent(&world).iter().all(|s| s.1 == Status::Success));
        assert!(!world.nodes[1].error);

        let wcs = &world.nodes[1].host.recv_wcs;

        assert!(!wcs.is_empty() && wcs.len() < 60);
        for (i, wc) in wcs.iter().enumerate() {
            let Tail::Imm(imm) = wc.tail else { panic!() };
            let id = u32::from_be_bytes(imm);

            // Buffers are used in order, and what completes is whole.
            assert_eq!(wc.wr_id, i as u64);
            assert_eq!(wc.byte_len, id * 100);
            assert!(
                world.nodes[1].bytes(DST, i as u32 * 8192, wc.byte_len)
                    == world.nodes[0].bytes(SRC, id * 16, id * 100)
            );
        }
    }
}

fn datagram(qkey: u32, ah: u32) -> Work<Kernel> {
    Work::Datagram {
        ah,
        qpn: qpn(1),
        qkey,
        tail: Tail::None,
    }
}

#[test]
fn datagrams() {
    for v6 in [false, true] {
        let mut world = world(Setup {
            transport: Transport::Ud,
            v6,
            ..Setup::QUIET
        });

        world.nodes[1].post_recv(0, DST, 0, 40 + 100);
        world.nodes[1].post_recv(1, DST, 1000, 40 + 100);
        // Does not fit, has a wrong key, is longer than the MTU: nobody notices.
        world.nodes[0].post(0, SIG, datagram(QKEY, 1), &[(SRC, 0, 101)]);
        world.nodes[0].post(1, SIG, datagram(5, 1), &[(SRC, 0, 10)]);
        world.nodes[0].post(2, SIG, datagram(QKEY, 1), &[(SRC, 0, 1025)]);
        world.nodes[0].post(3, SIG, datagram(QKEY, 1), &[(SRC, 0, 100)]);
        // The highest bit stands for the sender's own key.
        world.nodes[0].post(4, SIG, datagram(0x8000_0000, 1), &[(SRC, 7, 3)]);
        world.settle(1000);
        assert_eq!(sent(&world).len(), 5);
        assert!(sent(&world).iter().all(|s| s.1 == Status::Success));
        assert_eq!(
            received(&world),
            [(0, Status::Success), (1, Status::Success)]
        );

        let wc = world.nodes[1].host.recv_wcs[0];
        assert_eq!((wc.byte_len, wc.src_qp), (140, qpn(0)));
        assert_eq!(wc.opcode, Opcode::Recv);
        assert_eq!(
            world.nodes[1].bytes(DST, 40, 100),
            world.nodes[0].bytes(SRC, 0, 100)
        );
        assert_eq!(
            world.nodes[1].bytes(DST, 1040, 3),
            world.nodes[0].bytes(SRC, 7, 3)
        );
        let grh = world.nodes[1].bytes(DST, 0, 40);
        if v6 {
            assert_eq!(grh[0], 0x60);
        } else {
            assert_eq!(grh[..20], [0; 20]);
            assert_eq!(grh[20], 0x45);
        }

        // No such address handle.
        world.nodes[0].post(5, 0, datagram(QKEY, 2), &[(SRC, 0, 10)]);
        world.settle(1000);
        assert_eq!(sent(&world)[5], (5, Status::LocQpOp));
        assert_eq!(world.nodes[0].tx.state, QpState::Error);
    }
}

/// Solicited events are asked for by the last packet of a message only.
#[test]
fn solicited_events() {
    let mut world = world(Setup::QUIET);

    for (id, flags) in [(0, SIG), (1, SIG | SendFlags::SOLICITED)] {
        world.nodes[1].post_recv(id, DST, 0, 3000);
        world.nodes[0].post(id, flags, SEND, &[(SRC, 0, 3000)]);
    }
    world.nodes[0].work();
    let se: Vec<_> = world.nodes[0]
        .host
        .out
        .iter()
        .map(|f| RxPacket::parse(&f[28..]).unwrap().bth.se)
        .collect();

    assert_eq!(se, [false, false, false, false, false, true]);
    world.settle(1000);
    let wcs = &world.nodes[1].host.recv_wcs;
    assert_eq!((wcs[0].solicited, wcs[1].solicited), (false, true));
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

            node.receive(frame);
            given += 1;
        }
        node.work();
        completed += node.host.sent_wcs.len() + node.host.recv_wcs.len();
        assert!(node.bytes(SECRET, 0, 4096).iter().all(|b| *b == 0xa5));
        assert!(source == node.bytes(SRC, 0, SIZE as u32));
        if node.error {
            // Every work request completes, once.
            for (wcs, n) in [(&node.host.sent_wcs, 20), (&node.host.recv_wcs, 20)] {
                let ids: Vec<_> = wcs.iter().map(|wc| wc.wr_id).collect();

                assert_eq!(ids, (0..n).collect::<Vec<_>>());
            }
        }
    }
    // The packets did reach the inside.
    assert!(worlds > 100 && errors > 100 && completed > 1000);
}
