// SPDX-License-Identifier: GPL-2.0

//! The network: RoCEv2 packets from and to UDP.
//!
//! # Who keeps what alive
//!
//! ```text
//! NAMESPACES (a list) --> Sockets {v4, v6} --> Ports --> Port --> Device, network device
//!                            ^                   ^
//!                            +--- Attachment ----+
//! ```
//!
//! - All devices in a network name space share its two sockets; the last [`Attachment`] closes
//!   them, or the end of the name space does.
//! - A packet is received under RCU from socket to queue pair: nothing is counted and no lock is
//!   taken. So the end of an attachment first makes the device unfindable, then waits for a grace
//!   period, and gives up references only after that.
//! - A packet that was sent may be on its way for any time. All that it knows of its sender is the
//!   counter [`InFlight`], which lives as long as it.
//!
//! # Locks
//!
//! `NAMESPACES` is held while sockets are opened and closed. `DEVICES` is a leaf: the notifier,
//! which has RTNL, takes no other.

#[path = "net/mcast.rs"]
mod mcast;
#[path = "net/notifier.rs"]
mod notifier;
#[path = "net/ns.rs"]
mod ns;
#[path = "net/rx.rs"]
mod rx;
#[path = "net/tx.rs"]
mod tx;

pub(crate) use kernel::net::{
    addr::IpAddr,
    skb::{
        InFlight,
        Wake, //
    }, //
};
pub(crate) use mcast::Groups;
pub(crate) use ns::Attachment;
pub(crate) use rx::RxPacket;
pub(crate) use tx::{
    roce_len,
    span_len,
    Flow,
    Train, //
};

use crate::{
    device::Device,
    icrc::Crc32,
    packet::DropReason, //
};
use kernel::{
    crc32,
    debugfs,
    fmt,
    net::{
        namespace,
        netdevice,
        skb::Offload, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc, //
    }, //
};

/// What trains are told by: the EtherType of RoCE without IP, which is what they are.
const ETHER_TYPE: u16 = 0x8915;

/// When trains are sent; for tests.
pub(crate) struct TrainMode;

impl TrainMode {
    /// Not at all: all packets go alone.
    pub(crate) const NEVER: u32 = 0;
    /// Where the device takes them.
    pub(crate) const IF_TAKEN: u32 = 1;
    /// Everywhere, so that the stack cuts them where the device does not take them.
    pub(crate) const ALWAYS: u32 = 2;
}

static TRAINS: Atomic<u32> = Atomic::new(TrainMode::IF_TAKEN);

/// Whether queue pairs of a device give packets to each other directly; for tests.
static DIRECT: Atomic<bool> = Atomic::new(true);

/// Tells whether that is so.
pub(crate) fn is_direct() -> bool {
    DIRECT.load(Relaxed)
}

/// Sets it. What is on its way meanwhile may be overtaken.
pub(crate) fn set_direct(on: bool) {
    DIRECT.store(on, Relaxed);
}

/// Sets when trains are sent.
///
/// # Errors
///
/// `EINVAL` if there is no such mode.
pub(crate) fn set_train_mode(mode: u32) -> Result {
    if mode > TrainMode::ALWAYS {
        return Err(EINVAL);
    }
    TRAINS.store(mode, Relaxed);
    Ok(())
}

/// The CRC that the kernel has for this processor.
struct KernelCrc;

impl Crc32 for KernelCrc {
    #[inline]
    fn update(crc: u32, data: &[u8]) -> u32 {
        crc32::le(crc, data)
    }
}

/// Counters of the packets that a device has dropped, by reason.
pub(crate) struct Drops([Atomic<u64>; DropReason::COUNT]);

/// What the counters are called in debugfs, in the order of [`DropReason`].
const NAMES: [&str; DropReason::COUNT] = [
    "short",
    "version",
    "opcode",
    "length",
    "payload",
    "dest_qp",
    "dest_address",
    "no_qp",
    "service",
    "state",
    "address",
    "pkey",
    "qkey",
    "icrc",
    "ip_options",
    "refused",
];

impl Drops {
    /// Creates counters.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; DropReason::COUNT])
    }

    /// Counts a packet. Any context.
    #[cold]
    pub(crate) fn inc(&self, why: DropReason) {
        if let Some(counter) = self.0.get(why as usize) {
            counter.add(1, Relaxed);
        }
    }

    /// Shows the counters.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, counter) in NAMES.iter().zip(&self.0) {
            write!(f, " {}={}", name, counter.load(Relaxed))?;
        }
        Ok(())
    }
}

/// Waits for all that RCU has to do with code of this module.
struct Barrier;

impl Drop for Barrier {
    fn drop(&mut self) {
        rcu::synchronize_rcu();
        rcu::rcu_barrier();
    }
}

/// What is registered with the network as long as the module is there. To be dropped when there is
/// no device any more. The fields are dropped in this order.
pub(crate) struct Registrations {
    _notifier: Pin<KBox<netdevice::Notifier<notifier::Listener>>>,
    _namespaces: Pin<KBox<namespace::Registration<ns::Exit>>>,
    _drops: Pin<KBox<debugfs::File<()>>>,
    _offload: Pin<KBox<Offload<tx::Finisher>>>,
    dir: debugfs::Dir,
    _barrier: Barrier,
}

impl Registrations {
    /// The directory of the driver in debugfs.
    pub(crate) fn dir(&self) -> &debugfs::Dir {
        &self.dir
    }
}

/// Returns all devices that packets can come for at the moment.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn devices() -> Result<KVec<Arc<Device>>> {
    ns::devices()
}

/// Registers with the network. To be called once, before there is a device.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn init() -> Result<Registrations> {
    ns::init();

    let dir = debugfs::Dir::new(c"rrxe");

    Ok(Registrations {
        _drops: KBox::pin_init(
            dir.read_callback_file(c"drops", Ok::<(), Error>(()), &|(), f| ns::show(f)),
            GFP_KERNEL,
        )?,
        _namespaces: KBox::pin_init(namespace::Registration::new(), GFP_KERNEL)?,
        _notifier: KBox::pin_init(netdevice::Notifier::new(), GFP_KERNEL)?,
        _offload: KBox::pin_init(Offload::new(ETHER_TYPE), GFP_KERNEL)?,
        dir,
        _barrier: Barrier,
    })
}
