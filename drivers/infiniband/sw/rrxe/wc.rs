// SPDX-License-Identifier: GPL-2.0

//! Work completions.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    abi::UverbsWc,
    packet::Tail,
    wire::{
        aeth::Nak,
        grh, //
    }, //
};
use core::mem::{
    offset_of,
    size_of, //
};

/// How a work request ended; the numbers are those of `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    /// All is well.
    Success = 0,
    /// A message is longer than the buffer for it, or than messages may be.
    LocLen = 1,
    /// The work request makes no sense.
    LocQpOp = 2,
    /// A local buffer may not be accessed so.
    LocProt = 4,
    /// Not done, because the queue pair is in error.
    WrFlush = 5,
    /// A memory window cannot be bound so.
    MwBind = 6,
    /// The responder answered something that is no answer.
    BadResp = 7,
    /// Access by the remote side to local memory that it may not access.
    LocAccess = 8,
    /// The responder says that the request is invalid.
    RemInvReq = 9,
    /// The responder says that its memory may not be accessed so.
    RemAccess = 10,
    /// The responder could not do it.
    RemOp = 11,
    /// No answer after all retries.
    RetryExc = 12,
    /// The responder had no receive buffer after all retries.
    RnrRetryExc = 13,
}

impl From<Nak> for Status {
    /// What the requester reports (IBA vol. 1, table 57). A sequence error is retried; only
    /// when retries are used up is there something to report.
    fn from(nak: Nak) -> Self {
        match nak {
            Nak::PsnSequence => Self::RetryExc,
            Nak::InvalidRequest => Self::RemInvReq,
            Nak::RemoteAccess => Self::RemAccess,
            Nak::RemoteOperational => Self::RemOp,
        }
    }
}

/// What was done; the numbers are those of `enum ib_wc_opcode` that user space knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Opcode {
    /// SEND of any kind.
    Send = 0,
    /// RDMA WRITE.
    Write = 1,
    /// RDMA READ.
    Read = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// Memory window bound.
    BindMw = 5,
    /// Key made invalid.
    LocalInv = 6,
    /// Flush.
    Flush = 8,
    /// Atomic write.
    AtomicWrite = 9,
    /// Fast registration of memory; the kernel's number, which user space never sees.
    RegMr = 10,
    /// Message received.
    Recv = 128,
    /// Immediate data of an RDMA WRITE received.
    RecvWriteImm = 129,
}

/// Flags of a completion; as in `enum ib_wc_flags`.
pub(crate) mod flags {
    /// There is a GRH, or an IP header in its place.
    pub(crate) const GRH: u32 = 1 << 0;
    /// There is immediate data.
    pub(crate) const IMM: u32 = 1 << 1;
    /// A key was invalidated.
    pub(crate) const INV: u32 = 1 << 2;
}

/// Who sent what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// The queue pair.
    pub(crate) qpn: u32,
    /// What user space gets as the service level. That is not part of a RoCE packet, but who gets
    /// a datagram has to be told which protocol it came by (IBA vol. 1, A17.4.5.1), and a library
    /// has no other place for it. So it is used as ConnectX does, which UCX relies on to find the
    /// destination address in the 40 bytes: what [`grh::kind`] says, and that it came by UDP.
    pub(crate) sl: u8,
}

impl Sender {
    const UDP: u8 = 1 << 3;

    /// For what was not received.
    pub(crate) const NONE: Self = Self { qpn: 0, sl: 0 };

    /// The other side of a connection.
    pub(crate) const fn connected(qpn: u32) -> Self {
        Self { qpn, sl: 0 }
    }

    /// The sender of a datagram that has this in front.
    pub(crate) const fn of_datagram(qpn: u32, front: &[u8; grh::LEN]) -> Self {
        Self {
            qpn,
            sl: Self::UDP | grh::kind(front) as u8,
        }
    }
}

/// A completion, without what depends on who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wc {
    /// Number that the poster gave to the work request.
    pub(crate) wr_id: u64,
    /// How it ended.
    pub(crate) status: Status,
    /// What it was.
    pub(crate) opcode: Opcode,
    /// Bytes received; for READ and atomics those fetched.
    pub(crate) byte_len: u32,
    /// Immediate data or invalidated key.
    pub(crate) tail: Tail,
    /// This queue pair.
    pub(crate) qpn: u32,
    /// Who sent what was received.
    pub(crate) from: Sender,
    /// The other side asked for an event. Errors raise one as well, see [`Wc::is_solicited`].
    pub(crate) solicited: bool,
}

impl Wc {
    /// A completion of which only the status says something.
    pub(crate) const fn failed(wr_id: u64, status: Status, opcode: Opcode, qpn: u32) -> Self {
        Self {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            tail: Tail::None,
            qpn,
            from: Sender::NONE,
            solicited: false,
        }
    }

    /// Tells whether this is a completion of a receive queue.
    pub(crate) const fn is_recv(&self) -> bool {
        matches!(self.opcode, Opcode::Recv | Opcode::RecvWriteImm)
    }

    /// Tells whether a completion queue that is armed for solicited completions only fires: for
    /// receives that the sender wanted to be noticed, and for any error (IBA vol. 1, 11.4.2.2).
    pub(crate) const fn is_solicited(&self) -> bool {
        self.solicited || !matches!(self.status, Status::Success)
    }

    /// Returns the flags.
    pub(crate) const fn flags(&self) -> u32 {
        let grh = if self.is_recv() { flags::GRH } else { 0 };

        grh | match self.tail {
            Tail::None => 0,
            Tail::Imm(_) => flags::IMM,
            Tail::Inv(_) => flags::INV,
        }
    }

    /// Returns the entry for a completion queue of user space. No byte of it is unwritten.
    pub(crate) fn to_user(self, port: u8) -> [u8; size_of::<UverbsWc>()] {
        let mut out = [0; size_of::<UverbsWc>()];
        let mut put = |at: usize, bytes: &[u8]| {
            let to = out.get_mut(at..).unwrap_or(&mut []);

            for (to, from) in to.iter_mut().zip(bytes) {
                *to = *from;
            }
        };
        let ex = match self.tail {
            Tail::None => [0; 4],
            Tail::Imm(imm) => imm,
            Tail::Inv(rkey) => rkey.to_ne_bytes(),
        };

        put(offset_of!(UverbsWc, wr_id), &self.wr_id.to_ne_bytes());
        put(
            offset_of!(UverbsWc, status),
            &(self.status as u32).to_ne_bytes(),
        );
        put(
            offset_of!(UverbsWc, opcode),
            &(self.opcode as u32).to_ne_bytes(),
        );
        put(offset_of!(UverbsWc, byte_len), &self.byte_len.to_ne_bytes());
        put(offset_of!(UverbsWc, ex), &ex);
        put(offset_of!(UverbsWc, qp_num), &self.qpn.to_ne_bytes());
        put(offset_of!(UverbsWc, src_qp), &self.from.qpn.to_ne_bytes());
        put(offset_of!(UverbsWc, wc_flags), &self.flags().to_ne_bytes());
        put(offset_of!(UverbsWc, sl), &[self.from.sl]);
        put(offset_of!(UverbsWc, port_num), &[port]);
        out
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_wc))]
mod tests {
    use super::{
        Opcode,
        Sender,
        Status,
        Wc, //
    };
    use crate::{
        abi::u32_at,
        packet::Tail, //
    };

    const WC: Wc = Wc {
        wr_id: 0x1122_3344_5566_7788,
        status: Status::Success,
        opcode: Opcode::Recv,
        byte_len: 0x1000,
        tail: Tail::Imm([1, 2, 3, 4]),
        qpn: 17,
        from: Sender { qpn: 18, sl: 10 },
        solicited: false,
    };

    #[test]
    fn entry_for_user_space() {
        let b = WC.to_user(1);

        assert_eq!(crate::abi::u64_at(&b, 0), 0x1122_3344_5566_7788);
        assert_eq!(u32_at(&b, 8), 0);
        assert_eq!(u32_at(&b, 12), 128);
        assert_eq!(u32_at(&b, 20), 0x1000);
        // Immediate data has the byte order of the wire.
        assert_eq!(b.get(24..28), Some(&[1, 2, 3, 4][..]));
        assert_eq!(u32_at(&b, 28), 17);
        assert_eq!(u32_at(&b, 32), 18);
        assert_eq!(u32_at(&b, 36), 3);
        assert_eq!(b[44], 10);
        assert_eq!(b[46], 1);
        assert_eq!(b[47], 0);
    }

    #[test]
    fn errors_are_solicited() {
        assert!(!WC.is_solicited());
        assert!(Wc {
            solicited: true,
            ..WC
        }
        .is_solicited());
        assert!(Wc::failed(1, Status::WrFlush, Opcode::Send, 17).is_solicited());
    }
}
