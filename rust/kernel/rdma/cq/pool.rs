// SPDX-License-Identifier: GPL-2.0

//! The pool of completion queues that several consumers of a device share.
//!
//! A consumer claims a number of entries of a queue. The list of queues and the numbers of claimed
//! entries are protected by `ib_device.cq_pools_lock`.

use super::{
    Cq,
    Live,
    LiveSet,
    PollContext,
    Poller, //
};
use crate::{
    bindings,
    interop::list::clist_create,
    prelude::*,
    rdma::device::Device,
    sync::lock::{
        spinlock::SpinLockIrqBackend,
        Lock, //
    },
    types::Opaque,
};

/// The shared queues of a device with one poll context.
pub struct Pool<'a> {
    dev: &'a Device,
    list: *mut bindings::list_head,
    ctx: PollContext,
}

/// A member of the list.
///
/// # Invariants
///
/// The object is published and shared.
#[repr(transparent)]
struct Member(Opaque<bindings::ib_cq>);

impl Member {
    /// Claims `nr_cqe` entries, if the queue has so many left.
    ///
    /// # Safety
    ///
    /// The caller must hold the lock of the pool, or be the only one who knows the queue.
    #[inline]
    unsafe fn try_claim(cq: *mut bindings::ib_cq, nr_cqe: u32) -> bool {
        // SAFETY: By the safety requirement nobody else changes `cqe_used`.
        unsafe {
            let size: u32 = (*cq).cqe.try_into().unwrap_or(0);
            match (*cq).cqe_used.checked_add(nr_cqe) {
                Some(used) if used <= size => {
                    (*cq).cqe_used = used;
                    true
                }
                _ => false,
            }
        }
    }
}

impl<'a> Pool<'a> {
    /// Returns the pool of `dev` for `ctx`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none: who polls directly cannot share a queue.
    #[inline]
    pub fn new(dev: &'a Device, ctx: PollContext) -> Result<Self> {
        if ctx == PollContext::Direct {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid.
        let pools = unsafe { &raw mut (*dev.as_raw()).cq_pools };
        let index = ctx.into_raw() as usize;
        // SAFETY: The array has an element for each context but the direct one, which is last.
        let list = unsafe { pools.cast::<bindings::list_head>().add(index) };
        Ok(Self { dev, list, ctx })
    }

    /// The poll context of the queues in this pool.
    #[inline]
    pub fn context(&self) -> PollContext {
        self.ctx
    }

    /// Claims `nr_cqe` entries of a queue with completion vector `vector`.
    ///
    /// # Context
    ///
    /// Process context.
    #[inline]
    pub fn claim(&self, vector: u32, nr_cqe: u32) -> Option<*mut bindings::ib_cq> {
        with_lock(self.dev, || {
            // SAFETY: The list is initialised with the device, its members are published queues,
            // `Member` is a transparent wrapper, and the lock keeps the list as it is.
            let list = unsafe { clist_create!(self.list, Member, bindings::ib_cq, pool_entry) };

            list.iter().map(|member| member.0.get()).find(|&cq| {
                // SAFETY: Members are valid, and we hold the lock.
                unsafe { (*cq).comp_vector == vector && Member::try_claim(cq, nr_cqe) }
            })
        })
    }

    /// Adds queues to the pool, after claiming `nr_cqe` entries of the one with index `mine`.
    ///
    /// Since the claim comes before others can see the queue, the caller gets it or learns that
    /// the device makes no queues of that size.
    ///
    /// # Context
    ///
    /// Process context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue is too small or `mine` is no index; the queues are destroyed.
    #[inline]
    pub fn add<P: Poller>(
        &self,
        set: &LiveSet<P>,
        queues: KVec<Live<P>>,
        mine: usize,
        nr_cqe: u32,
    ) -> Result<*mut bindings::ib_cq> {
        let found = queues.get(mine).ok_or(EINVAL)?.as_raw();
        // SAFETY: Nobody else knows the queue.
        if !unsafe { Member::try_claim(found, nr_cqe) } {
            return Err(EINVAL);
        }

        let mut previous = self.list;
        for live in queues {
            let cq = set.hand_out_pooled(live);
            with_lock(self.dev, || {
                // SAFETY: We hold the lock; `previous` is the head or a member that we put in, and
                // members leave the pool only when the device goes away.
                unsafe {
                    let entry = &raw mut (*cq).pool_entry;
                    bindings::list_add(entry, previous);
                    previous = entry;
                }
            });
        }
        Ok(found)
    }

    /// Takes a queue out of the pool. Returns it with the number of entries still claimed.
    ///
    /// # Context
    ///
    /// Process context.
    #[inline]
    pub fn take(&self) -> Option<(*mut bindings::ib_cq, u32)> {
        with_lock(self.dev, || {
            // SAFETY: As in `claim()`; the member is taken off the list that it is on.
            unsafe {
                let cq = clist_create!(self.list, Member, bindings::ib_cq, pool_entry)
                    .iter()
                    .next()?
                    .0
                    .get();
                bindings::list_del(&raw mut (*cq).pool_entry);
                Some((cq, (*cq).cqe_used))
            }
        })
    }
}

/// Runs `f` with the lock of the pools of `dev` held.
#[inline]
fn with_lock<R>(dev: &Device, f: impl FnOnce() -> R) -> R {
    // SAFETY: The device is valid, and its lock is initialised with it.
    let lock =
        unsafe { Lock::<(), SpinLockIrqBackend>::from_raw(&raw mut (*dev.as_raw()).cq_pools_lock) };
    let _guard = lock.lock();

    f()
}

impl Cq {
    /// Gives back `nr_cqe` claimed entries of a shared queue.
    ///
    /// # Context
    ///
    /// Any but hard interrupts.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are not so many; nothing is changed.
    #[inline]
    pub fn unclaim(&self, nr_cqe: u32) -> Result {
        with_lock(self.device(), || {
            // SAFETY: The queue is valid, and the lock protects the field.
            unsafe {
                let used = &raw mut (*self.as_raw()).cqe_used;
                *used = (*used).checked_sub(nr_cqe).ok_or(EINVAL)?;
            }
            Ok(())
        })
    }
}
