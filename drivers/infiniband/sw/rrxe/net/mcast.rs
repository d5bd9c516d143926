// SPDX-License-Identifier: GPL-2.0

//! Multicast: queue pairs in groups.
//!
//! A group is an IP multicast group. The interface is in it as long as a queue pair is, and each of
//! them gets what is sent to the group.

use super::IpAddr;
use kernel::{
    net::{
        multicast::Membership,
        netdevice::NetDevice, //
    },
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Mutex,
        SpinLockIrq, //
    }, //
};

/// The most queue pairs in a group.
pub(crate) const MAX_MEMBERS: usize = 56;

/// The most groups with members.
const MAX_GROUPS: usize = 8192;

/// A queue pair in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Member {
    group: IpAddr,
    qpn: u32,
}

/// The groups of a device.
///
/// `joined` is held while they are changed, which sleeps; `members` is a leaf, and what is seen of
/// it while packets are received.
#[pin_data]
pub(crate) struct Groups {
    #[pin]
    joined: Mutex<KVec<(IpAddr, Membership)>>,
    #[pin]
    members: SpinLockIrq<KVec<Member>>,
}

impl Groups {
    /// Creates an initialiser without groups.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            joined <- new_mutex!(KVec::new(), "Groups::joined"),
            members <- new_spinlock_irq!(KVec::new(), "Groups::members"),
        })
    }

    /// Puts a queue pair in a group. Process context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this is no address of a group; `ENOMEM`, also if there are too many.
    pub(crate) fn attach(&self, ndev: &NetDevice, gid: &[u8; 16], qpn: u32) -> Result {
        let group = IpAddr::from_gid(gid);
        let member = Member { group, qpn };
        let mut joined = self.joined.lock();
        let mut members = self.copy()?;

        if members.contains(&member) {
            return Ok(());
        }
        if members.iter().filter(|m| m.group == group).count() >= MAX_MEMBERS {
            return Err(ENOMEM);
        }
        members.push(member, GFP_KERNEL)?;
        if !joined.iter().any(|(g, _)| *g == group) {
            if joined.len() >= MAX_GROUPS {
                return Err(ENOMEM);
            }
            joined.push((group, Membership::new(ndev, group)?), GFP_KERNEL)?;
        }
        self.replace(members);
        Ok(())
    }

    /// Takes a queue pair out of a group. Process context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not in there; `ENOMEM`.
    pub(crate) fn detach(&self, gid: &[u8; 16], qpn: u32) -> Result {
        let group = IpAddr::from_gid(gid);
        let mut joined = self.joined.lock();
        let mut members = self.copy()?;
        let before = members.len();

        members.retain(|m| *m != Member { group, qpn });
        if members.len() == before {
            return Err(EINVAL);
        }
        joined.retain(|(g, _)| *g != group || members.iter().any(|m| m.group == group));
        self.replace(members);
        Ok(())
    }

    /// Leaves all groups. Process context.
    pub(super) fn clear(&self) {
        let mut joined = self.joined.lock();

        self.replace(KVec::new());
        *joined = KVec::new();
    }

    /// Finds the queue pairs in a group. Any context. Returns how many there are.
    pub(super) fn members(&self, group: &IpAddr, to: &mut [u32; MAX_MEMBERS]) -> usize {
        let members = self.members.lock();
        let mut n = 0;

        for (to, m) in to
            .iter_mut()
            .zip(members.iter().filter(|m| m.group == *group))
        {
            *to = m.qpn;
            n += 1;
        }
        n
    }

    /// Tells whether there is a queue pair in a group. Any context.
    pub(super) fn has(&self, group: &IpAddr) -> bool {
        self.members.lock().iter().any(|m| m.group == *group)
    }

    /// Copies the members, with room for one more. Only for the holder of `joined`, who alone
    /// changes them.
    fn copy(&self) -> Result<KVec<Member>> {
        // Two short sections instead of one in which memory is allocated.
        let len = self.members.lock().len();
        let mut copy = KVec::with_capacity(len + 1, GFP_KERNEL)?;

        for i in 0..len {
            let Some(member) = self.members.lock().get(i).copied() else {
                break;
            };

            copy.push(member, GFP_KERNEL)?;
        }
        Ok(copy)
    }

    fn replace(&self, members: KVec<Member>) {
        let old = core::mem::replace(&mut *self.members.lock(), members);

        // Not under the lock.
        drop(old);
    }
}
