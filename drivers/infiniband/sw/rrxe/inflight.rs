// SPDX-License-Identifier: GPL-2.0

//! Send work requests that were begun and are not completed.
//!
//! A work request is copied from the ring into this table once, with its elements or inline bytes,
//! and everything that is sent again is made from here. Each one that sends something has at least
//! one PSN, and no more than 128 PSNs may be on their way, so 256 entries are enough for a send
//! queue of any length.

use crate::{
    psn::Psn,
    sge::SgeList,
    wc::Status,
    wqe::{
        Data,
        SendFlags,
        SendWqe,
        Work, //
    },
};
use core::ops::DerefMut;

/// The most entries that make sense.
pub(crate) const MAX_ENTRIES: u32 = 256;

/// How far a work request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not done.
    Open,
    /// Done; completes when those before it have.
    Done,
    /// Failed; completes when those before it have, and nothing after it is begun.
    Failed(Status),
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<K> {
    /// What to do.
    pub(crate) wqe: SendWqe<K>,
    /// Its first PSN.
    pub(crate) first: Psn,
    /// How many PSNs it has; none if it sends nothing.
    pub(crate) npsn: u32,
    /// How far it is.
    pub(crate) phase: Phase,
    /// Its first packet was sent.
    pub(crate) issued: bool,
}

impl<K> Entry<K> {
    /// Makes an entry of a work request that cannot be done.
    pub(crate) fn failed(wr_id: u64, status: Status, psn: Psn) -> Self {
        Self {
            wqe: SendWqe {
                wr_id,
                work: Work::Send(crate::packet::Tail::None),
                flags: SendFlags::default(),
                data: Data::Inline(0),
            },
            first: psn,
            npsn: 0,
            phase: Phase::Failed(status),
            issued: false,
        }
    }

    /// Tells whether it takes up one of the responder's resources now.
    pub(crate) fn holds_resource(&self) -> bool {
        self.issued && self.wqe.work.takes_resource()
    }
}

/// The table: a ring of entries and the bytes that belong to them.
///
/// # Invariants
///
/// The number of entries is a power of two; those from `head` to `tail` are there.
#[derive(Debug)]
pub(crate) struct InFlight<V, A> {
    entries: V,
    area: A,
    stride: usize,
    mask: u32,
    head: u32,
    tail: u32,
}

impl<K, V, A> InFlight<V, A>
where
    V: DerefMut<Target = [Option<Entry<K>>]>,
    A: DerefMut<Target = [u8]>,
{
    /// Makes a table of entries and of an area with `stride` bytes for each of them; `None` if the
    /// sizes do not fit.
    pub(crate) fn new(entries: V, area: A, stride: usize) -> Option<Self> {
        let len = u32::try_from(entries.len()).ok()?;

        // INVARIANT: The number is checked, and there is no entry yet.
        (len.is_power_of_two() && area.len() >= stride.checked_mul(entries.len())?).then_some(
            Self {
                entries,
                area,
                stride,
                mask: len - 1,
                head: 0,
                tail: 0,
            },
        )
    }

    /// Index of the first entry.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Index behind the last entry.
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Tells whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Tells whether there is no room.
    pub(crate) fn is_full(&self) -> bool {
        self.len() > self.mask
    }

    /// Indices of all entries.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        let head = self.head;

        (0..self.len()).map(move |i| head.wrapping_add(i))
    }

    fn slot(&self, index: u32) -> usize {
        (index & self.mask) as usize
    }

    /// Returns an entry.
    pub(crate) fn get(&self, index: u32) -> Option<&Entry<K>> {
        if index.wrapping_sub(self.head) >= self.len() {
            return None;
        }
        self.entries.get(self.slot(index))?.as_ref()
    }

    /// Returns an entry to change it.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Entry<K>> {
        if index.wrapping_sub(self.head) >= self.len() {
            return None;
        }

        let slot = self.slot(index);

        self.entries.get_mut(slot)?.as_mut()
    }

    /// Returns the bytes that belong to an entry, or will.
    pub(crate) fn area(&self, index: u32) -> &[u8] {
        let at = self.slot(index) * self.stride;

        self.area.get(at..at + self.stride).unwrap_or(&[])
    }

    /// Returns the bytes that belong to an entry, or will, to write them.
    pub(crate) fn area_mut(&mut self, index: u32) -> &mut [u8] {
        let at = self.slot(index) * self.stride;

        self.area.get_mut(at..at + self.stride).unwrap_or(&mut [])
    }

    /// Returns the elements of an entry; none if its data is inline.
    pub(crate) fn sges(&self, index: u32) -> SgeList<'_> {
        let count = match self.get(index).map(|e| e.wqe.data) {
            Some(Data::Sges { count, .. }) => count,
            _ => 0,
        };

        SgeList::new(self.area(index), count)
    }

    /// Adds an entry, whose bytes are in the area of `tail` already.
    pub(crate) fn push(&mut self, entry: Entry<K>) {
        let slot = self.slot(self.tail);

        if self.is_full() {
            return;
        }
        if let Some(place) = self.entries.get_mut(slot) {
            *place = Some(entry);
            self.tail = self.tail.wrapping_add(1);
        }
    }

    /// Drops the first entry, if there is one.
    pub(crate) fn drop_first(&mut self) {
        if !self.is_empty() {
            self.head = self.head.wrapping_add(1);
        }
    }

    /// Drops all entries.
    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }
}
