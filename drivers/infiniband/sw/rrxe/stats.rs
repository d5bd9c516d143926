// SPDX-License-Identifier: GPL-2.0

//! Counters. The names are those that `rdma statistic` has always shown for this kind of device.

use kernel::{
    cpu::CpuId,
    rdma::driver::stats::Desc,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

macro_rules! counters {
    ($($(#[$doc:meta])* $id:ident = $name:literal,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[$doc])* $id,)*
        }

        /// What the core is told about the counters, in the order of [`Counter`].
        pub(crate) static DESCS: [Desc; COUNT] = [$(Desc::new($name)),*];

        const COUNT: usize = [$(Counter::$id),*].len();
    };
}

counters! {
    /// Packets sent.
    SentPkts = c"sent_pkts",
    /// Packets received.
    RcvdPkts = c"rcvd_pkts",
    /// Requests that had been received before.
    DuplicateRequest = c"duplicate_request",
    /// Requests behind a gap.
    OutOfSeqRequest = c"out_of_seq_request",
    /// Answers that the other side has no receive buffer.
    RcvdRnrErr = c"rcvd_rnr_err",
    /// Such answers sent.
    SendRnrErr = c"send_rnr_err",
    /// Answers that the other side has missed something.
    RcvdSeqErr = c"rcvd_seq_err",
    /// Acknowledgments that were put off.
    AckDeferred = c"ack_deferred",
    /// Work requests that failed after all retries.
    RetryExceeded = c"retry_exceeded_err",
    /// Work requests for which the other side had no receive buffer after all retries.
    RnrRetryExceeded = c"retry_rnr_exceeded_err",
    /// Retries.
    CompleterRetry = c"completer_retry_err",
    /// Packets that could not be sent.
    SendErr = c"send_err",
    /// How often the link went down.
    LinkDowned = c"link_downed",
    /// SENDs and the like.
    Sends = c"rdma_sends",
    /// Messages received.
    Recvs = c"rdma_recvs",
    /// Bytes sent.
    SentBytes = c"sent_bytes",
    /// Bytes received.
    RcvdBytes = c"rcvd_bytes",
}

/// How many sets there are: CPUs that share one meet rarely.
const SHARDS: usize = 8;

/// A set of counters, in cache lines of its own.
#[repr(align(128))]
struct Shard([Atomic<u64>; COUNT]);

/// Counters of a device.
pub(crate) struct Stats([Shard; SHARDS]);

impl Stats {
    /// Makes counters that are 0.
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| {
            Shard(core::array::from_fn(|_| Atomic::new(0)))
        }))
    }

    /// Adds to a counter. Any context.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        // Another CPU may be the right one by now; that costs time and nothing else.
        let cpu = CpuId::current().as_u32() as usize;

        if let Some(c) = self
            .0
            .get(cpu % SHARDS)
            .and_then(|s| s.0.get(counter as usize))
        {
            c.add(n, Relaxed);
        }
    }

    /// Adds 1 to a counter. Any context.
    pub(crate) fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Reads a counter.
    pub(crate) fn get(&self, counter: usize) -> u64 {
        self.0
            .iter()
            .filter_map(|s| s.0.get(counter))
            .fold(0, |sum, c| sum.wrapping_add(c.load(Relaxed)))
    }
}
