// SPDX-License-Identifier: GPL-2.0

//! What goes wrong ends as it should: in the right status, in order, and without harm to the rest.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    opcode::{
        self,
        ExtKind, //
    },
    packet::{
        Ext,
        RxPacket,
        Tail,
        TxHeaders, //
    },
    qp::state::QpState,
    sim::*,
    wc::Status,
    wire::{
        aeth::Aeth,
        bth::Bth,
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

pub(crate) const SRC: u32 = 1;
pub(crate) const DST: u32 = 2;
pub(crate) const SECRET: u32 = 4;
pub(crate) const SIG: u32 = SendFlags::SIGNALED;

fn va(key: u32, at: u32) -> u64 {
    (u64::from(key) << 32) + u64::from(at)
}

pub(crate) fn world(setup: Setup) -> World {
    world_of(setup, 1 << 20)
}

pub(crate) fn world_of(setup: Setup, size: usize) -> World {
    let mut world = World::new(setup);

    for node in world.nodes.iter_mut() {
        node.region(SRC, size, true, false);
        node.region(DST, size, false, true);
        node.region(SECRET, 4096, false, false);
    }
    world
}

pub(crate) fn write(at: u64, rkey: u32) -> Work<Kernel> {
    Work::Write {
        va: at,
        rkey,
        tail: Tail::None,
    }
}

pub(crate) fn sent(world: &World) -> Vec<(u64, Status)> {
    let wcs = &world.nodes[0].host.sent_wcs;

    wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

pub(crate) fn received(world: &World) -> Vec<(u64, Status)> {
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

/// What was answered is still known when there is room for more READs and atomics.
#[test]
fn room_for_more() {
    let mut world = world(Setup {
        resources: 3,
        ..Setup::QUIET
    });
    let add = Work::FetchAdd {
        va: va(DST, 0),
        rkey: DST,
        add: 5,
    };
    let ask = |world: &mut World, request: &[u8]| {
        world.nodes[1].receive(request.to_vec());
        world.nodes[1].work();
        world.nodes[1].host.out.pop_front().unwrap()
    };
    let mut said = Vec::new();

    for id in 0..5 {
        world.nodes[0].post(id, SIG, add, &[(DST, 8, 8)]);
        world.nodes[0].work();
        let request = world.nodes[0].host.out.pop_front().unwrap();
        let answer = ask(&mut world, &request);

        world.nodes[0].receive(answer.clone());
        world.nodes[0].work();
        said.push((request, answer));
    }
    assert_eq!(sent(&world).len(), 5);
    let after = world.nodes[1].bytes(DST, 0, 8).to_vec();

    for room in [8, 2, 11] {
        world.nodes[1].rx.grow((0..room).map(|_| None).collect());
        for (request, answer) in &said[2..] {
            let again = ask(&mut world, request);

            // Without IP header and ICRC.
            assert_eq!(
                again[28..again.len() - 4],
                answer[28..answer.len() - 4],
                "{room}"
            );
        }
    }
    assert_eq!(world.nodes[1].bytes(DST, 0, 8), after);
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
    // Completions behind a lost one would be taken for it.
    world.nodes[0].overflow = false;
    world.nodes[0].host.room = 100;
    world.settle(1000);
    assert_eq!(sent(&world).len(), 3);
    assert!(!world.nodes[0].overflow);

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
    world.nodes[1].host.room = 100;
    world.settle(1000);
    assert_eq!(received(&world).len(), 3);
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
