// SPDX-License-Identifier: GPL-2.0

//! The operations of shared receive queues, as the core calls them.

use super::{
    Pd,
    Srq,
    VTable, //
};
use crate::{
    bindings,
    error::from_result,
    ffi::c_int,
    prelude::*,
    rdma::driver::{
        srq::{
            SrqAttr,
            SrqChange,
            SrqHandle, //
        },
        udata::Udata,
        wr::RecvWrs,
        Operations, //
    }, //
};

impl<T: Operations> VTable<T> {
    /// `create_srq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `udata` is what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(udata) };
            // SAFETY: `init` is valid, and nobody else uses it.
            let init = unsafe { &mut *init };

            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The handle is closed before the queue is freed: below, or when it is
            // destroyed.
            let handle = unsafe { SrqHandle::new(srq) }?;
            // SAFETY: The core has set the domain.
            let pd = unsafe { Pd::<T>::data((*srq).pd) };
            let attr = SrqAttr::from_raw(&init.attr);

            match T::create_srq(pd, &attr, handle.clone(), udata.as_ref()) {
                Ok(new) => {
                    new.attr.fill(&mut init.attr);
                    // SAFETY: The core has allocated as much as the table says.
                    unsafe { Srq::<T>::init(srq, (handle, new.data)) };
                    Ok(0)
                }
                Err(e) => {
                    handle.close();
                    Err(e)
                }
            }
        })
    }

    /// `modify_srq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        const MAX_WR: u32 = bindings::ib_srq_attr_mask::IB_SRQ_MAX_WR.0;
        const LIMIT: u32 = bindings::ib_srq_attr_mask::IB_SRQ_LIMIT.0;

        from_result(|| {
            // SAFETY: `udata` is what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(udata) };
            // SAFETY: The object was made, and `attr` is valid.
            let ((_, data), attr) = unsafe { (Srq::<T>::data(srq), &*attr) };
            let change = SrqChange {
                max_wr: (mask.0 & MAX_WR != 0).then_some(attr.max_wr),
                limit: (mask.0 & LIMIT != 0).then_some(attr.srq_limit),
            };

            T::modify_srq(data, &change, udata.as_ref())?;
            Ok(0)
        })
    }

    /// `query_srq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        // SAFETY: The object was made, and `attr` is the core's to be written.
        unsafe { T::query_srq(&Srq::<T>::data(srq).1).fill(&mut *attr) };
        0
    }

    /// `destroy_srq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: This is the last call for an object that was made.
        unsafe {
            let (handle, data) = Srq::<T>::data(srq);

            T::destroy_srq(data);
            handle.close();
            Srq::<T>::destroy(srq);
        }
        0
    }

    /// `post_srq_recv` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: The object was made, and `wr` is what a client has posted.
        let ((_, data), mut wrs) = unsafe { (Srq::<T>::data(srq), RecvWrs::new(wr)) };

        match T::post_srq_recv(data, &mut wrs) {
            Ok(()) => 0,
            Err(e) => {
                // SAFETY: `bad` is the caller's to be written.
                unsafe { bad.write(wrs.last()) };
                e.to_errno()
            }
        }
    }
}
