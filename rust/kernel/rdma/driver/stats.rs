// SPDX-License-Identifier: GPL-2.0

//! Counters that `rdma statistic` and sysfs show.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    bindings,
    str::CStr, //
};

/// Describes a counter.
///
/// Wraps the kernel's C `struct rdma_stat_desc`.
#[repr(transparent)]
pub struct Desc(bindings::rdma_stat_desc);

// SAFETY: It is never changed, and the name lives for ever.
unsafe impl Sync for Desc {}

// SAFETY: As above.
unsafe impl Send for Desc {}

impl Desc {
    /// Describes the counter `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: crate::str::as_char_ptr_in_const_context(name),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}
