// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    client::ClientDevice,
    consumer::{
        ConsumerCq,
        Entries, //
    },
    pd::Pd,
    port::{
        Gid,
        Port, //
    },
    wr::{
        Done,
        RecvQueue,
        RecvRequest,
        Refused,
        SendQueue,
        SendRequest, //
    },
};
use crate::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use core::ptr::NonNull;

/// How many requests a queue pair can have at a time.
#[derive(Clone, Copy)]
pub struct Depth {
    /// In its send queue.
    pub send: u16,
    /// In its receive queue.
    pub recv: u16,
}

/// The part of a queue pair that requests refer to, and that outlives it for that reason.
#[doc(hidden)]
pub struct Shared {
    pub(super) send_free: Atomic<i32>,
    pub(super) recv_free: Atomic<i32>,
    async_events: Atomic<u32>,
}

/// A queue pair of the C side.
///
/// # Invariants
///
/// `qp` is a queue pair that is ours to destroy. Everything else here belongs to it.
struct Handle {
    qp: NonNull<bindings::ib_qp>,
    shared: Arc<Shared>,
    // What it uses; dropped after it was destroyed.
    _send: Entries,
    _recv: Entries,
    pd: Arc<Pd>,
}

// SAFETY: Queue pairs are not bound to a thread.
unsafe impl Send for Handle {}

// SAFETY: The functions that are called with a reference may be called from several threads at a
// time; this is what the rules for drivers say, `Documentation/infiniband/core_locking.rst`.
unsafe impl Sync for Handle {}

impl Handle {
    #[inline]
    fn as_raw(&self) -> *mut bindings::ib_qp {
        self.qp.as_ptr()
    }

    #[inline]
    fn modify(&self, attr: &mut bindings::ib_qp_attr, mask: u32) -> Result {
        // SAFETY: By the type invariant.
        to_result(unsafe { bindings::ib_modify_qp(self.as_raw(), attr, mask as c_int) })
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let ret = unsafe { bindings::ib_destroy_qp_user(self.as_raw(), core::ptr::null_mut()) };
        crate::warn_on_once!(ret != 0);
    }
}

/// A reliable connected queue pair that is not connected yet.
///
/// It takes no requests in this state, so there is nothing to be waited for when it is dropped.
pub struct IdleQp(Handle);

impl IdleQp {
    /// Creates a queue pair.
    ///
    /// Every request makes a completion, in `send_cq` or `recv_cq`, which may be the same. One
    /// entry more than `depth` says is taken of each, for the request that tells when all others
    /// have ended.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if these objects are not on the same device, or the device cannot do this;
    /// `ENOSPC` if the completion queues have not so many free entries; `ENOMEM`; that of the
    /// driver.
    #[doc(alias = "ib_create_qp")]
    #[inline]
    pub fn new(
        pd: &Arc<Pd>,
        send_cq: &Arc<ConsumerCq>,
        recv_cq: &Arc<ConsumerCq>,
        depth: Depth,
    ) -> Result<Self> {
        for cq in [send_cq, recv_cq] {
            if !Arc::ptr_eq(pd.device(), cq.device()) {
                return Err(EINVAL);
            }
        }
        let (max_send, max_recv) = (u32::from(depth.send), u32::from(depth.recv));
        let send = Entries::take(send_cq, i32::from(depth.send) + 1)?;
        let recv = Entries::take(recv_cq, i32::from(depth.recv) + 1)?;
        let shared = Arc::new(
            Shared {
                send_free: Atomic::new(i32::from(depth.send)),
                recv_free: Atomic::new(i32::from(depth.recv)),
                async_events: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;

        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(on_event),
            qp_context: Arc::as_ptr(&shared).cast_mut().cast(),
            send_cq: send.cq().as_raw(),
            recv_cq: recv.cq().as_raw(),
            cap: bindings::ib_qp_cap {
                max_send_wr: max_send + 1,
                max_recv_wr: max_recv + 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: All that `attr` points to is kept by the handle until the queue pair was
        // destroyed; the name lives as long as the module.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), &mut attr, pd.device().user())
        })?;
        // INVARIANT: It was created just now.
        Ok(Self(Handle {
            qp: NonNull::new(qp).ok_or(ENOMEM)?,
            shared,
            _send: send,
            _recv: recv,
            pd: pd.clone(),
        }))
    }

    /// The number of the queue pair.
    #[inline]
    pub fn number(&self) -> u32 {
        // SAFETY: By the type invariant of `Handle`; the field is constant.
        unsafe { (*self.0.as_raw()).qp_num }
    }

    /// Connects the queue pair with itself, over the RoCE port `port` and its address `gid`.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the three do not belong together; `ENODEV` if the GID has no interface (any
    /// more); that of the driver.
    #[doc(alias = "ib_modify_qp")]
    #[inline]
    pub fn connect_to_self(self, port: &Port<'_>, gid: &Gid<'_>) -> Result<Qp> {
        // SAFETY: A `Gid` is a valid reference.
        let (gid_dev, gid_port) = unsafe { ((*gid.as_raw()).device, (*gid.as_raw()).port_num) };
        if gid_dev != self.0.pd.device().as_raw() || gid_port != port.number() {
            return Err(EINVAL);
        }

        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_INIT,
            pkey_index: 0,
            port_num: port.number(),
            qp_access_flags: bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE as c_int,
            ..Default::default()
        };
        self.0.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
                | bindings::ib_qp_attr_mask_IB_QP_PORT
                | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
        )?;

        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RTR,
            path_mtu: port.active_mtu()?,
            dest_qp_num: self.number(),
            rq_psn: Self::FIRST_PSN,
            max_dest_rd_atomic: 1,
            // 0.64 ms, see IBA 1.5, table 46.
            min_rnr_timer: 12,
            ah_attr: bindings::rdma_ah_attr {
                grh: bindings::ib_global_route {
                    sgid_attr: gid.as_raw(),
                    // SAFETY: As above.
                    dgid: unsafe { (*gid.as_raw()).gid },
                    sgid_index: gid.index().try_into()?,
                    hop_limit: 64,
                    ..Default::default()
                },
                ah_flags: bindings::ib_ah_flags_IB_AH_GRH as u8,
                port_num: port.number(),
                type_: bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE,
                __bindgen_anon_1: bindings::rdma_ah_attr__bindgen_ty_1 {
                    roce: bindings::roce_ah_attr { dmac: gid.mac()? },
                },
                ..Default::default()
            },
            ..Default::default()
        };
        self.0.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_AV
                | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
                | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
                | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
                | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        )?;

        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RTS,
            // 4.096 us * 2^14 = 67 ms.
            timeout: 14,
            retry_cnt: 7,
            // Without limit.
            rnr_retry: 7,
            sq_psn: Self::FIRST_PSN,
            max_rd_atomic: 1,
            ..Default::default()
        };
        self.0.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
                | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
                | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
                | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
        )?;
        Ok(Qp(self.0))
    }

    /// Any number of 24 bits will do, since there is no earlier connection to be told from.
    const FIRST_PSN: u32 = 1;
}

/// A reliable connected queue pair that is connected.
///
/// Wraps the kernel's C `struct ib_qp`.
///
/// Dropping it waits until all requests have come back, most of them as
/// [`Status::FLUSHED`](super::wr::Status::FLUSHED). Requests that the device refuses to give back
/// (this makes a warning) are never freed.
///
/// # Examples
///
/// Not built, since `ib_core` may be a module and this crate is not:
///
/// ```ignore
/// fn hello<T: Done<SendQueue>>(qp: &Qp, data: T) -> Result {
///     let mut request = SendRequest::new(qp, data, 5)?;
///     request.buffer().copy_from_slice(b"Hello");
///     Ok(qp.post_send(request)?)
/// }
/// ```
pub struct Qp(Handle);

impl Qp {
    #[inline]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Returns the pointer for the C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::ib_qp {
        self.0.as_raw()
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Arc<ClientDevice> {
        self.0.pd.device()
    }

    #[inline]
    pub(super) fn local_dma_lkey(&self) -> u32 {
        self.0.pd.local_dma_lkey()
    }

    /// How many asynchronous events there were for this queue pair: errors, mostly.
    #[inline]
    pub fn async_events(&self) -> u32 {
        self.0.shared.async_events.load(Relaxed)
    }

    /// Sends what is in the buffer of a request.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the request was made for another queue pair; `ENOMEM` if it cannot be mapped
    /// for the device; that of the driver. The request comes back with the error.
    #[doc(alias = "ib_post_send")]
    #[inline]
    pub fn post_send<T: Done<SendQueue>>(
        &self,
        request: SendRequest<T>,
    ) -> Result<(), Refused<T, SendQueue>> {
        request.post(self)
    }

    /// Provides the buffer of a request for a message to be received.
    ///
    /// # Context
    ///
    /// Any.
    ///
    /// # Errors
    ///
    /// As those of [`post_send`](Self::post_send).
    #[doc(alias = "ib_post_recv")]
    #[inline]
    pub fn post_recv<T: Done<RecvQueue>>(
        &self,
        request: RecvRequest<T>,
    ) -> Result<(), Refused<T, RecvQueue>> {
        request.post(self)
    }
}

impl Drop for Qp {
    /// Waits for all requests; `Handle` then destroys the queue pair. May sleep.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant of `Handle`. Nobody posts any more, since this is the last
        // reference; and there is room for one more request in both queues.
        unsafe { bindings::ib_drain_qp(self.as_raw()) };
    }
}

/// # Safety
///
/// To be called as `ib_qp_init_attr.event_handler`, for queue pairs of [`IdleQp::new`].
unsafe extern "C" fn on_event(_event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: The context is kept until the queue pair was destroyed.
    let shared = unsafe { &*context.cast::<Shared>() };
    shared.async_events.add(1, Relaxed);
}
