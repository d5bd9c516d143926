// SPDX-License-Identifier: GPL-2.0

//! Work requests that clients in the kernel post.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    attr::QpKind,
    object::Object,
    vtable::MrData,
    Bound,
    Operations, //
};
use crate::{
    bindings,
    container_of,
    prelude::*, //
};
use core::marker::PhantomData;

/// Part of the memory that a work request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Length.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// Reads an element of a list.
///
/// # Safety
///
/// `list` must be valid for `len` elements.
#[inline]
unsafe fn sge_at(list: *const bindings::ib_sge, len: usize, i: usize) -> Option<Sge> {
    if i >= len {
        return None;
    }
    // SAFETY: `i` is less than `len`.
    let raw = unsafe { &*list.add(i) };

    Some(Sge {
        addr: raw.addr,
        len: raw.length,
        lkey: raw.lkey,
    })
}

/// Elements of a list.
pub struct Sges<'a> {
    list: &'a [bindings::ib_sge],
    next: usize,
}

impl<'a> Sges<'a> {
    /// Makes it of a list of the core.
    #[inline]
    pub(super) fn new(list: &'a [bindings::ib_sge]) -> Self {
        Self { list, next: 0 }
    }
}

impl Iterator for Sges<'_> {
    type Item = Sge;

    #[inline]
    fn next(&mut self) -> Option<Sge> {
        // SAFETY: The slice has as many elements.
        let sge = unsafe { sge_at(self.list.as_ptr(), self.list.len(), self.next) };

        self.next += 1;
        sge
    }
}

/// Address of a datagram.
pub struct Datagram<'a, A> {
    /// Where to.
    pub ah: &'a A,
    /// Number of the queue pair there.
    pub remote_qpn: u32,
    /// Its Q_Key.
    pub remote_qkey: u32,
    /// Index of the P_Key.
    pub pkey_index: u16,
}

/// A fast registration.
pub struct Registration<'a, M> {
    /// The region.
    pub mr: &'a M,
    /// The key that it gets.
    pub key: u32,
    /// The rights that it gets.
    pub access: u32,
    /// The address that it starts at.
    pub iova: u64,
    /// Its length.
    pub length: u64,
}

/// A work request for a send queue.
///
/// # Invariants
///
/// `raw` is what a client has posted to a queue pair of kind `kind` of a `T` device, and valid for
/// `'a`.
pub struct SendWr<'a, T> {
    raw: *const bindings::ib_send_wr,
    kind: QpKind,
    _p: Bound<'a, T>,
}

impl<'a, T: Operations> SendWr<'a, T> {
    #[inline]
    fn raw(&self) -> &'a bindings::ib_send_wr {
        // SAFETY: By the type invariant.
        unsafe { &*self.raw }
    }

    /// The number that comes back with the completion.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both variants of the union are words.
        unsafe { self.raw().__bindgen_anon_1.wr_id }
    }

    /// What to do, a number of `enum ib_wr_opcode`.
    #[inline]
    pub fn opcode(&self) -> u32 {
        self.raw().opcode
    }

    /// Flags, as in `enum ib_send_flags`.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.raw().send_flags as u32
    }

    /// Immediate data in the byte order of the wire, or a key to invalidate.
    #[inline]
    pub fn ex(&self) -> [u8; 4] {
        // SAFETY: Both variants of the union are 32-bit words.
        unsafe { self.raw().ex.invalidate_rkey }.to_ne_bytes()
    }

    /// How many elements it has.
    #[inline]
    pub fn num_sge(&self) -> usize {
        usize::try_from(self.raw().num_sge).unwrap_or(0)
    }

    /// Its elements.
    #[inline]
    pub fn sges(&self) -> impl Iterator<Item = Sge> + 'a {
        let (list, len) = (self.raw().sg_list, self.num_sge());

        // SAFETY: By the type invariant the list has as many elements.
        (0..len).map_while(move |i| unsafe { sge_at(list, len, i) })
    }

    /// Copies the data of a request with `IB_SEND_INLINE`, whose elements are memory of the kernel
    /// without keys. Returns how much it is.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `to` is too short.
    #[inline]
    pub fn copy_inline(&self, to: &mut [u8]) -> Result<usize> {
        let mut at = 0;

        for sge in self.sges() {
            let end = at + sge.len as usize;
            let to = to.get_mut(at..end).ok_or(EINVAL)?;

            // SAFETY: The client has said that there is memory of that length.
            unsafe {
                bindings::memcpy(
                    to.as_mut_ptr().cast(),
                    core::ptr::with_exposed_provenance::<u8>(sge.addr as usize).cast(),
                    to.len(),
                )
            };
            at = end;
        }
        Ok(at)
    }

    /// Address and key of the memory of the other side, for RDMA WRITE and READ.
    #[inline]
    pub fn rdma(&self) -> Option<(u64, u32)> {
        if !matches!(
            self.opcode(),
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
                | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
                | bindings::ib_wr_opcode_IB_WR_RDMA_READ
                | bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV
                | bindings::ib_wr_opcode_IB_WR_ATOMIC_WRITE
                | bindings::ib_wr_opcode_IB_WR_FLUSH
        ) {
            return None;
        }
        // SAFETY: Requests of these kinds are part of such a structure.
        let wr = unsafe { &*container_of!(self.raw, bindings::ib_rdma_wr, wr) };

        Some((wr.remote_addr, wr.rkey))
    }

    /// Address of the memory of the other side, first operand (compare or add), second operand
    /// (swap) and key, for atomic operations.
    #[inline]
    pub fn atomic(&self) -> Option<(u64, u64, u64, u32)> {
        if !matches!(
            self.opcode(),
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP
                | bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD
        ) {
            return None;
        }
        // SAFETY: Requests of these kinds are part of such a structure.
        let wr = unsafe { &*container_of!(self.raw, bindings::ib_atomic_wr, wr) };

        Some((wr.remote_addr, wr.compare_add, wr.swap, wr.rkey))
    }

    /// Where to send it, for queue pairs of datagrams.
    #[inline]
    pub fn ud(&self) -> Option<Datagram<'a, T::Ah>> {
        if !matches!(self.kind, QpKind::Ud | QpKind::Gsi) {
            return None;
        }
        // SAFETY: Requests for such queue pairs are part of such a structure.
        let wr = unsafe { &*container_of!(self.raw, bindings::ib_ud_wr, wr) };

        if wr.ah.is_null() {
            return None;
        }
        Some(Datagram {
            // SAFETY: The handle is one of the same device, and the client keeps it while it posts.
            ah: unsafe { Object::<_, T::Ah>::data(wr.ah) },
            remote_qpn: wr.remote_qpn,
            remote_qkey: wr.remote_qkey,
            pkey_index: wr.pkey_index,
        })
    }

    /// What to register, for fast registration.
    #[inline]
    pub fn reg(&self) -> Option<Registration<'a, T::Mr>> {
        if self.opcode() != bindings::ib_wr_opcode_IB_WR_REG_MR {
            return None;
        }
        // SAFETY: Requests of this kind are part of such a structure.
        let wr = unsafe { &*container_of!(self.raw, bindings::ib_reg_wr, wr) };

        if wr.mr.is_null() {
            return None;
        }
        Some(Registration {
            // SAFETY: The region is one of the same device, and the client keeps it while it posts.
            mr: unsafe { &Object::<_, MrData<T>>::data(wr.mr).1 },
            key: wr.key,
            access: wr.access as u32,
            // SAFETY: As above.
            iova: unsafe { (*wr.mr).iova },
            // SAFETY: As above.
            length: unsafe { (*wr.mr).length },
        })
    }
}

/// A chain of work requests for a send queue.
///
/// # Invariants
///
/// `next` and `last` are null or as the type invariant of [`SendWr`] says.
pub struct SendWrs<'a, T> {
    next: *const bindings::ib_send_wr,
    last: *const bindings::ib_send_wr,
    kind: QpKind,
    _p: Bound<'a, T>,
}

impl<'a, T: Operations> SendWrs<'a, T> {
    /// # Safety
    ///
    /// See the type invariants.
    #[inline]
    pub(super) unsafe fn new(next: *const bindings::ib_send_wr, kind: QpKind) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            next,
            last: next,
            kind,
            _p: PhantomData,
        }
    }

    /// The one that was taken last; the first one if there was none.
    #[inline]
    pub(super) fn last(&self) -> *const bindings::ib_send_wr {
        self.last
    }

    /// Takes the next one.
    #[expect(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Option<SendWr<'a, T>> {
        if self.next.is_null() {
            return None;
        }
        let raw = self.next;

        self.last = raw;
        // SAFETY: By the type invariant. INVARIANT: It is part of the same chain.
        self.next = unsafe { (*raw).next };
        // INVARIANT: By the type invariant.
        Some(SendWr {
            raw,
            kind: self.kind,
            _p: PhantomData,
        })
    }
}

/// A work request for a receive queue.
///
/// # Invariants
///
/// `raw` is what a client has posted, and valid for `'a`.
pub struct RecvWr<'a> {
    raw: &'a bindings::ib_recv_wr,
}

impl<'a> RecvWr<'a> {
    /// The number that comes back with the completion.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both variants of the union are words.
        unsafe { self.raw.__bindgen_anon_1.wr_id }
    }

    /// How many elements it has.
    #[inline]
    pub fn num_sge(&self) -> usize {
        usize::try_from(self.raw.num_sge).unwrap_or(0)
    }

    /// Its elements.
    #[inline]
    pub fn sges(&self) -> impl Iterator<Item = Sge> + 'a {
        let (list, len) = (self.raw.sg_list, self.num_sge());

        // SAFETY: By the type invariant the list has as many elements.
        (0..len).map_while(move |i| unsafe { sge_at(list, len, i) })
    }
}

/// A chain of work requests for a receive queue.
///
/// # Invariants
///
/// `next` and `last` are null or what a client has posted, and valid for `'a`.
pub struct RecvWrs<'a> {
    next: *const bindings::ib_recv_wr,
    last: *const bindings::ib_recv_wr,
    _p: PhantomData<&'a ()>,
}

impl<'a> RecvWrs<'a> {
    /// # Safety
    ///
    /// See the type invariants.
    #[inline]
    pub(super) unsafe fn new(next: *const bindings::ib_recv_wr) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            next,
            last: next,
            _p: PhantomData,
        }
    }

    /// The one that was taken last; the first one if there was none.
    #[inline]
    pub(super) fn last(&self) -> *const bindings::ib_recv_wr {
        self.last
    }

    /// Takes the next one.
    #[expect(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Option<RecvWr<'a>> {
        if self.next.is_null() {
            return None;
        }
        self.last = self.next;
        // SAFETY: By the type invariant.
        let raw = unsafe { &*self.next };

        // INVARIANT: It is part of the same chain.
        self.next = raw.next;
        Some(RecvWr { raw })
    }
}
