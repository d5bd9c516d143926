// SPDX-License-Identifier: GPL-2.0

//! What a process that has opened the device can map.
//!
//! A ring that was made is offered to the process under an offset, which no other ring of the
//! device has had before. Mapping it takes the offer away.

use crate::{
    abi::MmapInfo,
    device::Device,
    queue::Queue, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rdma::driver::mem::{
        MapRequest,
        UserBuf, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

struct Offer {
    offset: u64,
    buf: Arc<UserBuf>,
}

/// An open device.
#[pin_data]
pub(crate) struct Ucontext {
    dev: Arc<Device>,
    #[pin]
    offers: Mutex<KVec<Offer>>,
}

impl Ucontext {
    /// Opens a device.
    pub(crate) fn new(dev: &Arc<Device>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                dev: dev.clone(),
                offers <- new_mutex!(KVec::new(), "Ucontext::offers"),
            }),
            GFP_KERNEL,
        )
    }

    /// Offers a ring. The offer is withdrawn when the token is dropped, which may sleep.
    pub(crate) fn offer(self: &Arc<Self>, queue: &Queue) -> Result<MmapToken> {
        let size = queue.bytes();
        let offset = self.dev.mmap_offset(size);

        self.offers.lock().push(
            Offer {
                offset,
                buf: queue.memory().clone(),
            },
            GFP_KERNEL,
        )?;
        Ok(MmapToken {
            uctx: self.clone(),
            info: MmapInfo {
                offset,
                size: size.try_into()?,
                pad: 0,
            },
        })
    }

    fn take(&self, offset: u64) -> Option<Arc<UserBuf>> {
        let mut offers = self.offers.lock();
        let at = offers.iter().position(|o| o.offset == offset)?;

        offers.remove(at).ok().map(|o| o.buf)
    }

    /// Maps what was offered.
    pub(crate) fn mmap(&self, request: &MapRequest<'_>) -> Result {
        let buf = {
            let offers = self.offers.lock();
            let offer = offers
                .iter()
                .find(|o| o.offset == request.offset())
                .ok_or(EINVAL)?;

            if request.len() > offer.buf.len() {
                return Err(EINVAL);
            }
            offer.buf.clone()
        };

        request.map(&buf)?;
        self.take(request.offset());
        Ok(())
    }
}

/// An offer.
pub(crate) struct MmapToken {
    uctx: Arc<Ucontext>,
    info: MmapInfo,
}

impl MmapToken {
    /// What the process has to know.
    pub(crate) fn info(&self) -> MmapInfo {
        self.info
    }
}

impl Drop for MmapToken {
    fn drop(&mut self) {
        self.uctx.take(self.info.offset);
    }
}

/// The bytes of a [`MmapInfo`], as user space gets them.
pub(crate) fn mmap_info_bytes(info: &MmapInfo) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = info.offset.to_ne_bytes();
    let [i, j, k, l] = info.size.to_ne_bytes();

    [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0]
}
