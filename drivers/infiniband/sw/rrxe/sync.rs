// SPDX-License-Identifier: GPL-2.0

//! The atomic operations that the algorithms of this driver need.
//!
//! [`crate::owner`], [`crate::eq`] and [`crate::arm`] are generic over them, so that what runs in
//! the kernel with the kernel's memory model is, line by line, what a model checker runs on the
//! host. There are few of them on purpose: each is in both models, and means the same there.

/// A 32-bit word that several contexts use at once.
pub(crate) trait Word: Sync {
    /// Makes a word.
    fn new(value: u32) -> Self;

    /// Reads without order.
    #[doc(alias = "READ_ONCE")]
    fn load(&self) -> u32;

    /// Reads; what comes later in the program is done later.
    #[doc(alias = "smp_load_acquire")]
    fn load_acquire(&self) -> u32;

    /// Writes without order.
    #[doc(alias = "WRITE_ONCE")]
    fn store(&self, value: u32);

    /// Writes; what comes earlier in the program is done earlier.
    #[doc(alias = "smp_store_release")]
    fn store_release(&self, value: u32);

    /// Writes `new` if the word is `old`, with full order if it does. If it does not, returns what
    /// the word is, without any order.
    #[doc(alias = "atomic_cmpxchg")]
    fn cmpxchg(&self, old: u32, new: u32) -> Result<(), u32>;

    /// Full barrier.
    #[doc(alias = "smp_mb")]
    fn barrier();

    /// Changes the word to what `f` makes of it, with full order even if that is the same, and
    /// returns what it was. Nothing is written if `f` returns `None`, which is the error.
    fn update(&self, mut f: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        let mut old = self.load();

        loop {
            let new = f(old).ok_or(old)?;

            match self.cmpxchg(old, new) {
                Ok(()) => return Ok(old),
                Err(now) => old = now,
            }
        }
    }
}
