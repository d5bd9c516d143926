// SPDX-License-Identifier: GPL-2.0

//! Sockets of network name spaces, and the devices that packets are for.

use crate::{
    device::Device,
    table::Table,
    wire::UDP_PORT, //
};
use kernel::{
    fmt,
    net::{
        addr::IpAddr,
        namespace::{
            self,
            Namespace, //
        },
        netdevice::NetDevice,
        skb::SkBuff,
        udp_tunnel::{
            Family,
            Receiver,
            Socket, //
        }, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        global_lock,
        rcu,
        Arc,
        ArcBorrow, //
    }, //
};

global_lock! {
    // SAFETY: `init` does that, before there is a device.
    unsafe(uninit) static NAMESPACES: Mutex<KVec<Sockets>> = KVec::new();
}

global_lock! {
    // SAFETY: As above.
    unsafe(uninit) static DEVICES: Mutex<KVec<Arc<Port>>> = KVec::new();
}

/// Makes the lists usable. To be called once, before there is a device.
pub(super) fn init() {
    // SAFETY: This is called once, and before all else here.
    unsafe {
        NAMESPACES.init();
        DEVICES.init();
    }
}

/// Returns all devices that there are at the moment.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn devices() -> Result<KVec<Arc<Device>>> {
    let devices = DEVICES.lock();
    let mut copy = KVec::with_capacity(devices.len(), GFP_KERNEL)?;

    for port in devices.iter() {
        copy.push(port.dev.clone(), GFP_KERNEL)?;
    }
    Ok(copy)
}

/// A device that packets are received for.
pub(super) struct Port {
    /// The device.
    pub(super) dev: Arc<Device>,
    /// The network device that it is on.
    ndev: ARef<NetDevice>,
    /// The index of that, which packets are looked up by.
    ifindex: u32,
}

impl Port {
    /// Tells whether an address is one of the device, or of a VLAN on it.
    pub(super) fn owns(&self, guard: &rcu::Guard, addr: &IpAddr) -> bool {
        owns(guard, &self.ndev, addr)
    }
}

/// Tells whether a unicast address is one of a network device, or of a VLAN on it.
pub(super) fn owns(guard: &rcu::Guard, ndev: &NetDevice, addr: &IpAddr) -> bool {
    ndev.namespace(guard)
        .owner(guard, addr)
        .is_some_and(|owner| base(guard, owner) == ndev.ifindex())
}

/// Returns the index of the device that carries the packets of `ndev`: another one if that is a
/// VLAN.
fn base(guard: &rcu::Guard, ndev: &NetDevice) -> u32 {
    ndev.vlan(guard).unwrap_or(ndev).ifindex()
}

/// The devices in a network name space, by the indices of their network devices.
#[pin_data]
pub(super) struct Ports {
    #[pin]
    table: Table<Port>,
}

impl Ports {
    /// Finds the device for a packet that has come in through `ndev`.
    ///
    /// What is sent to an address of the same host comes in through the loop-back device. Then it
    /// is for the device that has the address.
    pub(super) fn find<'g>(
        &'g self,
        guard: &'g rcu::Guard,
        ndev: &NetDevice,
        dest: &IpAddr,
    ) -> Option<ArcBorrow<'g, Port>> {
        let index = if ndev.is_loopback() {
            base(guard, ndev.namespace(guard).owner(guard, dest)?)
        } else {
            base(guard, ndev)
        };

        self.table.get(guard, index)
    }
}

impl Receiver for Ports {
    fn receive(this: ArcBorrow<'_, Self>, dev: &NetDevice, skb: SkBuff) {
        super::rx::receive(&this, dev, skb);
    }
}

/// The sockets of a network name space.
struct Sockets {
    /// Address of the name space, to be compared only. When a name space is gone another one may
    /// have its address, so there is no entry for one that is.
    net: usize,
    users: usize,
    ports: Arc<Ports>,
    _v4: Socket<Ports>,
    _v6: Option<Socket<Ports>>,
}

impl Sockets {
    fn open(net: &Namespace) -> Result<Self> {
        let ports = Arc::pin_init(
            pin_init!(Ports {
                table <- Table::new(1, Table::<Port>::MAX),
            }),
            GFP_KERNEL,
        )?;
        let v6 = match Socket::new(net, Family::V6, UDP_PORT, ports.clone()) {
            Ok(socket) => Some(socket),
            Err(e) if e == EAFNOSUPPORT => None,
            Err(e) => return Err(e),
        };

        Ok(Self {
            net: net.as_raw().addr(),
            users: 0,
            _v4: Socket::new(net, Family::V4, UDP_PORT, ports.clone())?,
            _v6: v6,
            ports,
        })
    }
}

/// The right to use the sockets of a name space.
struct Membership(Arc<Ports>);

impl Membership {
    /// Opens the sockets if nobody has yet.
    fn new(net: &Namespace) -> Result<Self> {
        let mut list = NAMESPACES.lock();

        if let Some(sockets) = list.iter_mut().find(|s| s.net == net.as_raw().addr()) {
            sockets.users += 1;
            return Ok(Self(sockets.ports.clone()));
        }

        let mut sockets = Sockets::open(net)?;
        let ports = sockets.ports.clone();

        sockets.users = 1;
        list.push(sockets, GFP_KERNEL)?;
        Ok(Self(ports))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut list = NAMESPACES.lock();

        // There is none if the name space went away before.
        let Some(at) = list.iter().position(|s| Arc::ptr_eq(&s.ports, &self.0)) else {
            return;
        };
        let last = list.get_mut(at).is_some_and(|sockets| {
            sockets.users -= 1;
            sockets.users == 0
        });

        // Closed under the lock, so that the port is free for whoever is next.
        if last {
            close(&mut list, at);
        }
    }
}

/// Closes sockets.
fn close(list: &mut KVec<Sockets>, at: usize) {
    drop(list.remove(at));
    if list.is_empty() {
        // The list is never dropped, but its memory is not to be lost with the module.
        *list = KVec::new();
    }
}

/// Somebody who closes the sockets of a name space that goes away.
pub(super) enum Exit {}

impl namespace::Operations for Exit {
    fn exit(net: &Namespace) {
        let mut list = NAMESPACES.lock();

        // Its devices are gone, or have moved to another name space and were told to unregister.
        if let Some(at) = list.iter().position(|s| s.net == net.as_raw().addr()) {
            close(&mut list, at);
        }
    }
}

/// That a device takes part in the network.
///
/// While it exists the device is kept alive, as packets are received for it. So it must be dropped
/// on purpose when the device is to go away: in process context, when there are no more objects,
/// and by somebody who has a reference to the device.
pub(crate) struct Attachment {
    // Dropped first, so that the sockets are closed before the network device is let go.
    members: Membership,
    port: Arc<Port>,
}

impl Attachment {
    /// Lets a device receive what comes in through a network device. Process context, RTNL is not
    /// held.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a device for this network device already; `ENODEV` if that is about to
    /// go away; those of opening a socket, like `EADDRINUSE`.
    pub(crate) fn new(dev: &Arc<Device>, ndev: &NetDevice) -> Result<Self> {
        let net = ndev.get_namespace().ok_or(ENODEV)?;
        let members = Membership::new(&net)?;
        let port = Arc::new(
            Port {
                dev: dev.clone(),
                ndev: ndev.into(),
                ifindex: ndev.ifindex(),
            },
            GFP_KERNEL,
        )?;

        members
            .0
            .table
            .insert_at(GFP_KERNEL, port.ifindex, port.clone())
            .map_err(|e| if e == EBUSY { EEXIST } else { e })?;
        Ok(Self { port, members })
    }

    /// Lets the device be told what happens to the network device: to be called when the device
    /// can be told to unregister.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the network device is going away, and there may be no notice of that any more;
    /// `ENOMEM`.
    pub(crate) fn listen(&self) -> Result {
        DEVICES.lock().push(self.port.clone(), GFP_KERNEL)?;

        // Whoever unregisters it says so before he lets the listeners know: either they have found
        // the device in the list, or this finds out.
        if self.port.ndev.is_registered() {
            Ok(())
        } else {
            self.unlisten();
            Err(ENODEV)
        }
    }

    fn unlisten(&self) {
        let mut list = DEVICES.lock();
        let found = list.iter().position(|p| Arc::ptr_eq(p, &self.port));
        let port = found.and_then(|at| list.remove(at).ok());

        if list.is_empty() {
            *list = KVec::new();
        }
        drop(list);
        // Not under the lock.
        drop(port);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.unlisten();
        self.port.dev.groups.clear();
        // After this no packet is received for the device, and none is being.
        if let Some(retired) = self.members.0.table.remove(self.port.ifindex) {
            drop(retired.wait());
        }
        // What RCU still has to free, such as address handles, has references to the device. They
        // must not be the last ones: the end of a device sleeps.
        rcu::rcu_barrier();
    }
}

/// Finds the device that is on a network device. Process context.
pub(super) fn find(ndev: &NetDevice) -> Option<Arc<Device>> {
    let list = DEVICES.lock();

    list.iter()
        .find(|port| port.ndev.as_raw() == ndev.as_raw())
        .map(|port| port.dev.clone())
}

/// Shows how many packets the devices have dropped, and why.
pub(super) fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for port in DEVICES.lock().iter() {
        for byte in port.ndev.name().iter().take_while(|&&b| b != 0) {
            write!(f, "{}", char::from(*byte))?;
        }
        port.dev.drops.show(f)?;
        writeln!(f)?;
    }
    Ok(())
}
