// SPDX-License-Identifier: GPL-2.0

//! The completer: responses to what [`crate::tx`] sent (IBA vol. 1, 9.7.5.1.2, 9.7.6 and 9.7.7).
//!
//! A response says something about its PSN and, since responses come in order, about all before
//! it: SENDs and WRITEs before it are done, and a READ or atomic before it whose data has not come
//! was lost, which is a reason to send again. What names no PSN that is on its way is old, and
//! ignored.

use crate::{
    env::{
        MemError,
        Parked,
        Source,
        Target,
        TxEnv, //
    },
    inflight::{
        Entry,
        Phase, //
    },
    opcode::{
        Kind,
        Position,
        Transport, //
    },
    packet::{
        Ext,
        RxPacket, //
    },
    psn::Psn,
    tx::{
        Tx,
        RETRY_FOREVER, //
    },
    wc::Status,
    wire::aeth::{
        rnr_ns,
        Nak,
        Syndrome, //
    },
    wqe::Work, //
};
use core::ops::DerefMut;

/// What became of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// It told something new.
    Taken,
    /// It is one that came before, or no answer to anything that is on its way.
    Old,
    /// It makes no sense.
    Bad,
}

/// A response to a READ or atomic is missing.
struct Lost;

impl<K, V, A> Tx<V, A>
where
    K: Copy,
    V: DerefMut<Target = [Option<Entry<K>>]>,
    A: DerefMut<Target = [u8]>,
{
    /// Takes a response. Call [`Tx::run`] after the last one of a batch.
    ///
    /// # Errors
    ///
    /// If the packet has to be kept and given again.
    pub(crate) fn receive<E: TxEnv<Kernel = K>>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
    ) -> Result<Response, Parked> {
        let psn = pkt.bth.psn;

        if self.cfg.transport != Transport::Rc || !self.state.sends() {
            return Ok(Response::Old);
        }
        if psn.since(self.una) >= self.snd_max.since(self.una) {
            return Ok(Response::Old);
        }

        let now = env.now();

        match (pkt.op.kind, pkt.ext) {
            (Kind::Acknowledge, Ext::Aeth(aeth)) => match Syndrome::parse(aeth.syndrome) {
                Some(Syndrome::Ack(_)) => {
                    self.acknowledged(now, psn.next());
                }
                Some(Syndrome::Rnr(timer)) => {
                    if self.acknowledged(now, psn) && self.rnr_until.is_none() {
                        self.wait_for_receiver(now, rnr_ns(timer));
                    }
                }
                Some(Syndrome::Nak(Nak::PsnSequence)) => {
                    if self.acknowledged(now, psn) {
                        self.lost(now);
                    }
                }
                Some(Syndrome::Nak(nak)) => {
                    if self.acknowledged(now, psn) {
                        self.fail(nak.into());
                    }
                }
                None => return Ok(Response::Bad),
            },
            (Kind::ReadResponse, _) => {
                if self.acknowledged(now, psn) {
                    self.read_response(env, pkt, payload)?;
                }
            }
            (Kind::AtomicAcknowledge, Ext::AtomicAck(_, value)) => {
                if self.acknowledged(now, psn) {
                    self.atomic_response(env, value)?;
                }
            }
            _ => return Ok(Response::Bad),
        }
        Ok(Response::Taken)
    }

    /// Takes all before a PSN as acknowledged. Returns false if that is not possible, because a
    /// response is missing.
    fn acknowledged(&mut self, now: u64, before: Psn) -> bool {
        let una = self.una;
        let result = self.acknowledge(before);

        if self.una != una {
            self.progress(now);
        }
        if result.is_err() {
            self.lost(now);
            return false;
        }
        true
    }

    fn acknowledge(&mut self, before: Psn) -> Result<(), Lost> {
        for index in self.q.indices() {
            let left = before.since(self.una);

            if left == 0 {
                break;
            }

            let Some(entry) = self.q.get_mut(index) else {
                break;
            };

            if entry.phase != Phase::Open || entry.npsn == 0 {
                continue;
            }
            if entry.wqe.work.takes_resource() {
                return Err(Lost);
            }

            let end = entry.first.add(entry.npsn);

            if end.since(self.una) <= left {
                entry.phase = Phase::Done;
                self.una = end;
            } else {
                self.una = before;
            }
        }
        Ok(())
    }

    /// Something new has come: all retries are there again.
    fn progress(&mut self, now: u64) {
        self.retry_left = self.cfg.retry_cnt;
        self.rnr_left = self.cfg.rnr_retry;
        self.retrying = false;
        self.deadline = if self.is_waiting() && self.rnr_until.is_none() {
            self.cfg.timeout.map(|t| now.saturating_add(t))
        } else {
            None
        };
        self.catch_up();
    }

    /// A packet was lost. What was sent behind it makes more of these reports; only the first one
    /// counts until something new comes.
    fn lost(&mut self, now: u64) {
        if !self.retrying && self.rnr_until.is_none() {
            self.try_again(now);
        }
    }

    /// Waits for a receive buffer of the other side, then sends again; or fails if that was done
    /// often enough.
    fn wait_for_receiver(&mut self, now: u64, wait: u64) {
        if self.cfg.rnr_retry != RETRY_FOREVER {
            let Some(left) = self.rnr_left.checked_sub(1) else {
                self.fail(Status::RnrRetryExc);
                return;
            };

            self.rnr_left = left;
        }
        self.rnr_until = Some(now.saturating_add(wait));
        self.deadline = None;
        self.rewind();
    }

    /// Finds the work request whose answer is the next one to come.
    fn waiting(&self) -> Option<u32> {
        self.q.indices().find(|&i| {
            self.q
                .get(i)
                .is_some_and(|e| e.phase == Phase::Open && self.una.within(e.first, e.npsn))
        })
    }

    /// Takes the response with the next PSN, or several ones, of a work request.
    fn answered(&mut self, now: u64, index: u32, span: u32) {
        self.una = self.una.add(span);
        if let Some(entry) = self.q.get_mut(index) {
            if self.una.since(entry.first) == entry.npsn {
                entry.phase = Phase::Done;
            }
        }
        self.progress(now);
    }

    fn read_response<E: TxEnv<Kernel = K>>(
        &mut self,
        env: &mut E,
        pkt: &RxPacket,
        payload: E::Packet<'_>,
    ) -> Result<(), Parked> {
        let (pos, len, span) = (pkt.op.pos, pkt.len, pkt.span);
        let Some((index, entry)) = self.waiting().and_then(|i| Some((i, *self.q.get(i)?))) else {
            return Ok(());
        };

        match entry.wqe.work {
            Work::Read { .. } => {
                let mtu = self.cfg.mtu;
                let total = entry.wqe.data.len();
                let nr = self.una.since(entry.first);
                let at = nr.saturating_mul(mtu).min(total);

                // The first packet of an answer to a request that was sent again may have any
                // place but must be marked so; what an earlier answer has there is just as good.
                if span > entry.npsn - nr
                    || len != (total - at).min(mtu.saturating_mul(span))
                    || pos.ends() != (nr + span == entry.npsn)
                    || (nr == 0 && !pos.starts())
                {
                    self.fail(Status::BadResp);
                    return Ok(());
                }

                let mut done = 0;

                for sge in self.q.sges(index).range(at, len) {
                    match env.scatter(Target::Local(sge), Source::Packet(payload, done)) {
                        Ok(()) => done += sge.len,
                        Err(MemError::Wait) => return Err(Parked::Memory),
                        Err(MemError::Access) => {
                            self.fail(Status::LocProt);
                            return Ok(());
                        }
                    }
                }
            }
            Work::Flush(..) | Work::AtomicWrite { .. }
                if pos == Position::Only && len == 0 && span == 1 => {}
            _ => {
                self.fail(Status::BadResp);
                return Ok(());
            }
        }
        self.answered(env.now(), index, span);
        Ok(())
    }

    fn atomic_response<E: TxEnv<Kernel = K>>(
        &mut self,
        env: &mut E,
        value: u64,
    ) -> Result<(), Parked> {
        let Some((index, entry)) = self.waiting().and_then(|i| Some((i, *self.q.get(i)?))) else {
            return Ok(());
        };

        if !matches!(
            entry.wqe.work,
            Work::CompareSwap { .. } | Work::FetchAdd { .. }
        ) {
            self.fail(Status::BadResp);
            return Ok(());
        }

        let bytes = value.to_ne_bytes();
        let mut rest: &[u8] = &bytes;

        for sge in self.q.sges(index).range(0, 8) {
            let (piece, more) = rest
                .split_at_checked(sge.len as usize)
                .unwrap_or((rest, &[]));

            match env.scatter(Target::Local(sge), Source::Bytes(piece)) {
                Ok(()) => rest = more,
                Err(MemError::Wait) => return Err(Parked::Memory),
                Err(MemError::Access) => {
                    self.fail(Status::LocProt);
                    return Ok(());
                }
            }
        }
        self.answered(env.now(), index, 1);
        Ok(())
    }
}
