// SPDX-License-Identifier: GPL-2.0

//! Temporary: the network side of rrxe without the rest. Sends every packet back.

#![allow(dead_code)]

#[path = "../../drivers/infiniband/sw/rrxe/icrc.rs"]
mod icrc;
#[path = "../../drivers/infiniband/sw/rrxe/net.rs"]
mod net;
#[path = "../../drivers/infiniband/sw/rrxe/opcode.rs"]
mod opcode;
#[path = "../../drivers/infiniband/sw/rrxe/packet.rs"]
mod packet;
#[path = "../../drivers/infiniband/sw/rrxe/psn.rs"]
mod psn;
#[path = "../../drivers/infiniband/sw/rrxe/table.rs"]
mod table;
#[path = "../../drivers/infiniband/sw/rrxe/wire.rs"]
mod wire;

use kernel::{
    net::{
        namespace::Namespace,
        netdevice::NetDevice, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        global_lock,
        Arc, //
    },
    workqueue, //
};

mod stats {
    use kernel::sync::atomic::{Atomic, Relaxed};

    #[derive(Clone, Copy)]
    pub(crate) enum Counter {
        RcvdPkts,
        RcvdBytes,
        SentPkts,
        SendErr,
    }

    pub(crate) struct Stats(pub(crate) [Atomic<u64>; 4]);

    impl Stats {
        pub(crate) fn inc(&self, c: Counter) {
            self.add(c, 1);
        }
        pub(crate) fn add(&self, c: Counter, n: u64) {
            if let Some(x) = self.0.get(c as usize) {
                x.add(n, Relaxed);
            }
        }
    }
}

mod ah {
    #[derive(Clone)]
    pub(crate) struct Av {
        pub(crate) sgid: [u8; 16],
        pub(crate) dgid: [u8; 16],
        pub(crate) flow_label: u32,
        pub(crate) hop_limit: u8,
        pub(crate) traffic_class: u8,
        pub(crate) ifindex: u32,
    }
}

mod device {
    use super::*;
    use kernel::sync::{new_spinlock_irq, SpinLockIrq};

    #[pin_data]
    pub(crate) struct Device {
        ndev: ARef<NetDevice>,
        pub(crate) stats: stats::Stats,
        pub(crate) drops: net::Drops,
        pub(crate) inflight: net::InFlight,
        #[pin]
        pub(crate) flow: SpinLockIrq<Option<Arc<net::Flow>>>,
    }

    impl Device {
        pub(crate) fn new(ndev: ARef<NetDevice>) -> Result<Arc<Self>> {
            let inflight = net::InFlight::new(64, 16, GFP_KERNEL)?;
            Arc::pin_init(
                pin_init!(Self {
                    ndev,
                    stats: stats::Stats([const { kernel::sync::atomic::Atomic::new(0) }; 4]),
                    drops: net::Drops::new(),
                    inflight,
                    flow <- new_spinlock_irq!(None),
                }),
                GFP_KERNEL,
            )
        }
        pub(crate) fn netdev(&self) -> &NetDevice {
            &self.ndev
        }
        pub(crate) fn unregister_queued(&self) {
            pr_info!("unregister\n");
            let _ = workqueue::system().try_spawn(GFP_KERNEL, || {
                let a = ATTACHED.lock().take();
                drop(a);
                pr_info!("detached\n");
            });
        }
        pub(crate) fn set_netdev_mtu(&self, mtu: u32) {
            pr_info!("mtu {}\n", mtu);
        }
        pub(crate) fn port_changed(&self, up: bool) {
            pr_info!("up {}\n", up);
        }
    }

    impl net::Wake for Device {
        fn wake(self: Arc<Self>) {
            pr_info!("wake {}\n", self.inflight.count());
        }
    }
}

mod qp {
    use super::{device::Device, *};

    pub(crate) fn deliver(dev: &Device, qpn: u32, pkt: net::RxPacket) {
        if qpn == 0xbad {
            dev.drops.inc(packet::DropReason::NoQp);
            return;
        }
        // As the backlog does it.
        let Some(pkt) = net::RxPacket::from_skb(pkt.into_skb()) else {
            pr_err!("reparse\n");
            return;
        };
        let flow = {
            let mut slot = dev.flow.lock();
            let same = slot.as_ref().is_some_and(|f| f.peer() == pkt.src() && f.local() == pkt.dst());
            if same {
                slot.clone()
            } else {
                let av = ah::Av {
                    sgid: pkt.dst().gid(),
                    dgid: pkt.src().gid(),
                    flow_label: 0,
                    hop_limit: 0,
                    traffic_class: 8,
                    ifindex: 0,
                };
                *slot = net::Flow::new(dev, &av, qpn)
                    .and_then(|f| Ok(Arc::new(f, GFP_ATOMIC)?))
                    .ok();
                slot.clone()
            }
        };
        let Some(flow) = flow else {
            pr_err!("no flow\n");
            return;
        };
        let hdr = packet::TxHeaders::new(&pkt.hdr.bth, &pkt.hdr.ext, &pkt.hdr.tail);
        if !dev.inflight.admits() {
            pr_info!("full {}\n", dev.inflight.count());
        }
        let ret = flow.send(
            hdr.as_bytes(),
            pkt.hdr.len,
            |to| {
                if to.len() != pkt.payload().len() {
                    return Err(());
                }
                to.copy_from_slice(pkt.payload());
                Ok(())
            },
            &dev.inflight,
        );
        match ret {
            Ok(Ok(_)) => dev.stats.inc(stats::Counter::SentPkts),
            Ok(Err(())) => pr_err!("fill\n"),
            Err(e) => {
                pr_info!("send: {:?}\n", e);
                dev.stats.inc(stats::Counter::SendErr);
            }
        }
    }
}

global_lock! {
    // SAFETY: In init of the module.
    unsafe(uninit) static ATTACHED: Mutex<Option<net::Attachment>> = None;
}

struct Test {
    dev: Arc<device::Device>,
    _net: net::Registrations,
}

module! {
    type: Test,
    name: "rust_rrxe_net",
    authors: ["Rust RDMA"],
    description: "Temporary test of the network side of rrxe",
    license: "GPL",
    params: {
        ifindex: i32 {
            default: 0,
            description: "Index of the network device",
        },
    },
}

impl kernel::Module for Test {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: Once, and first.
        unsafe { ATTACHED.init() };
        let reg = net::init()?;
        // SAFETY: That name space is always there.
        let ns = unsafe { Namespace::from_raw(&raw mut kernel::bindings::init_net) };
        let ndev = ns
            .device(module_parameters::ifindex.value().unsigned_abs())
            .ok_or(ENODEV)?;
        let dev = device::Device::new(ndev.clone())?;
        dev.inflight.set_wake(dev.clone());
        let attachment = net::Attachment::new(&dev, &ndev)?;
        pr_info!("second: {:?}\n", net::Attachment::new(&dev, &ndev).err());
        attachment.listen()?;
        *ATTACHED.lock() = Some(attachment);
        Ok(Self { dev, _net: reg })
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let a = ATTACHED.lock().take();
        drop(a);
        self.dev.inflight.clear_wake();
        let s = &self.dev.stats.0;
        pr_info!(
            "rcvd {} bytes {} sent {} err {} inflight {}\n",
            s[0].load(kernel::sync::atomic::Relaxed),
            s[1].load(kernel::sync::atomic::Relaxed),
            s[2].load(kernel::sync::atomic::Relaxed),
            s[3].load(kernel::sync::atomic::Relaxed),
            self.dev.inflight.count()
        );
    }
}
