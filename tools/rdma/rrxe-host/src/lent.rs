// SPDX-License-Identifier: GPL-2.0

//! Direct delivery in the simulation: what one side sends is given to the other one's engine within
//! [`Wire::send`](crate::env::Wire::send), with its data where they are.
//!
//! As in the kernel, the half of the other side may have an owner, and then the packet is put in
//! the queue of those that wait for that half; and what is on the way through the network may be
//! overtaken.

// A test may panic.
#![allow(clippy::indexing_slicing)]

use crate::{
    env::*,
    packet::{
        NetHdr,
        RxPacket, //
    },
    sim::{
        Host,
        Node, //
    },
    wire::{
        grh,
        ICRC_LEN, //
    },
};
use std::{
    cell::{
        Cell,
        RefCell, //
    },
    ops::{
        Index,
        IndexMut, //
    }, //
};

/// The most packets that are given as one.
const SPAN: u32 = 16;

/// How a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the network.
    Network,
    /// Into the engine of the other side.
    Engine,
    /// To those that wait for a half that has an owner.
    Queue,
}

/// Payload of a packet.
#[derive(Clone, Copy)]
pub(crate) enum Body<'p> {
    /// These bytes.
    Bytes(&'p [u8]),
    /// What the sender has in its memory.
    Lent(&'p Lent<'p>),
}

/// A payload that still is in the memory of the sender.
pub(crate) struct Lent<'p> {
    host: RefCell<&'p mut Host>,
    payload: &'p Payload<'p>,
    len: u32,
    failed: Cell<Option<MemError>>,
}

impl Body<'_> {
    /// Returns a part of it. If the sender cannot read it, that is noted for the sender.
    pub(crate) fn get(&self, at: u32, len: u32) -> Result<Vec<u8>, MemError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes[at as usize..][..len as usize].to_vec()),
            Self::Lent(lent) => {
                assert!(at + len <= lent.len);
                lent.host
                    .borrow_mut()
                    .gather(lent.payload, at, len)
                    .map_err(|e| {
                        lent.failed.set(Some(e));
                        MemError::Wait
                    })
            }
        }
    }
}

/// Both sides. While one of them is at work, it has the other one.
pub(crate) struct Nodes([Option<Box<Node>>; 2]);

impl Nodes {
    pub(crate) fn new(a: Node, b: Node) -> Self {
        Self([Some(Box::new(a)), Some(Box::new(b))])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map(|n| &**n.as_ref().unwrap())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.0.iter_mut().map(|n| &mut **n.as_mut().unwrap())
    }

    /// Calls `f` with a side that has the other one.
    pub(crate) fn with<R>(&mut self, side: usize, f: impl FnOnce(&mut Node) -> R) -> R {
        let peer = self.0[1 - side].take();
        let node = self.0[side].as_mut().unwrap();

        node.host.peer = peer;
        let result = f(node);
        let peer = node.host.peer.take();

        self.0[1 - side] = peer;
        result
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, side: usize) -> &Node {
        self.0[side].as_ref().unwrap()
    }
}

impl IndexMut<usize> for Nodes {
    fn index_mut(&mut self, side: usize) -> &mut Node {
        self.0[side].as_mut().unwrap()
    }
}

impl Host {
    /// Decides how the next packet goes.
    pub(crate) fn choose(&mut self) -> Way {
        if self.peer.is_none() || !self.rng.per_mille(self.direct) {
            Way::Network
        } else if self.rng.per_mille(self.owned) {
            Way::Queue
        } else {
            Way::Engine
        }
    }

    /// See [`Wire::span`].
    pub(crate) fn choose_span(&mut self) -> u32 {
        let way = self.choose();

        self.way = Some(way);
        if way == Way::Engine {
            1 + self.rng.below(u64::from(SPAN)) as u32
        } else {
            1
        }
    }

    /// Puts a packet behind those that wait for the half that it is for.
    pub(crate) fn queue(&mut self, frame: Vec<u8>) {
        if let Some(peer) = &mut self.peer {
            self.handed += 1;
            if peer.parse(&frame).is_some() {
                peer.park(frame, 1);
            } else {
                peer.dropped += 1;
            }
        }
    }

    /// Gives a packet to the other side's engine, or puts it behind what waits for that.
    pub(crate) fn hand_over(&mut self, pkt: &TxPacket<'_>) -> Result<(), SendError> {
        let mut peer = self.peer.take().unwrap();
        let result = self.hand_to(&mut peer, pkt);

        self.peer = Some(peer);
        self.handed += 1;
        result
    }

    fn hand_to(&mut self, peer: &mut Node, pkt: &TxPacket<'_>) -> Result<(), SendError> {
        let hdr = pkt.hdr.as_bytes();
        let total = hdr.len() + (pkt.len as usize).next_multiple_of(4) + ICRC_LEN;
        let parsed = RxPacket {
            span: pkt.span,
            ..RxPacket::parse_head(hdr, total).unwrap()
        };

        if peer.admit(&parsed).is_none() {
            // It is lost.
            peer.dropped += 1;
            return Ok(());
        }

        // What is wrong on this side is found before the other side hears of it.
        self.gather(&pkt.payload, 0, pkt.len)
            .map_err(SendError::Mem)?;

        let ip = self.network_headers(total);
        let (net, ..) = NetHdr::split(&ip).unwrap();
        let grh = match net {
            NetHdr::V4(ip) => grh::from_v4(ip),
            NetHdr::V6(ip) => grh::from_v6(ip),
        };
        let lent = Lent {
            host: RefCell::new(self),
            payload: &pkt.payload,
            len: pkt.len,
            failed: Cell::new(None),
        };
        let taken = peer.is_free_for(&parsed) && peer.take(&parsed, Body::Lent(&lent), &grh);

        if let Some(e) = lent.failed.get() {
            assert!(!taken);
            return Err(SendError::Mem(e));
        }
        if !taken {
            if pkt.span > 1 {
                return Err(SendError::Apart);
            }
            let frame = self.frame_of(pkt)?;

            peer.park(frame, 1);
        }
        Ok(())
    }
}
