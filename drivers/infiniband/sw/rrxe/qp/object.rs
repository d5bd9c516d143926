// SPDX-License-Identifier: GPL-2.0

//! The queue pair as an object: what it consists of, how it comes and how it goes.
//!
//! The C core's `struct ib_qp`, the table of the device, work that is queued and a timer that is
//! armed hold references. What may end before the last of them does is what points back to the
//! core: see [`Qp::destroy`].

use super::{
    attr::Attrs,
    rings::{
        KernelQueue,
        RecvHead,
        RecvRing,
        RegMr,
        SendRing,
        Sizes,
        UserRing, //
    },
    run::{
        Todo,
        RX_FAULT,
        TX_FAULT, //
    },
    state::QpState, //
};
use crate::{
    abi,
    bell::Bell,
    cq::Cq,
    device::Device,
    fault::Pager,
    inflight::{
        Entry,
        InFlight as Table, //
    },
    kword::KWord,
    net::{
        Flow,
        InFlight, //
    },
    opcode::Transport,
    owner::{
        Owner,
        Released, //
    },
    params,
    pd::Pd,
    queue::Queue,
    resp::{
        Resource,
        Rx, //
    },
    sync::Word,
    tx::Tx,
    uctx::MmapToken,
    verbs::Verbs,
    wqe::SendWqe, //
};
use kernel::{
    net::skb::SkBuffList,
    new_condvar,
    new_mutex,
    new_spinlock_irq,
    new_work,
    prelude::*,
    rdma::driver::{
        attr::{
            NewQp,
            QpCap,
            QpInit,
            QpKind, //
        },
        qp::QpHandle,
        Udata, //
    },
    sync::{
        exclusive::{
            Borrowed,
            Exclusive, //
        },
        Arc,
        CondVar,
        Mutex,
        SpinLockIrq, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer, //
        },
        Instant,
        Monotonic, //
    },
    workqueue::Work, //
};

/// The most skbs of one queue pair that are on their way at a time, and how few they become before
/// it goes on.
const IN_FLIGHT: (u32, u32) = (64, 16);

/// Work requests of a connection that are on their way; see [`crate::inflight`].
const DEPTH: u32 = 128;

/// The same for datagrams and unreliable connections, which are done as soon as they are sent.
const DEPTH_UNRELIABLE: u32 = 16;

/// Number of the queue pair for general services (IBA vol. 1, 3.9.2).
const GSI_QPN: u32 = 1;

/// Its queue key (IBA vol. 1, 9.6.1.4.2).
const GSI_QKEY: u32 = 0x8001_0000;

/// Data of a half, and who is at it.
///
/// The word says who is the owner, and makes sure that nothing is left undone. The cell would let
/// only one at the data in any case, and it never fails if the word is right.
#[pin_data]
pub(super) struct Half<T> {
    owner: Owner<KWord>,
    data: Exclusive<T>,
    /// Held to begin to sleep until there is no owner, and to wake up who does.
    #[pin]
    sleepers: SpinLockIrq<()>,
    #[pin]
    left: CondVar,
}

impl<T> Half<T> {
    fn new(data: T) -> impl PinInit<Self> {
        pin_init!(Self {
            owner: Owner::new(),
            data: Exclusive::new(data),
            sleepers <- new_spinlock_irq!((), "rrxe::Half::sleepers"),
            left <- new_condvar!("rrxe::Half::left"),
        })
    }

    /// Becomes the owner, or makes the owner look for work again.
    pub(super) fn own_or_pend(&self) -> Option<Borrowed<'_, T>> {
        if !self.owner.own_or_pend() {
            return None;
        }

        let data = self.data.try_borrow();

        kernel::warn_on_once!(data.is_none());
        data
    }

    /// Becomes the owner if there is none.
    pub(super) fn try_own(&self) -> Option<Borrowed<'_, T>> {
        if !self.owner.try_own() {
            return None;
        }
        self.data.try_borrow()
    }

    /// Becomes the owner, for a change that others must not see half done. Sleeps while there is
    /// another one.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(super) fn own(&self) -> Borrowed<'_, T> {
        loop {
            let mut sleepers = self.sleepers.lock();

            // Under the lock: the owner that sees who waits takes it before it wakes anybody up,
            // and so comes when this one sleeps.
            while !self.owner.own_or_wait() {
                self.left.wait(&mut sleepers);
            }
            drop(sleepers);
            if let Some(data) = self.data.try_borrow() {
                return data;
            }
            // It is not left as long as somebody is at the data.
            kernel::warn_on_once!(true);
            let _ = self.owner.release();
        }
    }

    /// Wakes up all who wait for the owner to leave.
    #[cold]
    fn wake(&self) {
        let _sleepers = self.sleepers.lock();

        self.left.notify_all();
    }

    /// Stops being the owner unless there is more to do, which the result says.
    pub(super) fn release<'a>(&'a self, data: Borrowed<'a, T>) -> Option<Borrowed<'a, T>> {
        drop(data);
        match self.owner.release() {
            Released::Idle => None,
            Released::Wake => {
                self.wake();
                None
            }
            // The word still is ours.
            Released::Again => self.data.try_borrow(),
        }
    }

    /// Stops being the owner. If there is more to do, the result says so, and somebody has to take
    /// care of it.
    pub(super) fn leave(&self, data: Borrowed<'_, T>) -> bool {
        let mut again = false;

        drop(data);
        loop {
            match self.owner.release() {
                Released::Again => again = true,
                Released::Wake => {
                    self.wake();
                    return again;
                }
                Released::Idle => return again,
            }
        }
    }
}

/// The timer of a queue pair, while it is armed.
pub(super) struct Armed {
    /// When it goes off, on the clock of the queue pair.
    pub(super) at: u64,
    /// Dropped to disarm it.
    pub(super) _timer: ArcHrTimerHandle<Qp>,
}

/// Requester and completer.
pub(super) type Requester = Tx<KVVec<Option<Entry<RegMr>>>, KVVec<u8>>;

/// The responder.
pub(super) type Responder = Rx<KVVec<Option<Resource>>>;

/// Requester and completer, and what only their owner may touch.
pub(super) struct TxHalf {
    pub(super) engine: Requester,
    pub(super) ring: SendRing,
    pub(super) flow: Option<Arc<Flow>>,
    pub(super) timer: Option<Armed>,
    /// A response that was not taken, in front of all others.
    pub(super) parked: Option<crate::net::RxPacket>,
    /// Memory was asked for.
    pub(super) paging: bool,
}

/// The responder, and what only its owner may touch.
pub(super) struct RxHalf {
    pub(super) engine: Responder,
    pub(super) ring: RecvRing,
    pub(super) flow: Option<Arc<Flow>>,
    /// Queue key that is asked for.
    pub(super) qkey: u32,
    /// A packet that was not taken, in front of all others.
    pub(super) parked: Option<crate::net::RxPacket>,
    /// Memory was asked for.
    pub(super) paging: bool,
    /// What lets user space map the rings, receive queue first.
    tokens: Option<(Option<MmapToken>, MmapToken)>,
    /// That the last work request of a shared receive queue was taken has been told.
    pub(super) last_told: bool,
}

/// Queues of the kernel, from the side of those who post.
pub(super) struct KernelQueues {
    pub(super) send: Arc<KernelQueue<SendWqe<RegMr>>>,
    pub(super) recv: Arc<KernelQueue<RecvHead>>,
}

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    pub(super) dev: Arc<Device>,
    pub(super) qpn: u32,
    pub(super) transport: Transport,
    pub(super) gsi: bool,
    pub(super) kind: QpKind,
    pub(super) pd: Arc<Pd>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    pub(super) signal_all: bool,
    pub(super) sizes: Sizes,
    /// It takes receive work requests from a queue that others share.
    pub(super) shared: bool,
    handle: QpHandle,
    /// Where the clock of this queue pair starts.
    pub(super) epoch: Instant<Monotonic>,
    /// A [`QpState`]. Written by who owns both halves, or by the owner of one who enters the error
    /// state.
    state: KWord,
    /// Bits of [`Todo`].
    pub(super) todo: KWord,
    /// The timer went off, and the requester has not seen it.
    pub(super) expired: KWord,
    /// The number of the other side of the connection, for those who own no half.
    pub(super) dest_qpn: KWord,
    /// Doorbells of user space.
    pub(super) bell: Bell<KWord>,
    #[pin]
    pub(super) tx: Half<TxHalf>,
    #[pin]
    pub(super) rx: Half<RxHalf>,
    /// Responses that came while the half had an owner.
    #[pin]
    pub(super) responses: SkBuffList,
    /// Requests that came while the half had an owner.
    #[pin]
    pub(super) requests: SkBuffList,
    pub(super) in_flight: InFlight,
    pub(super) kernel: Option<KernelQueues>,
    /// What was set by `ib_modify_qp()`; held while it is being done.
    #[pin]
    pub(super) attrs: Mutex<Attrs>,
    #[pin]
    pub(super) work: Work<Qp>,
    /// Who makes memory available for requester and completer.
    #[pin]
    pub(super) tx_pager: Pager,
    #[pin]
    pub(super) tx_fault: Work<Qp, TX_FAULT>,
    /// The same for the responder.
    #[pin]
    pub(super) rx_pager: Pager,
    #[pin]
    pub(super) rx_fault: Work<Qp, RX_FAULT>,
    #[pin]
    pub(super) timer: HrTimer<Qp>,
}

impl Qp {
    /// Its number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The device that it is of.
    pub(crate) fn device(&self) -> &Device {
        &self.dev
    }

    /// The core's side of it.
    pub(crate) fn handle(&self) -> &QpHandle {
        &self.handle
    }

    /// Its state; the answer may be old for all but the owner of both halves.
    pub(super) fn state(&self) -> QpState {
        QpState::from_verbs(Word::load(&self.state)).unwrap_or(QpState::Reset)
    }

    /// Sets the state. Only for the owner of both halves.
    pub(super) fn set_state(&self, state: QpState) {
        self.state.store_release(state as u32);
    }

    /// Enters the error state, unless there is nothing that could be in error. Returns whether it
    /// is in that state now.
    pub(super) fn fail(&self) -> bool {
        self.state
            .update(|old| (old != QpState::Reset as u32).then_some(QpState::Error as u32))
            .is_ok()
    }

    /// Creates a queue pair.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for what there is not; `EINVAL` for sizes beyond those of the device, or a
    /// library that expects another answer; `ENOMEM`.
    #[doc(alias = "ib_create_qp")]
    pub(crate) fn create(
        dev: &Arc<Device>,
        init: &QpInit<'_, Verbs>,
        handle: QpHandle,
        udata: Option<&Udata<'_, Verbs>>,
    ) -> Result<NewQp<Arc<Qp>>> {
        if let Some(udata) = udata {
            if udata.inlen() != 0 || udata.outlen() < size_of::<abi::CreateQpResp>() {
                return Err(EINVAL);
            }
        }

        let (transport, gsi) = match init.kind() {
            QpKind::Rc => (Transport::Rc, false),
            QpKind::Uc => (Transport::Uc, false),
            QpKind::Ud => (Transport::Ud, false),
            QpKind::Gsi => (Transport::Ud, true),
            _ => return Err(EOPNOTSUPP),
        };

        if init.create_flags() != 0 {
            return Err(EOPNOTSUPP);
        }

        let mut cap = init.cap();

        if init.srq().is_some() {
            // It has no receive queue of its own.
            cap.max_recv_wr = 0;
            cap.max_recv_sge = 0;
        }

        if cap.max_send_wr > params::MAX_QP_WR || cap.max_recv_wr > params::MAX_QP_WR {
            return Err(EINVAL);
        }

        let sizes = Sizes::new(
            transport,
            cap.max_send_wr,
            cap.max_recv_wr,
            cap.max_send_sge,
            cap.max_recv_sge,
            cap.max_inline,
        )
        .ok_or(EINVAL)?;
        let parts = Parts {
            init,
            transport,
            gsi,
            sizes,
            udata,
        };
        let qp = if gsi {
            let qp = parts.make(dev, GSI_QPN, handle)?;

            dev.qps.insert_at(GFP_KERNEL, GSI_QPN, qp.clone())?;
            qp
        } else {
            dev.qps
                .insert_with(GFP_KERNEL, |qpn| parts.make(dev, qpn, handle))?
        };

        // Undone by `destroy`: the two hold each other.
        qp.in_flight.set_wake(qp.clone());
        if let Err(e) = qp.respond(udata) {
            Self::destroy(qp);
            return Err(e);
        }
        Ok(NewQp {
            number: qp.qpn,
            cap: qp.cap(),
            data: qp,
        })
    }

    /// Tells user space where its rings are.
    fn respond(&self, udata: Option<&Udata<'_, Verbs>>) -> Result {
        let Some(udata) = udata else {
            return Ok(());
        };
        let mut resp = [0; size_of::<abi::CreateQpResp>()];
        let mut from = 0;
        let rx = self.rx.own();

        if let Some((recv, send)) = &rx.tokens {
            let infos = [recv.as_ref().map(MmapToken::info), Some(send.info())];

            for (to, mi) in resp.chunks_exact_mut(size_of::<abi::MmapInfo>()).zip(infos) {
                match mi {
                    Some(mi) => to.copy_from_slice(&mi.to_bytes()),
                    // The library does not look at this, and expects it unchanged.
                    None => from = size_of::<abi::MmapInfo>(),
                }
            }
        }
        self.rx.leave(rx);
        udata.respond(from, resp.get(from..).unwrap_or(&[]))
    }

    /// What there is room for.
    pub(super) fn cap(&self) -> QpCap {
        QpCap {
            max_send_wr: self.sizes.send.capacity(),
            max_recv_wr: self.sizes.recv.capacity(),
            max_send_sge: u32::from(self.sizes.limits.max_sge),
            max_recv_sge: u32::from(self.sizes.max_recv_sge),
            max_inline: u32::from(self.sizes.limits.max_inline),
        }
    }

    /// Ends it all. When this returns, nothing of the queue pair happens any more: no completion,
    /// no event, no packet. Its memory may live longer, if a packet that was sent is on its way.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    #[doc(alias = "ib_destroy_qp")]
    pub(crate) fn destroy(this: Arc<Qp>) {
        // Those who post datagrams and leave, as mckey does, expect them to be sent.
        Self::catch_up(this.as_arc_borrow());
        // From here on packets that come and go find nobody.
        this.in_flight.clear_wake();
        let retired = this.dev.qps.remove(this.qpn);

        {
            // Both halves are never given back, so whoever comes later leaves work to an owner
            // that will not do it.
            let mut tx = this.tx.own();
            let mut rx = this.rx.own();

            this.set_state(QpState::Reset);
            Self::forget(&mut tx, &mut rx);
            tx.flow = None;
            rx.flow = None;
            rx.tokens = None;
        }
        // After the grace period nobody who found it in the table is left, and no wake-up that had
        // begun: none of those who queue work are.
        if let Some(retired) = retired {
            drop(retired.wait());
        }
        this.purge();
        // Memory may take as long as it likes, so that is not waited for.
        this.tx_pager.close();
        this.rx_pager.close();
        this.work.flush();
        this.send_cq.purge(this.qpn);
        this.recv_cq.purge(this.qpn);
    }

    /// Drops packets that wait for a half.
    pub(super) fn purge(&self) {
        for packets in [&self.requests, &self.responses] {
            while packets.pop_front().is_some() {}
        }
    }

    /// Forgets all that is on its way and all that was posted.
    pub(super) fn forget(tx: &mut TxHalf, rx: &mut RxHalf) {
        tx.timer = None;
        tx.parked = None;
        tx.engine.set_state(QpState::Reset);
        tx.ring.reset();
        rx.engine.cancel();
        rx.parked = None;
        rx.ring.reset();
    }
}

/// What a queue pair is made of.
struct Parts<'a> {
    init: &'a QpInit<'a, Verbs>,
    transport: Transport,
    gsi: bool,
    sizes: Sizes,
    udata: Option<&'a Udata<'a, Verbs>>,
}

impl Parts<'_> {
    fn make(&self, dev: &Arc<Device>, qpn: u32, handle: QpHandle) -> Result<Arc<Qp>> {
        let sizes = self.sizes;
        let qkey = if self.gsi { GSI_QKEY } else { 0 };
        let (send, recv, kernel, tokens) = match self.udata {
            Some(udata) => {
                let send = Arc::new(Queue::new(sizes.send)?, GFP_KERNEL)?;
                let uctx = udata.ucontext()?;
                let send_token = uctx.offer(&send)?;
                let (recv, recv_token) = match self.init.srq() {
                    Some(srq) => (RecvRing::Shared(srq.clone()), None),
                    None => {
                        let recv = Arc::new(Queue::new(sizes.recv)?, GFP_KERNEL)?;
                        let token = uctx.offer(&recv)?;

                        (RecvRing::User(UserRing::new(recv, sizes.recv)), Some(token))
                    }
                };

                (
                    SendRing::User(UserRing::new(send, sizes.send)),
                    recv,
                    None,
                    Some((recv_token, send_token)),
                )
            }
            None => {
                let send = Arc::pin_init(
                    KernelQueue::new(sizes.send, sizes.limits.area()),
                    GFP_KERNEL,
                )?;
                let recv = Arc::pin_init(
                    KernelQueue::new(
                        sizes.recv,
                        usize::from(sizes.max_recv_sge) * crate::sge::SGE_LEN,
                    ),
                    GFP_KERNEL,
                )?;

                (
                    SendRing::Kernel(send.clone()),
                    match self.init.srq() {
                        Some(srq) => RecvRing::Shared(srq.clone()),
                        None => RecvRing::Kernel(recv.clone()),
                    },
                    Some(KernelQueues { send, recv }),
                    None,
                )
            }
        };
        let depth = match self.transport {
            Transport::Rc => DEPTH,
            _ => DEPTH_UNRELIABLE,
        };
        let depth = sizes.send.capacity().clamp(1, depth).next_power_of_two();
        let stride = sizes.limits.area();
        let table = Table::new(
            KVVec::from_elem(None, depth as usize, GFP_KERNEL)?,
            KVVec::from_elem(0, depth as usize * stride, GFP_KERNEL)?,
            stride,
        )
        .ok_or(EINVAL)?;
        let attrs = Attrs::new(qkey);
        let config = attrs.tx(self.transport, self.gsi, qpn, self.init.signal_all(), dev);
        let tx = TxHalf {
            engine: Tx::new(config, table),
            ring: send,
            flow: None,
            timer: None,
            parked: None,
            paging: false,
        };
        let rx = RxHalf {
            engine: Rx::new(
                attrs.rx(self.transport, qpn, self.init.srq().is_some(), dev),
                KVVec::new(),
            ),
            ring: recv,
            flow: None,
            qkey,
            parked: None,
            paging: false,
            tokens,
            last_told: false,
        };
        let in_flight = InFlight::new(IN_FLIGHT.0, IN_FLIGHT.1, GFP_KERNEL)?;

        Arc::try_pin_init(
            try_pin_init!(Qp {
                dev: dev.clone(),
                qpn,
                transport: self.transport,
                gsi: self.gsi,
                kind: self.init.kind(),
                pd: self.init.pd()?.clone(),
                send_cq: self.init.send_cq()?.clone(),
                recv_cq: self.init.recv_cq()?.clone(),
                signal_all: self.init.signal_all(),
                sizes,
                shared: self.init.srq().is_some(),
                handle,
                epoch: Instant::now(),
                state: KWord::new(QpState::Reset as u32),
                todo: KWord::new(Todo::NONE.0),
                expired: KWord::new(0),
                dest_qpn: KWord::new(0),
                bell: Bell::new(),
                tx <- Half::new(tx),
                rx <- Half::new(rx),
                responses <- SkBuffList::new(),
                requests <- SkBuffList::new(),
                in_flight,
                kernel,
                attrs <- new_mutex!(attrs, "rrxe::Qp::attrs"),
                work <- new_work!("rrxe::Qp::work"),
                tx_pager <- Pager::new(),
                tx_fault <- new_work!("rrxe::Qp::tx_fault"),
                rx_pager <- Pager::new(),
                rx_fault <- new_work!("rrxe::Qp::rx_fault"),
                timer <- HrTimer::new(),
            }? Error),
            GFP_KERNEL,
        )
    }
}
