// SPDX-License-Identifier: GPL-2.0

//! Work requests and their completions.
//!
//! A [`Request`] is memory: a buffer, and what the consumer likes to know when the request comes
//! back. It is a thing that somebody owns:
//!
//! ```text
//!            Qp::post_send(), Qp::post_recv()
//! consumer ------------------------------------> device
//!          <------------------------------------
//!                       Done::done()
//! ```
//!
//! So nobody can look at a buffer that the device is writing to, free a request that the device
//! has, or post one twice, and a queue pair cannot have more requests than there is room for.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::qp::{
    Qp,
    Shared, //
};
use crate::{
    bindings,
    container_of,
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use core::marker::PhantomData;

/// How a work request ended.
///
/// IBA 1.5, chapter 11.6.2 (completion return status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(bindings::ib_wc_status);

impl Status {
    /// It was carried out.
    pub const SUCCESS: Self = Self(bindings::ib_wc_status_IB_WC_SUCCESS);

    /// It was not, since the queue pair is in the error state. This is what happens to requests
    /// that are there when a queue pair is dropped.
    pub const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);

    /// The status in words.
    #[doc(alias = "ib_wc_status_msg")]
    #[inline]
    pub fn message(self) -> &'static CStr {
        // SAFETY: The function takes any value and returns a string that is part of `ib_core`,
        // which is there as long as a module that refers to it.
        unsafe { CStr::from_char_ptr(bindings::ib_wc_status_msg(self.0)) }
    }
}

/// A completion.
///
/// Wraps the kernel's C `struct ib_wc`.
#[repr(transparent)]
pub struct Wc(bindings::ib_wc);

impl Wc {
    /// How the request ended.
    #[inline]
    pub fn status(&self) -> Status {
        Status(self.0.status)
    }
}

mod private {
    pub trait Sealed {}
}

/// Which of the two queues of a queue pair a request is for.
pub trait Queue: private::Sealed + 'static {
    #[doc(hidden)]
    const DMA: bindings::dma_data_direction;

    #[doc(hidden)]
    fn free(shared: &Shared) -> &Atomic<i32>;

    /// # Safety
    ///
    /// `qp` must be valid; `cqe` and what `sge` describes must stay so until the completion.
    #[doc(hidden)]
    unsafe fn post(
        qp: *mut bindings::ib_qp,
        cqe: *mut bindings::ib_cqe,
        sge: *mut bindings::ib_sge,
    ) -> c_int;
}

/// The send queue.
pub enum SendQueue {}

impl private::Sealed for SendQueue {}

impl Queue for SendQueue {
    const DMA: bindings::dma_data_direction = bindings::dma_data_direction::DMA_TO_DEVICE;

    #[inline]
    fn free(shared: &Shared) -> &Atomic<i32> {
        &shared.send_free
    }

    #[inline]
    unsafe fn post(
        qp: *mut bindings::ib_qp,
        cqe: *mut bindings::ib_cqe,
        sge: *mut bindings::ib_sge,
    ) -> c_int {
        let mut wr = bindings::ib_send_wr::default();
        wr.__bindgen_anon_1.wr_cqe = cqe;
        wr.sg_list = sge;
        wr.num_sge = 1;
        wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
        // SAFETY: By the safety requirement. The request itself is copied by the driver, and it is
        // not interested in the bad one, since there is no other.
        unsafe { bindings::ib_post_send(qp, &wr, core::ptr::null_mut()) }
    }
}

/// The receive queue.
pub enum RecvQueue {}

impl private::Sealed for RecvQueue {}

impl Queue for RecvQueue {
    const DMA: bindings::dma_data_direction = bindings::dma_data_direction::DMA_FROM_DEVICE;

    #[inline]
    fn free(shared: &Shared) -> &Atomic<i32> {
        &shared.recv_free
    }

    #[inline]
    unsafe fn post(
        qp: *mut bindings::ib_qp,
        cqe: *mut bindings::ib_cqe,
        sge: *mut bindings::ib_sge,
    ) -> c_int {
        let mut wr = bindings::ib_recv_wr::default();
        wr.__bindgen_anon_1.wr_cqe = cqe;
        wr.sg_list = sge;
        wr.num_sge = 1;
        // SAFETY: As in the other implementation.
        unsafe { bindings::ib_post_recv(qp, &wr, core::ptr::null_mut()) }
    }
}

/// What a consumer does with a request of queue `Q` that comes back.
///
/// `Self` is the consumer's part of the request. It should not own the queue pair: that would then
/// live as long as its requests, and they come back at the latest when it is dropped.
///
/// # Examples
///
/// Requests are counted and dropped as they come back.
///
/// ```
/// use kernel::{
///     rdma::wr::{Done, Request, SendQueue, Status, Wc},
///     sync::{
///         atomic::{Atomic, Relaxed},
///         Arc,
///     },
/// };
///
/// struct Tally(Arc<Atomic<i32>>);
///
/// impl Done<SendQueue> for Tally {
///     fn done(request: Request<Self, SendQueue>, wc: &Wc) {
///         if wc.status() == Status::SUCCESS {
///             request.data().0.add(1, Relaxed);
///         }
///     }
/// }
/// ```
pub trait Done<Q: Queue>: Sized + Send + 'static {
    /// Takes back a request. Its buffer is free to be looked at or written to.
    ///
    /// # Context
    ///
    /// That in which the completion queue is polled: softirq, process, or that of the caller of
    /// [`ConsumerCq::process_direct`](super::consumer::ConsumerCq::process_direct). In all cases
    /// also that of who drops the queue pair. Should not sleep, since all queue pairs with this
    /// completion queue would have to wait; in softirq context must not. Calls for one completion
    /// queue do not overlap, if it is not polled directly.
    fn done(request: Request<Self, Q>, wc: &Wc);
}

/// A place in a queue.
///
/// # Invariants
///
/// It is counted in `Q::free(shared)`.
struct Slot<Q: Queue> {
    shared: Arc<Shared>,
    _q: PhantomData<fn() -> Q>,
}

impl<Q: Queue> Slot<Q> {
    #[inline]
    fn take(shared: &Arc<Shared>) -> Result<Self> {
        let free = Q::free(shared);
        if free.fetch_sub(1, Relaxed) < 1 {
            free.add(1, Relaxed);
            return Err(ENOSPC);
        }
        // INVARIANT: It was counted just now.
        Ok(Self {
            shared: shared.clone(),
            _q: PhantomData,
        })
    }
}

impl<Q: Queue> Drop for Slot<Q> {
    #[inline]
    fn drop(&mut self) {
        Q::free(&self.shared).add(1, Relaxed);
    }
}

struct Inner<T, Q: Queue> {
    cqe: bindings::ib_cqe,
    /// Address of the buffer for the device, while it is mapped.
    dma: u64,
    /// How much of the buffer was written by the device.
    filled: usize,
    buf: KVec<u8>,
    slot: Slot<Q>,
    data: T,
}

/// A work request with a buffer, for queue `Q` of one queue pair.
///
/// # Invariants
///
/// - The buffer is not empty, and its length fits into 32 bits.
/// - The buffer is not mapped for the device, and the device does not have the request.
pub struct Request<T, Q: Queue>(KBox<Inner<T, Q>>);

/// A request to send what is in its buffer.
pub type SendRequest<T> = Request<T, SendQueue>;

/// A request to receive a message into its buffer.
pub type RecvRequest<T> = Request<T, RecvQueue>;

/// A request that could not be posted, and why.
pub struct Refused<T, Q: Queue> {
    /// Why.
    pub error: Error,
    /// The request.
    pub request: Request<T, Q>,
}

impl<T, Q: Queue> From<Refused<T, Q>> for Error {
    #[inline]
    fn from(refused: Refused<T, Q>) -> Self {
        refused.error
    }
}

impl<T: Done<Q>, Q: Queue> Request<T, Q> {
    /// Allocates a request for `qp` with a buffer of `len` bytes, all zero.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is zero or too large; `ENOSPC` if the queue has no place for one more
    /// request; `ENOMEM`.
    #[inline]
    pub fn new(qp: &Qp, data: T, len: usize) -> Result<Self> {
        if len == 0 || u32::try_from(len).is_err() {
            return Err(EINVAL);
        }
        // INVARIANT: We have checked the length, and nobody knows the request.
        Ok(Self(KBox::new(
            Inner {
                cqe: bindings::ib_cqe {
                    done: Some(done::<T, Q>),
                },
                dma: 0,
                filled: 0,
                // Memory from `kmalloc()` can be mapped in one piece.
                buf: KVec::zeroed(len, GFP_KERNEL)?,
                slot: Slot::take(qp.shared())?,
                data,
            },
            GFP_KERNEL,
        )?))
    }

    /// The consumer's part.
    #[inline]
    pub fn data(&self) -> &T {
        &self.0.data
    }

    /// The whole buffer.
    #[inline]
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.0.buf
    }

    /// Gives the request to the device.
    #[inline]
    pub(super) fn post(mut self, qp: &Qp) -> Result<(), Refused<T, Q>> {
        if !Arc::ptr_eq(&self.0.slot.shared, qp.shared()) {
            return Err(Refused {
                error: EINVAL,
                request: self,
            });
        }
        let dev = qp.device().as_raw();
        if let Err(error) = self.map(dev) {
            return Err(Refused {
                error,
                request: self,
            });
        }

        let mut sge = bindings::ib_sge {
            addr: self.0.dma,
            // The length fits by the type invariant.
            length: self.0.buf.len() as u32,
            lkey: qp.local_dma_lkey(),
        };
        let inner = KBox::into_raw(self.0);
        // SAFETY: The queue pair is valid. From here on the memory belongs to the device, until
        // its completion gives it to `done()`; there may be one before this returns.
        match to_result(unsafe { Q::post(qp.as_raw(), &raw mut (*inner).cqe, &mut sge) }) {
            Ok(()) => Ok(()),
            Err(error) => {
                // SAFETY: The device did not take it, so it still is ours.
                let mut request = Self(unsafe { KBox::from_raw(inner) });
                // SAFETY: It is mapped.
                unsafe { request.unmap(dev) };
                Err(Refused { error, request })
            }
        }
    }

    #[inline]
    fn map(&mut self, dev: *mut bindings::ib_device) -> Result {
        let inner = &mut *self.0;
        // SAFETY: Who posts has a queue pair, so the device is registered. The buffer is ours and
        // was allocated by `kmalloc()`.
        unsafe {
            inner.dma = bindings::ib_dma_map_single(
                dev,
                inner.buf.as_mut_ptr().cast(),
                inner.buf.len(),
                Q::DMA,
            );
            if bindings::ib_dma_mapping_error(dev, inner.dma) != 0 {
                return Err(ENOMEM);
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The buffer must be mapped, and not in use by the device any more.
    #[inline]
    unsafe fn unmap(&mut self, dev: *mut bindings::ib_device) {
        // SAFETY: By the safety requirement.
        unsafe { bindings::ib_dma_unmap_single(dev, self.0.dma, self.0.buf.len(), Q::DMA) };
    }
}

impl<T: Done<RecvQueue>> RecvRequest<T> {
    /// The message that was received, after a completion that was successful.
    #[inline]
    pub fn message(&self) -> &[u8] {
        &self.0.buf[..self.0.filled]
    }
}

/// # Safety
///
/// To be called as `ib_cqe.done`, for the `cqe` of a request that the device had.
unsafe extern "C" fn done<T: Done<Q>, Q: Queue>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: C passes a completion that is ours until we return; `Wc` is a transparent wrapper.
    let wc = unsafe { &*wc.cast::<Wc>() };
    // SAFETY: `Request::post()` has stored this pointer.
    let inner = unsafe { container_of!(wc.0.__bindgen_anon_1.wr_cqe, Inner<T, Q>, cqe) };
    // INVARIANT: The device is done with the request, and we unmap it.
    // SAFETY: `Request::post()` has given the memory away by `into_raw()`, and there is one
    // completion for each time.
    let mut request = Request::<T, Q>(unsafe { KBox::from_raw(inner) });
    // SAFETY: The completion queue is valid, and so is its device; the buffer is mapped.
    unsafe { request.unmap((*cq).device) };

    request.0.filled = match wc.status() {
        // A device is not trusted to know how long the buffer is.
        Status::SUCCESS => (wc.0.byte_len as usize).min(request.0.buf.len()),
        _ => 0,
    };
    T::done(request, wc);
}
