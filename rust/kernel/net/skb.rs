// SPDX-License-Identifier: GPL-2.0

//! Socket buffers.
//!
//! There are two types, for the two ends of their lives: a [`TxBuff`] was just allocated, nobody
//! else knows it, and its bytes can be written; an [`SkBuff`] was received, its bytes may be shared
//! with others, and can be read.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

mod inflight;
mod train;

pub use inflight::{
    InFlight,
    Wake, //
};
pub use train::{
    Finish,
    Offload,
    Track, //
};

use crate::{
    alloc::Flags,
    bindings,
    error::to_result,
    ffi::c_uint,
    prelude::*,
    types::Opaque, //
};
use core::{
    mem::ManuallyDrop,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};

/// A received buffer, which is owned.
///
/// Dropping it frees it, and does not count as the loss of a packet; [`SkBuff::discard`] does. Not
/// to be freed in hard interrupt context or with interrupts disabled.
///
/// # Invariants
///
/// The pointer is to a valid `struct sk_buff` that is owned, is in no list, and has its network
/// header between the start of its buffer and its data.
pub struct SkBuff(NonNull<bindings::sk_buff>);

// SAFETY: A buffer belongs to no thread.
unsafe impl Send for SkBuff {}
// SAFETY: With a shared reference it can only be read.
unsafe impl Sync for SkBuff {}

impl SkBuff {
    /// Takes a buffer from the C side.
    ///
    /// # Safety
    ///
    /// `ptr` must be to a buffer that the caller owns, and gives away, that is in no list and has
    /// its network header between the start of the buffer and the data.
    #[inline]
    pub unsafe fn from_raw(ptr: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: That is what the caller promises.
        Self(ptr)
    }

    /// Gives the buffer to the C side.
    #[inline]
    pub fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// How many bytes of data it has.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        // SAFETY: By the type invariants the buffer is valid.
        unsafe { (*self.0.as_ptr()).len as usize }
    }

    /// Puts all data in one piece. Any context; allocates if it is not in one already.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub fn linearize(&mut self) -> Result {
        // SAFETY: By the type invariants the buffer is valid and owned.
        to_result(unsafe { bindings::skb_linearize(self.0.as_ptr()) })
    }

    /// Returns the data that is in one piece; all of it after [`SkBuff::linearize`].
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariants the buffer is valid; this is the data in front of the
        // fragments. Nobody writes to it: a buffer with data that others share is not written.
        unsafe {
            core::slice::from_raw_parts(
                (*self.0.as_ptr()).data,
                bindings::skb_headlen(self.0.as_ptr()) as usize,
            )
        }
    }

    /// Where the data begins behind the start of the network header.
    #[inline]
    pub fn data_at(&self) -> usize {
        // SAFETY: By the type invariants the buffer is valid. The offset is seen from the data, so
        // it is not positive by the type invariants.
        let offset = unsafe { bindings::skb_network_offset(self.0.as_ptr()) };

        offset.unsigned_abs() as usize
    }

    /// Returns the bytes from the network header on that are in one piece.
    #[inline]
    pub fn network_bytes(&self) -> &[u8] {
        let back = self.data_at();

        // SAFETY: By the type invariants the network header is in the buffer in front of the data;
        // otherwise as in `bytes`.
        unsafe {
            core::slice::from_raw_parts(
                (*self.0.as_ptr()).data.sub(back),
                bindings::skb_headlen(self.0.as_ptr()) as usize + back,
            )
        }
    }

    /// Gives back what the buffer refers to of the stack that it has come through: socket, route,
    /// connection tracking and device. To be called before it is kept longer than the RCU
    /// read-side section in which it was received.
    #[inline]
    pub fn detach(&mut self) {
        // SAFETY: By the type invariants the buffer is valid and owned.
        unsafe {
            bindings::skb_orphan(self.0.as_ptr());
            bindings::skb_dst_drop(self.0.as_ptr());
            bindings::nf_reset_ct(self.0.as_ptr());
            (*self.0.as_ptr())
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1 =
                bindings::sk_buff__bindgen_ty_1__bindgen_ty_1__bindgen_ty_1 { dev: null_mut() };
        }
    }

    /// Makes another buffer with the same data, which both share. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn try_clone(&self) -> Result<Self> {
        // SAFETY: By the type invariants the buffer is valid.
        let skb = unsafe { bindings::skb_clone(self.0.as_ptr(), GFP_ATOMIC.as_raw()) };

        // INVARIANT: It is ours, in no list, and has the same headers.
        NonNull::new(skb).map(Self).ok_or(ENOMEM)
    }

    /// Notes a number in the buffer, for whoever takes it out of a list.
    #[inline]
    pub fn set_note(&mut self, note: u32) {
        // SAFETY: By the type invariants the buffer is valid and owned, so the control block is
        // ours. It is large enough and aligned for a word.
        unsafe { (&raw mut (*self.0.as_ptr()).cb).cast::<u32>().write(note) };
    }

    /// Returns what was noted.
    #[inline]
    pub fn note(&self) -> u32 {
        // SAFETY: By the type invariants the buffer is valid; any bytes make a number.
        unsafe { (&raw const (*self.0.as_ptr()).cb).cast::<u32>().read() }
    }

    /// Frees the buffer, and counts it as a packet that was dropped.
    #[inline]
    pub fn discard(self) {
        // SAFETY: By the type invariants the buffer is owned.
        unsafe { bindings::kfree_skb(self.into_raw()) };
    }
}

impl Drop for SkBuff {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants the buffer is owned.
        unsafe { bindings::consume_skb(self.0.as_ptr()) };
    }
}

/// A list of received buffers with a lock of its own. All methods may be called in any context.
///
/// # Invariants
///
/// The C object is initialised, and has buffers that fulfil the invariants of [`SkBuff`] and are
/// owned by the list.
#[pin_data(PinnedDrop)]
pub struct SkBuffList {
    #[pin]
    head: Opaque<bindings::sk_buff_head>,
}

// SAFETY: The buffers belong to no thread.
unsafe impl Send for SkBuffList {}
// SAFETY: The list has a lock.
unsafe impl Sync for SkBuffList {}

impl SkBuffList {
    /// Creates an initialiser of an empty list.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: The list is initialised and empty.
        pin_init!(Self {
            // SAFETY: `head` is valid memory for a list.
            head <- Opaque::ffi_init(|head| unsafe { bindings::skb_queue_head_init(head) }),
        })
    }

    /// How many buffers there are at the moment.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        // SAFETY: By the type invariants the list is valid; C reads the length in the same way.
        unsafe { (&raw const (*self.head.get()).qlen).read_volatile() }
    }

    /// Adds a buffer at the end.
    #[inline]
    pub fn push_back(&self, skb: SkBuff) {
        // SAFETY: By the type invariants the list is valid, and the buffer is in no list.
        unsafe { bindings::skb_queue_tail(self.head.get(), skb.into_raw()) };
    }

    /// Adds a buffer at the front.
    #[inline]
    pub fn push_front(&self, skb: SkBuff) {
        // SAFETY: As above.
        unsafe { bindings::skb_queue_head(self.head.get(), skb.into_raw()) };
    }

    /// Takes the first buffer.
    #[inline]
    pub fn pop_front(&self) -> Option<SkBuff> {
        // SAFETY: By the type invariants the list is valid.
        let skb = unsafe { bindings::skb_dequeue(self.head.get()) };

        // INVARIANT: It fulfils them by those of the list, which gives it away.
        NonNull::new(skb).map(SkBuff)
    }
}

#[pinned_drop]
impl PinnedDrop for SkBuffList {
    fn drop(self: Pin<&mut Self>) {
        while self.pop_front().is_some() {}
    }
}

/// A buffer to be sent, with data in one piece and nobody else who knows it.
///
/// # Invariants
///
/// The pointer is to a valid `struct sk_buff` that is owned, is linear, and shares its data with no
/// other.
pub struct TxBuff(NonNull<bindings::sk_buff>);

// SAFETY: A buffer belongs to no thread.
unsafe impl Send for TxBuff {}

impl TxBuff {
    /// Allocates a buffer for `len` bytes of data, with room for `headroom` bytes of headers that
    /// others add.
    ///
    /// The data is what was there in memory before: write all of it before it is sent.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(headroom: usize, len: usize, gfp: Flags) -> Result<Self> {
        let size = headroom.checked_add(len).ok_or(ENOMEM)?;
        let size = c_uint::try_from(size).map_err(|_| ENOMEM)?;
        // Both are not larger than the sum, for which there is memory if this succeeds.
        let (headroom, len) = (i32::try_from(headroom).map_err(|_| ENOMEM)?, len as c_uint);
        // SAFETY: Just allocates.
        let skb = unsafe { bindings::alloc_skb(size, gfp.as_raw()) };
        let skb = NonNull::new(skb).ok_or(ENOMEM)?;

        // SAFETY: The buffer is new and empty, and has room for both.
        unsafe {
            bindings::skb_reserve(skb.as_ptr(), headroom);
            bindings::skb_put(skb.as_ptr(), len);
        }
        // INVARIANT: It is new.
        Ok(Self(skb))
    }

    /// Allocates a buffer without data, with room for `headroom` bytes of headers that others add,
    /// and at least `room` bytes of data.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub fn with_room(headroom: usize, room: usize, gfp: Flags) -> Result<Self> {
        let mut this = Self::new(headroom, room, gfp)?;

        this.truncate(0);
        Ok(this)
    }

    /// Adds `len` bytes at the end if there is room, and returns them. They are what was there in
    /// memory before.
    #[inline]
    pub fn put(&mut self, len: usize) -> Option<&mut [u8]> {
        // SAFETY: By the type invariants the buffer is valid.
        let room = unsafe { bindings::skb_tailroom(self.0.as_ptr()) };

        if len > usize::try_from(room).ok()? {
            return None;
        }
        // SAFETY: There is room. The bytes are behind all others, and ours as in `bytes_mut`.
        Some(unsafe {
            core::slice::from_raw_parts_mut(
                bindings::skb_put(self.0.as_ptr(), len as c_uint).cast(),
                len,
            )
        })
    }

    /// Takes bytes off the end, so that `len` are left if there are as many.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if let Ok(len) = c_uint::try_from(len) {
            // SAFETY: By the type invariants the buffer is valid and ours.
            unsafe { bindings::skb_trim(self.0.as_ptr(), len) };
        }
    }

    /// Returns the data to write it.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariants the buffer is valid, its data is in one piece, and there
        // is nobody else who knows it. The memory comes from C's allocator, which has given it
        // some value or other.
        unsafe {
            core::slice::from_raw_parts_mut(
                (*self.0.as_ptr()).data,
                (*self.0.as_ptr()).len as usize,
            )
        }
    }

    /// Returns the data.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: As above.
        unsafe {
            core::slice::from_raw_parts((*self.0.as_ptr()).data, (*self.0.as_ptr()).len as usize)
        }
    }

    /// Says what flow the packet belongs to, so that nobody needs to look at its headers to spread
    /// flows over queues.
    #[inline]
    pub fn set_hash(&mut self, hash: u32) {
        // SAFETY: By the type invariants the buffer is valid and owned.
        unsafe { bindings::skb_set_sw_hash(self.0.as_ptr(), hash) };
    }

    /// Counts the buffer as one that is on its way, until it is freed or has left this stack.
    #[inline]
    pub fn charge(&mut self, inflight: &InFlight) {
        // SAFETY: By the type invariants the buffer is valid and owned, and nobody else knows it.
        unsafe { inflight.attach(self.0.as_ptr()) };
    }

    /// Makes a received buffer of it: the network header is at the start, and what is data begins
    /// `at` bytes behind it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are not so many bytes.
    #[inline]
    pub fn into_received(self, at: usize) -> Result<SkBuff> {
        if at > self.bytes().len() {
            return Err(EINVAL);
        }

        let skb = self.into_raw();

        // SAFETY: The buffer is valid and owned, and nobody else knows it. All its data is in one
        // piece, of which there is enough.
        unsafe {
            bindings::skb_set_network_header(skb, 0);
            bindings::skb_pull(skb, at as c_uint);
        }
        // INVARIANT: It is owned and in no list, and the network header is where the data was, or
        // in front of it.
        NonNull::new(skb).map(SkBuff).ok_or(EINVAL)
    }

    /// Gives the buffer to the C side.
    #[inline]
    pub fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub(super) fn as_raw(&mut self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }
}

impl Drop for TxBuff {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants the buffer is owned.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) };
    }
}
