// SPDX-License-Identifier: GPL-2.0

//! What libFuzzer calls with bytes that it made up; a panic is what it looks for.
//!
//! `scripts/fuzz host` runs these. Each takes all bytes that there are: what makes no sense has
//! to be refused by the code under test, not here.

// A fault is a panic here.
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
    opcode::Transport,
    packet::{
        RxPacket,
        TxHeaders, //
    },
    sge::SGE_LEN,
    sim::*,
    wire::ICRC_LEN,
    wqe::{
        decode_user,
        Data,
        Limits,
        RecvWqe,
        Work,
        MAX_MSG,
        RECV_LEN,
        SEND_LEN, //
    }, //
};

/// A datagram from behind the UDP header: what is accepted lies within it, and is the same when
/// it is made again.
pub fn packet(data: &[u8]) {
    let Ok(pkt) = RxPacket::parse(data) else {
        return;
    };
    let payload = pkt.payload(data);
    let pad = usize::from(pkt.bth.pad);

    assert_eq!(
        pkt.payload_at() + payload.len() + pad + ICRC_LEN,
        data.len()
    );

    let mut again = TxHeaders::new(&pkt.bth, &pkt.ext, &pkt.tail)
        .as_bytes()
        .to_vec();

    again.extend(payload);
    again.resize(data.len(), 0);
    assert_eq!(
        format!("{:?}", RxPacket::parse(&again)),
        format!("{:?}", Ok::<_, ()>(pkt))
    );
}

/// The first bytes, with zeros behind them if there are too few, and the rest.
fn head<const N: usize>(data: &[u8]) -> ([u8; N], &[u8]) {
    let (start, rest) = data.split_at(data.len().min(N));
    let mut head = [0; N];

    head.iter_mut()
        .zip(start)
        .for_each(|(to, from)| *to = *from);
    (head, rest)
}

/// An entry of a send or receive queue behind a byte that chooses the kind of queue: what is
/// accepted keeps within the limits of the queue, and is something that the queue may do.
pub fn wqe(data: &[u8]) {
    let ([kind, max_sge], rest) = head::<2>(data);
    let limits = Limits {
        transport: [Transport::Rc, Transport::Uc, Transport::Ud][usize::from(kind % 3)],
        max_sge: max_sge % 33,
        max_inline: u16::from(max_sge % 33) * SGE_LEN as u16,
    };

    if kind & 0x80 != 0 {
        let (fixed, area) = head::<RECV_LEN>(rest);

        if let Ok(wqe) = RecvWqe::decode(&fixed, area, limits.max_sge) {
            assert!(wqe.count <= limits.max_sge && usize::from(wqe.count) * SGE_LEN <= area.len());
        }
        return;
    }

    let (fixed, area) = head::<SEND_LEN>(rest);
    let Ok(wqe) = decode_user::<()>(&fixed, area, &limits) else {
        return;
    };

    assert!(wqe.work.is_allowed(limits.transport));
    match wqe.data {
        Data::Inline(len) => assert!(len as usize <= area.len().min(limits.area())),
        Data::Sges { count, len } => {
            assert!(count <= limits.max_sge && usize::from(count) * SGE_LEN <= area.len());
            assert!(len <= MAX_MSG);
        }
    }
}

/// Size of the regions of a world.
const SIZE: usize = 1 << 12;

/// Packets for a queue pair that has work of its own to do. Each begins with its length and how
/// far its PSN is from the right one.
pub fn peer(data: &[u8]) {
    let mut world = world_of(
        Setup {
            seed: 1,
            wait: 20,
            busy: 20,
            ..Setup::QUIET
        },
        SIZE,
    );
    let node = &mut world.nodes[0];
    let mut rest = data;

    node.host.regions[2].bytes.fill(0xa5);
    for id in 0..6 {
        let work = match id % 3 {
            0 => SEND,
            1 => write(u64::from(DST) << 32, DST),
            _ => Work::Read {
                va: u64::from(SRC) << 32,
                rkey: SRC,
            },
        };
        let key = if id % 3 < 2 { SRC } else { DST };

        node.post(id, SIG, work, &[(key, 0, 300 * id as u32)]);
        node.post_recv(id, DST, 0, 600 * id as u32);
    }
    while let [len, psn, more @ ..] = rest {
        let (roce, behind) = more.split_at(more.len().min(usize::from(*len) * 5));

        rest = behind;
        node.work();
        node.host.out.clear();
        if node.error {
            break;
        }
        if roce.len() < 12 {
            continue;
        }

        let mut roce = roce.to_vec();
        let answer = (0x0d..0x13).contains(&roce[0]);
        let right = if answer {
            node.tx.una
        } else {
            node.rx.expected()
        };
        let psn = right
            .add(u32::from(*psn))
            .sub(if *psn < 0x80 { 0 } else { 0x100 });

        // The door is not what this is about: version, keys and numbers are right.
        roce[1] &= 0xf0;
        roce[2..4].fill(0xff);
        roce[4..8].copy_from_slice(&qpn(0).to_be_bytes());
        roce[8] &= 0x80;
        roce[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);

        let frame = node.host.frame(&roce);

        node.receive(frame);
    }
    node.work();
    assert!(node
        .bytes(SECRET, 0, SIZE as u32)
        .iter()
        .all(|b| *b == 0xa5));
    if node.error {
        node.assert_completed_once(6);
    }
}

/// Some random bytes for each of them, without looking at what is covered.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes() {
        let mut rng = Rng::new(11);

        for _ in 0..2000 {
            let len = rng.below(400);
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();

            packet(&bytes);
            wqe(&bytes);
            peer(&bytes);
            // An operation that there is.
            if let [opcode, flags, ..] = &mut bytes[..] {
                *opcode %= 0x18;
                *flags = 0;
            }
            packet(&bytes);
        }
    }
}
