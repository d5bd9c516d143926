// SPDX-License-Identifier: GPL-2.0

//! Protocols on top of UDP that live in the kernel.
//!
//! All of this may be in a module, so whatever is here is generic: it becomes code of its user.
//!
//! C header: [`include/net/udp_tunnel.h`](srctree/include/net/udp_tunnel.h)

use crate::{
    bindings,
    error::to_result,
    ffi::c_int,
    net::{
        namespace::Namespace,
        netdevice::NetDevice,
        skb::SkBuff, //
    },
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};

/// Who gets the packets of a socket.
pub trait Receiver: Send + Sync + 'static {
    /// A packet has come in through `dev`. Its data begins with the UDP header, whose length and
    /// checksum are right, and which is in one piece; the packet ends with the datagram.
    ///
    /// Softirq context or the like: bottom halves are disabled. RCU's read lock is held.
    fn receive(this: ArcBorrow<'_, Self>, dev: &NetDevice, skb: SkBuff);
}

/// What addresses a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6 only.
    V6,
}

/// A UDP socket whose packets go to a [`Receiver`].
///
/// # Invariants
///
/// `sk` is the socket of a tunnel that is owned, and whose user data is what `Arc::into_raw`
/// returned.
pub struct Socket<T: Receiver> {
    sk: NonNull<bindings::sock>,
    receiver: NonNull<T>,
    _p: PhantomData<Arc<T>>,
}

// SAFETY: A socket belongs to no thread, and neither does the receiver.
unsafe impl<T: Receiver> Send for Socket<T> {}
// SAFETY: Nothing can be done with a shared reference.
unsafe impl<T: Receiver> Sync for Socket<T> {}

impl<T: Receiver> Socket<T> {
    /// Opens a socket at a port, for all addresses. Process context.
    ///
    /// UDP checksums of 0 are accepted over IPv6 too.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if there is one already; `EAFNOSUPPORT` if the family is not available.
    pub fn new(net: &Namespace, family: Family, port: u16, receiver: Arc<T>) -> Result<Self> {
        let mut cfg = bindings::udp_port_cfg {
            local_udp_port: port.to_be(),
            ..Default::default()
        };
        let mut sock = null_mut();

        // SAFETY: All pointers are valid. No reference to the name space is kept: it is the user
        // who takes care that the socket is closed before that is gone.
        to_result(unsafe {
            match family {
                Family::V4 => {
                    cfg.family = bindings::AF_INET as u8;
                    bindings::udp_sock_create4(net.as_raw(), &mut cfg, &mut sock)
                }
                Family::V6 => {
                    cfg.family = bindings::AF_INET6 as u8;
                    cfg.set_ipv6_v6only(1);
                    Self::create6(net, &mut cfg, &mut sock)
                }
            }
        })?;

        // SAFETY: The socket is valid, and has a `struct sock` that is not null.
        let sk = unsafe { NonNull::new_unchecked((*sock).sk) };
        let receiver = Arc::into_raw(receiver).cast_mut();
        let mut cfg = bindings::udp_tunnel_sock_cfg {
            sk_user_data: receiver.cast(),
            encap_type: 1,
            encap_rcv: Some(Self::receive),
            ..Default::default()
        };

        // SAFETY: The socket is valid and bound; the configuration is copied.
        unsafe { bindings::setup_udp_tunnel_sock(net.as_raw(), sk.as_ptr(), &mut cfg) };

        // INVARIANT: It has just been made so.
        Ok(Self {
            sk,
            // SAFETY: The pointer of an `Arc` is not null.
            receiver: unsafe { NonNull::new_unchecked(receiver) },
            _p: PhantomData,
        })
    }

    /// # Safety
    ///
    /// The pointers must be valid.
    #[cfg(CONFIG_IPV6)]
    unsafe fn create6(
        net: &Namespace,
        cfg: &mut bindings::udp_port_cfg,
        sock: &mut *mut bindings::socket,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        unsafe { bindings::udp_sock_create6(net.as_raw(), cfg, sock) }
    }

    /// # Safety
    ///
    /// None.
    #[cfg(not(CONFIG_IPV6))]
    unsafe fn create6(
        _net: &Namespace,
        _cfg: &mut bindings::udp_port_cfg,
        _sock: &mut *mut bindings::socket,
    ) -> c_int {
        EAFNOSUPPORT.to_errno()
    }

    /// Gets a packet from UDP.
    ///
    /// # Safety
    ///
    /// `sk` is a socket of this type, `skb` a packet for it that is given away, and RCU's read lock
    /// is held.
    unsafe extern "C" fn receive(sk: *mut bindings::sock, skb: *mut bindings::sk_buff) -> c_int {
        // SAFETY: By the safety requirements.
        let receiver = unsafe { bindings::rcu_dereference_sk_user_data(sk) }.cast::<T>();
        // SAFETY: The packet is valid, and has come in through a device, which is there as long as
        // RCU's lock is held.
        let dev = unsafe {
            (*skb)
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1
                .dev
        };
        // SAFETY: The packet is ours. UDP has pulled all up to its header, which lies behind the
        // network header, and has linear data.
        let skb = NonNull::new(skb).map(|skb| unsafe { SkBuff::from_raw(skb) });

        if let (Some(skb), false, false) = (skb, receiver.is_null(), dev.is_null()) {
            // SAFETY: By the type invariants of `Socket` the user data is from `Arc::into_raw`, and
            // is dropped only a grace period after it was taken from the socket.
            let receiver = unsafe { ArcBorrow::from_raw(receiver) };

            // SAFETY: See above.
            T::receive(receiver, unsafe { NetDevice::from_raw(dev) }, skb);
        }
        // It was taken.
        0
    }
}

impl<T: Receiver> Drop for Socket<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the socket is owned. This takes away the user data, waits
        // for a grace period and closes the socket. Packets may still find it until the next grace
        // period, and see no user data.
        unsafe { bindings::udp_tunnel_sock_release(self.sk.as_ptr()) };
        // SAFETY: By the type invariants this is from `Arc::into_raw`; nobody sees it any more.
        drop(unsafe { Arc::from_raw(self.receiver.as_ptr()) });
        // The code of `receive` may be that of a module, which may go away after this.
        crate::sync::rcu::synchronize_rcu();
    }
}
