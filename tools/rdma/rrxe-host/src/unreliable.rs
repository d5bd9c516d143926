// SPDX-License-Identifier: GPL-2.0

//! Unreliable connections and datagrams.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    faults::{
        received,
        sent,
        world,
        DST,
        SIG,
        SRC, //
    },
    opcode::Transport,
    packet::Tail,
    qp::state::QpState,
    sim::*,
    wc::{
        Opcode,
        Status, //
    },
    wqe::Work, //
};

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
        assert_eq!((wc.byte_len, wc.from.qpn), (140, qpn(0)));
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
