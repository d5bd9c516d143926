// SPDX-License-Identifier: GPL-2.0

//! What happens to network devices.

use super::ns;
use kernel::net::netdevice::{
    self,
    Event,
    NetDevice, //
};

/// Somebody who tells devices what happens to their network devices.
pub(super) enum Listener {}

impl netdevice::Listener for Listener {
    fn event(event: Event, ndev: &NetDevice) {
        let Some(dev) = ns::find(ndev) else {
            return;
        };

        match event {
            Event::Unregister => dev.unregister_queued(),
            Event::Mtu => dev.set_netdev_mtu(ndev.mtu()),
            // That a port has become active or inactive is said by the core.
            Event::Up | Event::Down | Event::Change => dev.port_changed(ndev.is_up()),
        }
    }
}
