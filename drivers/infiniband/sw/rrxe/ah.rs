// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use crate::{
    abi::CreateAhResp,
    device::Device,
    net::Flow,
    pd::Pd,
    table::Recent,
    verbs::Verbs, //
};
use core::mem::{
    offset_of,
    size_of, //
};
use kernel::{
    prelude::*,
    rdma::driver::{
        attr::{
            AhAttr,
            AhInfo,
            AhInit, //
        },
        Udata, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc,
        ArcBorrow, //
    }, //
};

/// Where packets go, and where they seem to come from.
#[derive(Clone, Debug)]
pub(crate) struct Av {
    /// Source: an address in the form of IPv6.
    pub(crate) sgid: [u8; 16],
    /// Destination.
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    /// Index of the source in the GID table.
    pub(crate) sgid_index: u16,
    /// Index of the network interface of the source; 0 is that of the device.
    pub(crate) ifindex: u32,
    pub(crate) port: u32,
    pub(crate) sl: u8,
    pub(crate) dmac: [u8; 6],
}

/// Tells whether a GID is an address of IPv4 (RFC 4291, 2.5.5.2).
fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
}

impl Av {
    /// Takes the path out of what the core says.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no global route, or one that this kind of network does not have.
    pub(crate) fn from_attr(attr: &AhAttr<'_>) -> Result<Self> {
        let source = attr.source().ok_or(EINVAL)?;
        let (sgid, dgid) = (source.gid, attr.dgid());

        if !attr.has_grh() || attr.port() != 1 || !source.udp || is_ipv4(&sgid) != is_ipv4(&dgid) {
            return Err(EINVAL);
        }
        Ok(Self {
            sgid,
            dgid,
            flow_label: attr.flow_label() & 0xf_ffff,
            hop_limit: attr.hop_limit(),
            traffic_class: attr.traffic_class(),
            sgid_index: source.index,
            ifindex: source.ifindex,
            port: attr.port(),
            sl: attr.sl(),
            dmac: attr.dmac(),
        })
    }

    /// The other way round.
    pub(crate) fn info(&self) -> AhInfo {
        AhInfo {
            dgid: self.dgid,
            sgid_index: self.sgid_index as u8,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            sl: self.sl,
            port: self.port,
            dmac: self.dmac,
        }
    }
}

/// What an address handle is at a time. It never changes; modifying the handle replaces it in the
/// table, where all who send find it. The core keeps the first one, for its number.
pub(crate) struct Ah {
    pub(crate) pd: Arc<Pd>,
    pub(crate) av: Av,
    pub(crate) num: u32,
    pub(crate) flow: Flow,
    /// Not in the table any more. Who has found it before may go on, but for what was asked for
    /// later: user space rings for that after the call that has set this.
    gone: Atomic<bool>,
}

impl Ah {
    fn new(pd: &Arc<Pd>, av: Av, num: u32) -> Result<Self> {
        Ok(Self {
            pd: pd.clone(),
            flow: Flow::new(&pd.dev, &av, num)?,
            av,
            num,
            gone: Atomic::new(false),
        })
    }

    /// Finds the one that a work request of a protection domain names, if need be again.
    pub(crate) fn find<'g>(
        ahs: &Recent<'g, Self>,
        pd: &Arc<Pd>,
        num: u32,
    ) -> Option<ArcBorrow<'g, Self>> {
        ahs.get(num)
            .filter(|ah| !ah.gone.load(Relaxed))
            .or_else(|| ahs.look_up(num))
            .filter(|ah| Arc::ptr_eq(&ah.pd, pd))
    }

    /// Makes one.
    pub(crate) fn create(
        dev: &Arc<Device>,
        pd: &Arc<Pd>,
        init: &AhInit<'_>,
        udata: Option<&Udata<'_, Verbs>>,
    ) -> Result<Arc<Self>> {
        let av = Av::from_attr(&init.attr)?;
        let gfp = if init.sleepable {
            GFP_KERNEL
        } else {
            GFP_ATOMIC
        };

        let ah = dev
            .ahs
            .insert_with(gfp, |num| Ok(Arc::new(Self::new(pd, av, num)?, gfp)?))?;

        // Libraries that do not know numbers put whole vectors into their work requests; they get
        // none, and what they send is refused.
        if let Some(udata) = udata.filter(|u| u.outlen() >= size_of::<CreateAhResp>()) {
            let at = offset_of!(CreateAhResp, ah_num);

            if let Err(e) = udata.respond(at, &ah.num.to_ne_bytes()) {
                ah.destroy(init.sleepable);
                return Err(e);
            }
        }
        Ok(ah)
    }

    /// Changes where it leads to: the table gets another one with the same number. A packet that is
    /// being sent may still go where it did.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such path, with nothing changed; `ENOMEM`.
    pub(crate) fn modify(&self, attr: &AhAttr<'_>) -> Result {
        let dev = &self.pd.dev;
        let av = Av::from_attr(attr)?;
        let new = Arc::new(Self::new(&self.pd, av, self.num)?, GFP_KERNEL)?;

        // What was rung for before goes where it did.
        self.pd.catch_up();
        dev.ahs
            .replace(GFP_KERNEL, self.num, new)?
            .gone
            .store(true, Relaxed);
        Ok(())
    }

    /// Where it leads to now.
    pub(crate) fn info(&self) -> AhInfo {
        let guard = rcu::read_lock();

        self.pd
            .dev
            .ahs
            .get(&guard, self.num)
            .map_or_else(|| self.av.info(), |now| now.av.info())
    }

    /// Ends it. A packet that is being sent may still use it.
    pub(crate) fn destroy(&self, _sleepable: bool) {
        self.pd.catch_up();
        if let Some(ah) = self.pd.dev.ahs.remove(self.num) {
            ah.gone.store(true, Relaxed);
        }
    }
}
