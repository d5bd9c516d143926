// SPDX-License-Identifier: GPL-2.0

//! Rings in memory that user space maps.
//!
//! A ring is a header and slots. User space reads both and writes both at any time, so what is
//! there is copied before it is looked at, and the driver's own index is never read back.

use crate::{
    abi::QueueBuf,
    kword::KWord,
    ring::Geometry,
    sync::Word, //
};
use core::mem::{
    offset_of,
    size_of, //
};
use kernel::{
    prelude::*,
    rdma::driver::mem::UserBuf,
    sync::Arc, //
};

/// A ring.
pub(crate) struct Queue {
    buf: Arc<UserBuf>,
    geo: Geometry,
    /// What is used if the header has no such word, which cannot be.
    spare: KWord,
}

const SLOTS: usize = size_of::<QueueBuf>();

impl Queue {
    /// Allocates an empty ring.
    pub(crate) fn new(geo: Geometry) -> Result<Self> {
        let buf = Arc::new(UserBuf::new(SLOTS + geo.bytes())?, GFP_KERNEL)?;

        for (at, value) in [
            (offset_of!(QueueBuf, log2_elem_size), geo.log2_elem()),
            (offset_of!(QueueBuf, index_mask), geo.mask()),
        ] {
            buf.copy_in(at, &value.to_ne_bytes());
        }
        Ok(Self {
            buf,
            geo,
            spare: Word::new(0),
        })
    }

    /// Number and size of the slots.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geo
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &Arc<UserBuf> {
        &self.buf
    }

    /// How much of it the ring needs.
    pub(crate) fn bytes(&self) -> usize {
        self.buf.len()
    }

    /// Index of the next slot that the producer fills.
    pub(crate) fn producer(&self) -> &KWord {
        self.buf
            .word(offset_of!(QueueBuf, producer_index))
            .unwrap_or(&self.spare)
    }

    /// Index of the next slot that the consumer empties.
    pub(crate) fn consumer(&self) -> &KWord {
        self.buf
            .word(offset_of!(QueueBuf, consumer_index))
            .unwrap_or(&self.spare)
    }

    /// Copies bytes out of the slots.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        self.buf.copy_out(SLOTS.saturating_add(offset), to);
    }

    /// Reads words of the slots, each once; 0 if they are not all there or not aligned, which
    /// cannot be.
    #[inline]
    pub(crate) fn words<const N: usize>(&self, offset: usize) -> [u64; N] {
        self.buf
            .words(SLOTS.saturating_add(offset))
            .unwrap_or([0; N])
    }

    /// Copies bytes into the slots.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        self.buf.copy_in(SLOTS.saturating_add(offset), from);
    }

    /// Makes the ring empty again. Whoever uses it must start anew as well.
    pub(crate) fn zero(&self) {
        self.buf.zero(SLOTS, self.geo.bytes());
        Word::store(self.producer(), 0);
        Word::store(self.consumer(), 0);
    }
}
