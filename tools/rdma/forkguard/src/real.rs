// SPDX-License-Identifier: GPL-2.0

//! The functions behind ours.

use crate::sys;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function that is looked up when it is needed first.
pub(crate) struct Symbol {
    name: &'static CStr,
    addr: AtomicUsize,
}

impl Symbol {
    /// Nothing is looked up yet.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            addr: AtomicUsize::new(0),
        }
    }

    /// The address of the next one behind ours. What is not found may come later, by dlopen().
    pub(crate) fn get(&self) -> Option<*const c_void> {
        let mut addr = self.addr.load(Ordering::Relaxed);
        if addr == 0 {
            // SAFETY: The name is a string, and RTLD_NEXT is always allowed.
            addr = unsafe { sys::dlsym(sys::RTLD_NEXT, self.name.as_ptr()) }.expose_provenance();
            if addr == 0 {
                addr = self.in_private_library()?;
            }
            self.addr.store(addr, Ordering::Relaxed);
        }
        Some(std::ptr::with_exposed_provenance(addr))
    }

    /// A library that was loaded for one plugin only is not among the next ones.
    fn in_private_library(&self) -> Option<usize> {
        // SAFETY: A constant string. With RTLD_NOLOAD nothing is run. The reference that this
        // takes is kept, so the address stays valid.
        let library = unsafe {
            sys::dlopen(
                c"libibverbs.so.1".as_ptr(),
                sys::RTLD_NOW | sys::RTLD_NOLOAD,
            )
        };
        if library.is_null() {
            return None;
        }
        // SAFETY: The library is open, the name a string.
        let addr = unsafe { sys::dlsym(library, self.name.as_ptr()) }.expose_provenance();
        (addr != 0).then_some(addr)
    }
}

/// The system call itself: allocators call madvise() where nothing else may be done.
///
/// # Safety
///
/// As for `madvise()`.
pub(crate) unsafe fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: As the caller promises.
    let rc = unsafe { sys::syscall(sys::SYS_MADVISE, addr, len, advice) };
    // It is 0 or -1.
    if rc == 0 {
        0
    } else {
        -1
    }
}

/// The value of errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: The address is valid in the thread.
    unsafe { *sys::__errno_location() }
}

/// Sets errno.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: As above.
    unsafe { *sys::__errno_location() = value }
}

/// The size of ordinary pages.
pub(crate) fn page_size() -> usize {
    let size = sys::sysconf(sys::SC_PAGESIZE);
    // It cannot fail.
    usize::try_from(size)
        .ok()
        .filter(|size| size.is_power_of_two())
        .unwrap_or(4096)
}

/// A page or more of memory that nobody uses.
pub(crate) fn map(size: usize) -> Option<*mut c_void> {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
    // SAFETY: New memory is in nobody's way.
    let addr = unsafe { sys::mmap(std::ptr::null_mut(), size, sys::PROT_READ, flags, -1, 0) };
    (addr != sys::MAP_FAILED).then_some(addr)
}

/// Gives it back.
///
/// # Safety
///
/// `addr` and `size` must be those of [`map`], and nobody may use it any more.
pub(crate) unsafe fn unmap(addr: *mut c_void, size: usize) {
    // SAFETY: As the caller promises.
    unsafe { sys::munmap(addr, size) };
}
