// SPDX-License-Identifier: GPL-2.0

//! Trains: several UDP datagrams of a flow in one buffer.
//!
//! What the stack does for a packet does not depend on its size, so it pays to do it for many at a
//! time. A train is a buffer with one IP and one UDP header, behind which the payloads of several
//! datagrams follow each other, all of the same size but the last, which may be shorter. It is
//! generic segmentation offload of tunnels, as VXLAN has it, without an inner IP header: a device
//! that can take tunnels takes the train as a whole, and one that passes packets on within this
//! machine gives it to the receiver as it is. Where it leaves the machine, or must be cut for
//! another reason, the stack calls an [`Offload`], which makes ordinary datagrams of it.
//!
//! The protocol in the tunnel is told by an EtherType, so that the receiver knows a train from all
//! else, and the stack knows who can cut it.

use super::{
    SkBuff,
    TxBuff, //
};
use crate::{
    bindings,
    ffi::c_uint,
    prelude::*,
    types::Opaque, //
};
use core::{
    marker::PhantomData,
    num::NonZeroUsize,
    ptr::{
        addr_of_mut,
        null_mut, //
    }, //
};

/// Size of the UDP header.
const UDP_LEN: usize = 8;

/// How a train goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// As what may be cut: the device passes it on as it is, or the stack cuts it.
    Offload,
    /// As one large datagram, on the loop-back device, which has no offload for tunnels and a large
    /// MTU instead. All payloads have the same size.
    Whole,
}

impl TxBuff {
    /// Says that the data is a train: behind `header` bytes for IP and UDP there are `count`
    /// payloads of `size` bytes, of which the last may be shorter on [`Track::Offload`].
    #[inline]
    pub fn couple(&mut self, ether_type: u16, header: usize, size: u16, count: u16, track: Track) {
        let skb = self.as_raw();
        let Ok(header) = i32::try_from(header) else {
            return;
        };

        // SAFETY: By the type invariants the buffer is valid and owned, and nobody else knows it.
        // The offsets are only numbers, which those who use them check against the data.
        unsafe {
            bindings::skb_set_inner_headers(skb, header);
            bindings::skb_set_inner_protocol(skb, ether_type.to_be());
            bindings::skb_set_encapsulation(skb);

            let info = bindings::skb_shinfo(skb);

            (*info).gso_segs = count;
            if track == Track::Whole {
                return;
            }
            (*info).gso_size = size;
            // SCTP has nothing to do with it. But there are network adapters that cut tunnels of
            // TCP by themselves, which is not what this is, and none that knows SCTP: those who
            // take both are devices in software, which cut nothing.
            (*info).gso_type = bindings::SKB_GSO_UDP_TUNNEL as u32 | bindings::SKB_GSO_SCTP as u32;
        }
    }
}

impl SkBuff {
    /// If this is a train of that protocol, returns the size of a payload. The data begins with the
    /// UDP header.
    #[inline]
    pub fn train(&self, ether_type: u16) -> Option<NonZeroUsize> {
        // SAFETY: By the type invariants the buffer is valid.
        let (size, count, ours) = unsafe {
            let info = bindings::skb_shinfo(self.0.as_ptr());

            (
                usize::from((*info).gso_size),
                usize::from((*info).gso_segs),
                bindings::skb_has_inner_protocol(self.0.as_ptr(), ether_type.to_be()),
            )
        };

        if !ours {
            return None;
        }
        if let Some(size) = NonZeroUsize::new(size) {
            return Some(size);
        }

        let len = self.len().checked_sub(UDP_LEN)?;
        let count = NonZeroUsize::new(count).filter(|&n| n.get() > 1 && len % n == 0)?;

        NonZeroUsize::new(len / count)
    }
}

/// What makes a datagram whole that was cut off a train.
pub trait Finish: 'static {
    /// Finishes a datagram. `headers` is all in front of the payload, from the link layer to UDP;
    /// lengths, identification and checksums in it are those of the train, and are set right later:
    /// the identification of IPv4 to that of the train plus `index`.
    ///
    /// Any context but hard interrupts.
    fn finish(headers: &[u8], payload: &mut [u8], index: u16);
}

/// The registration of somebody who cuts trains.
///
/// # Invariants
///
/// The C object is registered, and stays where it is until it is dropped.
#[pin_data(PinnedDrop)]
pub struct Offload<T: Finish> {
    #[pin]
    raw: Opaque<bindings::packet_offload>,
    _p: PhantomData<T>,
}

// SAFETY: It can be dropped on any thread.
unsafe impl<T: Finish> Send for Offload<T> {}
// SAFETY: Nothing can be done with a shared reference.
unsafe impl<T: Finish> Sync for Offload<T> {}

impl<T: Finish> Offload<T> {
    /// Registers for trains of a protocol. Process context.
    pub fn new(ether_type: u16) -> impl PinInit<Self> {
        // INVARIANT: It is registered below, and pinned.
        pin_init!(Self {
            raw <- Opaque::ffi_init(|raw: *mut bindings::packet_offload| {
                // SAFETY: `raw` is valid memory for the object, which stays there until it is
                // taken off the list in `drop`.
                unsafe {
                    raw.write(bindings::packet_offload {
                        type_: ether_type.to_be(),
                        callbacks: bindings::offload_callbacks {
                            gso_segment: Some(Self::segment),
                            ..Default::default()
                        },
                        ..Default::default()
                    });
                    bindings::dev_add_offload(raw);
                }
            }),
            _p: PhantomData,
        })
    }

    /// Cuts a train.
    ///
    /// # Safety
    ///
    /// Only for the stack, which gives a valid buffer whose data begins with the first payload.
    unsafe extern "C" fn segment(
        skb: *mut bindings::sk_buff,
        _features: bindings::netdev_features_t,
    ) -> *mut bindings::sk_buff {
        // SAFETY: By the safety requirements.
        match unsafe { Self::cut(skb) } {
            Ok(first) => first,
            Err(e) => e.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// As for [`Self::segment`].
    unsafe fn cut(skb: *mut bindings::sk_buff) -> Result<*mut bindings::sk_buff> {
        // SAFETY: By the safety requirements the buffer is valid, and is one that is cut.
        let (size, outer, headroom, len, linear) = unsafe {
            (
                usize::from((*bindings::skb_shinfo(skb)).gso_size),
                usize::try_from(bindings::skb_tnl_header_len(skb))?,
                bindings::skb_headroom(skb) as usize,
                (*skb).len as usize,
                bindings::skb_headlen(skb) as usize,
            )
        };

        if size == 0 || outer > headroom || linear != len || len == 0 {
            return Err(EINVAL);
        }

        let (mut first, mut last) = (null_mut::<bindings::sk_buff>(), null_mut());

        for (index, at) in (0..len).step_by(size).enumerate() {
            // SAFETY: All of this lies in the buffer, as was checked.
            match unsafe { Self::cut_off(skb, headroom, outer, at, size.min(len - at), index) } {
                Ok(one) if first.is_null() => (first, last) = (one, one),
                Ok(one) => {
                    // SAFETY: `last` is the end of the list that is made here.
                    unsafe { *next_of(last) = one };
                    last = one;
                }
                Err(e) => {
                    // SAFETY: The list is ours, or null.
                    unsafe { bindings::kfree_skb_list_reason(first, NOT_SPECIFIED) };
                    return Err(e);
                }
            }
        }
        // SAFETY: There is one at least. Those who get the list look for its end here.
        unsafe { *prev_of(first) = last };
        Ok(first)
    }

    /// Copies a datagram into a buffer of its own.
    ///
    /// # Safety
    ///
    /// As for [`Self::segment`]; there must be `headroom` bytes in front of the data, of which the
    /// last `outer` are headers, and the payload must be in the linear part.
    unsafe fn cut_off(
        skb: *mut bindings::sk_buff,
        headroom: usize,
        outer: usize,
        at: usize,
        len: usize,
        index: usize,
    ) -> Result<*mut bindings::sk_buff> {
        let mut one = TxBuff::new(headroom, len, GFP_ATOMIC)?;
        let raw = one.as_raw();

        // SAFETY: By the safety requirements; the new buffer has the same room in front of its
        // data, so that offsets of headers are the same.
        unsafe {
            let (from, to) = ((*skb).data, (*raw).data);

            core::ptr::copy_nonoverlapping(from.sub(outer), to.sub(outer), outer);
            core::ptr::copy_nonoverlapping(from.add(at), to, len);
            bindings::skb_copy_header(raw, skb);
            bindings::skb_gso_reset(raw);
            T::finish(
                core::slice::from_raw_parts(to.sub(outer), outer),
                core::slice::from_raw_parts_mut(to, len),
                index as u16,
            );
        }
        Ok(one.into_raw())
    }
}

#[pinned_drop]
impl<T: Finish> PinnedDrop for Offload<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants it is registered. This waits until nobody uses it.
        unsafe { bindings::dev_remove_offload(self.raw.get()) };
    }
}

/// No reason in particular to drop a packet.
const NOT_SPECIFIED: c_uint = bindings::skb_drop_reason_SKB_DROP_REASON_NOT_SPECIFIED;

/// # Safety
///
/// `skb` must be valid.
unsafe fn next_of(skb: *mut bindings::sk_buff) -> *mut *mut bindings::sk_buff {
    // SAFETY: By the safety requirements.
    unsafe { addr_of_mut!((*skb).__bindgen_anon_1.__bindgen_anon_1.next) }
}

/// # Safety
///
/// `skb` must be valid.
unsafe fn prev_of(skb: *mut bindings::sk_buff) -> *mut *mut bindings::sk_buff {
    // SAFETY: By the safety requirements.
    unsafe { addr_of_mut!((*skb).__bindgen_anon_1.__bindgen_anon_1.prev) }
}
