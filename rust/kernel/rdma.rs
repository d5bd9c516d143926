// SPDX-License-Identifier: GPL-2.0

//! Remote direct memory access (RDMA).
//!
//! What is here so far serves the completion queue core, `drivers/infiniband/core/cq_rust.rs`:
//!
//! - [`cq`]: kernel completion queues as a chain of types, one for each stage of their life, so
//!   that a queue can be armed only after it was published, and published only after all that its
//!   handler touches is there;
//! - [`device`]: the part of `struct ib_device` that this needs;
//! - [`trace`]: the trace events of `ib_core`.
//!
//! # Built in and module
//!
//! This crate is part of the kernel image, `ib_core` usually is a module. So nothing that is
//! compiled into this crate may name a symbol of `ib_core`: every function that does is generic or
//! `#[inline]`, and exists as machine code only in the module that uses it. The link of `vmlinux`
//! fails if one does not.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub mod cq;
pub mod device;
pub mod trace;
