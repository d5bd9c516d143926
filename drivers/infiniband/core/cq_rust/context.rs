// SPDX-License-Identifier: GPL-2.0-only

//! The numbers in which poll contexts differ, and the choice of completion vectors.

use kernel::{
    ffi::c_int,
    rdma::{
        cq::Moderation,
        device::Device, //
    },
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// How many completions are fetched at a time by who polls directly. They lie on its stack.
pub(super) const BATCH_DIRECT: usize = 8;

/// How many completions a softirq run handles before it lets others run.
pub(super) const BUDGET_SOFTIRQ: i32 = 256;

/// How many completions a run of the work item handles before it queues itself again.
pub(super) const BUDGET_WORKQUEUE: i32 = 65536;

/// The least size of a shared queue.
pub(super) const SHARED_QUEUE_SIZE: u32 = 4096;

/// The moderation profiles of the `rdma_dim()` algorithm, from latency to throughput.
pub(super) const MODERATION: &[Moderation] = &[
    profile(1, 1),
    profile(1, 4),
    profile(2, 4),
    profile(2, 8),
    profile(4, 8),
    profile(16, 8),
    profile(16, 16),
    profile(32, 16),
    profile(32, 32),
];

const fn profile(usec: u16, comps: u16) -> Moderation {
    Moderation { usec, comps }
}

/// Chooses a completion vector for who does not care, so that they are used in turn.
pub(super) fn next_vector(dev: &Device) -> c_int {
    static NEXT: Atomic<u32> = Atomic::new(0);

    in_turn(&NEXT, dev.usable_comp_vectors())
}

/// The vector that comes next of `count`. Unsigned, so it stays in range when the counter wraps.
fn in_turn(counter: &Atomic<u32>, count: u32) -> c_int {
    if count <= 1 {
        return 0;
    }
    let n = counter.fetch_add(1u32, Relaxed).wrapping_add(1);

    (n % count) as c_int
}

#[kernel::macros::kunit_tests(rust_ib_cq_context)]
mod tests {
    use super::*;

    #[test]
    fn vectors_in_turn() {
        let counter = Atomic::new(0);
        let got = [0; 5].map(|_: i32| in_turn(&counter, 3));

        assert_eq!(got, [1, 2, 0, 1, 2]);
    }

    #[test]
    fn vectors_when_the_counter_wraps() {
        // A signed counter would give negative vectors from here on.
        let counter = Atomic::new(i32::MAX as u32 - 1);
        for _ in 0..4 {
            let vector = in_turn(&counter, 7);
            assert!((0..7).contains(&vector));
        }
        let counter = Atomic::new(u32::MAX);
        assert_eq!(in_turn(&counter, 4), 0);
        assert_eq!(in_turn(&counter, 4), 1);
    }

    #[test]
    fn vectors_of_a_device_without_any() {
        let counter = Atomic::new(5);

        assert_eq!(in_turn(&counter, 0), 0);
        assert_eq!(in_turn(&counter, 1), 0);
        assert_eq!(counter.load(Relaxed), 5);
    }

    #[test]
    fn moderation_has_a_profile_for_each_index() {
        assert_eq!(
            MODERATION.len(),
            kernel::bindings::RDMA_DIM_PARAMS_NUM_PROFILES as usize
        );
    }
}
