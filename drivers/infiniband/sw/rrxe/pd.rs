// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::device::Device;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A protection domain: what has the same may be used together.
pub(crate) struct Pd {
    pub(crate) dev: Arc<Device>,
    /// No other of this device has had this number before.
    pub(crate) id: u64,
}

impl Pd {
    /// Makes one.
    pub(crate) fn new(dev: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                dev: dev.clone(),
                id: dev.next_pd(),
            },
            GFP_KERNEL,
        )?)
    }
}
