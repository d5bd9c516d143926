// SPDX-License-Identifier: GPL-2.0

//! The structures that user space and the driver share, as `rdma_user_rxe.h` lays them out.
//!
//! C header: [`include/uapi/rdma/rdma_user_rxe.h`](srctree/include/uapi/rdma/rdma_user_rxe.h)
//!
//! No value of a WQE type is ever made: an entry is copied out of the ring as bytes, and
//! [`crate::wqe`] takes the fields from the copy at the offsets that these types define. The
//! fields in which the C driver keeps its own state (`state`, `first_psn`, `resid` and so on) are
//! part of the layout, and are neither read nor written.

use core::mem::{
    offset_of,
    size_of, //
};

/// Reads a `u32` of a byte image, in the byte order of this machine; 0 beyond the end.
pub(crate) fn u32_at(image: &[u8], at: usize) -> u32 {
    image
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

/// Reads a `u64` of a byte image, in the byte order of this machine; 0 beyond the end.
pub(crate) fn u64_at(image: &[u8], at: usize) -> u64 {
    image
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_ne_bytes(*b))
}

/// Global route of an address vector.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GlobalRoute {
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// Address vector. Old libraries put one into each WQE of a datagram; ours use a number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Av {
    pub(crate) port_num: u8,
    pub(crate) network_type: u8,
    pub(crate) dmac: [u8; 6],
    pub(crate) grh: GlobalRoute,
    pub(crate) sgid_addr: [u32; 7],
    pub(crate) dgid_addr: [u32; 7],
}

/// Part of a send work request for RDMA READ and WRITE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrRdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) reserved: u32,
}

/// Part of a send work request for FLUSH.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrFlush {
    pub(crate) remote_addr: u64,
    pub(crate) length: u32,
    pub(crate) rkey: u32,
    pub(crate) types: u8,
    pub(crate) level: u8,
}

/// Part of a send work request for atomic operations.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrAtomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
    pub(crate) reserved: u32,
}

/// Part of a send work request for datagrams.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrUd {
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
    pub(crate) pkey_index: u16,
    pub(crate) reserved: u16,
    pub(crate) ah_num: u32,
    pub(crate) pad: [u32; 4],
    pub(crate) av: Av,
}

/// Part of a send work request for binding a memory window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrMw {
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mr_lkey: u32,
    pub(crate) mw_rkey: u32,
    pub(crate) rkey: u32,
    pub(crate) access: u32,
}

/// Send work request; `wr` is one of the parts above.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) reserved: u32,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    pub(crate) ex: [u8; 4],
    pub(crate) wr: [u64; 15],
}

/// Scatter/gather element.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// Length and number of the elements or of the inline bytes that follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmaInfo {
    pub(crate) length: u32,
    pub(crate) resid: u32,
    pub(crate) cur_sge: u32,
    pub(crate) num_sge: u32,
    pub(crate) sge_offset: u32,
    pub(crate) reserved: u32,
}

/// Entry of a send queue, without the elements or inline bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr: SendWr,
    pub(crate) status: u32,
    pub(crate) state: u32,
    pub(crate) iova: u64,
    pub(crate) mask: u32,
    pub(crate) first_psn: u32,
    pub(crate) last_psn: u32,
    pub(crate) ack_length: u32,
    pub(crate) ssn: u32,
    pub(crate) has_rd_atomic: u32,
    pub(crate) dma: DmaInfo,
}

/// Entry of a receive queue, without the elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) reserved: u32,
    pub(crate) padding: u32,
    pub(crate) dma: DmaInfo,
}

/// How to map a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MmapInfo {
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) pad: u32,
}

impl MmapInfo {
    /// Returns it as bytes.
    pub(crate) fn to_bytes(self) -> [u8; size_of::<Self>()] {
        let [o0, o1, o2, o3, o4, o5, o6, o7] = self.offset.to_ne_bytes();
        let [s0, s1, s2, s3] = self.size.to_ne_bytes();

        [o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, 0, 0, 0, 0]
    }
}

/// Answer to the creation of an address handle.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CreateAhResp {
    pub(crate) ah_num: u32,
    pub(crate) reserved: u32,
}

/// Answer to the creation and to the resizing of a completion queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CreateCqResp {
    pub(crate) mi: MmapInfo,
}

/// Answer to the creation of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CreateQpResp {
    pub(crate) rq_mi: MmapInfo,
    pub(crate) sq_mi: MmapInfo,
}

/// Answer to the creation of a shared receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CreateSrqResp {
    pub(crate) mi: MmapInfo,
    pub(crate) srq_num: u32,
    pub(crate) reserved: u32,
}

/// Argument for resizing a shared receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModifySrqCmd {
    pub(crate) mmap_info_addr: u64,
}

/// Start of a queue that user space maps; the entries follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBuf {
    pub(crate) log2_elem_size: u32,
    pub(crate) index_mask: u32,
    pub(crate) pad_1: [u32; 30],
    pub(crate) producer_index: u32,
    pub(crate) pad_2: [u32; 31],
    pub(crate) consumer_index: u32,
    pub(crate) pad_3: [u32; 31],
}

/// Entry of a completion queue that user space reads.
///
/// C header: [`include/uapi/rdma/ib_user_verbs.h`](srctree/include/uapi/rdma/ib_user_verbs.h)
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UverbsWc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) ex: [u8; 4],
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
    pub(crate) port_num: u8,
    pub(crate) reserved: u8,
}

const _: () = {
    assert!(size_of::<Av>() == 88);
    assert!(offset_of!(Av, grh) == 8);
    assert!(offset_of!(Av, sgid_addr) == 32);
    assert!(offset_of!(Av, dgid_addr) == 60);

    assert!(size_of::<WrRdma>() == 16);
    assert!(size_of::<WrFlush>() == 24);
    assert!(offset_of!(WrFlush, rkey) == 12);
    assert!(offset_of!(WrFlush, types) == 16);
    assert!(offset_of!(WrFlush, level) == 17);
    assert!(size_of::<WrAtomic>() == 32);
    assert!(size_of::<WrUd>() == 120);
    assert!(offset_of!(WrUd, ah_num) == 12);
    assert!(offset_of!(WrUd, av) == 32);
    assert!(size_of::<WrMw>() == 32);

    assert!(size_of::<SendWr>() == 144);
    assert!(offset_of!(SendWr, opcode) == 12);
    assert!(offset_of!(SendWr, send_flags) == 16);
    assert!(offset_of!(SendWr, ex) == 20);
    assert!(offset_of!(SendWr, wr) == 24);

    assert!(size_of::<Sge>() == 16);
    assert!(size_of::<DmaInfo>() == 24);
    assert!(offset_of!(DmaInfo, num_sge) == 12);

    assert!(size_of::<SendWqe>() == 208);
    assert!(offset_of!(SendWqe, status) == 144);
    assert!(offset_of!(SendWqe, iova) == 152);
    assert!(offset_of!(SendWqe, mask) == 160);
    assert!(offset_of!(SendWqe, has_rd_atomic) == 180);
    assert!(offset_of!(SendWqe, dma) == 184);

    assert!(size_of::<RecvWqe>() == 40);
    assert!(offset_of!(RecvWqe, dma) == 16);

    assert!(size_of::<MmapInfo>() == 16);
    assert!(size_of::<CreateAhResp>() == 8);
    assert!(size_of::<CreateCqResp>() == 16);
    assert!(size_of::<CreateQpResp>() == 32);
    assert!(offset_of!(CreateQpResp, sq_mi) == 16);
    assert!(size_of::<CreateSrqResp>() == 24);
    assert!(size_of::<ModifySrqCmd>() == 8);

    assert!(size_of::<QueueBuf>() == 384);
    assert!(offset_of!(QueueBuf, index_mask) == 4);
    assert!(offset_of!(QueueBuf, producer_index) == 128);
    assert!(offset_of!(QueueBuf, consumer_index) == 256);

    assert!(size_of::<UverbsWc>() == 48);
    assert!(offset_of!(UverbsWc, ex) == 24);
    assert!(offset_of!(UverbsWc, wc_flags) == 36);
    assert!(offset_of!(UverbsWc, port_num) == 46);
};
