// SPDX-License-Identifier: GPL-2.0

//! Received datagrams: into a buffer behind the 40 bytes of [`grh`], or dropped.

use super::{
    Received,
    Refusal,
    Resource,
    Rx, //
};
use crate::{
    env::{
        Events,
        MemError,
        Parked,
        RxEnv,
        Source,
        Target, //
    },
    packet::{
        Ext,
        RxPacket, //
    },
    sge::SgeList,
    wc::{
        Opcode,
        Sender,
        Status, //
    },
    wire::{
        aeth::Nak,
        grh, //
    },
};
use core::ops::DerefMut;

impl<V> Rx<V>
where
    V: DerefMut<Target = [Option<Resource>]>,
{
    /// Handles a packet of an unreliable datagram queue pair.
    pub(super) fn receive_ud<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        ip: &[u8; grh::LEN],
        out: &mut Received,
    ) -> Result<(), Parked> {
        let Ext::Deth(deth) = pkt.ext else {
            out.dropped = true;
            return Ok(());
        };

        match self.datagram(env, pkt, payload, ip, &mut out.events) {
            Ok(Some(len)) => {
                let from = Sender::of_datagram(deth.src_qp, ip);

                self.complete(env, pkt, Opcode::Recv, len, from, &mut out.events);
            }
            // It does not fit; the buffer is for the next one.
            Ok(None) => out.dropped = true,
            Err(Refusal::Parked(parked)) => return Err(parked),
            Err(Refusal::NotReady) => {
                out.not_ready = true;
                out.dropped = true;
            }
            Err(Refusal::Nak(nak, status)) => {
                self.refuse(env, nak, status, &mut out.events);
                self.reply = None;
                out.dropped = true;
            }
        }
        Ok(())
    }

    /// Puts a datagram into a buffer; returns the length of both, or nothing if it is too long.
    fn datagram<E: RxEnv>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
        ip: &[u8; grh::LEN],
        ev: &mut Events,
    ) -> Result<Option<u32>, Refusal> {
        let local = |e| match e {
            MemError::Access => Refusal::Nak(Nak::RemoteOperational, Status::LocProt),
            MemError::Wait => Refusal::Parked(Parked::Memory),
        };

        self.need_buffer(env, ev)?;

        let Some(recv) = &self.recv else {
            return Err(Refusal::NotReady);
        };
        let len = pkt.len.saturating_add(grh::LEN as u32);

        if len > recv.capacity {
            return Ok(None);
        }

        let mut done = 0;

        // Nearly always the first element takes all of both, and so is looked up once.
        for sge in SgeList::new(&self.area, recv.count).range(0, len) {
            let head = ip.get(done as usize..).unwrap_or(&[]);
            let from = match head.get(..sge.len as usize) {
                Some(piece) => Source::Bytes(piece),
                None if head.is_empty() => Source::Packet(payload, done - grh::LEN as u32),
                None => Source::Behind(head, payload),
            };

            env.scatter(Target::Local(sge), from).map_err(local)?;
            done += sge.len;
        }
        Ok(Some(len))
    }
}
