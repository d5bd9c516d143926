// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that is not pinned, for software devices: on-demand paging.
//!
//! The pages of such a registration come and go as those of any other memory do: they are swapped
//! out, written back, merged, moved, given away by `munmap()`, or copied after a fork. A table says
//! which pages are known to be there at the moment. [`OnDemand::fault`] finds out, and has pages
//! made available; the process's memory management takes entries out again before it changes
//! anything about a page.
//!
//! # How it fits together
//!
//! - Who accesses memory does so with the table locked, and only through entries that are in it. So
//!   it takes no time, and any context will do, but what is not in the table is not to be had:
//!   [`Miss::Yet`].
//! - Memory management calls `invalidate()` and does not go on before that returns. It takes
//!   entries out under the same lock, so an access is over before the page goes.
//! - Pages that were written are marked dirty when they are taken out. Until then memory management
//!   may think that they are clean, but does nothing about it.
//! - Entries are put in with `umem_mutex` held, if nothing was invalidated since the page tables of
//!   the process were looked at. `invalidate()` takes this mutex as well, and the table's lock
//!   inside.
//!
//! C header: [`include/rdma/ib_umem_odp.h`](srctree/include/rdma/ib_umem_odp.h)

mod implicit;

pub use self::implicit::Implicit;

use super::mem::{
    copy_out,
    pieces,
    Piece, //
};
use crate::{
    bindings,
    container_of,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_int,
        c_ulong, //
    },
    new_spinlock,
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rdma::device::Device,
    sync::{
        atomic::Atomic,
        bh,
        Arc,
        SpinLock, //
    }, //
};
use core::{
    ops::Range,
    ptr::NonNull, //
};

/// Why memory was not accessed. Nothing was done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It will never be possible: the range or the right is wrong.
    Never,
    /// It is not there; see [`OnDemand::fault`].
    Yet,
}

/// How to make memory available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// For reading.
    Read,
    /// For writing, which ends sharing.
    Write,
    /// As far as the process has it anyway: nothing is read from a disk, allocated, or copied.
    Present,
}

/// The most bytes that are made available at a time.
const STRIDE: usize = 512 * PAGE_SIZE;

/// Entry of the table: the address of a page, and flags where it is zero; or nothing.
#[derive(Clone, Copy, Default)]
struct Entry(usize);

impl Entry {
    /// It may be written.
    const WRITE: usize = 1;
    /// It was.
    const DIRTY: usize = 2;

    /// Where the page is.
    fn page(self) -> Option<NonNull<u8>> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(self.0 & PAGE_MASK))
    }

    /// Whether it can be accessed so.
    fn allows(self, write: bool) -> bool {
        self.0 != 0 && (!write || self.0 & Self::WRITE != 0)
    }
}

/// A registration with the core.
///
/// # Invariants
///
/// `0` is ours to release.
struct Registration(NonNull<bindings::ib_umem_odp>);

// SAFETY: Any thread can release it.
unsafe impl Send for Registration {}

// SAFETY: The core locks what it changes, and what is read here does not change.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers memory of the current process.
    #[inline]
    fn get(dev: &Device, addr: usize, len: usize, access: u32) -> Result<Self> {
        // SAFETY: The device and the operations are valid; the rest is checked by the function.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_odp_get(dev.as_raw(), addr, len, access as c_int, &OPS)
        })?;

        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }

    /// Registers a part of what was registered as a whole.
    #[inline]
    fn part(&self, addr: usize, len: usize) -> Result<Self> {
        // SAFETY: By the type invariant, and it cannot go before this returns; the rest is checked
        // by the function.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_odp_alloc_child(self.0.as_ptr(), addr, len, &OPS)
        })?;

        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }

    /// Whether it may be written.
    #[inline]
    fn is_writable(&self) -> bool {
        // SAFETY: By the type invariant; this does not change.
        unsafe { (*self.0.as_ptr()).umem.writable() != 0 }
    }

    /// Runs `f` with the mutex of the registration held.
    #[inline]
    fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: By the type invariant; the mutex was initialised with it.
        let mutex = unsafe { &raw mut (*self.0.as_ptr()).umem_mutex };

        // SAFETY: As above.
        unsafe { bindings::mutex_lock(mutex) };

        let result = f();

        // SAFETY: It was locked just now.
        unsafe { bindings::mutex_unlock(mutex) };
        result
    }
}

impl Drop for Registration {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_umem_odp_release(self.0.as_ptr()) };
    }
}

/// Memory of a process that is not pinned.
///
/// Wraps the kernel's C `struct ib_umem_odp`.
///
/// # Invariants
///
/// - The `private` pointer of the registration is null or points to this structure, and is changed
///   with the mutex of the registration held only.
/// - An entry of the table is the address of a page that the kernel can access, and that belongs to
///   the process at the entry's place until `invalidate()` has taken it out; one with
///   `Entry::WRITE` may be written.
#[pin_data(PinnedDrop)]
pub struct OnDemand {
    /// Dropped first: after that nobody calls `invalidate()`.
    raw: Registration,
    start: usize,
    len: usize,
    writable: bool,
    #[pin]
    table: SpinLock<KVVec<Entry>>,
}

impl OnDemand {
    /// Registers memory of the current process. No page is available at first.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW` if there is no such range, `ENOMEM`.
    #[doc(alias = "ib_umem_odp_get")]
    #[inline]
    pub fn get(dev: &Device, addr: u64, len: u64, access: u32) -> Result<Arc<Self>> {
        let (addr, len) = (usize::try_from(addr)?, usize::try_from(len)?);

        Self::new(Registration::get(dev, addr, len, access)?, addr, len)
    }

    /// As [`Self::get`], of what was registered as a whole, which has to stay as long as this.
    #[inline]
    fn part_of(root: &Registration, addr: usize, len: usize) -> Result<Arc<Self>> {
        Self::new(root.part(addr, len)?, addr, len)
    }

    #[inline]
    fn new(raw: Registration, start: usize, len: usize) -> Result<Arc<Self>> {
        let count = len
            .checked_add(start & !PAGE_MASK)
            .ok_or(EOVERFLOW)?
            .div_ceil(PAGE_SIZE);
        let table = KVVec::from_elem(Entry::default(), count, GFP_KERNEL)?;
        let writable = raw.is_writable();
        // INVARIANT: The pointer is null, and the table empty.
        let this = Arc::pin_init(
            pin_init!(Self {
                raw,
                start,
                len,
                writable,
                table <- new_spinlock!(table, "rdma::OnDemand::table"),
            }),
            GFP_KERNEL,
        )?;

        this.raw.locked(|| {
            // INVARIANT: This is where it is, and it does not move.
            // SAFETY: The registration is valid; the mutex is held.
            unsafe {
                (*this.raw.0.as_ptr()).private = core::ptr::from_ref(&*this).cast_mut().cast();
            }
        });
        Ok(this)
    }

    /// Where it starts in the address space of the process.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it may be written.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The offset of the first byte on its page.
    fn first(&self) -> usize {
        self.start & !PAGE_MASK
    }

    /// Calls `f` with the entries of a range and the offset of it on the first page, if all pages
    /// are there.
    fn access<R>(
        &self,
        at: usize,
        len: usize,
        write: bool,
        f: impl FnOnce(&[Entry], usize) -> R,
    ) -> Result<R, Miss> {
        let end = at.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or(Miss::Never)? + self.first();

        if len == 0 || (write && !self.writable) {
            return Err(Miss::Never);
        }
        let at = at + self.first();
        // Softirqs take this lock. Where they cannot be disabled they are.
        let _bh = bh::disable();
        let mut table = self.table.lock();
        let pages = table
            .get_mut(at >> PAGE_SHIFT..end.div_ceil(PAGE_SIZE))
            .ok_or(Miss::Never)?;

        if !pages.iter().all(|page| page.allows(write)) {
            return Err(Miss::Yet);
        }
        if write {
            pages.iter_mut().for_each(|page| page.0 |= Entry::DIRTY);
        }
        Ok(f(pages, at & !PAGE_MASK))
    }

    /// Reads bytes.
    ///
    /// # Context
    ///
    /// Any but a hard interrupt.
    ///
    /// # Errors
    ///
    /// [`Miss`].
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), Miss> {
        self.access(at, to.len(), false, |pages, at| {
            let page = |i| pages.get(i).and_then(|page: &Entry| page.page());

            pieces(PAGE_SHIFT as u32, at, to.len(), page, |from, done, n| {
                if let Some(to) = to.get_mut(done..done + n) {
                    // SAFETY: By the type invariant the page is there as long as the table is
                    // locked, and the piece does not cross its end.
                    unsafe { copy_out(from, to) };
                }
            });
        })
    }

    /// Writes bytes; as [`Self::read`].
    ///
    /// # Errors
    ///
    /// [`Miss`].
    pub fn write(&self, at: usize, from: Piece<'_>) -> Result<(), Miss> {
        self.access(at, from.len(), true, |pages, at| {
            let page = |i| pages.get(i).and_then(|page: &Entry| page.page());

            pieces(PAGE_SHIFT as u32, at, from.len(), page, |to, done, n| {
                // SAFETY: As in `read()`; the page may be written.
                unsafe { from.copy_part(done, n, to) };
            });
        })
    }

    /// Calls `f` with a word, whose address has to be a multiple of eight; as [`Self::write`].
    ///
    /// # Errors
    ///
    /// [`Miss`].
    pub fn word<R>(&self, at: usize, f: impl FnOnce(&Atomic<u64>) -> R) -> Result<R, Miss> {
        if (self.first() + at) % 8 != 0 {
            return Err(Miss::Never);
        }
        self.access(at, 8, true, |pages, at| {
            let page = pages.first().and_then(|page| page.page());
            let ptr = page.ok_or(Miss::Never)?.as_ptr().wrapping_add(at).cast();

            // SAFETY: By the type invariant the page is there as long as the table is locked, and
            // may be written; an aligned word does not cross its end.
            Ok(f(unsafe { Atomic::<u64>::from_ptr(ptr) }))
        })?
    }

    /// Makes a range available, for as long as the process's memory management lets it.
    ///
    /// # Context
    ///
    /// Process context, may sleep, for as long as it takes to read the pages.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there is no such memory in the process, or it may not be accessed so; `EINVAL`
    /// if the process has ended, `EINTR` if the current one is being killed.
    #[doc(alias = "ib_umem_odp_map_dma_and_lock")]
    #[inline]
    pub fn fault(&self, at: usize, len: usize, want: Want) -> Result {
        let end = at.checked_add(len).filter(|end| *end <= self.len);
        let end = self.start + end.ok_or(EFAULT)?;
        let mut va = self.start + at;

        while va < end {
            // SAFETY: Always safe to call.
            if unsafe { bindings::rdma_current_is_killed() } {
                return Err(EINTR);
            }
            // Up to a page boundary, so that no page is looked at twice.
            let next = ((va & PAGE_MASK) + STRIDE).min(end);

            match self.fault_some(va, next - va, want) {
                // It was changed all the time.
                Err(e) if e == EBUSY => {}
                result => result?,
            }
            va = next;
        }
        Ok(())
    }

    #[inline]
    fn fault_some(&self, va: usize, len: usize, want: Want) -> Result {
        let raw = self.raw.0.as_ptr();
        let mask = match want {
            Want::Write => bindings::hmm_pfn_flags_HMM_PFN_WRITE as u64,
            Want::Read | Want::Present => 0,
        };
        // SAFETY: The registration is valid. With success the mutex is held.
        let count = unsafe {
            bindings::ib_umem_odp_map_dma_and_lock(
                raw,
                va as u64,
                len as u64,
                mask,
                want != Want::Present,
            )
        };

        to_result(count)?;

        let all = self.take_over(va, count as usize, want);

        // SAFETY: It was locked by the call above.
        unsafe { bindings::mutex_unlock(&raw mut (*raw).umem_mutex) };
        if all {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Puts pages that the core has found into the table, with the mutex held. Returns whether all
    /// are what was wanted.
    fn take_over(&self, va: usize, count: usize, want: Want) -> bool {
        let first = (va >> PAGE_SHIFT) - (self.start >> PAGE_SHIFT);
        let _bh = bh::disable();
        let mut table = self.table.lock();
        let mut all = true;

        for (i, entry) in table.iter_mut().enumerate().skip(first).take(count) {
            // SAFETY: The list of the core has as many entries as the table. The mutex is held, and
            // nothing was invalidated since they were written.
            let new = unsafe {
                bindings::rdma_hmm_pfn_entry(*(*self.raw.0.as_ptr()).map.pfn_list.add(i))
            };

            if new != 0 {
                // INVARIANT: As the core says, this is the page now. If there was an entry it was
                // of the same page, or it would have been taken out.
                entry.0 = new | (entry.0 & Entry::DIRTY);
            }
            all &= entry.allows(want == Want::Write) || want == Want::Present;
        }
        all
    }

    /// Takes out all entries of a range of the table. With the mutex held, and when the pages still
    /// are those of the process.
    fn forget(&self, range: Range<usize>) {
        let mut next = range.start;

        while let Some((at, entry)) = self.take_next(next..range.end) {
            next = at + 1;
            if let (Some(page), true) = (entry.page(), entry.0 & Entry::DIRTY != 0) {
                // SAFETY: The page still belongs to the process.
                unsafe { bindings::rdma_page_dirty(page.as_ptr().cast()) };
            }
        }
    }

    /// Takes out the next entry of a range; `None` if there is none.
    fn take_next(&self, range: Range<usize>) -> Option<(usize, Entry)> {
        /// How many are looked at with the lock held.
        const SOME: usize = 1024;

        let mut at = range.start;

        while at < range.end {
            let end = range.end.min(at + SOME);
            let _bh = bh::disable();
            let mut table = self.table.lock();
            let found = table
                .get_mut(at..end)?
                .iter_mut()
                .zip(at..)
                .find(|(entry, _)| entry.0 != 0);

            if let Some((entry, at)) = found {
                return Some((at, core::mem::take(entry)));
            }
            at = end;
        }
        None
    }

    /// Takes out all pages of a range of addresses; as [`Self::forget`].
    fn invalidate(&self, start: usize, end: usize) {
        let base = self.start >> PAGE_SHIFT;
        let count = (self.first() + self.len).div_ceil(PAGE_SIZE);
        let page = |addr: usize| (addr >> PAGE_SHIFT).saturating_sub(base).min(count);

        self.forget(page(start)..page(end.saturating_add(PAGE_SIZE - 1)));
    }
}

#[pinned_drop]
impl PinnedDrop for OnDemand {
    fn drop(self: Pin<&mut Self>) {
        let this = self.into_ref();

        this.raw.locked(|| {
            // Of what the process still has.
            this.invalidate(0, usize::MAX);
            // SAFETY: The registration is valid; the mutex is held.
            unsafe { (*this.raw.0.as_ptr()).private = core::ptr::null_mut() };
        });
    }
}

/// What memory management calls.
static OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
    invalidate: Some(invalidate),
    ..pin_init::zeroed()
};

/// Memory management is about to change a range.
///
/// # Safety
///
/// Only memory management may call it, for a notifier of a registration that was made with [`OPS`].
unsafe extern "C" fn invalidate(
    notifier: *mut bindings::mmu_interval_notifier,
    range: *const bindings::mmu_notifier_range,
    seq: c_ulong,
) -> bool {
    // SAFETY: `range` is valid.
    if !unsafe { bindings::mmu_notifier_range_blockable(range) } {
        return false;
    }
    // SAFETY: The notifier is that of a registration.
    let raw = unsafe { container_of!(notifier, bindings::ib_umem_odp, notifier) };
    // SAFETY: As above; it is not released before this has returned.
    let mutex = unsafe { &raw mut (*raw).umem_mutex };

    // SAFETY: The mutex was initialised before the notifier was added. It is held for the rest, so
    // that by the type invariant of `OnDemand` the pointer is null or valid.
    unsafe {
        bindings::mutex_lock(mutex);
        bindings::mmu_interval_set_seq(notifier, seq);
        if let Some(this) = (*raw).private.cast::<OnDemand>().as_ref() {
            this.invalidate((*range).start, (*range).end);
        }
        bindings::mutex_unlock(mutex);
    }
    true
}
