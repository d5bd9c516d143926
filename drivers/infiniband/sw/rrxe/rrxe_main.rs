// SPDX-License-Identifier: GPL-2.0

//! Software RDMA over Ethernet: RoCE version 2 over UDP, without hardware for it.
//!
//! The protocol is in modules that use nothing of the kernel: [`tx`] (requester), [`comp`]
//! (completer), [`resp`] (responder), and what they are made of. What they need of the world is
//! asked for by the traits in [`env`]. The other modules are the kernel's side of that:
//!
//! - [`verbs`]: the operations that the RDMA core calls;
//! - [`device`], [`params`], [`stats`]: the device;
//! - [`uctx`], [`queue`]: what user space maps;
//! - [`pd`], [`ah`], [`mr`], [`cq`], [`event`]: objects;
//! - [`qp`]: queue pairs;
//! - [`net`], [`table`]: the network, and the tables that packets are looked up in.

use kernel::{
    prelude::*,
    rdma::driver::link, //
};

mod abi;
mod arm;
mod comp;
mod env;
mod eq;
mod fetch;
mod icrc;
mod inflight;
mod opcode;
mod owner;
mod packet;
mod psn;
mod qp;
mod resp;
mod ring;
mod sge;
mod sync;
mod tx;
mod wc;
mod wire;
mod wqe;

mod ah;
mod cq;
mod device;
mod event;
mod kword;
mod mr;
mod net;
mod params;
mod pd;
mod queue;
mod stats;
mod table;
mod uctx;
mod verbs;

use verbs::Verbs;

module! {
    type: Rrxe,
    name: "rrxe",
    authors: ["Rust for Linux Contributors"],
    description: "Software RDMA over Ethernet",
    license: "GPL",
    alias: ["rdma-link-rxe"],
    params: {
        coexist: bool {
            default: false,
            description: "Be another driver than rdma_rxe for user space, with link type rrxe",
        },
    },
}

/// The driver. Fields are dropped in this order: first the devices, then what they need.
struct Rrxe {
    _driver: link::Driver<Verbs>,
    _net: net::Registrations,
}

impl kernel::Module for Rrxe {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let coexist = module_parameters::coexist.value();

        if !coexist && link::is_module_loaded(c"rdma_rxe") {
            pr_err!("rdma_rxe is loaded, and only one of the two can be\n");
            return Err(EBUSY);
        }
        let net = net::init()?;

        Ok(Self {
            _driver: device::register(coexist)?,
            _net: net,
        })
    }
}
