// SPDX-License-Identifier: GPL-2.0

//! The driver's side of shared receive queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::gate::Gate;
use crate::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttr {
    /// How many work requests it can have.
    pub max_wr: u32,
    /// How many elements one can have.
    pub max_sge: u32,
    /// An event is wanted when there are fewer work requests than this; 0 is never.
    pub limit: u32,
}

impl SrqAttr {
    #[inline]
    pub(super) fn from_raw(raw: &bindings::ib_srq_attr) -> Self {
        Self {
            max_wr: raw.max_wr,
            max_sge: raw.max_sge,
            limit: raw.srq_limit,
        }
    }

    #[inline]
    pub(super) fn fill(&self, to: &mut bindings::ib_srq_attr) {
        to.max_wr = self.max_wr;
        to.max_sge = self.max_sge;
        to.srq_limit = self.limit;
    }
}

/// A shared receive queue that the driver has made.
pub struct NewSrq<S> {
    /// What the driver keeps with it.
    pub data: S,
    /// What it is, which is not less than what was asked for.
    pub attr: SrqAttr,
}

/// What to change of a shared receive queue; `None` leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct SrqChange {
    /// How many work requests it can have.
    pub max_wr: Option<u32>,
    /// When an event is wanted.
    pub limit: Option<u32>,
}

/// A shared receive queue as its driver refers to it; see [`gate`](super::gate).
#[derive(Clone)]
pub struct SrqHandle(Arc<Gate<bindings::ib_srq>>);

impl SrqHandle {
    /// # Safety
    ///
    /// `srq` must be valid until [`Self::close`] was called.
    #[inline]
    pub(super) unsafe fn new(srq: *mut bindings::ib_srq) -> Result<Self> {
        // SAFETY: By the requirement of this function.
        Ok(Self(unsafe { Gate::new(srq, GFP_KERNEL) }?))
    }

    #[inline]
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Tells the owner that there are fewer work requests than the limit.
    ///
    /// # Context
    ///
    /// Any but hard interrupts. No lock may be held that an operation takes.
    #[doc(alias = "IB_EVENT_SRQ_LIMIT_REACHED")]
    #[inline]
    pub fn limit_reached(&self) {
        self.0.enter(|srq| {
            // SAFETY: Inside the gate the queue is valid; these are constant.
            let (handler, context, device) =
                unsafe { ((*srq).event_handler, (*srq).srq_context, (*srq).device) };

            if let Some(handler) = handler {
                let mut event = bindings::ib_event {
                    device,
                    element: bindings::ib_event__bindgen_ty_1 { srq },
                    event: bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
                };

                // SAFETY: That is what the queue has the handler for.
                unsafe { handler(&mut event, context) };
            }
        });
    }
}
