// SPDX-License-Identifier: GPL-2.0

//! Work requests, decoded from the entries of the rings that user space maps.
//!
//! The rule is: copy once, then look only at the copy. A caller copies the fixed part of an entry,
//! learns from [`send_area_len`] how many bytes of elements or inline data belong to it, copies
//! those, and gets a [`SendWqe`] from [`decode_user`]. Whatever user space does to the ring
//! meanwhile, each number that was checked is the number that is used.
//!
//! What only the kernel may ask for is [`Work::Kernel`]. Its payload is a type parameter, of which
//! [`decode_user`] knows nothing, so it has no way to make one: no check can be forgotten, because
//! there is nothing to check.

use crate::{
    abi::{
        self,
        u32_at,
        u64_at, //
    },
    opcode::Transport,
    packet::Tail,
    sge::{
        SgeList,
        SGE_LEN, //
    },
    wc::{
        Opcode as WcOpcode,
        Status, //
    },
    wire::{
        feth::Feth,
        reth::Reth, //
    },
};
use core::mem::{
    offset_of,
    size_of, //
};

/// Size of the fixed part of a send entry.
pub(crate) const SEND_LEN: usize = size_of::<abi::SendWqe>();

/// Size of the fixed part of a receive entry.
pub(crate) const RECV_LEN: usize = size_of::<abi::RecvWqe>();

/// The most elements that a work request may have.
pub(crate) const MAX_SGE: usize = 32;

/// The most inline bytes that a work request may have.
pub(crate) const MAX_INLINE: usize = 512;

/// The longest message (IBA vol. 1, 9.7.7).
pub(crate) const MAX_MSG: u32 = 1 << 31;

/// Numbers of operations in user space's entries (`enum ib_uverbs_wr_opcode`).
mod op {
    pub(super) const WRITE: u32 = 0;
    pub(super) const WRITE_IMM: u32 = 1;
    pub(super) const SEND: u32 = 2;
    pub(super) const SEND_IMM: u32 = 3;
    pub(super) const READ: u32 = 4;
    pub(super) const COMPARE_SWAP: u32 = 5;
    pub(super) const FETCH_ADD: u32 = 6;
    pub(super) const LOCAL_INV: u32 = 7;
    pub(super) const BIND_MW: u32 = 8;
    pub(super) const SEND_INV: u32 = 9;
    pub(super) const FLUSH: u32 = 14;
    pub(super) const ATOMIC_WRITE: u32 = 15;
}

/// Flags of a send work request; as in `enum ib_send_flags`. Unknown bits are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendFlags(pub(crate) u32);

impl SendFlags {
    /// Wait until READs and atomics before this one are done.
    pub(crate) const FENCE: u32 = 1 << 0;
    /// Make a completion.
    pub(crate) const SIGNALED: u32 = 1 << 1;
    /// Ask for an event at the receiver.
    pub(crate) const SOLICITED: u32 = 1 << 2;
    /// The data is in the entry.
    pub(crate) const INLINE: u32 = 1 << 3;

    /// Tells whether a flag is set.
    pub(crate) const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

/// Where the data of a work request is. The bytes are in the area that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The area is the data.
    Inline(u32),
    /// The area has `count` elements for `len` bytes.
    Sges {
        /// Number of elements.
        count: u8,
        /// Length of the message.
        len: u32,
    },
}

impl Data {
    /// Returns the length of the message.
    pub(crate) const fn len(&self) -> u32 {
        match *self {
            Self::Inline(len) | Self::Sges { len, .. } => len,
        }
    }
}

/// Binding of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindMw {
    /// Start of the window.
    pub(crate) addr: u64,
    /// Length of the window.
    pub(crate) len: u64,
    /// Key of the memory region to bind to.
    pub(crate) mr_lkey: u32,
    /// Key of the window.
    pub(crate) mw_rkey: u32,
    /// New key of the window.
    pub(crate) rkey: u32,
    /// What the window lets the remote side do.
    pub(crate) access: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work<K> {
    /// SEND on a connection.
    Send(Tail),
    /// SEND of a datagram.
    Datagram {
        /// Number of the address handle.
        ah: u32,
        /// Queue pair to send to.
        qpn: u32,
        /// Its queue key, or a number with the highest bit set for the own one.
        qkey: u32,
        /// Immediate data.
        tail: Tail,
    },
    /// RDMA WRITE.
    Write {
        /// Address at the responder.
        va: u64,
        /// Its key.
        rkey: u32,
        /// Immediate data.
        tail: Tail,
    },
    /// RDMA READ.
    Read {
        /// Address at the responder.
        va: u64,
        /// Its key.
        rkey: u32,
    },
    /// Compare and swap.
    CompareSwap {
        /// Address at the responder.
        va: u64,
        /// Its key.
        rkey: u32,
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// Address at the responder.
        va: u64,
        /// Its key.
        rkey: u32,
        /// Value to add.
        add: u64,
    },
    /// Flush.
    Flush(Feth, Reth),
    /// Atomic write of the eight inline bytes.
    AtomicWrite {
        /// Address at the responder.
        va: u64,
        /// Its key.
        rkey: u32,
    },
    /// Make a key invalid.
    LocalInv(u32),
    /// Bind a memory window.
    BindMw(BindMw),
    /// Something that only the kernel may ask for: fast registration of memory.
    Kernel(K),
}

impl<K> Work<K> {
    /// Returns what its completion says.
    pub(crate) const fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Send(_) | Self::Datagram { .. } => WcOpcode::Send,
            Self::Write { .. } => WcOpcode::Write,
            Self::Read { .. } => WcOpcode::Read,
            Self::CompareSwap { .. } => WcOpcode::CompareSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::Flush(..) => WcOpcode::Flush,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Self::LocalInv(_) => WcOpcode::LocalInv,
            Self::BindMw(_) => WcOpcode::BindMw,
            Self::Kernel(_) => WcOpcode::RegMr,
        }
    }

    /// Tells whether nothing of it is sent.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInv(_) | Self::BindMw(_) | Self::Kernel(_))
    }

    /// Tells whether the responder keeps something for it, of which there is only so much: all
    /// that is answered by more than an acknowledgment.
    pub(crate) const fn takes_resource(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::CompareSwap { .. }
                | Self::FetchAdd { .. }
                | Self::Flush(..)
                | Self::AtomicWrite { .. }
        )
    }

    /// Tells whether a transport service has the operation (IBA vol. 1, table 35).
    pub(crate) const fn is_allowed(&self, transport: Transport) -> bool {
        match transport {
            Transport::Rc => !matches!(self, Self::Datagram { .. }),
            Transport::Uc => matches!(
                self,
                Self::Send(Tail::None | Tail::Imm(_)) | Self::Write { .. } | Self::BindMw(_)
            ),
            Transport::Ud => matches!(self, Self::Datagram { .. }),
        }
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWqe<K> {
    /// Number that the poster gave to it.
    pub(crate) wr_id: u64,
    /// What to do.
    pub(crate) work: Work<K>,
    /// How.
    pub(crate) flags: SendFlags,
    /// With which data.
    pub(crate) data: Data,
}

/// A work request that cannot be done: what its completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Number that the poster gave to it.
    pub(crate) wr_id: u64,
    /// What is wrong.
    pub(crate) status: Status,
}

/// What the queue of a queue pair has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Service of the queue pair.
    pub(crate) transport: Transport,
    /// Most elements of a send work request.
    pub(crate) max_sge: u8,
    /// Most inline bytes of a send work request.
    pub(crate) max_inline: u16,
}

impl Limits {
    /// Returns the size that the area of each work request must have.
    pub(crate) fn area(&self) -> usize {
        (usize::from(self.max_sge) * SGE_LEN).max(usize::from(self.max_inline))
    }
}

const WR: usize = offset_of!(abi::SendWqe, wr);
const UN: usize = WR + offset_of!(abi::SendWr, wr);
const DMA: usize = offset_of!(abi::SendWqe, dma);

fn send_flags(head: &[u8; SEND_LEN]) -> SendFlags {
    SendFlags(u32_at(head, WR + offset_of!(abi::SendWr, send_flags)))
}

fn send_opcode(head: &[u8; SEND_LEN]) -> u32 {
    u32_at(head, WR + offset_of!(abi::SendWr, opcode))
}

/// Tells whether an entry has its data in itself. An atomic write always has, and says so by its
/// opcode alone.
fn is_inline(head: &[u8; SEND_LEN]) -> bool {
    send_flags(head).has(SendFlags::INLINE) || send_opcode(head) == op::ATOMIC_WRITE
}

/// Returns how many bytes behind the fixed part of a send entry belong to it.
///
/// # Errors
///
/// If the entry has more elements or inline bytes than fit into a slot.
pub(crate) fn send_area_len(head: &[u8; SEND_LEN], limits: &Limits) -> Result<usize, Malformed> {
    let malformed = Malformed {
        wr_id: u64_at(head, WR + offset_of!(abi::SendWr, wr_id)),
        status: Status::LocQpOp,
    };

    if send_opcode(head) == op::ATOMIC_WRITE {
        // Eight bytes; there is room for them if there is room for one element.
        return if limits.area() >= 8 {
            Ok(8)
        } else {
            Err(malformed)
        };
    }
    if is_inline(head) {
        let len = u32_at(head, DMA + offset_of!(abi::DmaInfo, length));

        return match u16::try_from(len) {
            Ok(len) if len <= limits.max_inline => Ok(usize::from(len)),
            _ => Err(malformed),
        };
    }
    match u8::try_from(u32_at(head, DMA + offset_of!(abi::DmaInfo, num_sge))) {
        Ok(count) if count <= limits.max_sge => Ok(usize::from(count) * SGE_LEN),
        _ => Err(malformed),
    }
}

/// Decodes the copy of a send entry of a user's ring. `area` is what followed the fixed part.
///
/// # Errors
///
/// If the entry does not describe something that this queue pair can do.
pub(crate) fn decode_user<K>(
    head: &[u8; SEND_LEN],
    area: &[u8],
    limits: &Limits,
) -> Result<SendWqe<K>, Malformed> {
    let wr_id = u64_at(head, WR + offset_of!(abi::SendWr, wr_id));
    let malformed = |status| Malformed { wr_id, status };

    let area = area
        .get(..send_area_len(head, limits)?)
        .ok_or(malformed(Status::LocQpOp))?;
    let data = if is_inline(head) {
        // The length of the area was checked to have 16 bits.
        Data::Inline(area.len() as u32)
    } else {
        let sges = SgeList::all(area);

        // What the entry says about the length of all is not looked at: some libraries have it
        // wrong, and nothing is left to check once the elements are added up.
        if !sges.iter().all(|sge| sge.is_range()) {
            return Err(malformed(Status::LocProt));
        }
        Data::Sges {
            count: (area.len() / SGE_LEN) as u8,
            len: u32::try_from(sges.total())
                .ok()
                .filter(|len| *len <= MAX_MSG)
                .ok_or(malformed(Status::LocLen))?,
        }
    };
    let work = decode_work(head, limits.transport)
        .filter(|work| work.is_allowed(limits.transport) && fits(work, &data))
        .ok_or(malformed(Status::LocQpOp))?;

    Ok(SendWqe {
        wr_id,
        work,
        flags: send_flags(head),
        data,
    })
}

/// Tells whether the data is such as the operation can have.
fn fits<K>(work: &Work<K>, data: &Data) -> bool {
    match work {
        Work::Send(_) | Work::Datagram { .. } | Work::Write { .. } => true,
        Work::Read { .. } => matches!(data, Data::Sges { .. }),
        Work::CompareSwap { .. } | Work::FetchAdd { .. } => {
            matches!(data, Data::Sges { len, .. } if *len >= 8)
        }
        Work::AtomicWrite { .. } => matches!(data, Data::Inline(8)),
        Work::Flush(feth, _) => feth.is_valid(),
        Work::LocalInv(_) | Work::BindMw(_) | Work::Kernel(_) => true,
    }
}

fn decode_work<K>(head: &[u8; SEND_LEN], transport: Transport) -> Option<Work<K>> {
    let u32_of = |at| u32_at(head, UN + at);
    let u64_of = |at| u64_at(head, UN + at);
    let ex = WR + offset_of!(abi::SendWr, ex);
    let imm = Tail::Imm(head.get(ex..)?.first_chunk().copied()?);

    let rdma_va = u64_of(offset_of!(abi::WrRdma, remote_addr));
    let rdma_rkey = u32_of(offset_of!(abi::WrRdma, rkey));
    let atomic_va = u64_of(offset_of!(abi::WrAtomic, remote_addr));
    let atomic_rkey = u32_of(offset_of!(abi::WrAtomic, rkey));
    let compare_add = u64_of(offset_of!(abi::WrAtomic, compare_add));

    let send = |tail| {
        if transport != Transport::Ud {
            return Some(Work::Send(tail));
        }

        let ah = u32_of(offset_of!(abi::WrUd, ah_num));

        // Number 0 would mean that the entry has an address vector, which lets user space choose
        // the source address. Libraries do that only if the driver gives out no numbers.
        (ah != 0).then_some(Work::Datagram {
            ah,
            qpn: u32_of(offset_of!(abi::WrUd, remote_qpn)) & crate::wire::bth::Bth::QPN_MASK,
            qkey: u32_of(offset_of!(abi::WrUd, remote_qkey)),
            tail,
        })
    };

    Some(match send_opcode(head) {
        op::SEND => send(Tail::None)?,
        op::SEND_IMM => send(imm)?,
        op::SEND_INV => Work::Send(Tail::Inv(u32_at(head, ex))),
        op::WRITE => Work::Write {
            va: rdma_va,
            rkey: rdma_rkey,
            tail: Tail::None,
        },
        op::WRITE_IMM => Work::Write {
            va: rdma_va,
            rkey: rdma_rkey,
            tail: imm,
        },
        op::READ => Work::Read {
            va: rdma_va,
            rkey: rdma_rkey,
        },
        op::COMPARE_SWAP => Work::CompareSwap {
            va: atomic_va,
            rkey: atomic_rkey,
            compare: compare_add,
            swap: u64_of(offset_of!(abi::WrAtomic, swap)),
        },
        op::FETCH_ADD => Work::FetchAdd {
            va: atomic_va,
            rkey: atomic_rkey,
            add: compare_add,
        },
        op::LOCAL_INV => Work::LocalInv(u32_at(head, ex)),
        op::BIND_MW => Work::BindMw(BindMw {
            addr: u64_of(offset_of!(abi::WrMw, addr)),
            len: u64_of(offset_of!(abi::WrMw, length)),
            mr_lkey: u32_of(offset_of!(abi::WrMw, mr_lkey)),
            mw_rkey: u32_of(offset_of!(abi::WrMw, mw_rkey)),
            rkey: u32_of(offset_of!(abi::WrMw, rkey)),
            access: u32_of(offset_of!(abi::WrMw, access)),
        }),
        op::FLUSH => Work::Flush(
            Feth {
                types: *head.get(UN + offset_of!(abi::WrFlush, types))?,
                level: *head.get(UN + offset_of!(abi::WrFlush, level))?,
            },
            Reth {
                va: u64_of(offset_of!(abi::WrFlush, remote_addr)),
                rkey: u32_of(offset_of!(abi::WrFlush, rkey)),
                len: u32_of(offset_of!(abi::WrFlush, length)),
            },
        ),
        op::ATOMIC_WRITE => Work::AtomicWrite {
            va: rdma_va,
            rkey: rdma_rkey,
        },
        _ => return None,
    })
}

/// A receive work request, with its elements.
#[derive(Clone, Debug)]
pub(crate) struct RecvWqe {
    /// Number that the poster gave to it.
    pub(crate) wr_id: u64,
    /// Bytes that fit.
    pub(crate) capacity: u32,
    /// Number of elements, which are in the area that belongs to it.
    pub(crate) count: u8,
}

/// Returns how many bytes behind the fixed part of a receive entry belong to it.
///
/// # Errors
///
/// If the entry has more elements than fit into a slot.
pub(crate) fn recv_area_len(head: &[u8; RECV_LEN], max_sge: u8) -> Result<usize, Malformed> {
    let dma = offset_of!(abi::RecvWqe, dma);

    match u8::try_from(u32_at(head, dma + offset_of!(abi::DmaInfo, num_sge))) {
        Ok(count) if count <= max_sge && usize::from(count) <= MAX_SGE => {
            Ok(usize::from(count) * SGE_LEN)
        }
        _ => Err(Malformed {
            wr_id: u64_at(head, offset_of!(abi::RecvWqe, wr_id)),
            status: Status::LocQpOp,
        }),
    }
}

impl RecvWqe {
    /// Decodes the copy of a receive entry. `area` is what followed the fixed part.
    ///
    /// # Errors
    ///
    /// If the entry has more elements than fit into a slot, or one that is no range of memory.
    pub(crate) fn decode(
        head: &[u8; RECV_LEN],
        area: &[u8],
        max_sge: u8,
    ) -> Result<Self, Malformed> {
        let wr_id = u64_at(head, offset_of!(abi::RecvWqe, wr_id));
        let area = area.get(..recv_area_len(head, max_sge)?).ok_or(Malformed {
            wr_id,
            status: Status::LocQpOp,
        })?;

        Self::new(wr_id, area)
    }

    /// Makes a receive work request of elements; those beyond [`MAX_SGE`] are left out.
    ///
    /// # Errors
    ///
    /// If an element is no range of memory.
    pub(crate) fn new(wr_id: u64, area: &[u8]) -> Result<Self, Malformed> {
        let mut this = Self {
            wr_id,
            capacity: 0,
            count: 0,
        };

        for sge in SgeList::all(area).iter().take(MAX_SGE) {
            if !sge.is_range() {
                return Err(Malformed {
                    wr_id,
                    status: Status::LocProt,
                });
            }
            this.count += 1;
            this.capacity = this.capacity.saturating_add(sge.len);
        }
        Ok(this)
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_wqe))]
mod tests {
    use super::*;
    use crate::sge::Sge;

    const LIMITS: Limits = Limits {
        transport: Transport::Rc,
        max_sge: 4,
        max_inline: 64,
    };

    fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
        for (to, from) in image.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }

    /// A send entry, with the fields at the offsets that rdma-core's library has.
    fn entry(opcode: u32, flags: u32, length: u32, num_sge: u32) -> [u8; SEND_LEN] {
        let mut head = [0; SEND_LEN];

        put(&mut head, 0, &7u64.to_ne_bytes());
        put(&mut head, 12, &opcode.to_ne_bytes());
        put(&mut head, 16, &flags.to_ne_bytes());
        put(&mut head, 24, &0x1000u64.to_ne_bytes());
        put(&mut head, 32, &0xabu32.to_ne_bytes());
        put(&mut head, 184, &length.to_ne_bytes());
        put(&mut head, 196, &num_sge.to_ne_bytes());
        head
    }

    fn area(sges: &[(u64, u32)]) -> [u8; 64] {
        let mut area = [0; 64];

        for (i, &(addr, len)) in sges.iter().enumerate() {
            let sge = Sge { addr, len, lkey: 1 };
            put(&mut area, i * SGE_LEN, &sge.emit());
        }
        area
    }

    fn refused(head: &[u8; SEND_LEN], area: &[u8], limits: &Limits) -> Option<Status> {
        decode_user::<()>(head, area, limits)
            .err()
            .map(|m| m.status)
    }

    #[test]
    fn write_with_two_elements() {
        // The library's length is wrong, as one that was shipped has it.
        let wqe = decode_user::<()>(
            &entry(0, SendFlags::SIGNALED, 200, 2),
            &area(&[(0x5000, 100), (0x6000, 28)]),
            &LIMITS,
        );

        assert_eq!(
            wqe,
            Ok(SendWqe {
                wr_id: 7,
                work: Work::Write {
                    va: 0x1000,
                    rkey: 0xab,
                    tail: Tail::None
                },
                flags: SendFlags(SendFlags::SIGNALED),
                data: Data::Sges { count: 2, len: 128 },
            })
        );
    }

    #[test]
    fn kernel_only_operations_are_not_known() {
        for opcode in 0..=0x300 {
            let known = matches!(opcode, 0..=9 | 14 | 15);
            let mut head = entry(opcode, 0, 0, 1);

            // A flush that is valid.
            put(&mut head, 40, &[1, 0]);
            assert_eq!(
                refused(&head, &area(&[(0x5000, 8)]), &LIMITS).is_none(),
                known
            );
        }
        for opcode in [0xf0, 0x8000_0002, u32::MAX] {
            assert_eq!(
                refused(&entry(opcode, 0, 0, 0), &[], &LIMITS),
                Some(Status::LocQpOp)
            );
        }
    }

    #[test]
    fn counts_beyond_the_slot() {
        for count in [5, 33, 256, 260, u32::MAX] {
            assert_eq!(
                refused(&entry(2, 0, 0, count), &[0; 1024], &LIMITS),
                Some(Status::LocQpOp)
            );
        }
        for len in [65, 512, 0x1_0000, 0x1_0040, u32::MAX] {
            assert_eq!(
                refused(&entry(2, SendFlags::INLINE, len, 0), &[0; 1024], &LIMITS),
                Some(Status::LocQpOp)
            );
        }
        // Less was copied than the entry has.
        assert_eq!(
            refused(&entry(2, 0, 0, 3), &[0; 47], &LIMITS),
            Some(Status::LocQpOp)
        );
    }

    #[test]
    fn lengths_do_not_wrap() {
        let send =
            |sges: &[(u64, u32)]| refused(&entry(2, 0, 0, sges.len() as u32), &area(sges), &LIMITS);

        assert_eq!(send(&[(0, 1 << 31)]), None);
        assert_eq!(send(&[(0, 1 << 31), (0, 1)]), Some(Status::LocLen));
        assert_eq!(
            send(&[(0, u32::MAX), (0, 1), (0, u32::MAX), (0, 2)]),
            Some(Status::LocLen)
        );
        assert_eq!(send(&[(u64::MAX, 1)]), None);
        assert_eq!(send(&[(u64::MAX, 2)]), Some(Status::LocProt));
        assert_eq!(send(&[(u64::MAX, 0)]), None);
    }

    #[test]
    fn services_have_their_operations() {
        let with = |transport, opcode| {
            let mut head = entry(opcode, 0, 0, 1);

            put(&mut head, 36, &1u32.to_ne_bytes());
            refused(
                &head,
                &area(&[(0x5000, 8)]),
                &Limits {
                    transport,
                    ..LIMITS
                },
            )
            .is_none()
        };

        for opcode in 0..16 {
            let uc = matches!(opcode, 0..=3 | 8);
            let ud = matches!(opcode, 2 | 3);

            assert_eq!(with(Transport::Uc, opcode), uc);
            assert_eq!(with(Transport::Ud, opcode), ud);
        }
    }

    #[test]
    fn datagrams_need_a_number_of_an_address_handle() {
        let limits = Limits {
            transport: Transport::Ud,
            ..LIMITS
        };
        let mut head = entry(3, 0, 0, 0);

        put(&mut head, 20, &[9, 8, 7, 6]);
        put(&mut head, 24, &0xff00_0011u32.to_ne_bytes());
        put(&mut head, 28, &0x1234u32.to_ne_bytes());
        put(&mut head, 36, &0u32.to_ne_bytes());
        assert_eq!(refused(&head, &[], &limits), Some(Status::LocQpOp));

        put(&mut head, 36, &5u32.to_ne_bytes());
        assert_eq!(
            decode_user::<()>(&head, &[], &limits).map(|w| w.work),
            Ok(Work::Datagram {
                ah: 5,
                qpn: 0x11,
                qkey: 0x1234,
                tail: Tail::Imm([9, 8, 7, 6]),
            })
        );
    }

    #[test]
    fn atomics_need_eight_bytes() {
        for opcode in [5, 6] {
            for len in [0, 4, 7] {
                assert_eq!(
                    refused(&entry(opcode, 0, 0, 1), &area(&[(0, len)]), &LIMITS),
                    Some(Status::LocQpOp)
                );
            }
            assert_eq!(
                refused(&entry(opcode, SendFlags::INLINE, 8, 0), &[0; 8], &LIMITS),
                Some(Status::LocQpOp)
            );
        }
        let wqe = decode_user::<()>(&entry(15, 0, 0, 0), &[1; 8], &LIMITS);
        assert_eq!(wqe.map(|w| w.data), Ok(Data::Inline(8)));
    }

    #[test]
    fn receive_entries() {
        let mut head = [0; RECV_LEN];

        put(&mut head, 0, &9u64.to_ne_bytes());
        put(&mut head, 28, &2u32.to_ne_bytes());
        let wqe = RecvWqe::decode(&head, &area(&[(0x1000, 100), (0x2000, 28)]), 4);
        assert_eq!(wqe.as_ref().map(|w| w.wr_id).ok(), Some(9));
        assert_eq!(wqe.as_ref().map(|w| w.capacity).ok(), Some(128));
        assert_eq!(wqe.map(|w| w.count).ok(), Some(2));

        for count in [5, 256, u32::MAX] {
            put(&mut head, 28, &count.to_ne_bytes());
            assert!(RecvWqe::decode(&head, &[0; 1024], 4).is_err());
        }
        put(&mut head, 28, &1u32.to_ne_bytes());
        assert!(RecvWqe::decode(&head, &area(&[(u64::MAX, 2)]), 4).is_err());
    }

    #[test]
    fn garbage_is_refused_or_within_the_slot() {
        let mut x = 1u32;
        let mut random = move || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        let mut good = 0;

        for _ in 0..20_000 {
            let mut head = [0; SEND_LEN];
            let mut area = [0; 64];

            head.iter_mut().for_each(|b| *b = random());
            area.iter_mut().for_each(|b| *b = random());
            // Give the checks behind the first ones something to do.
            put(&mut head, 13, &[0; 3]);
            head[12] &= 0x0f;
            put(&mut head, 197, &[0; 3]);
            head[196] &= 7;
            if let Ok(wqe) = decode_user::<()>(&head, &area, &LIMITS) {
                good += 1;
                match wqe.data {
                    Data::Inline(len) => assert!(len <= 64),
                    Data::Sges { count, len } => assert!(count <= 4 && len <= MAX_MSG),
                }
            }
        }
        assert!(good > 100);
    }
}
