// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    device::Device,
    kword::KWord,
    qp::Qp,
    sync::Word, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Full,
        Arc, //
    },
};

/// A protection domain: what has the same may be used together.
pub(crate) struct Pd {
    pub(crate) dev: Arc<Device>,
    /// No other of this device has had this number before.
    pub(crate) id: u64,
    /// The queue pair for datagrams that last has put off to answer a doorbell, or 0.
    belated: KWord,
}

impl Pd {
    /// Makes one.
    pub(crate) fn new(dev: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                dev: dev.clone(),
                id: dev.next_pd(),
                belated: Word::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// Notes that a queue pair for datagrams has put off to answer a doorbell. One at a time may:
    /// another one that has done so answers now.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn note_belated(&self, qpn: u32) {
        let old = self.belated.xchg(qpn, Full);

        if old != qpn {
            Qp::catch_up_by_number(&self.dev, old);
        }
    }

    /// Answers what was put off, before something goes that the work requests name. Who sends
    /// datagrams and does not ask for completions may take their address handle away at once.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn catch_up(&self) {
        Qp::catch_up_by_number(&self.dev, Word::load(&self.belated));
    }
}
