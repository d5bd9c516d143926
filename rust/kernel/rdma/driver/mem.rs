// SPDX-License-Identifier: GPL-2.0

//! Memory that a software device reads and writes.
//!
//! Whoever this memory belongs to, a process or a client in the kernel, may change it at any time.
//! So there are no references to it here, only copies of bytes and atomic accesses to words.
//!
//! The devices that this is for use virtual addresses of the kernel where others use DMA addresses
//! (`CONFIG_INFINIBAND_VIRT_DMA`), so all memory is mapped at all times.

use crate::{
    bindings,
    error::from_err_ptr,
    ffi::c_int,
    mm::virt::VmaNew,
    prelude::*,
    rdma::device::Device,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

/// Does what races with others on purpose, which KCSAN is not to report: `data_race()` of C.
///
/// That is for memory of which a process says when who uses it, or nobody does: two queue pairs
/// that receive into the same buffer make a race of the process, if it is one. Not more than a
/// copy goes in here, as what it does to other memory is not looked at either.
#[inline(always)]
fn data_race<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(CONFIG_KCSAN)]
    // SAFETY: This may be called anywhere, and is undone below.
    unsafe {
        bindings::kcsan_disable_current()
    };
    let result = f();

    #[cfg(CONFIG_KCSAN)]
    // SAFETY: It was disabled above, by the same task.
    unsafe {
        bindings::kcsan_enable_current()
    };
    result
}

/// Copies bytes from memory that others may change meanwhile.
///
/// # Safety
///
/// `from` must be valid for reading as many bytes as `to` has.
#[inline]
pub(super) unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    let copy = to.as_mut_ptr();

    // SAFETY: By the requirement of this function.
    data_race(|| unsafe { bindings::memcpy(copy.cast(), from.cast(), to.len()) });
    // The compiler knows what `memcpy()` does, and might read from the original again when it is
    // asked for what is in the copy. So that it has to take that from the copy, it is told that it
    // may be something else by now.
    // SAFETY: This is no instruction at all.
    unsafe { core::arch::asm!("/* {0} */", in(reg) copy, options(nostack, preserves_flags)) };
}

/// Copies bytes to memory that others may access meanwhile.
///
/// # Safety
///
/// `to` must be valid for writing as many bytes as `from` has.
#[inline]
unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    // SAFETY: As in `copy_out()`.
    data_race(|| unsafe { bindings::memcpy(to.cast(), from.as_ptr().cast(), from.len()) });
}

/// A piece of memory that is to be read, and that others may change meanwhile.
///
/// # Invariants
///
/// `ptr` is valid for reading `len` bytes during `'a`. If `apart` is set, nobody writes to them.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    ptr: *const u8,
    len: usize,
    apart: bool,
    _lender: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        // INVARIANT: That is true of all slices.
        Self {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
            apart: true,
            _lender: PhantomData,
        }
    }
}

impl Piece<'_> {
    /// Makes one.
    ///
    /// # Safety
    ///
    /// `ptr` must be valid for reading `len` bytes as long as the piece is used.
    #[inline]
    unsafe fn new(ptr: *const u8, len: usize) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            ptr,
            len,
            apart: false,
            _lender: PhantomData,
        }
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

    /// A part of it, if there is one.
    #[inline]
    pub(super) fn part(&self, at: usize, n: usize) -> Option<Self> {
        at.checked_add(n).filter(|end| *end <= self.len)?;
        // INVARIANT: It is a part of what is valid.
        Some(Self {
            ptr: self.ptr.wrapping_add(at),
            len: n,
            ..*self
        })
    }

    /// Copies a part of it, which may be the same memory as what it is copied to. Nothing is done
    /// if there is no such part.
    ///
    /// # Safety
    ///
    /// `to` must be valid for writing `n` bytes.
    #[inline]
    pub(super) unsafe fn copy_part(&self, at: usize, n: usize, to: *mut u8) {
        if at.checked_add(n).is_none_or(|end| end > self.len) {
            return;
        }

        let from = self.ptr.wrapping_add(at).cast();

        if self.apart {
            // SAFETY: By the type invariant, the check, and the requirement of this function. What
            // is written here is not the piece, to which nobody writes.
            data_race(|| unsafe { bindings::memcpy(to.cast(), from, n) });
        } else {
            // SAFETY: As above, but for the last; as in `copy_out()`.
            data_race(|| unsafe { bindings::memmove(to.cast(), from, n) });
        }
    }
}

/// The right to access all memory of the kernel by its address.
///
/// Work requests of clients in the kernel name memory so. Only what makes a region for them gets
/// one of these ([`Operations::get_dma_mr`](super::Operations::get_dma_mr)).
///
/// # Invariants
///
/// Whoever names an address and the key of the region that has this value has said that there is
/// memory. The driver must make sure that nobody but clients in the kernel, and those that these
/// give the key to, can do so: by the protection domain.
pub struct KernelMemory(());

impl KernelMemory {
    #[inline]
    pub(super) fn new() -> Self {
        Self(())
    }

    /// Reads bytes.
    #[inline]
    pub fn read(&self, addr: u64, to: &mut [u8]) {
        let from = core::ptr::with_exposed_provenance::<u8>(addr as usize);

        // SAFETY: By the type invariant.
        unsafe { copy_out(from, to) };
    }

    /// Writes bytes.
    #[inline]
    pub fn write(&self, addr: u64, from: Piece<'_>) {
        let to = core::ptr::with_exposed_provenance_mut::<u8>(addr as usize);

        // SAFETY: By the type invariant.
        unsafe { from.copy_part(0, from.len(), to) };
    }

    /// Calls `f` with memory to read it.
    #[inline]
    pub fn lend(&self, addr: u64, len: usize, f: impl FnOnce(Piece<'_>)) {
        let from = core::ptr::with_exposed_provenance::<u8>(addr as usize);

        // SAFETY: By the type invariant.
        f(unsafe { Piece::new(from, len) });
    }

    /// Calls `f` with the word at an address; `None` if the address is no multiple of eight.
    #[inline]
    pub fn word<R>(&self, addr: u64, f: impl FnOnce(&Atomic<u64>) -> R) -> Option<R> {
        if addr % 8 != 0 {
            return None;
        }
        let ptr = core::ptr::with_exposed_provenance_mut::<u64>(addr as usize);

        // SAFETY: By the type invariant; `ptr` is aligned.
        Some(f(unsafe { Atomic::from_ptr(ptr) }))
    }
}

/// Calls `f` for each piece of a range that lies in blocks of `1 << shift` bytes, of which `block`
/// says where they are. Returns false if there is no such block; then it was called for those
/// before.
#[inline]
pub(super) fn pieces(
    shift: u32,
    at: usize,
    len: usize,
    block: impl Fn(usize) -> Option<NonNull<u8>>,
    mut f: impl FnMut(*mut u8, usize, usize),
) -> bool {
    let size = 1usize << shift;
    let mut done = 0;

    while done < len {
        let pos = at + done;
        let off = pos & (size - 1);
        let n = (size - off).min(len - done);
        let Some(base) = block(pos >> shift) else {
            return false;
        };

        f(base.as_ptr().wrapping_add(off), done, n);
        done += n;
    }
    true
}

/// Pinned pages of a process.
///
/// Wraps the kernel's C `struct ib_umem`.
///
/// # Invariants
///
/// `raw` is ours to release, and `pages` are the addresses of its pages.
pub struct Umem {
    raw: NonNull<bindings::ib_umem>,
    pages: KVVec<NonNull<u8>>,
    start: usize,
    offset: usize,
    len: usize,
    writable: bool,
}

// SAFETY: Pages can be accessed and released by any thread.
unsafe impl Send for Umem {}

// SAFETY: As above; all accesses are copies or atomic.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins memory of the current process for a device.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if there is no such memory, `ENOMEM` if there is not enough memory or the process
    /// may not pin so much.
    #[doc(alias = "ib_umem_get")]
    #[inline]
    pub fn get(dev: &Device, addr: u64, len: u64, access: u32) -> Result<Self> {
        let (addr, len) = (usize::try_from(addr)?, usize::try_from(len)?);

        // SAFETY: The device is valid. The other arguments are checked by the function.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_get_attr_or_va(
                dev.as_raw(),
                core::ptr::null(),
                0,
                addr as u64,
                len,
                access as c_int,
            )
        })?;
        // INVARIANT: It was made just now; there are no pages yet.
        let mut this = Self {
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            pages: KVVec::new(),
            start: addr,
            offset: addr & (crate::page::PAGE_SIZE - 1),
            len,
            // SAFETY: It was made just now.
            writable: unsafe { (*raw).writable() } != 0,
        };
        let count = (this.offset + len).div_ceil(crate::page::PAGE_SIZE);

        this.pages.reserve(count, GFP_KERNEL)?;
        // SAFETY: `raw` is valid and ours.
        let table = unsafe { &raw mut (*raw).sgt_append.sgt };
        let mut iter = bindings::sg_page_iter::default();

        // SAFETY: The table is that of `raw`.
        unsafe { bindings::__sg_page_iter_start(&mut iter, (*table).sgl, (*table).orig_nents, 0) };
        // SAFETY: The iterator was started, and the list lives as long as `raw`.
        while unsafe { bindings::__sg_page_iter_next(&mut iter) } {
            // SAFETY: The iterator stands at a page.
            let page = unsafe { bindings::rdma_sg_page_iter_addr(&mut iter) };

            // INVARIANT: This is the address of the page.
            this.pages
                .push(NonNull::new(page.cast()).ok_or(EFAULT)?, GFP_KERNEL)?;
        }
        if this.pages.len() < count {
            return Err(EFAULT);
        }
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

    #[inline]
    fn walk(&self, at: usize, len: usize, f: impl FnMut(*mut u8, usize, usize)) -> bool {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return false;
        }
        pieces(
            crate::page::PAGE_SHIFT as u32,
            self.offset + at,
            len,
            |i| self.pages.get(i).copied(),
            f,
        )
    }

    /// Reads bytes; returns false if the range is not part of it.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> bool {
        self.walk(at, to.len(), |from, done, n| {
            if let Some(to) = to.get_mut(done..done + n) {
                // SAFETY: By the type invariant the page is there, and the piece does not cross its
                // end.
                unsafe { copy_out(from, to) };
            }
        })
    }

    /// Writes bytes; returns false if the range is not part of it, or may only be read.
    #[inline]
    pub fn write(&self, at: usize, from: Piece<'_>) -> bool {
        self.writable
            && self.walk(at, from.len(), |to, done, n| {
                // SAFETY: As in `read()`; the page may be written.
                unsafe { from.copy_part(done, n, to) };
            })
    }

    /// Calls `f` with each piece of a range, in order, to read it; returns false if the range is
    /// not part of it.
    #[inline]
    pub fn lend(&self, at: usize, len: usize, mut f: impl FnMut(Piece<'_>)) -> bool {
        self.walk(at, len, |from, _, n| {
            // SAFETY: As in `read()`; the page stays as long as `self`.
            f(unsafe { Piece::new(from, n) });
        })
    }

    /// Calls `f` with a word; `None` if there is none, if it may only be read, or if its address is
    /// no multiple of eight.
    #[inline]
    pub fn word<R>(&self, at: usize, f: impl FnOnce(&Atomic<u64>) -> R) -> Option<R> {
        if !self.writable || (self.offset + at) % 8 != 0 {
            return None;
        }
        let mut ptr = core::ptr::null_mut();

        if !self.walk(at, 8, |p, _, _| ptr = p) || ptr.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the page is there, and an aligned word does not cross its
        // end.
        Some(f(unsafe { Atomic::from_ptr(ptr.cast::<u64>()) }))
    }
}

impl Drop for Umem {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
    }
}

/// Memory of a client in the kernel that is registered by a work request.
///
/// The client says what it is while the region is not registered, and keeps the memory until it
/// has made the region invalid. One that does not is a bug in the kernel. All fields are atomic, so
/// that a late packet that races with such a change reads an old or a new address.
///
/// # Invariants
///
/// The first `count` slots are addresses of blocks of `1 << shift` bytes that the client has named.
pub struct FastPages {
    slots: KVVec<Atomic<usize>>,
    count: Atomic<u32>,
    shift: Atomic<u32>,
}

impl FastPages {
    /// Makes it with room for `max` blocks.
    #[inline]
    pub(super) fn new(max: u32) -> Result<Self> {
        let mut slots = KVVec::with_capacity(max as usize, GFP_KERNEL)?;

        for _ in 0..max {
            slots.push(Atomic::new(0), GFP_KERNEL)?;
        }
        // INVARIANT: There are no blocks.
        Ok(Self {
            slots,
            count: Atomic::new(0),
            shift: Atomic::new(crate::page::PAGE_SHIFT as u32),
        })
    }

    /// Forgets all blocks; those that come have this size.
    #[inline]
    pub(super) fn restart(&self, size: u32) {
        self.count.store(0, Relaxed);
        self.shift.store(size.trailing_zeros().min(30), Relaxed);
    }

    /// Adds a block.
    #[inline]
    pub(super) fn push(&self, addr: u64) -> Result {
        let n = self.count.load(Relaxed);

        self.slots
            .get(n as usize)
            .ok_or(ENOMEM)?
            .store(addr as usize, Relaxed);
        // INVARIANT: This is the address that the client has named.
        self.count.store(n + 1, Release);
        Ok(())
    }

    /// How many bytes all blocks have.
    #[inline]
    pub fn bytes(&self) -> usize {
        (self.count.load(Acquire) as usize) << self.shift.load(Relaxed)
    }

    /// The part of an address that is the offset in a block.
    #[inline]
    pub fn offset_of(&self, addr: u64) -> usize {
        (addr as usize) & ((1 << self.shift.load(Relaxed)) - 1)
    }

    #[inline]
    fn walk(&self, at: usize, len: usize, f: impl FnMut(*mut u8, usize, usize)) -> bool {
        if at.checked_add(len).is_none_or(|end| end > self.bytes()) {
            return false;
        }
        pieces(
            self.shift.load(Relaxed),
            at,
            len,
            |i| {
                let addr = self.slots.get(i)?.load(Relaxed);

                NonNull::new(core::ptr::with_exposed_provenance_mut(addr))
            },
            f,
        )
    }

    /// Reads bytes, counted from the start of the first block; returns false if there are not so
    /// many.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> bool {
        self.walk(at, to.len(), |from, done, n| {
            if let Some(to) = to.get_mut(done..done + n) {
                // SAFETY: By the type invariant; the piece does not cross the end of a block.
                unsafe { copy_out(from, to) };
            }
        })
    }

    /// Writes bytes; as [`Self::read`].
    #[inline]
    pub fn write(&self, at: usize, from: Piece<'_>) -> bool {
        self.walk(at, from.len(), |to, done, n| {
            // SAFETY: By the type invariant; the piece does not cross the end of a block.
            unsafe { from.copy_part(done, n, to) };
        })
    }

    /// Calls `f` with each piece of a range, in order, to read it; as [`Self::read`].
    #[inline]
    pub fn lend(&self, at: usize, len: usize, mut f: impl FnMut(Piece<'_>)) -> bool {
        self.walk(at, len, |from, _, n| {
            // SAFETY: By the type invariant; the client keeps its memory while it is registered.
            f(unsafe { Piece::new(from, n) });
        })
    }

    /// Calls `f` with a word; `None` if there is none, or its address is no multiple of eight.
    #[inline]
    pub fn word<R>(&self, at: usize, f: impl FnOnce(&Atomic<u64>) -> R) -> Option<R> {
        let (mut ptr, mut len) = (core::ptr::null_mut::<u8>(), 0);

        if !self.walk(at, 8, |p, _, n| (ptr, len) = (p, n)) || len != 8 || ptr.addr() % 8 != 0 {
            return None;
        }
        // SAFETY: By the type invariant; the word is aligned and does not cross the end of a block.
        Some(f(unsafe { Atomic::from_ptr(ptr.cast::<u64>()) }))
    }
}

/// Memory of the kernel that user space can map.
///
/// # Examples
///
/// ```
/// use kernel::rdma::driver::mem::UserBuf;
///
/// let buf = UserBuf::new(16)?;
/// let mut copy = [0; 4];
///
/// buf.copy_in(8, &7u64.to_ne_bytes());
/// assert_eq!(buf.words::<2>(0), Some([0, 7]));
/// buf.copy_out(8, &mut copy);
/// assert_eq!(copy, 7u64.to_ne_bytes()[..4]);
///
/// // Not a multiple of eight, and beyond the end.
/// assert_eq!(buf.words::<1>(4), None);
/// assert_eq!(buf.words::<2>(buf.len() - 8), None);
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `ptr` is the start of `len` bytes from `vmalloc_user()` that are ours to free. A process that
/// maps them reads and writes them as it likes; pages that are mapped stay when they are freed.
pub struct UserBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: The memory can be accessed and freed by any thread.
unsafe impl Send for UserBuf {}

// SAFETY: As above; all accesses are copies or atomic.
unsafe impl Sync for UserBuf {}

impl UserBuf {
    /// Allocates zeroed memory, whole pages of it.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[doc(alias = "vmalloc_user")]
    pub fn new(len: usize) -> Result<Self> {
        let len = len
            .checked_next_multiple_of(crate::page::PAGE_SIZE)
            .ok_or(EINVAL)?;
        // SAFETY: There are no requirements.
        let ptr = unsafe { bindings::rdma_vmalloc_user(len) };

        // INVARIANT: It was allocated just now.
        Ok(Self {
            ptr: NonNull::new(ptr.cast()).ok_or(ENOMEM)?,
            len,
        })
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing; there always is something.
    #[inline]
    pub fn is_empty(&self) -> bool {
        false
    }

    #[inline]
    fn range(&self, at: usize, len: usize) -> Option<*mut u8> {
        at.checked_add(len)
            .filter(|&end| end <= self.len)
            .map(|_| self.ptr.as_ptr().wrapping_add(at))
    }

    /// A word at an offset; `None` if there is none or the offset is no multiple of four.
    #[inline]
    pub fn word(&self, at: usize) -> Option<&Atomic<u32>> {
        let ptr = self.range(at, 4).filter(|_| at % 4 == 0)?;

        // SAFETY: By the type invariant the memory is there as long as `self`; it is aligned, since
        // it starts with a page.
        Some(unsafe { Atomic::from_ptr(ptr.cast::<u32>()) })
    }

    /// Reads bytes; nothing if there are not so many.
    #[inline]
    pub fn copy_out(&self, at: usize, to: &mut [u8]) {
        if let Some(from) = self.range(at, to.len()) {
            // SAFETY: By the type invariant.
            unsafe { copy_out(from, to) };
        }
    }

    /// Reads words, each once; `None` if there are not so many, or the offset is no multiple of
    /// eight. For what has a size that the compiler knows this is faster than
    /// [`copy_out`](Self::copy_out).
    #[inline]
    pub fn words<const N: usize>(&self, at: usize) -> Option<[u64; N]> {
        let ptr = self
            .range(at, N * size_of::<u64>())
            .filter(|_| at % 8 == 0)?
            .cast::<u64>();

        Some(core::array::from_fn(|i| {
            // SAFETY: By the type invariant all words of the range are there as long as `self`, and
            // they are aligned, since the memory starts with a page.
            unsafe { Atomic::from_ptr(ptr.wrapping_add(i)) }.load(Relaxed)
        }))
    }

    /// Writes bytes; nothing if there are not so many.
    #[inline]
    pub fn copy_in(&self, at: usize, from: &[u8]) {
        if let Some(to) = self.range(at, from.len()) {
            // SAFETY: By the type invariant.
            unsafe { copy_in(to, from) };
        }
    }

    /// Sets bytes to 0; nothing if there are not so many.
    pub fn zero(&self, at: usize, len: usize) {
        if let Some(to) = self.range(at, len) {
            // SAFETY: By the type invariant.
            unsafe { bindings::memset(to.cast(), 0, len) };
        }
    }
}

impl Drop for UserBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::vfree(self.ptr.as_ptr().cast()) };
    }
}

/// A request of a process to map memory of the driver.
pub struct MapRequest<'a>(&'a VmaNew);

impl<'a> MapRequest<'a> {
    #[inline]
    pub(super) fn new(vma: &'a VmaNew) -> Self {
        Self(vma)
    }

    /// The offset, which the driver has chosen.
    #[inline]
    pub fn offset(&self) -> u64 {
        // SAFETY: The VMA is valid, and does not change while it is set up.
        let pgoff = unsafe { (*self.0.as_ptr()).vm_pgoff };

        (pgoff as u64) << crate::page::PAGE_SHIFT
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.end() - self.0.start()
    }

    /// Whether that is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maps `buf`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the process wants more than there is.
    #[doc(alias = "remap_vmalloc_range")]
    pub fn map(&self, buf: &UserBuf) -> Result {
        if self.len() > buf.len() {
            return Err(EINVAL);
        }
        // SAFETY: The VMA is being set up, and the memory comes from `vmalloc_user()`.
        crate::error::to_result(unsafe {
            bindings::remap_vmalloc_range(self.0.as_ptr(), buf.ptr.as_ptr().cast(), 0)
        })
    }
}
