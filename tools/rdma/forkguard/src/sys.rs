// SPDX-License-Identifier: GPL-2.0

//! What is needed of the C library of Linux, declared here.
//!
//! It is little, and so this builds wherever there is a compiler, with no other crate. The values
//! are those of glibc; where they depend on the machine, machines that are not listed do not build.

use std::ffi::{c_char, c_int, c_long, c_void};

/// `errno`
pub(crate) const EAGAIN: c_int = 11;
pub(crate) const ENOMEM: c_int = 12;
pub(crate) const EINVAL: c_int = 22;
pub(crate) const ENOSYS: c_int = 38;

/// Advice of `madvise()`
pub(crate) const MADV_DONTFORK: c_int = 10;
pub(crate) const MADV_DOFORK: c_int = 11;

/// Arguments of `mmap()`
pub(crate) const PROT_READ: c_int = 1;
pub(crate) const MAP_PRIVATE: c_int = 2;
pub(crate) const MAP_ANONYMOUS: c_int = 0x20;

/// Modes of `dlopen()`
pub(crate) const RTLD_NOW: c_int = 2;
pub(crate) const RTLD_NOLOAD: c_int = 4;

/// A name of `sysconf()`
pub(crate) const SC_PAGESIZE: c_int = 30;

/// The number of the system call
pub(crate) const SYS_MADVISE: c_long = if cfg!(target_arch = "x86_64") {
    28
} else if cfg!(any(
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)) {
    233
} else if cfg!(target_arch = "powerpc64") {
    205
} else if cfg!(target_arch = "s390x") {
    219
} else {
    panic!("the number of madvise() is not known for this machine")
};

/// The handle of `dlsym()` for the libraries behind this one.
pub(crate) const RTLD_NEXT: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);
/// What `mmap()` returns when it fails.
pub(crate) const MAP_FAILED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

// SAFETY: These are the prototypes of the C library on 64-bit Linux.
unsafe extern "C" {
    pub(crate) safe fn getpid() -> c_int;
    pub(crate) safe fn sysconf(name: c_int) -> c_long;
    pub(crate) safe fn __errno_location() -> *mut c_int;
    pub(crate) safe fn atexit(function: extern "C" fn()) -> c_int;
    pub(crate) fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
    pub(crate) fn mmap(
        addr: *mut c_void,
        length: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void;
    pub(crate) fn munmap(addr: *mut c_void, length: usize) -> c_int;
    #[cfg(test)]
    pub(crate) safe fn malloc(size: usize) -> *mut c_void;
}
