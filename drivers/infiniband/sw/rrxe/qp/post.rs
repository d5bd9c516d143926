// SPDX-License-Identifier: GPL-2.0

//! Posting of work requests: those of the kernel, and the doorbell of user space.

use super::{
    object::{
        KernelQueues,
        Qp, //
    },
    rings::{
        KernelQueue,
        RecvHead,
        RegMr, //
    },
    run::Todo,
    state::QpState, //
};
use crate::{
    bell::Answer,
    device::Device,
    opcode::Transport,
    packet::Tail,
    sge::{
        Sge,
        SGE_LEN, //
    },
    verbs::Verbs,
    wqe::{
        Data,
        SendFlags,
        SendWqe,
        Work,
        MAX_MSG, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    rdma::driver::wr::{
        self,
        RecvWrs,
        SendWr,
        SendWrs, //
    },
    sync::{
        bh,
        rcu,
        Arc,
        ArcBorrow, //
    },
};

impl Qp {
    /// Posts send work requests; for a queue pair of user space, looks at its send queue.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the state does not allow it, or a work request makes no sense; `ENOMEM` if the
    /// queue is full. Work requests before the bad one are posted.
    #[doc(alias = "ib_post_send")]
    pub(crate) fn post_send(this: &Arc<Qp>, wrs: &mut SendWrs<'_, Verbs>) -> Result {
        if !this.state().may_post_send() {
            // The first one is the bad one.
            let _ = wrs.next();
            return Err(EINVAL);
        }

        let result = match &this.kernel {
            None if Self::put_off(this.as_arc_borrow()) => return Ok(()),
            None => Ok(()),
            Some(queues) => this.push_sends(queues, wrs),
        };

        Self::kick(this.as_arc_borrow(), Todo::TX);
        result
    }

    /// Leaves a doorbell of user space for a little later, if more of them are likely to come.
    fn put_off(this: ArcBorrow<'_, Qp>) -> bool {
        if this.state() != QpState::Rts {
            return false;
        }

        let consumed = this.recv_cq.consumed().rotate_left(16);

        match this
            .bell
            .ring(this.send_cq.consumed().wrapping_add(consumed))
        {
            Answer::Now => false,
            Answer::Later => true,
            Answer::Arm => {
                let armed = Self::arm_bell(this);

                if !armed {
                    this.bell.take();
                }
                armed
            }
        }
    }

    /// Makes sure that doorbells that wait do not do so for long. Returns false if it is better not
    /// to let them wait.
    fn arm_bell(this: ArcBorrow<'_, Qp>) -> bool {
        let Some(_bh) = bh::disable() else {
            return false;
        };
        let Some(mut tx) = this.tx.try_own() else {
            return false;
        };
        let at = this.now().saturating_add(this.bell.patience());

        Self::arm_for(this, &mut tx, at);
        if this.tx.leave(tx) {
            return false;
        }
        this.send_cq.note_belated(this.qpn);
        this.recv_cq.note_belated(this.qpn);
        if this.transport == Transport::Ud {
            this.pd.note_belated(this.qpn);
        }
        true
    }

    /// Answers the doorbells that wait. Any context.
    pub(crate) fn catch_up(this: ArcBorrow<'_, Qp>) {
        if this.bell.is_waiting() {
            Self::kick(this, Todo::TX);
        }
    }

    /// The same for the queue pair that has a number, if there is one; none has 0.
    pub(crate) fn catch_up_by_number(dev: &Device, qpn: u32) {
        if qpn == 0 {
            return;
        }

        let guard = rcu::read_lock();

        if let Some(qp) = dev.qps.get(&guard, qpn) {
            Self::catch_up(qp);
        }
    }

    fn push_sends(&self, queues: &KernelQueues, wrs: &mut SendWrs<'_, Verbs>) -> Result {
        while let Some(wr) = wrs.next() {
            queues.send.push(|area| self.send_wqe(&wr, area))?;
        }
        Ok(())
    }

    /// Makes a work request of one of the kernel's; its elements or inline bytes go to `area`.
    fn send_wqe(&self, wr: &SendWr<'_, Verbs>, area: &mut [u8]) -> Result<SendWqe<RegMr>> {
        let work = self.work(wr)?;
        let flags = SendFlags(wr.flags());

        if !work.is_allowed(self.transport) {
            return Err(EINVAL);
        }
        if work.is_local() {
            return Ok(SendWqe {
                wr_id: wr.wr_id(),
                work,
                flags,
                data: Data::Inline(0),
            });
        }

        let data = if flags.has(SendFlags::INLINE) {
            if !matches!(
                work,
                Work::Send(_) | Work::Datagram { .. } | Work::Write { .. }
            ) {
                return Err(EINVAL);
            }

            let room = usize::from(self.sizes.limits.max_inline);
            let len = wr.copy_inline(area.get_mut(..room).ok_or(EINVAL)?)?;

            Data::Inline(u32::try_from(len)?)
        } else {
            let count = u8::try_from(wr.num_sge())?;

            if count > self.sizes.limits.max_sge {
                return Err(EINVAL);
            }
            Data::Sges {
                count,
                len: put_sges(wr.sges(), area)?,
            }
        };

        if matches!(work, Work::CompareSwap { va, .. } | Work::FetchAdd { va, .. }
            if data.len() != 8 || va % 8 != 0)
        {
            return Err(EINVAL);
        }
        Ok(SendWqe {
            wr_id: wr.wr_id(),
            work,
            flags,
            data,
        })
    }

    fn work(&self, wr: &SendWr<'_, Verbs>) -> Result<Work<RegMr>> {
        let opcode = wr.opcode();
        let ex = wr.ex();
        let tail = match opcode {
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => Tail::Imm(ex),
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => Tail::Inv(u32::from_ne_bytes(ex)),
            _ => Tail::None,
        };

        Ok(match opcode {
            bindings::ib_wr_opcode_IB_WR_SEND
            | bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => {
                if self.transport == Transport::Ud {
                    let to = wr.ud().ok_or(EINVAL)?;

                    Work::Datagram {
                        ah: to.ah.num,
                        qpn: to.remote_qpn & crate::wire::bth::Bth::QPN_MASK,
                        qkey: to.remote_qkey,
                        tail,
                    }
                } else {
                    Work::Send(tail)
                }
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => {
                let (va, rkey) = wr.rdma().ok_or(EINVAL)?;

                Work::Write { va, rkey, tail }
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
                let (va, rkey) = wr.rdma().ok_or(EINVAL)?;

                Work::Read { va, rkey }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => {
                let (va, compare, swap, rkey) = wr.atomic().ok_or(EINVAL)?;

                Work::CompareSwap {
                    va,
                    rkey,
                    compare,
                    swap,
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                let (va, add, _, rkey) = wr.atomic().ok_or(EINVAL)?;

                Work::FetchAdd { va, rkey, add }
            }
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => Work::LocalInv(u32::from_ne_bytes(ex)),
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                let reg = wr.reg().ok_or(EINVAL)?;

                Work::Kernel(RegMr {
                    mr: reg.mr.number(),
                    key: reg.key,
                    access: reg.access,
                    iova: reg.iova,
                    length: reg.length,
                })
            }
            _ => return Err(EINVAL),
        })
    }

    /// Posts receive work requests of the kernel.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// As those of [`Self::post_send`].
    #[doc(alias = "ib_post_recv")]
    pub(crate) fn post_recv(this: &Arc<Qp>, wrs: &mut RecvWrs<'_>) -> Result {
        let may = this.state().may_post_recv() && !this.shared;
        let (true, Some(queues)) = (may, &this.kernel) else {
            let _ = wrs.next();
            return Err(EINVAL);
        };
        let mut result = Ok(());

        while let Some(wr) = wrs.next() {
            result = push_recv(&queues.recv, &wr, this.sizes.max_recv_sge);
            if result.is_err() {
                break;
            }
        }
        if this.state() == QpState::Error {
            // Whoever drains the queue waits for these.
            Self::kick(this.as_arc_borrow(), Todo::RX);
        }
        result
    }
}

/// Adds a receive work request to a queue. Any context.
///
/// # Errors
///
/// `EINVAL` if it has more elements than `max_sge` or makes no sense; `ENOMEM` if the queue is
/// full.
pub(crate) fn push_recv(queue: &KernelQueue<RecvHead>, wr: &wr::RecvWr<'_>, max_sge: u8) -> Result {
    queue.push(|area| {
        let count = u8::try_from(wr.num_sge())?;

        if count > max_sge {
            return Err(EINVAL);
        }
        put_sges(wr.sges(), area)?;
        Ok(RecvHead {
            wr_id: wr.wr_id(),
            count,
        })
    })
}

/// Writes elements as they are in a ring; returns the length of all.
fn put_sges(sges: impl Iterator<Item = wr::Sge>, area: &mut [u8]) -> Result<u32> {
    let mut total: u64 = 0;

    for (to, sge) in area.chunks_exact_mut(SGE_LEN).zip(sges) {
        let sge = Sge {
            addr: sge.addr,
            len: sge.len,
            lkey: sge.lkey,
        };

        if !sge.is_range() {
            return Err(EINVAL);
        }
        to.copy_from_slice(&sge.emit());
        total += u64::from(sge.len);
    }
    u32::try_from(total)
        .ok()
        .filter(|len| *len <= MAX_MSG)
        .ok_or(EINVAL)
}
