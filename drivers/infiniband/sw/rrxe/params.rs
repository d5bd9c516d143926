// SPDX-License-Identifier: GPL-2.0

//! Limits and abilities.
//!
//! Applications and tests look at these values, so they are those of `rdma_rxe`, except for what
//! this driver cannot do: write back persistent memory, which is what `FLUSH_PERSISTENT` promises
//! (`rdma_rxe` promises it on all machines, and refuses to register memory of another kind).

use kernel::rdma::driver::attr::{
    DeviceAttr,
    OdpAttr, //
};

/// Version of the interface with the library.
pub(crate) const UVERBS_ABI_VERSION: u32 = 2;

/// The largest number of objects of most kinds.
const MANY: u32 = 1 << 20;

/// Largest number of elements of a work request.
pub(crate) const MAX_SGE: u32 = 32;

/// Largest number of work requests in a queue.
pub(crate) const MAX_QP_WR: u32 = MANY;

/// Largest number of entries of a completion queue.
pub(crate) const MAX_CQE: u32 = (1 << 15) - 1;

/// Largest number of outstanding READs and atomic operations of a queue pair.
pub(crate) const MAX_RD_ATOMIC: u8 = 128;

/// Numbers of queue pairs, but for the one with number 1.
pub(crate) const QPN: (u32, u32) = (16, MANY);

/// Numbers of completion queues.
pub(crate) const CQN: (u32, u32) = (1, MANY);

/// Numbers of address handles.
pub(crate) const AHN: (u32, u32) = (1, (1 << 15) - 1);

/// Numbers of memory regions.
pub(crate) const MRN: (u32, u32) = (1, MANY >> 1);

/// Numbers of memory windows, which are none of regions.
pub(crate) const MWN: (u32, u32) = ((MANY >> 1) + 1, MANY);

/// Number of the first shared receive queue.
pub(crate) const FIRST_SRQ: u32 = 0x20001;

/// Largest number of work requests in a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = MANY;

/// Largest number of elements of a work request there.
pub(crate) const MAX_SRQ_SGE: u32 = 27;

/// Largest number of pages of a fast registration.
pub(crate) const MAX_FAST_PAGES: u32 = 512;

/// Length of the GID table.
pub(crate) const GID_TABLE: i32 = 1024;

/// Length of the P_Key table.
pub(crate) const PKEY_TABLE: u16 = 1;

/// Longest message.
pub(crate) const MAX_MSG: u32 = 1 << 31;

/// Largest MTU.
pub(crate) const MAX_MTU: u32 = 4096;

/// `IB_PORT_CM_SUP`.
pub(crate) const PORT_CAPS: u32 = 1 << 16;

/// Headers that a packet may have beside the payload, in whole: IP, UDP, IBA headers and ICRC.
const OVERHEAD: u32 = 80;

/// Bits of `enum ib_uverbs_device_cap_flags` and `enum ib_device_cap_flags`.
mod caps {
    pub(super) const BAD_PKEY_CNTR: u64 = 1 << 1;
    pub(super) const BAD_QKEY_CNTR: u64 = 1 << 2;
    pub(super) const AUTO_PATH_MIG: u64 = 1 << 4;
    pub(super) const CHANGE_PHY_PORT: u64 = 1 << 5;
    pub(super) const UD_AV_PORT_ENFORCE: u64 = 1 << 6;
    pub(super) const PORT_ACTIVE_EVENT: u64 = 1 << 10;
    pub(super) const SYS_IMAGE_GUID: u64 = 1 << 11;
    pub(super) const RC_RNR_NAK_GEN: u64 = 1 << 12;
    pub(super) const SRQ_RESIZE: u64 = 1 << 13;
    pub(super) const MEM_WINDOW: u64 = 1 << 17;
    pub(super) const MEM_MGT_EXTENSIONS: u64 = 1 << 21;
    pub(super) const MEM_WINDOW_TYPE_2B: u64 = 1 << 24;
    pub(super) const FLUSH_GLOBAL: u64 = 1 << 38;
    pub(super) const ATOMIC_WRITE: u64 = 1 << 40;
}

/// What can be paged on demand, for each kind of queue pair.
const ODP: OdpAttr = {
    use odp::*;

    OdpAttr {
        general: SUPPORT | IMPLICIT,
        rc: SEND | RECV | WRITE | READ | ATOMIC | SRQ_RECV | FLUSH | ATOMIC_WRITE,
        uc: 0,
        ud: SEND | RECV | SRQ_RECV,
    }
};

/// Bits of `enum ib_uverbs_odp_general_cap_bits` and `enum ib_uverbs_odp_transport_cap_bits`.
mod odp {
    pub(super) const SUPPORT: u64 = 1 << 0;
    pub(super) const IMPLICIT: u64 = 1 << 1;

    pub(super) const SEND: u32 = 1 << 0;
    pub(super) const RECV: u32 = 1 << 1;
    pub(super) const WRITE: u32 = 1 << 2;
    pub(super) const READ: u32 = 1 << 3;
    pub(super) const ATOMIC: u32 = 1 << 4;
    pub(super) const SRQ_RECV: u32 = 1 << 5;
    pub(super) const FLUSH: u32 = 1 << 6;
    pub(super) const ATOMIC_WRITE: u32 = 1 << 7;
}

/// Rights, as in `enum ib_access_flags`.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1 << 0;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const MW_BIND: u32 = 1 << 4;
    pub(crate) const ZERO_BASED: u32 = 1 << 5;
    pub(crate) const ON_DEMAND: u32 = 1 << 6;
    pub(crate) const FLUSH_GLOBAL: u32 = 1 << 8;
    pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;
    /// Bits that a driver may ignore.
    pub(crate) const OPTIONAL: u32 = 0x3ff << 20;

    /// Those for which the memory has to be writable.
    pub(crate) const WRITES: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC | MW_BIND;

    /// What regions can have; those of processes also [`ON_DEMAND`].
    pub(crate) const MR: u32 = LOCAL_WRITE
        | REMOTE_WRITE
        | REMOTE_READ
        | REMOTE_ATOMIC
        | MW_BIND
        | FLUSH_GLOBAL
        | FLUSH_PERSISTENT
        | OPTIONAL;
}

/// Attributes of a device with a hardware address.
pub(crate) fn device_attr(sys_image_guid: [u8; 8]) -> DeviceAttr {
    DeviceAttr {
        sys_image_guid,
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_f000,
        vendor_id: 0xff_ffff,
        max_qp: QPN.1 - QPN.0,
        max_qp_wr: MAX_QP_WR,
        device_cap_flags: caps::BAD_PKEY_CNTR
            | caps::BAD_QKEY_CNTR
            | caps::AUTO_PATH_MIG
            | caps::CHANGE_PHY_PORT
            | caps::UD_AV_PORT_ENFORCE
            | caps::PORT_ACTIVE_EVENT
            | caps::SYS_IMAGE_GUID
            | caps::RC_RNR_NAK_GEN
            | caps::SRQ_RESIZE
            | caps::MEM_MGT_EXTENSIONS
            | caps::MEM_WINDOW
            | caps::FLUSH_GLOBAL
            | caps::MEM_WINDOW_TYPE_2B
            | caps::ATOMIC_WRITE,
        allow_user_unreg: true,
        max_send_sge: MAX_SGE,
        max_recv_sge: MAX_SGE,
        max_sge_rd: MAX_SGE,
        max_cq: MANY,
        max_cqe: MAX_CQE,
        max_mr: MRN.1 - MRN.0,
        max_mw: MWN.1 - MWN.0,
        max_pd: MANY,
        max_qp_rd_atom: MAX_RD_ATOMIC.into(),
        max_res_rd_atom: 0x3f000,
        max_qp_init_rd_atom: MAX_RD_ATOMIC.into(),
        atomic_hca: true,
        max_mcast_grp: 8192,
        max_mcast_qp_attach: 56,
        max_total_mcast_qp_attach: 0x70000,
        max_ah: AHN.1,
        max_srq: MANY - FIRST_SRQ,
        max_srq_wr: MAX_SRQ_WR,
        max_srq_sge: MAX_SRQ_SGE,
        max_fast_reg_pages: MAX_FAST_PAGES,
        max_pkeys: 64,
        local_ca_ack_delay: 15,
        odp: ODP,
    }
}

/// The GUID of a port with a hardware address: its EUI-64.
pub(crate) fn guid([a, b, c, d, e, f]: [u8; 6]) -> [u8; 8] {
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The largest MTU that fits into packets of the network interface.
pub(crate) fn mtu_for(netdev: u32) -> u32 {
    match netdev.saturating_sub(OVERHEAD) {
        4096.. => 4096,
        2048.. => 2048,
        1024.. => 1024,
        512.. => 512,
        _ => 256,
    }
}
