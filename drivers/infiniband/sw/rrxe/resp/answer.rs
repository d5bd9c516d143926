// SPDX-License-Identifier: GPL-2.0

//! Answers of the responder: READ data, results of atomics, acknowledgments.

use super::{
    Job,
    Resource,
    Rx,
    What, //
};
use crate::{
    env::{
        Dest,
        Events,
        MemError,
        Payload,
        SendError,
        TxPacket,
        Wire, //
    },
    opcode::{
        self,
        Kind,
        Position,
        TailKind,
        Transport, //
    },
    packet::{
        Ext,
        Tail,
        TxHeaders, //
    },
    psn::Psn,
    wire::{
        aeth::{
            Aeth,
            Nak,
            Syndrome, //
        },
        bth::Bth,
        pad, //
    }, //
};
use core::ops::DerefMut;

impl<V> Rx<V>
where
    V: DerefMut<Target = [Option<Resource>]>,
{
    /// Sends answers, at most `budget` packets. Call it after the last packet of a batch, and again
    /// when there is room to send more. If `more` is set in the result, the budget was too small.
    pub(crate) fn pump<E: Wire>(&mut self, env: &mut E, budget: u32) -> Events {
        let mut ev = Events::default();
        let mut left = budget;
        let ring = if self.jobs { self.resources.len() } else { 0 };

        // From the oldest to the newest.
        for i in 0..ring {
            let Some(place) = self.place(self.next.wrapping_add(i)) else {
                break;
            };

            while let Some((res, job)) = self
                .resources
                .get(place)
                .copied()
                .flatten()
                .and_then(|r| Some((r, r.job?)))
            {
                if left == 0 {
                    ev.more = true;
                    return ev;
                }

                // What is sent a second time goes packet by packet: the other side may have a part
                // of it.
                let span = match res.what {
                    What::Read if !job.again => env.span(Dest::Connected).min(left),
                    _ => 1,
                };
                let (sent, span, last) = match self.answer(env, &res, &job, span) {
                    (Err(SendError::Apart), ..) => self.answer(env, &res, &job, 1),
                    answered => answered,
                };

                left -= span;
                match sent {
                    Ok(()) => {}
                    Err(SendError::Mem(MemError::Access)) => {
                        self.cannot_read(job.psn.add(job.sent), &mut ev);
                        break;
                    }
                    Err(_) => return ev,
                }
                if let Some(Some(r)) = self.resources.get_mut(place) {
                    r.job = (!last).then_some(Job {
                        sent: job.sent + span,
                        ..job
                    });
                }
            }
        }

        self.jobs = false;
        if let Some((psn, syndrome)) = self.reply {
            if left == 0 {
                ev.more = true;
            } else if self.acknowledge(env, psn, syndrome).is_ok() {
                self.reply = None;
            }
        }
        ev
    }

    /// The memory went away while it was being read.
    fn cannot_read(&mut self, psn: Psn, ev: &mut Events) {
        for r in self.resources.iter_mut().flatten() {
            r.job = None;
        }
        self.reply = Some((psn, Syndrome::Nak(Nak::RemoteAccess)));
        self.dead = true;
        ev.error = true;
        ev.access = true;
    }

    fn bth(&self, code: u8, psn: Psn, len: u32) -> Bth {
        Bth {
            opcode: code,
            se: false,
            mig_req: false,
            pad: pad(len),
            tver: 0,
            pkey: self.cfg.pkey,
            dest_qp: self.cfg.dest_qpn,
            ack_req: false,
            psn,
        }
    }

    /// Sends the next packet of an answer, or several ones, but no more than `most`, as one. Also
    /// returns how many, and whether the last one is among them.
    fn answer<E: Wire>(
        &self,
        env: &mut E,
        res: &Resource,
        job: &Job,
        most: u32,
    ) -> (Result<(), SendError>, u32, bool) {
        let aeth = Aeth {
            syndrome: Syndrome::ACK.emit(),
            msn: res.msn,
        };
        let npsn = self.packets(job.len);
        let at = job.sent.saturating_mul(self.cfg.mtu).min(job.len);
        let span = most.min(npsn.saturating_sub(job.sent)).max(1);
        let len = (job.len - at).min(self.cfg.mtu.saturating_mul(span));
        let last = job.sent + span >= npsn;
        let start = job.sent == 0 && (job.psn == res.psn || !self.cfg.resume_in_place);

        let (kind, pos, ext) = match res.what {
            What::Atomic(value) => (
                Kind::AtomicAcknowledge,
                Position::Only,
                Ext::AtomicAck(aeth, value),
            ),
            What::Read | What::Done(_) => match Position::of(start, last) {
                Position::Middle => (Kind::ReadResponse, Position::Middle, Ext::None),
                pos => (Kind::ReadResponse, pos, Ext::Aeth(aeth)),
            },
        };
        let Some(code) = opcode::code(Transport::Rc, kind, pos, TailKind::None) else {
            return (Ok(()), span, true);
        };
        let payload = if len == 0 {
            Payload::None
        } else {
            Payload::Remote {
                rkey: res.reth.rkey,
                va: job.va.wrapping_add(u64::from(at)),
            }
        };
        let bth = self.bth(code, job.psn.add(job.sent), len);
        let sent = env.send(&TxPacket {
            hdr: TxHeaders::new(&bth, &ext, &Tail::None),
            payload,
            len,
            dest: Dest::Connected,
            // The first one may be longer.
            alike: if ext == Ext::None {
                npsn - job.sent - span
            } else {
                0
            },
            span,
        });

        (sent, span, last)
    }

    fn acknowledge<E: Wire>(
        &self,
        env: &mut E,
        psn: Psn,
        syndrome: Syndrome,
    ) -> Result<(), SendError> {
        let code = opcode::code(
            Transport::Rc,
            Kind::Acknowledge,
            Position::Only,
            TailKind::None,
        );
        let bth = self.bth(code.unwrap_or(0), psn, 0);
        let aeth = Aeth {
            syndrome: syndrome.emit(),
            msn: self.msn,
        };

        env.send(&TxPacket {
            hdr: TxHeaders::new(&bth, &Ext::Aeth(aeth), &Tail::None),
            payload: Payload::None,
            len: 0,
            dest: Dest::Connected,
            alike: 0,
            span: 1,
        })
    }
}
