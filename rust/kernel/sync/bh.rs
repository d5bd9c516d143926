// SPDX-License-Identifier: GPL-2.0

//! Keeping bottom halves off this processor.
//!
//! Code that a softirq runs as well, and that no lock guards, is kept from being interrupted by
//! itself by [`BhDisabled`]. What became pending meanwhile runs when the guard is dropped.
//!
//! # Examples
//!
//! ```
//! use kernel::sync::bh;
//!
//! // Doctests run in process context.
//! let bh = bh::disable().unwrap();
//! // A second guard nests.
//! assert!(bh::disable().is_some());
//! drop(bh);
//! ```
//!
//! C header: [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h)

use crate::types::NotThreadSafe;

/// Bottom halves do not run on this processor while there is one of these.
///
/// # Invariants
///
/// Bottom halves are disabled by this guard, which is dropped on the thread that made it.
#[must_use = "bottom halves are enabled again as soon as the guard is dropped"]
pub struct BhDisabled(NotThreadSafe);

/// Disables bottom halves, or returns `None` where they cannot be enabled again: in hard interrupt
/// context and while interrupts are disabled.
///
/// In a softirq they are off already, and the guard changes nothing.
///
/// # Context
///
/// Any.
#[doc(alias = "local_bh_disable")]
#[inline]
pub fn disable() -> Option<BhDisabled> {
    // SAFETY: This only looks at the state of this processor.
    if !unsafe { bindings::bh_may_toggle() } {
        return None;
    }
    // SAFETY: The guard enables them again on this thread, in a context where that may be done:
    // guards of disabled interrupts end before this one where scopes nest, and where they do not,
    // the C side warns.
    unsafe { bindings::local_bh_disable() };
    // INVARIANT: They were disabled just now.
    Some(BhDisabled(NotThreadSafe))
}

impl Drop for BhDisabled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::local_bh_enable() };
    }
}
