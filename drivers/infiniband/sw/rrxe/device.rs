// SPDX-License-Identifier: GPL-2.0

//! Devices.

use crate::{
    ah::Ah,
    cq::Cq,
    event::Vector,
    kword::KWord,
    mr::Mr,
    mw::Mw,
    net,
    params,
    qp::Qp,
    stats::{
        Counter,
        Stats, //
    },
    sync::Word,
    table::Table,
    verbs::Verbs, //
};
use kernel::{
    net::netdevice::NetDevice,
    new_mutex,
    prelude::*,
    rdma::{
        self,
        driver::{
            attr::{
                PortAttr,
                PortState, //
            },
            device::{
                Config,
                DriverId,
                Unregistered, //
            },
            link, //
        }, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        OwnedQueue,
        Queue, //
    }, //
};

/// What the core calls to make devices.
static LINK: link::Ops<Verbs> = link::Ops::new();

/// The driver, where it is not to be taken for `rdma_rxe`: its name in ASCII.
const BESIDE: DriverId = DriverId::Private(0x7272_7865);

/// Whether devices are those of `rdma_rxe` for user space.
static COEXIST: Atomic<bool> = Atomic::new(false);

/// Starts the driver.
pub(crate) fn register(coexist: bool) -> Result<link::Driver<Verbs>> {
    COEXIST.store(coexist, Relaxed);
    if coexist {
        LINK.register(c"rrxe", BESIDE)
    } else {
        LINK.register(c"rxe", DriverId::Rxe)
    }
}

/// A device.
#[pin_data]
pub(crate) struct Device {
    ib: ARef<rdma::device::Device>,
    netdev: ARef<NetDevice>,
    mac: [u8; 6],
    active_mtu: KWord,
    port_caps: KWord,
    guid: Atomic<u64>,
    mmap_offset: Atomic<u64>,
    pds: Atomic<u64>,
    generations: Atomic<u32>,
    srqs: Atomic<u32>,
    vectors: KVec<Arc<Vector>>,
    faults: OwnedQueue,
    /// Queue pairs.
    #[pin]
    pub(crate) qps: Table<Qp>,
    /// Memory regions.
    #[pin]
    pub(crate) mrs: Table<Mr>,
    /// Memory windows.
    #[pin]
    pub(crate) mws: Table<Mw>,
    /// Completion queues.
    pub(crate) cqs: Arc<Table<Cq>>,
    /// Address handles.
    #[pin]
    pub(crate) ahs: Table<Ah>,
    /// Counters.
    pub(crate) stats: Stats,
    /// Packets that were dropped, and why.
    pub(crate) drops: net::Drops,
    /// Multicast groups.
    #[pin]
    pub(crate) groups: net::Groups,
    /// What lets packets come here.
    #[pin]
    attachment: Mutex<Option<net::Attachment>>,
}

/// The hardware address of an interface; one without has zeroes.
fn mac_of(netdev: &NetDevice) -> [u8; 6] {
    netdev.mac().unwrap_or_default()
}

impl Device {
    fn new(ib: ARef<rdma::device::Device>, netdev: ARef<NetDevice>) -> Result<Arc<Self>> {
        let mut vectors = KVec::new();

        for number in 0..kernel::cpu::nr_cpu_ids() {
            vectors.push(Vector::new(number)?, GFP_KERNEL)?;
        }
        let (mac, mtu) = (mac_of(&netdev), params::mtu_for(netdev.mtu()));
        let guid = u64::from_ne_bytes(params::guid(mac));
        let cqs = Arc::pin_init(Table::new(params::CQN.0, params::CQN.1), GFP_KERNEL)?;

        Arc::try_pin_init(
            try_pin_init!(Self {
                ib,
                netdev,
                mac,
                active_mtu: Word::new(mtu),
                port_caps: Word::new(params::PORT_CAPS),
                guid: Atomic::new(guid),
                mmap_offset: Atomic::new(0),
                pds: Atomic::new(0),
                generations: Atomic::new(0),
                srqs: Atomic::new(params::FIRST_SRQ),
                vectors,
                faults: OwnedQueue::new_unbound(c"rrxe_fault")?,
                qps <- Table::new(params::QPN.0, params::QPN.1),
                mrs <- Table::new(params::MRN.0, params::MRN.1),
                mws <- Table::new(params::MWN.0, params::MWN.1),
                cqs,
                ahs <- Table::new(params::AHN.0, params::AHN.1),
                stats: Stats::new(),
                drops: net::Drops::new(),
                groups <- net::Groups::new(),
                attachment <- new_mutex!(None, "Device::attachment"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes a device on a network interface and registers it.
    pub(crate) fn add(name: &CStr, netdev: ARef<NetDevice>) -> Result {
        if netdev.is_vlan() {
            pr_err!("a device can only be on a real interface, not on a VLAN\n");
            return Err(EPERM);
        }
        let coexist = COEXIST.load(Relaxed);
        let config = Config {
            link: &LINK,
            description: c"rxe",
            node_guid: params::guid(mac_of(&netdev)),
            driver: if coexist { BESIDE } else { DriverId::Rxe },
            library: DriverId::Rxe,
            num_comp_vectors: kernel::cpu::nr_cpu_ids(),
        };
        let new = Unregistered::<Verbs>::new(&config, |ib| Self::new(ib, netdev))?;
        let dev = new.data().clone();
        let attachment = net::Attachment::new(&dev, dev.netdev())?;

        *dev.attachment.lock() = Some(attachment);
        new.register(name, &dev.netdev)?;

        let listening = match &*dev.attachment.lock() {
            Some(attachment) => attachment.listen(),
            // It was unregistered already.
            None => Ok(()),
        };

        if listening.is_err() {
            dev.unregister_queued();
        }
        listening
    }

    /// The device is registered: tells everybody the state of the port.
    pub(crate) fn enable(&self) {
        self.ib.port_event(self.netdev.is_up());
    }

    /// Ends the device: it was unregistered, and there are no objects.
    pub(crate) fn end(&self) {
        let attachment = self.attachment.lock().take();

        drop(attachment);
        for vector in &self.vectors {
            vector.flush();
        }
        // Of queue pairs that are no more; they are not waited for when those go.
        self.faults.flush();
    }

    /// The queue for work that waits for memory.
    pub(crate) fn faults(&self) -> &Queue {
        &self.faults
    }

    /// The device as the core sees it.
    pub(crate) fn ib(&self) -> &rdma::device::Device {
        &self.ib
    }

    /// The network interface.
    pub(crate) fn netdev(&self) -> &NetDevice {
        &self.netdev
    }

    /// The hardware address that the interface had when the device was made.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The system image GUID.
    pub(crate) fn guid(&self) -> [u8; 8] {
        self.guid.load(Relaxed).to_ne_bytes()
    }

    /// Changes the system image GUID.
    pub(crate) fn set_guid(&self, guid: [u8; 8]) {
        self.guid.store(u64::from_ne_bytes(guid), Relaxed);
    }

    /// The MTU of the port in bytes.
    pub(crate) fn active_mtu(&self) -> u32 {
        Word::load(&self.active_mtu)
    }

    /// The MTU of the network interface has changed.
    pub(crate) fn set_netdev_mtu(&self, mtu: u32) {
        Word::store(&self.active_mtu, params::mtu_for(mtu));
    }

    /// The network interface has come up or gone down.
    pub(crate) fn port_changed(&self, up: bool) {
        if !up {
            self.stats.inc(Counter::LinkDowned);
        }
    }

    /// The network interface goes away.
    pub(crate) fn unregister_queued(&self) {
        self.ib.unregister_queued();
    }

    /// Attributes of the port.
    pub(crate) fn port_attr(&self) -> PortAttr {
        PortAttr {
            state: if self.netdev.is_up() {
                PortState::Active
            } else if self.netdev.is_running() {
                PortState::Polling
            } else {
                PortState::Disabled
            },
            max_mtu: params::MAX_MTU,
            active_mtu: self.active_mtu(),
            gid_tbl_len: params::GID_TABLE,
            pkey_tbl_len: params::PKEY_TABLE,
            port_cap_flags: Word::load(&self.port_caps),
            max_msg_sz: params::MAX_MSG,
            qkey_viol_cntr: 0,
            bad_pkey_cntr: 0,
        }
    }

    /// Changes the abilities of the port.
    pub(crate) fn change_caps(&self, set: u32, clear: u32) {
        let _ = Word::update(&self.port_caps, |old| Some((old | set) & !clear));
    }

    /// All completion vectors.
    pub(crate) fn vectors(&self) -> &[Arc<Vector>] {
        &self.vectors
    }

    /// The completion vector with a number; there are fewer vectors than numbers.
    pub(crate) fn vector(&self, number: u32) -> Option<Arc<Vector>> {
        self.vectors
            .get(number as usize % self.vectors.len().max(1))
            .cloned()
    }

    /// An offset for a mapping that no other has had.
    pub(crate) fn mmap_offset(&self, size: usize) -> u64 {
        self.mmap_offset.fetch_add(size as u64, Relaxed)
    }

    /// A number for a protection domain that no other has had.
    pub(crate) fn next_pd(&self) -> u64 {
        self.pds.fetch_add(1u64, Relaxed)
    }

    /// A number for a shared receive queue. Only user space uses it, to tell them apart.
    pub(crate) fn next_srq(&self) -> u32 {
        self.srqs.fetch_add(1u32, Relaxed)
    }

    /// A number that tells a completion queue or a key from the one before it.
    pub(crate) fn next_generation(&self) -> u8 {
        self.generations.fetch_add(1u32, Relaxed) as u8
    }
}
