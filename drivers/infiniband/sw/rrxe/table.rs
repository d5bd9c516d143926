// SPDX-License-Identifier: GPL-2.0

//! Tables of the objects that have a number in the protocol or in the ABI: queue pairs, memory
//! regions, completion queues, address handles.
//!
//! Look-ups are done for each packet, so they take no lock and count no reference; see
//! [`kernel::sync::rcu::array`].

use kernel::{
    alloc::Flags,
    prelude::*,
    sync::{
        rcu::{
            self,
            array::RcuArray, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

pub(crate) use kernel::sync::rcu::array::{
    Recent,
    Retired, //
};

/// A table of objects with numbers of 24 bits at most.
#[pin_data]
pub(crate) struct Table<T: Send + Sync + 'static> {
    #[pin]
    array: RcuArray<T>,
}

impl<T: Send + Sync + 'static> Table<T> {
    /// The largest number that fits into what the protocol and the keys have for it.
    pub(crate) const MAX: u32 = 0x00ff_ffff;

    /// Creates an initialiser of an empty table that gives out numbers from `first` to `last`, both
    /// included.
    pub(crate) fn new(first: u32, last: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            array <- RcuArray::new(first, last.min(Self::MAX)),
        })
    }

    /// Adds an object that `f` makes for the number that it is given. It can be found only when
    /// `f` has returned it. With `GFP_ATOMIC` in any context, as far as `f` may.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if there is no free number, or the error of `f`.
    pub(crate) fn insert_with(
        &self,
        gfp: Flags,
        f: impl FnOnce(u32) -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        self.array
            .insert_with(gfp, f)
            .map_err(|e| if e == EBUSY { ENOMEM } else { e })
    }

    /// Adds an object with a number that is not given out, like the queue pair number 1.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is taken, or `ENOMEM`.
    pub(crate) fn insert_at(&self, gfp: Flags, index: u32, value: Arc<T>) -> Result {
        self.array.insert_at(gfp, index, value)
    }

    /// Finds an object. Any context.
    #[inline]
    pub(crate) fn get<'g>(&'g self, guard: &'g rcu::Guard, index: u32) -> Option<ArcBorrow<'g, T>> {
        self.array.get(guard, index)
    }

    /// Look-ups of one read-side section that are likely to be for the same object again and again.
    #[inline]
    pub(crate) fn recent<'g>(&'g self, guard: &'g rcu::Guard) -> Recent<'g, T> {
        self.array.recent(guard)
    }

    /// Puts an object in the place of the one that has a number. A look-up finds one or the other.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, or `ENOMEM`.
    pub(crate) fn replace(&self, gfp: Flags, index: u32, value: Arc<T>) -> Result<Retired<'_, T>> {
        self.array.replace(gfp, index, value)
    }

    /// Takes out an object: no look-up that begins later finds it. Any context.
    ///
    /// Those that began before may still use it: [`Retired::wait`] waits for them, and dropping
    /// what is returned lets RCU drop the table's reference.
    pub(crate) fn remove(&self, index: u32) -> Option<Retired<'_, T>> {
        self.array.remove(index)
    }
}
