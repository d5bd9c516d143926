// SPDX-License-Identifier: GPL-2.0

//! Management datagrams that a device answers itself.
//!
//! C header: [`include/rdma/ib_mad.h`](srctree/include/rdma/ib_mad.h)

use crate::bindings;

/// Size of a datagram.
pub const MAD_LEN: usize = bindings::IB_MGMT_MAD_SIZE as usize;

/// A datagram as it is on the wire.
pub type Mad = [u8; MAD_LEN];

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It makes no sense.
    Failure,
    /// It was looked at, and that is all.
    Done,
    /// It is answered.
    Reply,
}

impl Outcome {
    #[inline]
    pub(super) fn into_raw(self) -> crate::ffi::c_int {
        let raw = match self {
            Self::Failure => bindings::ib_mad_result_IB_MAD_RESULT_FAILURE,
            Self::Done => bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS,
            Self::Reply => {
                bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS
                    | bindings::ib_mad_result_IB_MAD_RESULT_REPLY
            }
        };

        raw as crate::ffi::c_int
    }
}
