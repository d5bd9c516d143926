// SPDX-License-Identifier: GPL-2.0

//! Work queues of one's own.
//!
//! Work that may take long, or has to be over before something goes, does not belong on the queues
//! that all share: nobody can wait for those to be empty.
//!
//! # Examples
//!
//! ```
//! use kernel::workqueue::OwnedQueue;
//!
//! let queue = OwnedQueue::new_unbound(c"example")?;
//!
//! queue.try_spawn(GFP_KERNEL, || pr_info!("some time\n"))?;
//! queue.flush();
//! # Ok::<(), Error>(())
//! ```

use super::Queue;
use crate::prelude::*;
use core::{
    ops::Deref,
    ptr::NonNull, //
};

/// A work queue that goes when this is dropped, after all that was queued has run.
///
/// # Invariants
///
/// The pointer is that of a work queue that is ours to destroy.
pub struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues can be used and destroyed by any thread.
unsafe impl Send for OwnedQueue {}

// SAFETY: As above.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Makes a queue whose items run on any CPU, as many at a time as is usual.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[doc(alias = "alloc_workqueue")]
    pub fn new_unbound(name: &CStr) -> Result<Self> {
        // SAFETY: The format wants a string, which is copied.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND,
                0,
                name.as_char_ptr(),
            )
        };

        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(queue).ok_or(ENOMEM)?))
    }
}

impl Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: By the type invariant; `Queue` wraps just this.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    /// # Context
    ///
    /// Process context, may sleep. Not from a work item on this queue.
    fn drop(&mut self) {
        // SAFETY: By the type invariant, and nobody can queue any more.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}
