// SPDX-License-Identifier: GPL-2.0

//! A library for `LD_PRELOAD` that tells who loses memory at fork because of RDMA.
//!
//! It stands in front of the functions of libibverbs that register memory and in front of
//! `madvise()`. What it finds it prints; with `FORKGUARD_POLICY=reject` the call fails too. See
//! `Documentation/infiniband/fork-safety.rst`.
//!
//! In children of fork nothing is looked at: they are the ones who lose.

mod guard;
mod heap;
#[cfg(test)]
#[path = "../tests/json/mod.rs"]
mod json;
mod maps;
mod pages;
mod real;
mod report;
mod sys;

use guard::{guard, Guard, Says};
use real::Symbol;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, Ordering};

/// `IBV_ACCESS_ON_DEMAND`
const ON_DEMAND: c_int = 1 << 6;
/// `IBV_REREG_MR_CHANGE_TRANSLATION`
const CHANGE_TRANSLATION: c_int = 1;
/// `IBV_REG_MR_MASK_ADDR`
const MASK_ADDR: u64 = 1 << 1;

/// The beginning of `struct ibv_mr`.
#[repr(C)]
pub struct IbvMr {
    context: *mut c_void,
    pd: *mut c_void,
    addr: *mut c_void,
    length: usize,
}

/// The beginning of `struct ibv_mr_init_attr`.
#[repr(C)]
pub struct IbvMrInitAttr {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
}

/// The process that this was loaded into.
static OWNER: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The function of libibverbs that this thread is in.
    static INSIDE: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// Whether this thread is in code of ours.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// While the library is being tried out: whether it has marked anything.
    static PROBED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs `f`, unless this is a child or we are in here already; a panic in it changes nothing.
fn look<R>(default: R, f: impl FnOnce(&'static Guard) -> R) -> R {
    if OWNER.load(Ordering::Relaxed) != sys::getpid() {
        return default;
    }
    // Not there any more when a thread ends.
    if BUSY.try_with(|busy| busy.replace(true)).unwrap_or(true) {
        return default;
    }
    let errno = real::errno();
    let result = catch_unwind(AssertUnwindSafe(|| f(guard())));
    real::set_errno(errno);
    let _ = BUSY.try_with(|busy| busy.set(false));
    result.unwrap_or(default)
}

/// Runs `f` as the inside of `call`.
///
/// It gets true if that is not itself called by libibverbs.
fn inside<R>(call: &'static str, f: impl FnOnce(bool) -> R) -> R {
    let outer = INSIDE
        .try_with(|i| i.replace(i.get().or(Some(call))))
        .ok()
        .flatten();
    let result = f(outer.is_none());
    let _ = INSIDE.try_with(|i| i.set(outer));
    result
}

/// Calls the real function, or fails as if there were no device.
macro_rules! call {
    ($symbol:expr, $type:ty, $fail:expr $(, $arg:expr)*) => {
        match $symbol.get() {
            Some(addr) => {
                // SAFETY: This is the function of that name, which has this type.
                let f = unsafe { core::mem::transmute::<*const c_void, $type>(addr) };
                // SAFETY: The caller keeps to what the function requires.
                unsafe { f($($arg),*) }
            }
            None => {
                real::set_errno(sys::ENOSYS);
                $fail
            }
        }
    };
}

/// Whether libibverbs marks what is registered, as far as it is known.
fn says() -> Says {
    if let Some(marks) = probe() {
        return if marks { Says::Marks } else { Says::Not };
    }
    static REAL: Symbol = Symbol::new(c"ibv_is_fork_initialized");
    if REAL.get().is_none() {
        return Says::Nothing;
    }
    match call!(REAL, unsafe extern "C" fn() -> c_int, 0) {
        1 => Says::Marks,
        2 => Says::Not,
        _ => Says::Nothing,
    }
}

/// Lets the library mark a page that nobody needs, and looks whether it does.
///
/// What it says is not enough: rdma-core 44 says that nothing has to be marked and does it, and
/// what another preloaded library says in its place need not be so either.
fn probe() -> Option<bool> {
    static DONTFORK: Symbol = Symbol::new(c"ibv_dontfork_range");
    static DOFORK: Symbol = Symbol::new(c"ibv_dofork_range");
    type Fn = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
    DONTFORK.get()?;
    DOFORK.get()?;
    let size = real::page_size();
    let page = real::map(size)?;
    PROBED.set(Some(false));
    if call!(DONTFORK, Fn, -1, page, size) == 0 {
        call!(DOFORK, Fn, -1, page, size);
    }
    let marks = PROBED.take();
    // SAFETY: The page is ours, and nobody uses it.
    unsafe { real::unmap(page, size) };
    marks
}

fn range_of(addr: *mut c_void, length: usize) -> Option<Range<usize>> {
    let start = addr.addr();
    start
        .checked_add(length)
        .filter(|_| length > 0)
        .map(|end| start..end)
}

/// All functions that register memory.
fn register(
    name: &'static str,
    addr: *mut c_void,
    length: usize,
    access: c_int,
    real: impl FnOnce() -> *mut IbvMr,
) -> *mut IbvMr {
    inside(name, |outermost| {
        let Some(range) = range_of(addr, length).filter(|_| outermost) else {
            return real();
        };
        if !look(true, |guard| {
            guard.before_reg(name, &range, access & ON_DEMAND != 0, says())
        }) {
            real::set_errno(sys::EINVAL);
            return std::ptr::null_mut();
        }
        let mr = real();
        let failed = real::errno();
        look((), |guard| {
            if !mr.is_null() {
                guard.after_reg(mr.addr(), range);
            } else if failed == sys::ENOMEM || failed == sys::EAGAIN {
                // The second is what madvise() makes of the first.
                guard.no_memory(name, &range);
            }
        });
        mr
    })
}

/// `ibv_reg_mr()`
///
/// # Safety
///
/// As for the function of libibverbs.
#[no_mangle]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut c_void,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut IbvMr {
    static REAL: Symbol = Symbol::new(c"ibv_reg_mr");
    type Fn = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int) -> *mut IbvMr;
    register("ibv_reg_mr", addr, length, access, || {
        call!(REAL, Fn, std::ptr::null_mut(), pd, addr, length, access)
    })
}

/// `ibv_reg_mr_iova()`
///
/// # Safety
///
/// As for the function of libibverbs.
#[no_mangle]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut c_void,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut IbvMr {
    static REAL: Symbol = Symbol::new(c"ibv_reg_mr_iova");
    type Fn = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64, c_int) -> *mut IbvMr;
    register("ibv_reg_mr_iova", addr, length, access, || {
        call!(
            REAL,
            Fn,
            std::ptr::null_mut(),
            pd,
            addr,
            length,
            iova,
            access
        )
    })
}

/// `ibv_reg_mr_iova2()`
///
/// # Safety
///
/// As for the function of libibverbs.
#[no_mangle]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut c_void,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut IbvMr {
    static REAL: Symbol = Symbol::new(c"ibv_reg_mr_iova2");
    type Fn = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64, c_uint) -> *mut IbvMr;
    // The flags are few, and none of them is the sign.
    let flags = c_int::try_from(access).unwrap_or(0);
    register("ibv_reg_mr_iova2", addr, length, flags, || {
        call!(
            REAL,
            Fn,
            std::ptr::null_mut(),
            pd,
            addr,
            length,
            iova,
            access
        )
    })
}

/// `ibv_reg_mr_ex()`
///
/// # Safety
///
/// As for the function of libibverbs.
#[no_mangle]
pub unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut c_void, attr: *mut IbvMrInitAttr) -> *mut IbvMr {
    static REAL: Symbol = Symbol::new(c"ibv_reg_mr_ex");
    type Fn = unsafe extern "C" fn(*mut c_void, *mut IbvMrInitAttr) -> *mut IbvMr;
    // SAFETY: The caller passes a valid structure.
    let (addr, length, access) = match unsafe { attr.as_ref() } {
        Some(attr) if attr.comp_mask & MASK_ADDR != 0 => (attr.addr, attr.length, attr.access),
        // The memory of a file.
        _ => (std::ptr::null_mut(), 0, 0),
    };
    register("ibv_reg_mr_ex", addr, length, access, || {
        call!(REAL, Fn, std::ptr::null_mut(), pd, attr)
    })
}

/// `ibv_rereg_mr()`
///
/// # Safety
///
/// As for the function of libibverbs.
#[no_mangle]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut c_void,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    static REAL: Symbol = Symbol::new(c"ibv_rereg_mr");
    type Fn =
        unsafe extern "C" fn(*mut IbvMr, c_int, *mut c_void, *mut c_void, usize, c_int) -> c_int;
    /// `IBV_REREG_MR_ERR_INPUT`: nothing was changed.
    const ERR_INPUT: c_int = -1;
    inside("ibv_rereg_mr", |outermost| {
        let real = || call!(REAL, Fn, ERR_INPUT, mr, flags, pd, addr, length, access);
        let range = range_of(addr, length).filter(|_| outermost && flags & CHANGE_TRANSLATION != 0);
        let Some(range) = range else {
            return real();
        };
        let odp = access & ON_DEMAND != 0;
        if !look(true, |guard| {
            guard.before_reg("ibv_rereg_mr", &range, odp, says())
        }) {
            real::set_errno(sys::EINVAL);
            return ERR_INPUT;
        }
        let old = look(None, |guard| guard.before_dereg(mr.addr()));
        let rc = real();
        look((), |guard| {
            if rc == 0 {
                guard.after_reg(mr.addr(), range);
            } else if let Some(old) = old {
                guard.dereg_failed(mr.addr(), old);
            }
        });
        rc
    })
}

/// `ibv_dereg_mr()`
///
/// # Safety
///
/// As for the function of libibverbs.
#[no_mangle]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int {
    static REAL: Symbol = Symbol::new(c"ibv_dereg_mr");
    type Fn = unsafe extern "C" fn(*mut IbvMr) -> c_int;
    inside("ibv_dereg_mr", |_| {
        let handle = mr.addr();
        let old = look(None, |guard| guard.before_dereg(handle));
        let rc = call!(REAL, Fn, sys::ENOSYS, mr);
        if let Some(old) = old.filter(|_| rc != 0) {
            look((), |guard| guard.dereg_failed(handle, old));
        }
        rc
    })
}

/// `ibv_fork_init()`
///
/// # Safety
///
/// None; this is called from C.
#[no_mangle]
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    static REAL: Symbol = Symbol::new(c"ibv_fork_init");
    inside("ibv_fork_init", |_| {
        let rc = call!(REAL, unsafe extern "C" fn() -> c_int, sys::ENOSYS);
        look((), |guard| guard.fork_init(rc));
        rc
    })
}

/// `madvise()`
///
/// # Safety
///
/// As for the function of the C library.
#[no_mangle]
pub unsafe extern "C" fn madvise(addr: *mut c_void, length: usize, advice: c_int) -> c_int {
    // SAFETY: As the caller promises.
    let real = || unsafe { real::madvise(addr, length, advice) };
    let ours = advice == sys::MADV_DONTFORK || advice == sys::MADV_DOFORK;
    let Some(range) = range_of(addr, length).filter(|_| ours) else {
        return real();
    };
    let dontfork = advice == sys::MADV_DONTFORK;
    if PROBED.try_with(Cell::get).ok().flatten().is_some() {
        PROBED.set(PROBED.get().map(|seen| seen || dontfork));
        return real();
    }
    let by = INSIDE.try_with(Cell::get).ok().flatten();
    if dontfork && by.is_none() && !look(true, |guard| guard.before_dontfork(&range)) {
        real::set_errno(sys::EINVAL);
        return -1;
    }
    let rc = real();
    // The library tries it on memory of its own, to see whether the kernel can.
    if rc == 0 && by != Some("ibv_fork_init") {
        look((), |guard| {
            guard.marked(&range, dontfork, by.unwrap_or("madvise"))
        });
    }
    rc
}

extern "C" fn finish() {
    look((), Guard::finish);
}

extern "C" fn start() {
    OWNER.store(sys::getpid(), Ordering::Relaxed);
    // The function stays, since a preloaded library does.
    sys::atexit(finish);
    // Reads the environment while it is what it was.
    look((), |_| ());
}

#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;
