// SPDX-License-Identifier: GPL-2.0

//! Where work requests come from: rings that user space maps, and queues of the kernel.
//!
//! A user's ring is read by the owner of a half only, and what it says is believed as little as
//! [`crate::ring`] and [`crate::fetch`] say. A queue of the kernel is filled by `ib_post_send()`
//! and `ib_post_recv()`, which may be called in any context, so it has a lock that keeps
//! interrupts off; under it nothing is called and bytes are copied only.

use crate::{
    fetch,
    queue::Queue,
    ring::{
        BadIndex,
        Consumer,
        Geometry, //
    },
    sge::SGE_LEN,
    srq::Srq,
    sync::Word,
    wc::Status,
    wqe::{
        Limits,
        Malformed,
        RecvWqe,
        SendWqe,
        MAX_INLINE,
        MAX_SGE,
        RECV_LEN,
        SEND_LEN, //
    },
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    },
};

/// What only the kernel may ask for: registering memory (`IB_WR_REG_MR`).
///
/// Numbers only: the region is looked up when its turn comes, and is not there any more if it was
/// deregistered meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegMr {
    /// Number of the region.
    pub(crate) mr: u32,
    /// Its key from now on.
    pub(crate) key: u32,
    /// Rights.
    pub(crate) access: u32,
    /// The address that it gets. The client may choose another one than it had when it was mapped.
    pub(crate) iova: u64,
    /// Its length.
    pub(crate) length: u64,
}

/// Sizes of both queues, as they are and not as they were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of the send queue.
    pub(crate) send: Geometry,
    /// Of the receive queue.
    pub(crate) recv: Geometry,
    /// Elements and inline bytes of a send work request.
    pub(crate) limits: Limits,
    /// Elements of a receive work request.
    pub(crate) max_recv_sge: u8,
}

impl Sizes {
    /// Makes sizes for at least what was asked for; `None` if that is too much.
    ///
    /// Elements and inline bytes share the same place, so that there may be more of each than was
    /// asked for, as long as it is no more than a device may have.
    pub(crate) fn new(
        transport: crate::opcode::Transport,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline: u32,
    ) -> Option<Self> {
        let sge = usize::try_from(max_send_sge).ok()?;
        let inline = usize::try_from(max_inline).ok()?;
        let recv_sge = usize::try_from(max_recv_sge).ok()?;

        if sge > MAX_SGE || inline > MAX_INLINE || recv_sge > MAX_SGE {
            return None;
        }

        let area = (sge * SGE_LEN).max(inline);
        let limits = Limits {
            transport,
            max_sge: u8::try_from(area / SGE_LEN).ok()?,
            max_inline: u16::try_from(area).ok()?,
        };

        Some(Self {
            send: Geometry::new(max_send_wr, u32::try_from(SEND_LEN + area).ok()?)?,
            recv: Geometry::new(
                max_recv_wr,
                u32::try_from(RECV_LEN + recv_sge * SGE_LEN).ok()?,
            )?,
            limits,
            max_recv_sge: u8::try_from(recv_sge).ok()?,
        })
    }
}

/// Where an entry of a ring is.
struct Entry<'a> {
    queue: &'a Queue,
    offset: usize,
}

impl fetch::Slot for Entry<'_> {
    #[inline]
    fn words<const N: usize>(&mut self, at: usize) -> [u64; N] {
        self.queue.words(self.offset.saturating_add(at))
    }

    #[inline]
    fn copy(&mut self, at: usize, to: &mut [u8]) {
        self.queue.copy_out(self.offset.saturating_add(at), to);
    }
}

/// The driver's side of a ring that user space fills.
pub(crate) struct UserRing {
    queue: Arc<Queue>,
    geo: Geometry,
    pos: Consumer,
    /// The producer's index made no sense; nothing is taken any more.
    broken: bool,
}

impl UserRing {
    /// Makes a ring that is empty.
    pub(crate) fn new(queue: Arc<Queue>, geo: Geometry) -> Self {
        Self {
            queue,
            geo,
            pos: Consumer::new(geo),
            broken: false,
        }
    }

    /// Forgets what is in it (`IB_QPS_RESET`).
    pub(crate) fn reset(&mut self) {
        self.queue.zero();
        self.pos = Consumer::new(self.geo);
        self.broken = false;
    }

    /// How many entries wait; none if the index of user space makes no sense.
    pub(crate) fn pending(&self) -> u32 {
        self.pos
            .pending(self.queue.producer().load_acquire())
            .unwrap_or(0)
    }

    /// Moves all that waits to a new ring, which takes the place of this one. Returns the old one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has not enough slots, or slots of another size.
    pub(crate) fn move_to(&mut self, queue: Arc<Queue>) -> Result<Arc<Queue>> {
        let geo = queue.geometry();
        let pending = self.pending();
        let mut slot = KVec::from_elem(0, geo.elem(), GFP_ATOMIC)?;

        if self.broken || pending > geo.capacity() || geo.elem() != self.geo.elem() {
            return Err(EINVAL);
        }
        for i in 0..pending {
            self.queue
                .copy_out(self.geo.offset(self.pos.index().wrapping_add(i)), &mut slot);
            queue.copy_in(geo.offset(i), &slot);
        }
        queue.producer().store_release(pending);
        self.geo = geo;
        self.pos = Consumer::new(geo);
        Ok(core::mem::replace(&mut self.queue, queue))
    }

    /// Takes the next entry, of which `decode` gets the slot.
    // Litmus: MP+uring-release+acquire
    fn take<R>(
        &mut self,
        decode: impl FnOnce(&mut Entry<'_>) -> Result<R, Malformed>,
    ) -> Option<Result<R, Malformed>> {
        if self.broken {
            return None;
        }
        match self.pos.pending(self.queue.producer().load_acquire()) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(BadIndex) => {
                self.broken = true;
                return Some(Err(Malformed {
                    wr_id: 0,
                    status: Status::LocQpOp,
                }));
            }
        }

        let entry = decode(&mut Entry {
            queue: &self.queue,
            offset: self.pos.offset(),
        });

        self.pos.advance();
        self.queue.consumer().store_release(self.pos.index());
        Some(entry)
    }

    /// Takes the next send work request.
    pub(crate) fn send<K>(
        &mut self,
        area: &mut [u8],
        limits: &Limits,
    ) -> Option<Result<SendWqe<K>, Malformed>> {
        self.take(|slot| fetch::send(slot, area, limits))
    }

    /// Takes the next receive work request.
    pub(crate) fn recv(
        &mut self,
        area: &mut [u8],
        max_sge: u8,
    ) -> Option<Result<RecvWqe, Malformed>> {
        self.take(|slot| fetch::recv(slot, area, max_sge))
    }
}

/// What a slot of a queue of the kernel has besides its bytes.
struct Slots<T> {
    heads: KVVec<Option<T>>,
    area: KVVec<u8>,
    stride: usize,
    mask: u32,
    head: u32,
    tail: u32,
}

impl<T: Copy> Slots<T> {
    fn place(&self, index: u32) -> usize {
        (index & self.mask) as usize
    }

    fn push(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<T>, capacity: u32) -> Result {
        if self.tail.wrapping_sub(self.head) >= capacity {
            return Err(ENOMEM);
        }

        let place = self.place(self.tail);
        let at = place * self.stride;
        let area = self.area.get_mut(at..at + self.stride).ok_or(ENOMEM)?;
        let head = fill(area)?;

        *self.heads.get_mut(place).ok_or(ENOMEM)? = Some(head);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    fn pop(&mut self, area: &mut [u8]) -> Option<T> {
        if self.head == self.tail {
            return None;
        }

        let place = self.place(self.head);
        let at = place * self.stride;

        self.head = self.head.wrapping_add(1);

        let bytes = self.area.get(at..at + self.stride)?;
        let len = bytes.len().min(area.len());

        if let Some((to, from)) = area.get_mut(..len).zip(bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        self.heads.get_mut(place)?.take()
    }
}

/// A queue that the kernel posts to.
#[pin_data]
pub(crate) struct KernelQueue<T> {
    capacity: u32,
    #[pin]
    slots: SpinLockIrq<Slots<T>>,
}

impl<T: Copy + Send> KernelQueue<T> {
    /// Makes a queue with `stride` bytes for each entry.
    pub(crate) fn new(geo: Geometry, stride: usize) -> impl PinInit<Self, Error> {
        let capacity = geo.capacity();
        let make = move || -> Result<Slots<T>> {
            let slots = geo.mask() as usize + 1;

            Ok(Slots {
                heads: KVVec::from_elem(None, slots, GFP_KERNEL)?,
                area: KVVec::from_elem(0, slots * stride, GFP_KERNEL)?,
                stride,
                mask: geo.mask(),
                head: 0,
                tail: 0,
            })
        };

        try_pin_init!(Self {
            capacity,
            slots <- new_spinlock_irq!(make()?, "rrxe::KernelQueue"),
        })
    }

    /// Adds an entry, of which `fill` writes the bytes.
    ///
    /// # Context
    ///
    /// Any. `fill` runs with interrupts off.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the queue is full; what `fill` returns.
    pub(crate) fn push(&self, fill: impl FnOnce(&mut [u8]) -> Result<T>) -> Result {
        self.slots.lock().push(fill, self.capacity)
    }

    /// Takes the first entry, and its bytes as far as there is room for them.
    pub(crate) fn pop(&self, area: &mut [u8]) -> Option<T> {
        self.slots.lock().pop(area)
    }

    /// How many entries wait.
    pub(crate) fn pending(&self) -> u32 {
        let slots = self.slots.lock();

        slots.tail.wrapping_sub(slots.head)
    }

    /// Forgets what is in it.
    pub(crate) fn reset(&self) {
        let mut slots = self.slots.lock();

        slots.head = 0;
        slots.tail = 0;
    }
}

/// Receive work request in a queue of the kernel; the elements are its bytes.
#[derive(Clone, Copy)]
pub(crate) struct RecvHead {
    /// Number that the poster gave to it.
    pub(crate) wr_id: u64,
    /// Number of elements.
    pub(crate) count: u8,
}

impl KernelQueue<RecvHead> {
    /// Takes the next receive work request.
    pub(crate) fn recv(&self, area: &mut [u8]) -> Option<Result<RecvWqe, Malformed>> {
        let head = self.pop(area)?;
        let len = usize::from(head.count) * SGE_LEN;

        Some(RecvWqe::new(head.wr_id, area.get(..len).unwrap_or(&[])))
    }
}

/// A send queue.
pub(crate) enum SendRing {
    /// Of user space.
    User(UserRing),
    /// Of the kernel.
    Kernel(Arc<KernelQueue<SendWqe<RegMr>>>),
}

impl SendRing {
    /// Forgets what is in it.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::User(ring) => ring.reset(),
            Self::Kernel(queue) => queue.reset(),
        }
    }
}

/// A receive queue.
pub(crate) enum RecvRing {
    /// Of user space.
    User(UserRing),
    /// Of the kernel.
    Kernel(Arc<KernelQueue<RecvHead>>),
    /// One that others share.
    Shared(Arc<Srq>),
}

impl RecvRing {
    /// Forgets what is in it.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::User(ring) => ring.reset(),
            Self::Kernel(queue) => queue.reset(),
            // What is in it is for others as well.
            Self::Shared(_) => (),
        }
    }
}
