// SPDX-License-Identifier: GPL-2.0

//! The kernel-free part of `rrxe` in user space.
//!
//! Nothing is here but the list of modules and the tests that need a host: the modules are the
//! files of the driver itself. The kernel names them `crate::wire` and so on; the glob import
//! below makes that path right here as well.

#![cfg_attr(not(any(test, feature = "fuzz")), no_std)]
// Much of it has its user in the kernel.
#![allow(dead_code)]

#[path = "../../../../drivers/infiniband/sw/rrxe"]
mod driver {
    pub(crate) mod abi;
    pub(crate) mod arm;
    pub(crate) mod bell;
    pub(crate) mod comp;
    pub(crate) mod env;
    pub(crate) mod eq;
    pub(crate) mod fetch;
    pub(crate) mod icrc;
    pub(crate) mod inflight;
    pub(crate) mod opcode;
    pub(crate) mod owner;
    pub(crate) mod packet;
    pub(crate) mod psn;
    pub(crate) mod qp;
    pub(crate) mod resp;
    pub(crate) mod ring;
    pub(crate) mod sge;
    pub(crate) mod sync;
    pub(crate) mod tx;
    pub(crate) mod wc;
    pub(crate) mod wire;
    pub(crate) mod wqe;
}

pub(crate) use driver::*;

#[cfg(test)]
mod direct;
#[cfg(test)]
mod engine;
#[cfg(any(test, feature = "fuzz"))]
#[cfg_attr(not(test), allow(unused_imports))]
mod faults;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(test)]
mod garbage;
#[cfg(test)]
mod lent;
#[cfg(test)]
mod paging;
#[cfg(test)]
mod props;
#[cfg(any(test, feature = "fuzz"))]
mod sim;
#[cfg(test)]
mod unreliable;

#[cfg(all(test, feature = "loom"))]
mod interleave;
