// SPDX-License-Identifier: GPL-2.0

//! The atomic word of the algorithms, made of the kernel's.

use crate::sync::Word;
use kernel::sync::{
    atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    barrier::smp_mb, //
};

/// A word that the kernel uses, or that it shares with user space.
pub(crate) type KWord = Atomic<u32>;

impl Word for KWord {
    fn new(value: u32) -> Self {
        Atomic::new(value)
    }

    fn load(&self) -> u32 {
        Atomic::load(self, Relaxed)
    }

    fn load_acquire(&self) -> u32 {
        Atomic::load(self, Acquire)
    }

    fn store(&self, value: u32) {
        Atomic::store(self, value, Relaxed);
    }

    fn store_release(&self, value: u32) {
        Atomic::store(self, value, Release);
    }

    fn cmpxchg(&self, old: u32, new: u32) -> Result<(), u32> {
        Atomic::cmpxchg(self, old, new, Full).map(|_| ())
    }

    fn barrier() {
        smp_mb(Full);
    }
}
