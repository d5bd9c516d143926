// SPDX-License-Identifier: GPL-2.0

//! Remote direct memory access (RDMA).
//!
//! What is here so far serves the completion queue core, `drivers/infiniband/core/cq_rust.rs`, and
//! clients, that is users of RDMA devices within the kernel.
//!
//! For the core:
//!
//! - [`cq`]: kernel completion queues as a chain of types, one for each stage of their life, so
//!   that a queue can be armed only after it was published, and published only after all that its
//!   handler touches is there;
//! - [`device`]: the part of `struct ib_device` that this needs;
//! - [`trace`]: the trace events of `ib_core`;
//! - `umem`: what the check of registrations, `drivers/infiniband/core/umem_fork_rust.rs`, needs.
//!
//! For clients, with `samples/rust/rust_rdma_cq.rs` as an example:
//!
//! - [`client`]: being told of devices that come and go;
//! - [`pd`], [`consumer`], [`qp`]: protection domains, completion queues and queue pairs;
//! - [`wr`]: work requests and their completions;
//! - [`port`]: ports and their addresses.
//!
//! For drivers of devices: [`driver`].
//!
//! # Built in and module
//!
//! This crate is part of the kernel image, `ib_core` usually is a module. So nothing that is
//! compiled into this crate may name a symbol of `ib_core`: every function that does is generic or
//! `#[inline]`, and exists as machine code only in the module that uses it. The link of `vmlinux`
//! fails if one does not.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub mod client;
pub mod consumer;
pub mod cq;
pub mod device;
pub mod driver;
pub mod pd;
pub mod port;
pub mod qp;
pub mod trace;
#[cfg(CONFIG_INFINIBAND_RUST_UMEM_FORK)]
pub mod umem;
pub mod wr;
