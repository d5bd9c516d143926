// SPDX-License-Identifier: GPL-2.0

//! The driver's side of completion queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    gate::Gate,
    qp::QpHandle, //
};
use crate::{
    bindings,
    ffi::c_int,
    prelude::*,
    rdma::cq::raise_event,
    sync::Arc, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next solicited completion, or one with an error.
    Solicited,
    /// The next completion.
    Next,
}

/// A completion queue as its driver refers to it; see [`gate`](super::gate).
#[derive(Clone)]
pub struct CqHandle(Arc<Gate<bindings::ib_cq>>);

impl CqHandle {
    /// # Safety
    ///
    /// `cq` must be valid until [`Self::close`] was called.
    #[inline]
    pub(super) unsafe fn new(cq: *mut bindings::ib_cq) -> Result<Self> {
        // SAFETY: By the requirement of this function.
        Ok(Self(unsafe { Gate::new(cq, GFP_KERNEL) }?))
    }

    #[inline]
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Calls the completion handler, if the queue still exists and has one.
    ///
    /// See [`raise_event`] for the order of the load.
    ///
    /// # Context
    ///
    /// Softirq, or process context with bottom halves off. No lock may be held that an operation
    /// takes, and only one caller at a time may do this for a queue. Not from the call chain of an
    /// operation.
    #[doc(alias = "comp_handler")]
    #[inline]
    pub fn notify(&self) {
        self.0.enter(|cq| {
            if let Some(cq) = NonNull::new(cq) {
                // SAFETY: Inside the gate the queue is valid, and `destroy_cq` waits for it. That
                // there is one caller at a time, with no lock, is what this function asks for.
                unsafe { raise_event(cq) };
            }
        });
    }

    /// Tells the owner that the queue has lost completions.
    ///
    /// # Context
    ///
    /// Any but hard interrupts. No lock may be held that an operation takes. Not from the call
    /// chain of an operation.
    #[doc(alias = "IB_EVENT_CQ_ERR")]
    #[inline]
    pub fn error(&self) {
        self.0.enter(|cq| {
            // SAFETY: Inside the gate the queue is valid; these are constant.
            let (handler, context, device) =
                unsafe { ((*cq).event_handler, (*cq).cq_context, (*cq).device) };

            if let Some(handler) = handler {
                let mut event = bindings::ib_event {
                    device,
                    element: bindings::ib_event__bindgen_ty_1 { cq },
                    event: bindings::ib_event_type_IB_EVENT_CQ_ERR,
                };

                // SAFETY: That is what the queue has the handler for.
                unsafe { handler(&mut event, context) };
            }
        });
    }
}

/// A completion, as a driver tells it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs)]
pub struct Completion {
    pub wr_id: u64,
    /// A number of `enum ib_wc_status`.
    pub status: u32,
    /// A number of `enum ib_wc_opcode`.
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data in the byte order of the wire, or an invalidated key.
    pub ex: [u8; 4],
    pub src_qp: u32,
    /// As in `enum ib_wc_flags`.
    pub flags: u32,
    pub port: u32,
}

/// Room for completions.
///
/// # Invariants
///
/// `wc` is valid for writing `len` completions, of which `used` are written.
pub struct Polled<'a> {
    wc: *mut bindings::ib_wc,
    len: usize,
    used: usize,
    _p: PhantomData<&'a mut bindings::ib_wc>,
}

impl Polled<'_> {
    /// # Safety
    ///
    /// `wc` must be valid for writing `len` completions.
    #[inline]
    pub(super) unsafe fn new(wc: *mut bindings::ib_wc, len: c_int) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            wc,
            len: usize::try_from(len).unwrap_or(0),
            used: 0,
            _p: PhantomData,
        }
    }

    /// Whether there is room for one more.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used < self.len
    }

    /// How many were added.
    #[inline]
    pub(super) fn used(&self) -> c_int {
        self.used as c_int
    }

    /// Adds a completion of `qp`, if there is room.
    #[inline]
    pub fn push(&mut self, c: &Completion, qp: Option<&QpHandle>) {
        if !self.has_room() {
            return;
        }
        let mut wc = bindings::ib_wc {
            status: c.status,
            opcode: c.opcode,
            vendor_err: c.vendor_err,
            byte_len: c.byte_len,
            qp: qp.map_or(core::ptr::null_mut(), QpHandle::address),
            src_qp: c.src_qp,
            wc_flags: c.flags as c_int,
            port_num: c.port,
            ..Default::default()
        };

        wc.__bindgen_anon_1.wr_id = c.wr_id;
        wc.ex.invalidate_rkey = u32::from_ne_bytes(c.ex);
        // SAFETY: By the type invariant.
        unsafe { self.wc.add(self.used).write(wc) };
        // INVARIANT: One more is written.
        self.used += 1;
    }
}
