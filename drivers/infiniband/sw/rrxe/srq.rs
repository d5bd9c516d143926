// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.
//!
//! Many queue pairs take receive work requests from one, each from the context in which a message
//! comes, so there is a lock; it is held for the copy of a work request and nothing else.

use crate::{
    abi::{
        CreateSrqResp,
        ModifySrqCmd, //
    },
    params,
    pd::Pd,
    qp::rings::{
        KernelQueue,
        RecvHead,
        UserRing, //
    },
    queue::Queue,
    ring::Geometry,
    sge::SGE_LEN,
    uctx::MmapToken,
    verbs::Verbs,
    wqe::{
        Malformed,
        RecvWqe,
        RECV_LEN, //
    },
};
use core::mem::{
    offset_of,
    size_of, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_spinlock_irq,
    new_work,
    prelude::*,
    rdma::driver::{
        srq::{
            NewSrq,
            SrqAttr,
            SrqChange,
            SrqHandle, //
        },
        wr::RecvWrs,
        Udata, //
    },
    sync::{
        Arc,
        ArcBorrow,
        Mutex,
        SpinLockIrq, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
    workqueue::{
        self,
        Work,
        WorkItem, //
    }, //
};

enum Ring {
    User(UserRing),
    Kernel(Arc<KernelQueue<RecvHead>>),
}

struct State {
    ring: Ring,
    max_wr: u32,
    limit: u32,
}

/// A shared receive queue.
#[pin_data]
pub(crate) struct Srq {
    max_sge: u8,
    handle: SrqHandle,
    /// What the kernel posts to.
    queue: Option<Arc<KernelQueue<RecvHead>>>,
    #[pin]
    state: SpinLockIrq<State>,
    #[pin]
    token: Mutex<Option<MmapToken>>,
    /// Tells the owner that few work requests are left. Not done by whoever takes one of them, who
    /// owns a half of a queue pair.
    #[pin]
    limit: Work<Srq>,
}

impl_has_work! {
    impl HasWork<Self> for Srq { self.limit }
}

impl WorkItem for Srq {
    type Pointer = Arc<Srq>;

    fn run(this: Arc<Srq>) {
        this.handle.limit_reached();
    }
}

fn geometry(max_wr: u32, max_sge: u8) -> Result<Geometry> {
    let size = RECV_LEN + usize::from(max_sge) * SGE_LEN;

    Geometry::new(max_wr, size.try_into()?).ok_or(EINVAL)
}

impl Srq {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes beyond those of the device, or a library that expects another answer;
    /// `ENOMEM`.
    #[doc(alias = "ib_create_srq")]
    pub(crate) fn create(
        pd: &Arc<Pd>,
        attr: &SrqAttr,
        handle: SrqHandle,
        udata: Option<&Udata<'_, Verbs>>,
    ) -> Result<NewSrq<Arc<Self>>> {
        if attr.max_wr == 0
            || attr.max_wr > params::MAX_SRQ_WR
            || attr.max_sge > params::MAX_SRQ_SGE
            || udata.is_some_and(|u| u.outlen() < size_of::<CreateSrqResp>())
        {
            return Err(EINVAL);
        }
        let max_sge = u8::try_from(attr.max_sge.max(1))?;
        let geo = geometry(attr.max_wr, max_sge)?;
        let (ring, queue, token) = match udata {
            Some(udata) => {
                let queue = Arc::new(Queue::new(geo)?, GFP_KERNEL)?;
                let token = udata.ucontext()?.offer(&queue)?;

                udata.respond(offset_of!(CreateSrqResp, mi), &token.info().to_bytes())?;
                udata.respond(
                    offset_of!(CreateSrqResp, srq_num),
                    &pd.dev.next_srq().to_ne_bytes(),
                )?;
                (Ring::User(UserRing::new(queue, geo)), None, Some(token))
            }
            None => {
                let queue = Arc::pin_init(
                    KernelQueue::new(geo, usize::from(max_sge) * SGE_LEN),
                    GFP_KERNEL,
                )?;

                (Ring::Kernel(queue.clone()), Some(queue), None)
            }
        };
        let state = State {
            ring,
            max_wr: geo.capacity(),
            limit: attr.limit,
        };
        let srq = Arc::pin_init(
            pin_init!(Self {
                max_sge,
                handle,
                queue,
                state <- new_spinlock_irq!(state, "Srq::state"),
                token <- new_mutex!(token, "Srq::token"),
                limit <- new_work!("Srq::limit"),
            }),
            GFP_KERNEL,
        )?;

        Ok(NewSrq {
            attr: srq.attr(),
            data: srq,
        })
    }

    /// Its attributes.
    pub(crate) fn attr(&self) -> SrqAttr {
        let state = self.state.lock();

        SrqAttr {
            max_wr: state.max_wr,
            max_sge: self.max_sge.into(),
            limit: state.limit,
        }
    }

    /// Changes size and limit.
    ///
    /// # Errors
    ///
    /// `EINVAL` for values that make no sense, or if more work requests wait than there would be
    /// room for; `EOPNOTSUPP` for the size of one of the kernel.
    #[doc(alias = "ib_modify_srq")]
    pub(crate) fn modify(&self, change: &SrqChange, udata: Option<&Udata<'_, Verbs>>) -> Result {
        let now = self.attr();
        let max_wr = change.max_wr.unwrap_or(now.max_wr);
        let limit = change.limit.unwrap_or(now.limit);

        if max_wr == 0 || max_wr > params::MAX_SRQ_WR || limit > max_wr {
            return Err(EINVAL);
        }
        if change.max_wr.is_some() {
            self.resize(max_wr, udata.ok_or(EOPNOTSUPP)?)?;
        }
        self.state.lock().limit = limit;
        Ok(())
    }

    /// Gives one of user space another size.
    fn resize(&self, max_wr: u32, udata: &Udata<'_, Verbs>) -> Result {
        let mut cmd = [0; size_of::<ModifySrqCmd>()];

        udata.read(&mut cmd)?;
        let queue = Arc::new(Queue::new(geometry(max_wr, self.max_sge)?)?, GFP_KERNEL)?;
        let token = udata.ucontext()?.offer(&queue)?;
        // The library wants the answer where its argument points to.
        let info = token.info().to_bytes();
        let at = UserPtr::from_addr(u64::from_ne_bytes(cmd) as usize);

        UserSlice::new(at, info.len()).writer().write_slice(&info)?;
        let old = {
            let mut state = self.state.lock();
            let Ring::User(ring) = &mut state.ring else {
                return Err(EINVAL);
            };
            let capacity = queue.geometry().capacity();
            let old = ring.move_to(queue)?;

            state.max_wr = capacity;
            old
        };
        let before = self.token.lock().replace(token);

        drop((old, before));
        Ok(())
    }

    /// Ends it. No queue pair uses it any more.
    #[doc(alias = "ib_destroy_srq")]
    pub(crate) fn destroy(&self) {
        self.limit.flush();

        let token = self.token.lock().take();

        drop(token);
    }

    /// Posts receive work requests of the kernel. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if one makes no sense, `ENOMEM` if the queue is full.
    #[doc(alias = "ib_post_srq_recv")]
    pub(crate) fn post(&self, wrs: &mut RecvWrs<'_>) -> Result {
        let Some(queue) = &self.queue else {
            let _ = wrs.next();
            return Err(EINVAL);
        };

        while let Some(wr) = wrs.next() {
            crate::qp::post::push_recv(queue, &wr, self.max_sge)?;
        }
        Ok(())
    }

    /// Takes the next work request, and has the owner told if few are left.
    ///
    /// # Context
    ///
    /// Any but hard interrupts; no lock is held.
    pub(crate) fn take(
        this: ArcBorrow<'_, Self>,
        area: &mut [u8],
    ) -> Option<Result<RecvWqe, Malformed>> {
        let (wqe, few) = {
            let mut state = this.state.lock();
            let (wqe, left) = match &mut state.ring {
                Ring::User(ring) => (ring.recv(area, this.max_sge), ring.pending()),
                Ring::Kernel(queue) => (queue.recv(area), queue.pending()),
            };
            let few = wqe.is_some() && left < state.limit;

            if few {
                // It has to be set again for another event (IBA vol. 1, 10.2.9.1.3).
                state.limit = 0;
            }
            (wqe, few)
        };

        if few {
            let _ = workqueue::system_bh().enqueue(Arc::from(this));
        }
        wqe
    }
}
