// SPDX-License-Identifier: GPL-2.0-only

//! Registrations of user memory that take other memory from the children of fork.
//!
//! Who wants to fork with registered memory marks it `MADV_DONTFORK`. That works on whole pages,
//! so what else is on the first and on the last page is gone in the child too. Nothing fails where
//! it happens: the child dies later, when it touches what it lost, which may be the state of its
//! memory allocator. Only here everything that matters is known: exactly which bytes are
//! registered, and whether the pages that they are on are left out at fork.
//!
//! Looked at are the two mappings at the ends of the registration and nothing else; the pages in
//! between are covered. This is a check, not a lock: when another thread changes its mappings
//! while this one registers, either answer is right.
//!
//! Nothing has to be looked at where no address is given. The memory of a DMA buffer has a file of
//! its own, its mappings are shared, and the registration names none of them. An implicit ODP
//! registration is all of the address space.
//!
//! See `Documentation/infiniband/fork-safety.rst`.

use core::ops::Range;
use kernel::{
    bindings,
    current,
    dev_warn,
    ffi::c_int,
    mm::{
        virt::{
            flags,
            VmaRef, //
        },
        MmWithUser, //
    },
    page::PAGE_SIZE,
    prelude::*,
    rdma::{
        device::Device,
        umem::{
            self,
            Loss,
            Policy, //
        },
    },
    sync::atomic::Relaxed, //
};

#[path = "umem_fork_rust/cover.rs"]
mod cover;

use cover::Uncovered;

/// Looks whether a registration takes other memory from the children of fork.
///
/// To be called before anything is pinned. Returns zero if it may go on, or `-EINVAL`.
///
/// # Safety
///
/// `device` must be a registered device.
///
/// # Context
///
/// Process context of the owner of the memory, may sleep.
#[export]
pub unsafe extern "C" fn ib_umem_check_fork(
    device: *mut bindings::ib_device,
    addr: usize,
    size: usize,
) -> c_int {
    // SAFETY: The caller promises that `device` is valid.
    let device = unsafe { Device::from_raw(device) };

    match check(device, addr, size) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

fn check(device: &Device, addr: usize, size: usize) -> Result {
    let policy = umem::policy();

    if policy == Policy::Off {
        return Ok(());
    }
    // What is empty or beyond the end of all memory is refused by others.
    let Some(end) = addr.checked_add(size).filter(|_| size != 0) else {
        return Ok(());
    };
    let current = current!();
    let Some(mm) = current.mm() else {
        return Ok(());
    };
    let range = addr..end;

    if is_copied(mm, &range) {
        return Ok(());
    }
    look_closer(device, mm, &range, policy)
}

/// Whether `edge` is the edge of a page, whatever mapping it is in.
///
/// Where there are mappings with huge pages an address says nothing.
fn is_edge(edge: usize) -> bool {
    !cfg!(CONFIG_HUGETLB_PAGE) && edge % PAGE_SIZE == 0
}

/// Whether both ends of `range`, which is not empty, are certainly on pages that are copied at
/// fork, or at the edges of pages.
///
/// This is all that happens with ordinary memory, so it has to be fast.
fn is_copied(mm: &MmWithUser, range: &Range<usize>) -> bool {
    let last_byte = range.end - 1;
    let mut until = range.start;

    if !is_edge(range.start) {
        match umem::glimpse(mm, range.start) {
            Some(first) if first.flags & flags::DONTCOPY == 0 => until = first.end,
            _ => return false,
        }
    }
    last_byte < until
        || is_edge(range.end)
        || umem::glimpse(mm, last_byte).is_some_and(|last| last.flags & flags::DONTCOPY == 0)
}

#[cold]
fn look_closer(device: &Device, mm: &MmWithUser, range: &Range<usize>, policy: Policy) -> Result {
    let lost = uncovered(mm, range);

    if lost.is_nothing() {
        return Ok(());
    }
    report(device, mm, range, lost, policy)
}

/// An end of a registration as its mapping shows it.
struct End {
    /// The size of its pages if they are not copied at fork.
    lost: Option<usize>,
    /// Where the mapping ends.
    until: usize,
}

impl End {
    fn of(vma: &VmaRef) -> Self {
        // Shared memory has a name by which the child can find it again, and device memory cannot
        // be registered in this way.
        let exempt = flags::SHARED | flags::MAYSHARE | flags::IO | flags::PFNMAP;
        let lost = vma.flags() & flags::DONTCOPY != 0 && vma.flags() & exempt == 0;

        Self {
            lost: lost.then(|| umem::page_size(vma)),
            until: vma.end(),
        }
    }

    /// Looks at the mapping at `addr`, unless it is certain that `edge` is an edge of its pages.
    fn look(mm: &MmWithUser, edge: usize, addr: usize) -> Option<Self> {
        if is_edge(edge) {
            return None;
        }
        umem::with_mapping(mm, addr, Self::of)
    }
}

/// What of the first and the last page of `range`, which is not empty, children do not get.
fn uncovered(mm: &MmWithUser, range: &Range<usize>) -> Uncovered {
    let last_byte = range.end - 1;
    let first = End::look(mm, range.start, range.start);
    let last = match &first {
        Some(first) if last_byte < first.until => first.lost,
        _ => End::look(mm, range.end, last_byte).and_then(|last| last.lost),
    };

    Uncovered::new(range, first.and_then(|first| first.lost), last)
}

fn report(
    device: &Device,
    mm: &MmWithUser,
    range: &Range<usize>,
    lost: Uncovered,
    policy: Policy,
) -> Result {
    let rejected = policy == Policy::Reject;
    let Uncovered { before, behind } = lost;
    let at = if before != 0 {
        range.start
    } else {
        range.end - 1
    };
    // It may have been unmapped since, and then it is nothing to talk about.
    let Some(name) = umem::with_mapping(mm, at, umem::mapping_name) else {
        return Ok(());
    };

    device.dontfork_partial().fetch_add(1, Relaxed);
    let loss = Loss {
        range,
        before,
        behind,
        name: &name,
        rejected,
    };
    loss.trace(device);
    if umem::may_print() {
        dev_warn!(
            device.as_dev(),
            "{}[{}]: {} 0x{:x}-0x{:x} of {}, which is MADV_DONTFORK: \
             forked children lose {} bytes before it and {} behind it\n",
            umem::program_name().as_bstr(),
            current!().tgid(),
            if rejected { "refused" } else { "registered" },
            range.start,
            range.end,
            name.as_bstr(),
            before,
            behind,
        );
    }
    if rejected {
        Err(EINVAL)
    } else {
        Ok(())
    }
}
