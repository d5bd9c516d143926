// SPDX-License-Identifier: GPL-2.0

//! The driver's side of queue pairs.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::gate::Gate;
use crate::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// What may happen to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// It does not work any more.
    Fatal,
    /// The other side asked for something invalid.
    ReqErr,
    /// The other side accessed memory that it may not.
    AccessErr,
    /// The first packet of the other side has come.
    CommEst,
    /// The send queue is drained.
    SqDrained,
    /// The last work request of a queue pair with a shared receive queue was taken.
    LastWqeReached,
}

/// A queue pair as its driver refers to it; see [`gate`](super::gate).
#[derive(Clone)]
pub struct QpHandle(Arc<Gate<bindings::ib_qp>>);

impl QpHandle {
    /// # Safety
    ///
    /// `qp` must be valid until [`Self::close`] was called.
    #[inline]
    pub(super) unsafe fn new(qp: *mut bindings::ib_qp) -> Result<Self> {
        // SAFETY: By the requirement of this function.
        Ok(Self(unsafe { Gate::new(qp, GFP_KERNEL) }?))
    }

    #[inline]
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// What completions say the queue pair is.
    #[inline]
    pub(super) fn address(&self) -> *mut bindings::ib_qp {
        self.0.address()
    }

    /// Tells the owner of the queue pair, if that still exists.
    ///
    /// # Context
    ///
    /// Any but hard interrupts. No lock may be held that an operation takes.
    #[doc(alias = "ib_event")]
    #[inline]
    pub fn event(&self, what: QpEvent) {
        let kind = match what {
            QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            QpEvent::ReqErr => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            QpEvent::AccessErr => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            QpEvent::CommEst => bindings::ib_event_type_IB_EVENT_COMM_EST,
            QpEvent::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            QpEvent::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        };

        self.0.enter(|qp| {
            // SAFETY: Inside the gate the queue pair is valid; these are set before it is used.
            let (handler, context, device) =
                unsafe { ((*qp).event_handler, (*qp).qp_context, (*qp).device) };

            if let Some(handler) = handler {
                let mut event = bindings::ib_event {
                    device,
                    element: bindings::ib_event__bindgen_ty_1 { qp },
                    event: kind,
                };

                // SAFETY: That is what the queue pair has the handler for.
                unsafe { handler(&mut event, context) };
            }
        });
    }
}
