// SPDX-License-Identifier: GPL-2.0

//! Registrations of user memory and the mappings that they are in.
//!
//! This serves `drivers/infiniband/core/umem_fork_rust.rs`, which is part of `ib_core`.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use super::device::Device;
use crate::{
    bindings,
    ffi::{
        c_char,
        c_int, //
    },
    mm::{
        virt::{
            vm_flags_t,
            VmaRef, //
        },
        MmWithUser, //
    },
    str::BStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu, //
    },
    tracepoint::declare_trace, //
};
use core::{
    ops::Range,
    ptr::read_volatile, //
};

/// What happens to registrations that take other memory from the children of fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nothing looks.
    Off,
    /// They are reported.
    Warn,
    /// They are reported and fail.
    Reject,
}

/// The policy that the parameter `dontfork_partial` of `ib_core` has at the moment.
#[inline]
pub fn policy() -> Policy {
    // SAFETY: The variable is as old as the module, aligned, and written with WRITE_ONCE() only.
    let value = unsafe { Atomic::<c_int>::from_ptr(&raw mut bindings::ib_umem_fork_policy) };

    match u32::try_from(value.load(Relaxed)) {
        Ok(bindings::ib_umem_fork_policy_IB_UMEM_FORK_OFF) => Policy::Off,
        Ok(bindings::ib_umem_fork_policy_IB_UMEM_FORK_REJECT) => Policy::Reject,
        _ => Policy::Warn,
    }
}

/// Whether a message may be printed now, for there are not too many already.
#[inline]
pub fn may_print() -> bool {
    // SAFETY: Has no requirements.
    unsafe { bindings::ib_umem_fork_may_print() }
}

/// What [`glimpse`] sees of a mapping.
pub struct Glimpse {
    /// Its flags, as in [`crate::mm::virt::flags`].
    pub flags: vm_flags_t,
    /// Where it ends.
    pub end: usize,
}

/// Looks at the mapping at `addr` without any lock, which is much faster than with one.
///
/// Returns `None` if there is none, or if mappings changed meanwhile so that nothing is certain.
#[inline]
pub fn glimpse(mm: &MmWithUser, addr: usize) -> Option<Glimpse> {
    let _guard = rcu::read_lock();
    let mut seq = 0;

    // SAFETY: A reference is valid.
    if !unsafe { bindings::mmap_lock_speculate_try_begin(mm.as_raw(), &mut seq) } {
        return None;
    }
    // SAFETY: The tree of mappings may be read under RCU.
    let vma = unsafe { bindings::vma_lookup(mm.as_raw(), addr) };
    if vma.is_null() {
        return None;
    }
    // SAFETY: Under RCU the memory of a mapping stays that of a mapping, though perhaps of another
    // one. Others may write, so the reads are volatile; what they give is used only if nobody did.
    let seen = unsafe {
        Glimpse {
            flags: read_volatile(&raw const (*vma).__bindgen_anon_2.vm_flags),
            end: read_volatile(&raw const (*vma).__bindgen_anon_1.__bindgen_anon_1.vm_end),
        }
    };
    // SAFETY: A reference is valid.
    let changed = unsafe { bindings::mmap_lock_speculate_retry(mm.as_raw(), seq) };

    (!changed).then_some(seen)
}

/// Runs `f` on the mapping at `addr` of the current process, if there is one.
///
/// # Context
///
/// Process context, may sleep. The mapping is locked for reading while `f` runs.
#[inline]
pub fn with_mapping<R>(mm: &MmWithUser, addr: usize, f: impl FnOnce(&VmaRef) -> R) -> Option<R> {
    // Most of the time this needs no lock that others may hold.
    if let Some(vma) = mm.lock_vma_under_rcu(addr) {
        return Some(f(&vma));
    }
    mm.mmap_read_lock().vma_lookup(addr).map(f)
}

/// The size of the pages that a mapping can be divided into, a power of two.
///
/// That is the size of its huge pages if it has some; those that are transparent do not count.
#[inline]
pub fn page_size(vma: &VmaRef) -> usize {
    // SAFETY: By the type invariant the mapping is valid and locked.
    unsafe { bindings::vma_kernel_pagesize(vma.as_ptr()) }
}

/// A short string that is made of bytes, with a NUL behind it.
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// Creates a name from what `fill` writes into a buffer of the given size.
    #[inline]
    fn new(fill: impl FnOnce(*mut c_char, usize)) -> Self {
        let mut buf = [0; N];

        fill(buf.as_mut_ptr(), N);
        // What reads it relies on this.
        if let Some(last) = buf.last_mut() {
            *last = 0;
        }
        Self(buf)
    }

    /// The bytes in front of the NUL. They can be anything: the user chooses them.
    #[inline]
    pub fn as_bstr(&self) -> &BStr {
        let len = self.0.iter().position(|&b| b == 0).unwrap_or(N);

        BStr::from_bytes(&self.0[..len])
    }
}

/// The name of a mapping, long enough for the end of a path.
pub type MappingName = Name<128>;

/// The name of a mapping: of its file, `[heap]`, `[stack]` or `[anon]`.
#[inline]
pub fn mapping_name(vma: &VmaRef) -> MappingName {
    Name::new(|buf, size| {
        // SAFETY: By the type invariant the mapping is valid and locked; the buffer is ours.
        unsafe { bindings::ib_umem_fork_vma_name(vma.as_ptr(), buf, size) }
    })
}

/// The name of the program that runs.
#[inline]
pub fn program_name() -> Name<16> {
    Name::new(|buf, size| {
        // SAFETY: The buffer is ours.
        unsafe { bindings::current_comm(buf, size) }
    })
}

declare_trace! {
    /// # Safety
    ///
    /// Both must be valid.
    unsafe fn dontfork_partial(
        device: *const bindings::ib_device,
        loss: *const bindings::ib_umem_fork_loss,
    );
}

/// What a registration takes from the children of fork.
pub struct Loss<'a> {
    /// What is registered.
    pub range: &'a Range<usize>,
    /// How many bytes in front of it are lost.
    pub before: usize,
    /// How many bytes behind it are lost.
    pub behind: usize,
    /// The name of the mapping.
    pub name: &'a MappingName,
    /// Whether the registration fails.
    pub rejected: bool,
}

impl Loss<'_> {
    /// The trace event.
    #[inline]
    pub fn trace(&self, device: &Device) {
        let loss = bindings::ib_umem_fork_loss {
            start: self.range.start,
            end: self.range.end,
            before: self.before,
            behind: self.behind,
            name: self.name.0.as_ptr(),
            rejected: self.rejected,
        };

        // SAFETY: References are valid, and the name ends with a NUL.
        unsafe { dontfork_partial(device.as_raw(), &raw const loss) }
    }
}
