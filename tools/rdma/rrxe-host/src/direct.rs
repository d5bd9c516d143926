// SPDX-License-Identifier: GPL-2.0

//! Direct delivery comes to the same end as the network does, in all cases.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    engine::exchange,
    faults::{
        received,
        sent,
        world,
        world_of,
        write,
        DST,
        SECRET,
        SIG,
        SRC, //
    },
    opcode::Transport,
    packet::Tail,
    qp::state::QpState,
    sim::*,
    wc::{
        Status,
        Wc, //
    },
    wqe::{
        Malformed,
        Work, //
    },
};

/// Nothing goes by the network.
const DIRECT: Setup = Setup {
    direct: 1000,
    ..Setup::QUIET
};

fn va(key: u32, at: u32) -> u64 {
    (u64::from(key) << 32) + u64::from(at)
}

fn read(at: u64, rkey: u32) -> Work<Kernel> {
    Work::Read { va: at, rkey }
}

/// What a side has come to.
#[derive(Debug, PartialEq)]
struct End {
    sent: Vec<Wc>,
    received: Vec<Wc>,
    flags: [bool; 4],
    state: QpState,
    invalidated: Vec<u32>,
    psns: [u32; 2],
}

fn ends(world: &World) -> [End; 2] {
    [0, 1].map(|side| {
        let node = &world.nodes[side];

        End {
            sent: node.host.sent_wcs.clone(),
            received: node.host.recv_wcs.clone(),
            flags: [node.error, node.overflow, node.access, node.request],
            state: node.tx.state,
            invalidated: node.host.invalidated.clone(),
            psns: [node.tx.una, node.tx.next].map(|psn| psn.get()),
        }
    })
}

/// Runs the same by the network, directly, with an owner of the other half now and then, and always
/// with one; returns how it ended, which is the same.
fn everywhere(transport: Transport, f: impl Fn(&mut World)) -> [End; 2] {
    let ways = [(0, 0), (1000, 0), (1000, 300), (1000, 1000)];
    let [first, others @ ..] = ways.map(|(direct, owned)| {
        let mut world = world(Setup {
            transport,
            direct,
            owned,
            retry_cnt: 3,
            ..Setup::QUIET
        });

        f(&mut world);
        world.settle(100_000);
        assert!(direct == 0 || world.delivered == 0);
        ends(&world)
    });

    for other in others {
        assert_eq!(first, other);
    }
    first
}

#[test]
fn all_work_by_the_engine_alone() {
    for seed in 0..60 {
        for owned in [0, 200] {
            let world = exchange(
                Setup {
                    seed,
                    owned,
                    ..DIRECT
                },
                60,
                6000,
            );

            assert_eq!(world.delivered, 0);
        }
    }
}

#[test]
fn large_messages_are_few_packets() {
    let mut world = world_of(DIRECT, 2 << 20);
    let len = 600 * 1024 + 17;

    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, len)]);
    world.nodes[0].post(1, SIG, read(va(SRC, 0), SRC), &[(DST, 0, len)]);
    world.nodes[1].post_recv(0, DST, 1 << 20, len);
    world.nodes[0].post(2, SIG, SEND, &[(SRC, 5, len)]);
    world.settle(10);
    assert_eq!(
        sent(&world),
        [
            (0, Status::Success),
            (1, Status::Success),
            (2, Status::Success)
        ]
    );
    assert!(world.nodes[1].bytes(DST, 0, len) == world.nodes[0].bytes(SRC, 0, len));
    assert!(world.nodes[0].bytes(DST, 0, len) == world.nodes[1].bytes(SRC, 0, len));
    assert!(world.nodes[1].bytes(DST, 1 << 20, len) == world.nodes[0].bytes(SRC, 5, len));
    // 1803 by the network, without acknowledgments.
    let handed: u64 = world.nodes.iter().map(|n| n.host.handed).sum();

    assert!(handed < 500, "{handed}");
}

#[test]
fn accesses_that_are_not_allowed() {
    for (work, len, status) in [
        (write(va(SECRET, 0), SECRET), 5000, Status::RemAccess),
        (write(va(SRC, 0), SRC), 8, Status::RemAccess),
        (write(va(DST, 0), 99), 5000, Status::RemAccess),
        (
            write(va(DST, (1 << 20) - 4999), DST),
            5000,
            Status::RemAccess,
        ),
        (write(u64::MAX - 3, DST), 5000, Status::RemAccess),
        (read(va(DST, 0), DST), 5000, Status::RemAccess),
        (read(u64::MAX, SRC), 5000, Status::RemAccess),
    ] {
        let reads = matches!(work, Work::Read { .. });
        let end = everywhere(Transport::Rc, |world| {
            let key = if reads { DST } else { SRC };

            world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 3000)]);
            world.nodes[0].post(1, 0, work, &[(key, 0, len)]);
            world.nodes[0].post(2, 0, write(va(DST, 0), DST), &[(SRC, 0, 8)]);
        });

        assert_eq!(end[0].sent[1].status, status, "{work:?}");
        assert_eq!(end[0].sent.len(), 3);
        assert_eq!(end[1].flags, [true, false, true, false]);
    }
}

#[test]
fn local_memory_that_is_not_there() {
    // In the first packet, in the second one, and at the end.
    for sges in [
        &[(99, 0, 3000)][..],
        &[(SRC, 0, 1500), (99, 0, 1500)],
        &[(SRC, 0, 2999), (SRC, (1 << 20) - 4, 8)],
    ] {
        for work in [write(va(DST, 0), DST), SEND, read(va(SRC, 0), SRC)] {
            for side in 0..2 {
                let mut world = world(DIRECT);

                world.nodes[1 - side].post_recv(0, DST, 0, 5000);
                world.nodes[side].post(0, SIG, work, sges);
                world.settle(1000);
                assert_eq!(world.nodes[side].host.sent_wcs[0].status, Status::LocProt);
                // The other side is not to blame, and waits for the rest.
                assert!(!world.nodes[1 - side].error);
                assert!(world.nodes[1 - side].host.recv_wcs.is_empty());
            }
        }
    }

    // Nobody waits for a buffer first, or learns of a key that is wrong as well.
    for work in [SEND, write(va(DST, 0), 99)] {
        let end = everywhere(Transport::Rc, |world| {
            world.nodes[0].post(0, SIG, work, &[(99, 0, 1000)]);
        });

        assert_eq!(end[0].sent[0].status, Status::LocProt);
        assert!(!end[1].flags[0]);
    }
}

#[test]
fn memory_goes_while_it_is_read() {
    let mut world = world(DIRECT);

    world.nodes[0].post(0, SIG, read(va(SRC, 0), SRC), &[(DST, 0, 300_000)]);
    // The request, but no answer to it.
    world.nodes.with(0, Node::work);
    world.nodes[1].host.regions[0].bytes.truncate(4096);
    world.settle(1000);
    assert_eq!(sent(&world), [(0, Status::RemAccess)]);
    assert!(world.nodes[1].error && world.nodes[1].access);
}

#[test]
fn receive_buffers() {
    // Too small, with a key that does not exist, not to be decoded, and all well.
    for (case, here, there) in [
        (0, Status::LocLen, Status::RemInvReq),
        (1, Status::LocProt, Status::RemOp),
        (2, Status::LocQpOp, Status::RemOp),
        (3, Status::Success, Status::Success),
    ] {
        let end = everywhere(Transport::Rc, |world| {
            match case {
                0 => world.nodes[1].post_recv(0, DST, 0, 2999),
                1 => world.nodes[1].post_recv(0, 99, 0, 3000),
                2 => world.nodes[1].host.rq.push_back(Err(Malformed {
                    wr_id: 0,
                    status: Status::LocQpOp,
                })),
                _ => world.nodes[1].post_recv(0, DST, 0, 3000),
            }
            world.nodes[1].post_recv(1, DST, 0, 3000);
            world.nodes[0].post(0, SIG, SEND, &[(SRC, 0, 3000)]);
        });

        assert_eq!(end[1].received[0].status, here);
        assert_eq!(end[0].sent[0].status, there);
    }
}

#[test]
fn no_receive_buffer() {
    let end = everywhere(Transport::Rc, |world| {
        world.nodes[0].post(0, SIG, SEND, &[(SRC, 0, 3000)]);
        world.nodes[0].post(1, SIG, SEND, &[(SRC, 0, 3000)]);
        // It comes later than the first attempt.
        while world.nodes[0].tx.rnr_until.is_none() {
            assert!(world.step());
        }
        world.nodes[1].post_recv(0, DST, 0, 3000);
        world.nodes[1].post_recv(1, DST, 3000, 3000);
    });

    assert!(end[0].sent.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(end[1].received.len(), 2);

    let mut world = world(Setup {
        rnr_retry: 3,
        ..DIRECT
    });

    world.nodes[0].post(0, SIG, SEND, &[(SRC, 0, 3000)]);
    world.settle(1000);
    assert_eq!(sent(&world), [(0, Status::RnrRetryExc)]);
    // Code 12 is 640 us, and the way takes no time.
    assert_eq!(world.now(), 3 * 640_000);
}

#[test]
fn keys_are_invalidated() {
    let end = everywhere(Transport::Rc, |world| {
        world.nodes[1].post_recv(0, DST, 0, 3000);
        world.nodes[0].post(0, SIG, Work::Send(Tail::Inv(DST)), &[(SRC, 0, 3000)]);
        world.nodes[1].post_recv(1, DST, 0, 3000);
        world.nodes[0].post(1, SIG, Work::Send(Tail::Inv(99)), &[(SRC, 0, 3000)]);
    });

    assert_eq!(end[1].invalidated, [DST]);
    assert_eq!(end[1].received[1].status, Status::LocAccess);
}

#[test]
fn completion_queue_is_full() {
    let mut world = world(Setup {
        retry_cnt: 3,
        ..DIRECT
    });

    world.nodes[1].host.room = 1;
    for id in 0..3 {
        world.nodes[1].post_recv(id, DST, 0, 3000);
        world.nodes[0].post(id, SIG, SEND, &[(SRC, 0, 3000)]);
    }
    world.settle(1000);
    assert!(world.nodes[1].overflow && world.nodes[1].error);
    assert_eq!(received(&world), [(0, Status::Success)]);
    // Whether the first one was acknowledged before that depends on what was on its way.
    assert_eq!(sent(&world)[2], (2, Status::WrFlush));
    assert!(sent(&world).iter().any(|wc| wc.1 == Status::RetryExc));
}

#[test]
fn partition_and_queue_keys() {
    let mut world = world(Setup {
        retry_cnt: 0,
        ..DIRECT
    });

    // A packet of another partition is lost, as it is in a network.
    world.nodes[0].tx.cfg.pkey = 0x1234;
    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 5000)]);
    world.settle(100);
    assert_eq!(sent(&world), [(0, Status::RetryExc)]);
    assert_eq!(world.now(), 1_000_000);
    assert!(world.nodes[1].dropped > 0 && !world.nodes[1].error);
}

#[test]
fn the_other_side_is_gone() {
    let mut world = world(Setup {
        retry_cnt: 2,
        ..DIRECT
    });

    world.nodes[1].post_recv(0, DST, 0, 5000);
    world.nodes[1].rx.cancel();
    world.nodes[1].tx.set_state(QpState::Reset);
    world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, 5000)]);
    world.nodes[0].post(1, SIG, SEND, &[(SRC, 0, 5000)]);
    world.settle(1000);
    assert_eq!(sent(&world), [(0, Status::RetryExc), (1, Status::WrFlush)]);
    assert!(received(&world).is_empty());
}

#[test]
fn unreliable_services() {
    let end = everywhere(Transport::Uc, |world| {
        for id in 0..30u32 {
            world.nodes[1].post_recv(id.into(), DST, id * 8192, 8192);
            world.nodes[0].post(
                id.into(),
                SIG,
                Work::Send(Tail::Imm(id.to_be_bytes())),
                &[(SRC, id * 16, id * 300)],
            );
        }
    });

    // The last three do not fit, which is their own fault: nobody hears of it.
    assert_eq!(end[1].received.len(), 28);
    assert!(end[0].sent.iter().all(|wc| wc.status == Status::Success));

    let end = everywhere(Transport::Ud, |world| {
        for id in 0..20u32 {
            world.nodes[1].post_recv(id.into(), DST, id * 2048, 40 + 1000);
            world.nodes[0].post(
                id.into(),
                SIG,
                Work::Datagram {
                    ah: 1,
                    qpn: qpn(1),
                    qkey: if id % 5 == 4 { 1 } else { QKEY },
                    tail: Tail::None,
                },
                &[(SRC, id * 16, id * 50)],
            );
        }
    });

    // One in five has the wrong key.
    assert_eq!(end[1].received.len(), 16);
}

#[test]
fn datagrams_have_their_header() {
    for v6 in [false, true] {
        let mut world = world(Setup {
            transport: Transport::Ud,
            v6,
            ..DIRECT
        });

        world.nodes[1].post_recv(0, DST, 0, 140);
        world.nodes[0].post(
            0,
            SIG,
            Work::Datagram {
                ah: 1,
                qpn: qpn(1),
                qkey: QKEY,
                tail: Tail::None,
            },
            &[(SRC, 0, 100)],
        );
        world.settle(100);
        assert_eq!(world.delivered, 0);
        assert_eq!(received(&world), [(0, Status::Success)]);
        assert_eq!(world.nodes[1].host.recv_wcs[0].byte_len, 140);
        assert_eq!(
            world.nodes[1].bytes(DST, if v6 { 0 } else { 20 }, 1),
            if v6 { [0x60] } else { [0x45] }
        );
        assert!(world.nodes[1].bytes(DST, 40, 100) == world.nodes[0].bytes(SRC, 0, 100));
    }
}

/// A path MTU that the two do not share is found out as by packets.
#[test]
fn other_mtu() {
    for (mtu, len, status) in [
        (512, 5000, Status::RemInvReq),
        (4096, 5000, Status::RemInvReq),
        (4096, 1500, Status::RemInvReq),
        (512, 400, Status::Success),
    ] {
        let end = everywhere(Transport::Rc, |world| {
            world.nodes[0].tx.cfg.mtu = mtu;
            world.nodes[0].post(0, SIG, write(va(DST, 0), DST), &[(SRC, 0, len)]);
        });
        // 1500 bytes are one packet of 4096, and too much for one of 1024.
        assert_eq!(end[0].sent[0].status, status, "{mtu} {len}");
    }
}
