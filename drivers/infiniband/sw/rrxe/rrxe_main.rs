// SPDX-License-Identifier: GPL-2.0

//! Software RDMA over Ethernet: RoCE version 2 over UDP, without hardware for it.
//!
//! The protocol is in modules that use nothing of the kernel: [`tx`] (requester), [`comp`]
//! (completer), [`resp`] (responder), and what they are made of. What they need of the world is
//! asked for by the traits in [`env`]. The other modules are the kernel's side of that:
//!
//! - [`verbs`]: the operations that the RDMA core calls;
//! - [`device`], [`params`], [`stats`], [`debug`]: the device;
//! - [`uctx`], [`queue`]: what user space maps;
//! - [`pd`], [`ah`], [`mr`], [`mw`], [`srq`], [`cq`], [`event`]: objects;
//! - [`qp`]: queue pairs;
//! - [`net`], [`table`]: the network, and the tables that packets are looked up in.
//!
//! # Beside `rdma_rxe`
//!
//! The C driver finds its devices by the number of the driver and takes what it finds for its own,
//! and there can be one link type and one user of the UDP port in a network namespace. So the two
//! modules keep each other out. With the parameter `coexist`, for tests, devices have link type
//! `rrxe` and no number that `rdma_rxe` looks for, and must be in other network namespaces than its
//! devices. Libraries find them by name, which must start with `rxe`, if `ib_uverbs` was loaded
//! before they were made. While one is being made its interface must not change: for that moment it
//! has the number, because `ib_uverbs` wants it.

use kernel::{
    prelude::*,
    rdma::driver::link, //
};

// Of some of these, a part is used by tests only, which run on a host.

mod abi;
#[allow(dead_code)]
mod arm;
mod bell;
mod comp;
#[allow(dead_code)]
mod env;
#[allow(dead_code)]
mod eq;
mod fetch;
#[allow(dead_code)]
mod icrc;
#[allow(dead_code)]
mod inflight;
mod opcode;
#[allow(dead_code)]
mod owner;
#[allow(dead_code)]
mod packet;
#[allow(dead_code)]
mod psn;
mod qp;
#[allow(dead_code)]
mod resp;
#[allow(dead_code)]
mod ring;
mod sge;
mod sync;
mod tx;
mod wc;
mod wire;
mod wqe;

mod ah;
mod cq;
mod debug;
mod device;
mod event;
mod fault;
mod kword;
mod mad;
mod mr;
mod mw;
mod net;
mod params;
mod pd;
mod queue;
mod srq;
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
            description: "For tests beside rdma_rxe: link type rrxe, names must start with rxe",
        },
    },
}

/// The driver. Fields are dropped in this order: first the devices, then what they need.
struct Rrxe {
    _files: debug::Files,
    _driver: link::Driver<Verbs>,
    _net: net::Registrations,
    _keep_out: Option<Pin<KBox<link::KeepOut>>>,
}

impl kernel::Module for Rrxe {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let coexist = module_parameters::coexist.value();
        // It looks for its devices by number of the driver, and takes ours for its own.
        let keep_out = if coexist {
            None
        } else {
            let keep_out = link::KeepOut::new(c"rdma_rxe");

            if keep_out.is_err() {
                pr_err!("rdma_rxe is loaded, and only one of the two can be\n");
            }
            Some(keep_out?)
        };
        let net = net::init()?;

        if coexist {
            // rdma_rxe on the other end of a veth would take a train for one packet.
            net::set_train_mode(net::TrainMode::NEVER)?;
        }
        Ok(Self {
            _files: debug::Files::new(net.dir())?,
            _driver: device::register(coexist)?,
            _net: net,
            _keep_out: keep_out,
        })
    }
}
