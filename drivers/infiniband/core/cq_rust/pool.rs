// SPDX-License-Identifier: GPL-2.0-only

//! Completion queues that consumers share.
//!
//! There is a pool for each device and poll context. It grows by a queue for each completion
//! vector whenever no queue has enough room, and it is freed with the device.

use super::{
    alloc::{
        self,
        LIVE, //
    },
    context::SHARED_QUEUE_SIZE,
    poll::CorePoller, //
};
use kernel::{
    bindings,
    ffi::c_int,
    prelude::*,
    rdma::{
        cq::{
            Attr,
            ClaimError,
            Cq,
            Live,
            PollContext,
            Pool,
            Wq, //
        },
        device::Device, //
    },
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    warn_on, warn_on_once,
};

/// Needed by `pr_warn!`.
const __LOG_PREFIX: &[u8] = super::__LOG_PREFIX;

/// The contexts that have a pool.
const CONTEXTS: [PollContext; 3] = [
    PollContext::Softirq,
    PollContext::Workqueue(Wq::Bound),
    PollContext::Workqueue(Wq::Unbound),
];

/// The vector that the last consumer without a wish got.
static DEFAULT_VECTOR: Atomic<u32> = Atomic::new(0);

/// Chooses one of `count` completion vectors, which is not 0.
fn choose_vector(last: &Atomic<u32>, hint: c_int, count: u32) -> u32 {
    // Two callers at a time may get the same vector, which does no harm.
    match u32::try_from(hint) {
        Ok(hint) => hint % count,
        Err(_) => {
            let next = last.load(Relaxed).wrapping_add(1) % count;
            last.store(next, Relaxed);
            next
        }
    }
}

/// Makes a queue for each of `count` vectors, for `nr_cqe` entries or more.
fn make_queues(
    dev: &Device,
    ctx: PollContext,
    count: u32,
    nr_cqe: u32,
) -> Result<KVec<Live<CorePoller>>> {
    // A reasonable size at least, so that consumers can share a queue.
    let size = nr_cqe.max(SHARED_QUEUE_SIZE).min(dev.max_cqe());
    let mut queues = KVec::with_capacity(count as usize, GFP_KERNEL)?;

    for vector in 0..count {
        let attr = Attr {
            nr_cqe: size as c_int,
            comp_vector: vector as c_int,
            context: core::ptr::null_mut(),
            shared: true,
        };
        // On an error the queues that are there already are freed.
        //
        // SAFETY: The name lives as long as this module.
        let live = unsafe { alloc::make(dev, attr, ctx.into_raw(), c"ib_core".as_char_ptr()) }?;
        queues.push(live, GFP_KERNEL)?;
    }
    Ok(queues)
}

/// See [`ib_cq_pool_get`](super::ib_cq_pool_get).
pub(super) fn get(
    dev: &Device,
    nr_cqe: u32,
    hint: c_int,
    raw_ctx: bindings::ib_poll_context,
) -> Result<*mut bindings::ib_cq> {
    let pool = PollContext::from_raw(raw_ctx).and_then(|ctx| Pool::new(dev, ctx));
    warn_on_once!(pool.is_err());
    let pool = pool?;

    // No queue of this device can ever have so many entries, or there are none at all.
    let count = dev.usable_comp_vectors();
    if count == 0 || nr_cqe > dev.max_cqe() {
        return Err(EINVAL);
    }
    let vector = choose_vector(&DEFAULT_VECTOR, hint, count);
    if let Some(cq) = pool.claim(vector, nr_cqe) {
        return Ok(cq);
    }
    let queues = make_queues(dev, pool.context(), count, nr_cqe)?;
    pool.add(&LIVE, queues, vector as usize, nr_cqe)
}

/// See [`ib_cq_pool_put`](super::ib_cq_pool_put).
pub(super) fn put(cq: &Cq, nr_cqe: u32) {
    warn_on_once!(cq.unclaim(nr_cqe).is_err());
}

/// See [`ib_cq_pool_cleanup`](super::ib_cq_pool_cleanup).
pub(super) fn cleanup(dev: &Device) {
    for ctx in CONTEXTS {
        let Ok(pool) = Pool::new(dev, ctx) else {
            continue;
        };
        while let Some((cq, claimed)) = pool.take() {
            // Somebody forgot to give back what he claimed, and may still use it: the queue stays,
            // so nobody is hurt.
            match LIVE.claim_pooled(cq) {
                Err(ClaimError::Shared) => {
                    warn_on!(true);
                    pr_warn!("{claimed} entries of a shared CQ are still claimed\n");
                }
                result => alloc::free(result),
            }
        }
    }
}

#[kernel::macros::kunit_tests(rust_ib_cq_pool)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_projected() {
        let last = Atomic::new(0);

        assert_eq!(choose_vector(&last, 0, 4), 0);
        assert_eq!(choose_vector(&last, 3, 4), 3);
        assert_eq!(choose_vector(&last, 9, 4), 1);
        assert_eq!(choose_vector(&last, c_int::MAX, 4), 3);
        assert_eq!(last.load(Relaxed), 0);
    }

    #[test]
    fn no_hint_takes_turns() {
        let last = Atomic::new(0);

        assert_eq!(choose_vector(&last, -1, 4), 1);
        assert_eq!(choose_vector(&last, c_int::MIN, 4), 2);
        assert_eq!(choose_vector(&last, -1, 4), 3);
        assert_eq!(choose_vector(&last, -1, 4), 0);
        // A device with fewer vectors gets one that it has.
        let last = Atomic::new(7);
        assert_eq!(choose_vector(&last, -1, 2), 0);
        assert_eq!(choose_vector(&last, -1, 1), 0);
    }
}
