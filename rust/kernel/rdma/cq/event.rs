// SPDX-License-Identifier: GPL-2.0

//! Events of completion queues, from the side of the device.

use crate::bindings;
use core::ptr::NonNull;

/// Raises the completion event of a queue.
///
/// This is what a driver does when it has added an entry to a queue that is armed, and the only
/// way in which it calls the queue's handler. The C drivers do it by the same function,
/// `ib_cq_completion()`: a load-acquire, which pairs with the store-release of whoever sets the
/// handler, and nothing at all when there is none.
///
/// # Safety
///
/// - `cq` must be valid, and not be destroyed before this returns.
/// - No other event of this queue may be raised at the same time.
/// - The caller must not hold a lock that the operations `poll_cq` and `req_notify_cq` of its
///   device take: the handler may call both.
///
/// # Context
///
/// Any, as the event path of the device has it.
///
/// # Examples
///
/// ```
/// use core::{
///     mem::MaybeUninit,
///     ptr::NonNull, //
/// };
/// use kernel::{
///     bindings,
///     ffi::c_void,
///     rdma::cq::raise_event, //
/// };
///
/// unsafe extern "C" fn count(_cq: *mut bindings::ib_cq, context: *mut c_void) {
///     // SAFETY: The context is the number below.
///     unsafe { *context.cast::<u32>() += 1 };
/// }
///
/// let mut events = 0u32;
/// // SAFETY: A C structure for which all zeroes are valid.
/// let mut cq: bindings::ib_cq = unsafe { MaybeUninit::zeroed().assume_init() };
/// cq.cq_context = (&raw mut events).cast();
///
/// // Without a handler there is nobody to tell.
/// // SAFETY: The queue is on the stack, and nobody else has it.
/// unsafe { raise_event(NonNull::from(&mut cq)) };
/// assert_eq!(events, 0);
///
/// cq.comp_handler = Some(count);
/// // SAFETY: As above.
/// unsafe { raise_event(NonNull::from(&mut cq)) };
/// assert_eq!(events, 1);
/// ```
#[inline]
pub unsafe fn raise_event(cq: NonNull<bindings::ib_cq>) {
    // SAFETY: By the safety requirements.
    unsafe { bindings::ib_cq_completion(cq.as_ptr()) };
}
