// SPDX-License-Identifier: GPL-2.0-only

//! The bugs of `seed.c` that are in Rust.
//!
//! No lint and no type is in the way of any of them, so that it takes a sanitizer to find them. All
//! have a C name, since that is what a report is looked at for, and are called from C, so that they
//! are not inlined.

use core::cell::UnsafeCell;
use kernel::{
    error::from_result,
    ffi::c_int,
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    }, //
};

/// KASAN: writes to memory that was freed.
#[no_mangle]
pub extern "C" fn seed_kasan() -> c_int {
    let Ok(owner) = KBox::new(0u64, GFP_KERNEL) else {
        return ENOMEM.to_errno();
    };
    let freed = KBox::into_raw(owner);

    // SAFETY: `freed` is of `into_raw()`.
    drop(unsafe { KBox::from_raw(freed) });
    // SAFETY: None: this is the bug.
    unsafe { freed.write_volatile(1) };
    0
}

/// kmemleak: forgets memory.
#[no_mangle]
pub extern "C" fn seed_leak() -> c_int {
    from_result(|| {
        // Of one of them a stack may still have the address.
        for _ in 0..16 {
            core::mem::forget(KBox::new([0u64; 32], GFP_KERNEL)?);
        }
        Ok(0)
    })
}

/// Lockdep: takes two locks in both orders.
#[no_mangle]
pub extern "C" fn seed_lockdep() -> c_int {
    from_result(|| {
        let first = KBox::pin_init(new_mutex!(0, "seed_first"), GFP_KERNEL)?;
        let second = KBox::pin_init(new_mutex!(0, "seed_second"), GFP_KERNEL)?;

        {
            let _first = first.lock();
            let _second = second.lock();
        }
        {
            let _second = second.lock();
            let _first = first.lock();
        }
        Ok(0)
    })
}

/// DEBUG_ATOMIC_SLEEP: takes a mutex under a spinlock.
#[no_mangle]
pub extern "C" fn seed_atomic_sleep() -> c_int {
    from_result(|| {
        let spinlock = KBox::pin_init(new_spinlock!(0, "seed_spinlock"), GFP_KERNEL)?;
        let mutex = KBox::pin_init(new_mutex!(0, "seed_mutex"), GFP_KERNEL)?;
        let _atomic = spinlock.lock();
        let _sleeps = mutex.lock();

        Ok(0)
    })
}

/// What the two threads of a race share.
struct Shared {
    data: UnsafeCell<u64>,
    turn: Atomic<i32>,
}

// SAFETY: Half a lie: only with a release by each side there is one user of `data` at a time.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    data: UnsafeCell::new(0),
    turn: Atomic::new(WRITER),
};

const WRITER: i32 = 0;
const READER: i32 = 1;

#[inline(always)]
fn touch() {
    // SAFETY: What the caller does is right, or is the bug.
    unsafe { *SHARED.data.get() += 1 };
}

#[inline(always)]
fn look() {
    // SAFETY: What the caller does is right, or is the bug.
    core::hint::black_box(unsafe { *SHARED.data.get() });
}

/// KCSAN: changes what another thread reads.
#[no_mangle]
pub extern "C" fn seed_race_write() {
    touch();
}

/// KCSAN: reads what another thread changes.
#[no_mangle]
pub extern "C" fn seed_race_read() {
    look();
}

/// KCSAN with CONFIG_KCSAN_WEAK_MEMORY: writes, and gives the turn away without a release.
///
/// In program order, which is what an x86 CPU does, the two threads never meet. So this is found
/// only by looking at what the CPU may do later.
#[no_mangle]
pub extern "C" fn seed_order_write(ordered: bool) {
    if SHARED.turn.load(Acquire) != WRITER {
        return;
    }
    touch();
    if ordered {
        SHARED.turn.store(READER, Release);
    } else {
        SHARED.turn.store(READER, Relaxed);
    }
    // The access is taken to be late for as long as this function runs.
    for _ in 0..10_000 {
        if SHARED.turn.load(Relaxed) == WRITER {
            break;
        }
    }
}

/// The other side of [`seed_order_write`], which is right.
#[no_mangle]
pub extern "C" fn seed_order_read() {
    if SHARED.turn.load(Acquire) == READER {
        look();
        SHARED.turn.store(WRITER, Release);
    }
}
