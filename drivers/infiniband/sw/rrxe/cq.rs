// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! One of user space is a ring that user space maps and empties by itself. One of the kernel is a
//! ring of [`Wc`]s. Both are filled under a lock, which is never held when a handler is called:
//! that is what [`crate::event`] is for, and [`crate::arm`] says when there is something for it.

use crate::{
    abi::{
        CreateCqResp,
        UverbsWc, //
    },
    arm::{
        Arm,
        Notify, //
    },
    device::Device,
    env::Overflow,
    eq::Event,
    event::{
        EventQueue,
        Vector, //
    },
    kword::KWord,
    packet::Tail,
    params::MAX_CQE,
    qp::Qp,
    queue::Queue,
    ring::{
        Geometry,
        Producer, //
    },
    sync::Word,
    uctx::{
        mmap_info_bytes,
        MmapToken, //
    },
    verbs::Verbs,
    wc::Wc, //
};
use core::mem::{
    offset_of,
    size_of, //
};
use kernel::{
    impl_has_work,
    new_spinlock_irq,
    new_work,
    prelude::*,
    rdma::driver::{
        attr::CqInit,
        cq::{
            Completion,
            CqHandle,
            Polled, //
        },
        Udata, //
    },
    sync::{
        rcu,
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        self,
        Work,
        WorkItem, //
    }, //
};

pub(crate) use crate::event::Ctx;

/// The ring of a queue of user space.
struct UserRing {
    queue: Arc<Queue>,
    producer: Producer,
}

impl UserRing {
    fn new(cqe: u32) -> Result<Self> {
        let geo = Geometry::new(cqe, size_of::<UverbsWc>() as u32).ok_or(EINVAL)?;

        Ok(Self {
            queue: Arc::new(Queue::new(geo)?, GFP_KERNEL)?,
            producer: Producer::new(geo),
        })
    }

    // Litmus: MP+uring-release+acquire
    fn push(&mut self, wc: &Wc) -> Result<(), Overflow> {
        if self
            .producer
            .is_full(Word::load_acquire(self.queue.consumer()))
        {
            return Err(Overflow);
        }
        self.queue.copy_in(self.producer.offset(), &wc.to_user(1));
        self.producer.advance();
        Word::store_release(self.queue.producer(), self.producer.index());
        Ok(())
    }

    /// Moves all entries to a new ring, which takes the place of this one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are too many; nothing has changed then.
    fn move_to(&mut self, mut new: Self) -> Result {
        let geo = self.queue.geometry();
        let used = self
            .producer
            .used(Word::load_acquire(self.queue.consumer()));

        if used > new.queue.geometry().capacity() {
            return Err(EINVAL);
        }
        for i in 0..used {
            let mut entry = [0; size_of::<UverbsWc>()];
            let index = self.producer.index().wrapping_sub(used - i);

            self.queue.copy_out(geo.offset(index), &mut entry);
            new.queue.copy_in(new.producer.offset(), &entry);
            new.producer.advance();
        }
        Word::store_release(new.queue.producer(), new.producer.index());
        *self = new;
        Ok(())
    }
}

/// The ring of a queue of the kernel.
struct KernelRing {
    slots: KVVec<Option<Wc>>,
    head: usize,
    len: usize,
}

impl KernelRing {
    fn new(cqe: u32) -> Result<Self> {
        Ok(Self {
            slots: KVVec::from_elem(None, cqe as usize, GFP_KERNEL)?,
            head: 0,
            len: 0,
        })
    }

    fn slot(&mut self, i: usize) -> Option<&mut Option<Wc>> {
        let at = (self.head + i) % self.slots.len().max(1);

        self.slots.get_mut(at)
    }

    fn push(&mut self, wc: &Wc) -> Result<(), Overflow> {
        if self.len == self.slots.len() {
            return Err(Overflow);
        }
        *self.slot(self.len).ok_or(Overflow)? = Some(*wc);
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<Wc> {
        if self.len == 0 {
            return None;
        }
        let wc = self.slot(0)?.take();

        self.head = (self.head + 1) % self.slots.len().max(1);
        self.len -= 1;
        wc
    }

    /// Keeps those that `keep` says, in order.
    fn retain(&mut self, keep: impl Fn(&Wc) -> bool) {
        for _ in 0..self.len {
            if let Some(wc) = self.pop().filter(|wc| keep(wc)) {
                // There is room: one was taken out.
                let _ = self.push(&wc);
            }
        }
    }
}

enum Ring {
    User(UserRing),
    Kernel(KernelRing),
}

impl Ring {
    fn push(&mut self, wc: &Wc) -> Result<(), Overflow> {
        match self {
            Self::User(r) => r.push(wc),
            Self::Kernel(r) => r.push(wc),
        }
    }

    /// How many completions there are.
    fn len(&self) -> usize {
        match self {
            Self::User(r) => r.producer.used(Word::load_acquire(r.queue.consumer())) as usize,
            Self::Kernel(r) => r.len,
        }
    }
}

/// A completion queue.
#[pin_data]
pub(crate) struct Cq {
    dev: Arc<Device>,
    cqn: u32,
    generation: u8,
    arm: Arm<KWord>,
    eq: Arc<EventQueue>,
    vector: Arc<Vector>,
    handle: CqHandle,
    /// The ring of user space as it was made; it has another one now if `resized` is not 0.
    first: Option<Arc<Queue>>,
    resized: KWord,
    overflown: KWord,
    /// The queue pair that last has put off to answer a doorbell, or 0.
    belated: KWord,
    /// Tells the owner that the queue is full. Not done by whoever finds out, who may own a half
    /// of a queue pair or be called by the owner himself.
    #[pin]
    overflow: Work<Cq>,
    #[pin]
    ring: SpinLockIrq<Ring>,
    /// The offer of the ring to user space. Changed by operations that the core calls one at a
    /// time.
    #[pin]
    token: kernel::sync::Mutex<Option<MmapToken>>,
}

impl_has_work! {
    impl HasWork<Self> for Cq { self.overflow }
}

impl WorkItem for Cq {
    type Pointer = Arc<Cq>;

    fn run(this: Arc<Cq>) {
        this.handle.error();
    }
}

/// Answers with where a ring can be mapped.
fn respond(udata: &Udata<'_, Verbs>, queue: &Queue) -> Result<MmapToken> {
    let token = udata.ucontext()?.offer(queue)?;

    udata.respond(
        offset_of!(CreateCqResp, mi),
        &mmap_info_bytes(&token.info()),
    )?;
    Ok(token)
}

impl Cq {
    /// Makes a queue; also returns how many entries it has.
    // Litmus: MP+cqn-generation
    pub(crate) fn create(
        dev: &Arc<Device>,
        init: &CqInit,
        handle: CqHandle,
        udata: Option<&Udata<'_, Verbs>>,
    ) -> Result<(Arc<Self>, u32)> {
        if init.flags != 0 {
            return Err(EOPNOTSUPP);
        }
        if init.cqe == 0 || init.cqe > MAX_CQE {
            return Err(EINVAL);
        }
        let (ring, first, cqe, token) = match udata {
            Some(udata) => {
                let ring = UserRing::new(init.cqe)?;
                let queue = ring.queue.clone();
                let token = respond(udata, &queue)?;
                let cqe = queue.geometry().capacity();

                (Ring::User(ring), Some(queue), cqe, Some(token))
            }
            None => {
                let ring = KernelRing::new(init.cqe)?;

                (Ring::Kernel(ring), None, init.cqe, None)
            }
        };
        let vector = dev.vector(init.comp_vector).ok_or(EINVAL)?;
        let eq = vector.attach(dev)?;
        let (cq_vector, cq_eq) = (vector.clone(), eq.clone());
        let made = dev.cqs.insert_with(GFP_KERNEL, |cqn| {
            Arc::pin_init(
                pin_init!(Self {
                    dev: dev.clone(),
                    cqn,
                    generation: dev.next_generation(),
                    arm: Arm::new(),
                    eq: cq_eq,
                    vector: cq_vector,
                    handle,
                    first,
                    resized: Word::new(0),
                    overflown: Word::new(0),
                    belated: Word::new(0),
                    overflow <- new_work!("Cq::overflow"),
                    ring <- new_spinlock_irq!(ring, "Cq::ring"),
                    token <- kernel::new_mutex!(token, "Cq::token"),
                }),
                GFP_KERNEL,
            )
        });

        match made {
            Ok(cq) => {
                cq.unexpected();
                Ok((cq, cqe))
            }
            Err(e) => {
                vector.detach(&eq);
                Err(e)
            }
        }
    }

    /// Ends the queue. Nobody adds completions any more; when this returns, no handler runs or will
    /// run.
    pub(crate) fn destroy(&self) {
        self.unexpected();
        self.arm.kill();
        self.unexpected();
        while !self.arm.is_quiet() {
            fsleep(Delta::from_micros(50));
        }
        if let Some(retired) = self.dev.cqs.remove(self.cqn) {
            drop(retired.wait());
        }
        self.unexpected();
        // Nobody is left who could queue it, and this is not the last reference.
        self.overflow.flush();
        self.vector.detach(&self.eq);
        let token = self.token.lock().take();

        drop(token);
    }

    /// Adds a completion.
    ///
    /// # Context
    ///
    /// Any but hard interrupts; bottom halves are off in [`Ctx::Softirq`]. The caller may own
    /// halves of queue pairs, but holds no lock.
    ///
    /// # Errors
    ///
    /// If the queue is full. Its owner is told so, once and soon.
    pub(crate) fn complete(this: ArcBorrow<'_, Self>, wc: &Wc, ctx: Ctx) -> Result<(), Overflow> {
        let fire = {
            let mut ring = this.ring.lock();

            // Within the lock, since one producer at a time may fire.
            ring.push(wc).map(|()| this.arm.fire(wc.is_solicited()))
        };

        match fire {
            Ok(true) => {
                this.eq.raise(
                    Event {
                        cqn: this.cqn,
                        generation: this.generation,
                    },
                    ctx,
                );
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(Overflow) => {
                if Word::cmpxchg(&this.overflown, 0, 1).is_ok() {
                    let _ = workqueue::system_bh().enqueue(Arc::from(this));
                }
                Err(Overflow)
            }
        }
    }

    /// Calls the handler for an event, if that is one of this queue, and tells whether it did. Only
    /// for the owner of the event queue.
    // Litmus: MP+cqn-generation
    pub(crate) fn handle_event(&self, generation: u8) -> bool {
        if generation != self.generation || !self.arm.begin() {
            return false;
        }
        self.handle.notify();
        self.arm.end();
        true
    }

    /// Where its events go.
    pub(crate) fn event_queue(&self) -> &EventQueue {
        &self.eq
    }

    /// Its number.
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    pub(crate) fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Makes up an event, of a generation that differs from the right one by `off`.
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    pub(crate) fn inject(&self, off: u8, ctx: Ctx) {
        self.inject_generation(self.generation.wrapping_add(off), ctx);
    }

    /// Makes up an event of a generation.
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    pub(crate) fn inject_generation(&self, generation: u8, ctx: Ctx) {
        let event = Event {
            cqn: self.cqn,
            generation,
        };

        // Room for those of all queues that there may be is left free.
        self.eq.inject(event, self.vector.users(&self.eq), ctx);
    }

    /// Makes up a completion.
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    pub(crate) fn make_up(this: ArcBorrow<'_, Self>, ctx: Ctx) {
        let wc = Wc::failed(0, crate::wc::Status::WrFlush, crate::wc::Opcode::Send, 0);

        if matches!(&*this.ring.lock(), Ring::Kernel(r) if r.len + 1 < r.slots.len()) {
            crate::debug::hostile::as_softirq(ctx, |ctx| {
                let _ = Self::complete(this, &wc, ctx);
            });
        }
    }

    /// A moment has come at which no event is to be expected.
    fn unexpected(&self) {
        #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
        crate::debug::hostile::provoke(self);
    }

    /// Takes completions of a queue of the kernel. Any context.
    pub(crate) fn poll(&self, out: &mut Polled<'_>) {
        let guard = rcu::read_lock();
        let mut ring = self.ring.lock();
        let Ring::Kernel(ring) = &mut *ring else {
            return;
        };

        while out.has_room() {
            let Some(wc) = ring.pop() else {
                break;
            };
            let c = Completion {
                wr_id: wc.wr_id,
                status: wc.status as u32,
                opcode: kernel_opcode(wc.opcode),
                vendor_err: 0,
                byte_len: wc.byte_len,
                ex: match wc.tail {
                    Tail::None => [0; 4],
                    Tail::Imm(imm) => imm,
                    Tail::Inv(rkey) => rkey.to_ne_bytes(),
                },
                src_qp: wc.from.qpn,
                flags: kernel_flags(&wc),
                port: 1,
            };
            let qp = self.dev.qps.get(&guard, wc.qpn);

            out.push(&c, qp.as_ref().map(|qp| Qp::handle(qp)));
        }
    }

    /// How many completions there are. Any context.
    pub(crate) fn len(&self) -> usize {
        self.ring.lock().len()
    }

    /// Asks for an event. Returns whether completions are there that make none. Any context.
    pub(crate) fn req_notify(&self, what: Notify) -> bool {
        self.catch_up();
        self.arm.arm(what);
        self.len() != 0
    }

    /// Notes that a queue pair has put off to answer a doorbell.
    pub(crate) fn note_belated(&self, qpn: u32) {
        Word::store(&self.belated, qpn);
    }

    /// Whoever asks for an event is likely to wait for it, so what was put off is done now.
    fn catch_up(&self) {
        let qpn = Word::load(&self.belated);

        if qpn == 0 || Word::cmpxchg(&self.belated, qpn, 0).is_err() {
            return;
        }

        Qp::catch_up_by_number(&self.dev, qpn);
    }

    /// A number that changes when user space takes completions.
    ///
    /// Each doorbell asks, so there is no lock unless the queue was resized. Who asks meanwhile
    /// may get the number of the ring that is left.
    pub(crate) fn consumed(&self) -> u32 {
        match &self.first {
            Some(queue) if Word::load(&self.resized) == 0 => Word::load(queue.consumer()),
            Some(_) => match &*self.ring.lock() {
                Ring::User(r) => Word::load(r.queue.consumer()),
                Ring::Kernel(_) => 0,
            },
            None => 0,
        }
    }

    /// Forgets the completions of a queue pair that goes away, in a queue of the kernel: the owner
    /// of the queue pair has no use for them any more, and what they point to may be gone.
    pub(crate) fn purge(&self, qpn: u32) {
        if let Ring::Kernel(ring) = &mut *self.ring.lock() {
            ring.retain(|wc| wc.qpn != qpn);
        }
    }

    /// Changes the number of entries of a queue of user space, and returns how many it has.
    pub(crate) fn resize(&self, cqe: u32, udata: &Udata<'_, Verbs>) -> Result<u32> {
        if cqe == 0 || cqe > MAX_CQE {
            return Err(EINVAL);
        }
        let new = UserRing::new(cqe)?;
        let capacity = new.queue.geometry().capacity();
        // User space maps the new ring when this call has succeeded. If it does not, the offer is
        // withdrawn.
        let token = respond(udata, &new.queue)?;
        let old = {
            let mut ring = self.ring.lock();
            let Ring::User(ring) = &mut *ring else {
                return Err(EINVAL);
            };
            let old = ring.queue.clone();

            ring.move_to(new)?;
            Word::store(&self.resized, 1);
            old
        };
        // Freeing memory is nothing for the time that interrupts are off.
        drop(old);
        let before = self.token.lock().replace(token);

        drop(before);
        Ok(capacity)
    }
}

/// The kernel's number of what was done. It has some that user space has not.
fn kernel_opcode(opcode: crate::wc::Opcode) -> u32 {
    opcode as u32
}

/// The kernel's flags.
fn kernel_flags(wc: &Wc) -> u32 {
    /// `IB_WC_WITH_INVALIDATE`; the others are the same as those of user space.
    const INVALIDATE: u32 = 1 << 2;

    match wc.tail {
        Tail::Inv(_) => (wc.flags() & !crate::wc::flags::INV) | INVALIDATE,
        _ => wc.flags(),
    }
}
