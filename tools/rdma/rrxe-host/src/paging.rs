// SPDX-License-Identifier: GPL-2.0

//! Memory of one's own that comes late is no reason to try again, or to give up.

use crate::{
    faults::{
        sent,
        world,
        DST,
        SIG,
        SRC, //
    },
    sim::*,
    wc::Status,
    wqe::Work, //
};

/// The first timeout that would end it.
const TOO_LATE: u64 = 2_000_000;

fn impatient(seed: u64) -> World {
    world(Setup {
        seed,
        retry_cnt: 1,
        ..Setup::QUIET
    })
}

/// Lets a requester wait that has begun, for as long as would end the connection if the other side
/// were to blame.
fn wait_and_end(world: &mut World, packets: usize) {
    world.nodes[0].host.wait = 1000;
    while world.now() < 10 * TOO_LATE {
        world.step();
    }
    assert_eq!(sent(world), []);
    assert_eq!(
        world.seen.iter().filter(|(side, _)| *side == 0).count(),
        packets
    );
    world.nodes[0].host.wait = 0;
    world.settle(10_000);
    assert_eq!(sent(world), [(0, Status::Success)]);
}

#[test]
fn memory_for_a_response() {
    let mut world = impatient(1);
    let read = Work::Read {
        va: u64::from(SRC) << 32,
        rkey: SRC,
    };

    world.nodes[0].post(0, SIG, read, &[(DST, 0, 5000)]);
    wait_and_end(&mut world, 1);
    assert_eq!(
        world.nodes[0].bytes(DST, 0, 5000),
        world.nodes[1].bytes(SRC, 0, 5000)
    );
}

#[test]
fn memory_of_a_request() {
    let mut begun = 0;

    for seed in 0..50 {
        let mut world = impatient(seed);

        world.nodes[1].post_recv(0, DST, 0, 20_000);
        world.nodes[0].post(0, SIG, SEND, &[(SRC, 0, 20_000)]);
        world.nodes[0].host.wait = 300;
        world.step();

        let packets = world.seen.iter().filter(|(side, _)| *side == 0).count();

        // It has to stop between the first and the last packet.
        if (1..20).contains(&packets) {
            wait_and_end(&mut world, packets);
            begun += 1;
        }
    }
    assert!(begun > 10);
}
