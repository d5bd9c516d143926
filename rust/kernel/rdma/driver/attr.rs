// SPDX-License-Identifier: GPL-2.0

//! Attributes of devices, ports and objects.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    cq::CqHandle,
    object::Object,
    qp::QpHandle,
    srq::SrqHandle,
    Bound,
    Operations, //
};
use crate::{
    bindings,
    ffi::c_int,
    prelude::*,
    sync::rcu, //
};
use core::marker::PhantomData;

/// What can be paged on demand; see `struct ib_odp_caps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OdpAttr {
    /// Whether there is on-demand paging, and of which kind.
    pub general: u64,
    /// What reliable connections can do with it.
    pub rc: u32,
    /// What unreliable connections can.
    pub uc: u32,
    /// What datagrams can.
    pub ud: u32,
}

/// Limits and abilities of a device; see `struct ib_device_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs)]
pub struct DeviceAttr {
    pub sys_image_guid: [u8; 8],
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub device_cap_flags: u64,
    pub allow_user_unreg: bool,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub atomic_hca: bool,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_fast_reg_pages: u32,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub odp: OdpAttr,
}

impl DeviceAttr {
    /// Writes the C structure.
    #[inline]
    pub(super) fn fill(&self, to: &mut bindings::ib_device_attr) {
        to.sys_image_guid = u64::from_ne_bytes(self.sys_image_guid);
        to.max_mr_size = self.max_mr_size;
        to.page_size_cap = self.page_size_cap;
        to.vendor_id = self.vendor_id;
        to.max_qp = self.max_qp;
        to.max_qp_wr = self.max_qp_wr;
        to.device_cap_flags = self.device_cap_flags;
        to.kernel_cap_flags = 0;
        if self.allow_user_unreg {
            to.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG);
        }
        if self.odp.general != 0 {
            to.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING);
        }
        to.odp_caps.general_caps = self.odp.general;
        to.odp_caps.per_transport_caps.rc_odp_caps = self.odp.rc;
        to.odp_caps.per_transport_caps.uc_odp_caps = self.odp.uc;
        to.odp_caps.per_transport_caps.ud_odp_caps = self.odp.ud;
        to.max_send_sge = self.max_send_sge;
        to.max_recv_sge = self.max_recv_sge;
        to.max_sge_rd = self.max_sge_rd;
        to.max_cq = self.max_cq;
        to.max_cqe = self.max_cqe;
        to.max_mr = self.max_mr;
        to.max_mw = self.max_mw;
        to.max_pd = self.max_pd;
        to.max_qp_rd_atom = self.max_qp_rd_atom;
        to.max_res_rd_atom = self.max_res_rd_atom;
        to.max_qp_init_rd_atom = self.max_qp_init_rd_atom;
        to.atomic_cap = if self.atomic_hca {
            bindings::ib_atomic_cap_IB_ATOMIC_HCA
        } else {
            bindings::ib_atomic_cap_IB_ATOMIC_NONE
        };
        to.max_mcast_grp = self.max_mcast_grp;
        to.max_mcast_qp_attach = self.max_mcast_qp_attach;
        to.max_total_mcast_qp_attach = self.max_total_mcast_qp_attach;
        to.max_ah = self.max_ah;
        to.max_srq = self.max_srq;
        to.max_srq_wr = self.max_srq_wr;
        to.max_srq_sge = self.max_srq_sge;
        to.max_fast_reg_page_list_len = self.max_fast_reg_pages;
        to.max_pkeys = self.max_pkeys;
        to.local_ca_ack_delay = self.local_ca_ack_delay;
    }
}

/// What to change of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceChange {
    /// Its system image GUID.
    pub sys_image_guid: Option<[u8; 8]>,
}

/// What to change of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortChange {
    /// Abilities to add.
    pub set_caps: u32,
    /// Abilities to remove.
    pub clear_caps: u32,
    /// Set the counter of wrong Q_Keys to 0.
    pub reset_qkey_counter: bool,
}

/// State of the link of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Packets go through.
    Active,
    /// The interface is up, but there is no carrier.
    Polling,
    /// The interface is down.
    Disabled,
}

/// Attributes of an Ethernet port; see `struct ib_port_attr`.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs)]
pub struct PortAttr {
    pub state: PortState,
    /// In bytes.
    pub max_mtu: u32,
    /// In bytes.
    pub active_mtu: u32,
    pub gid_tbl_len: i32,
    pub pkey_tbl_len: u16,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub qkey_viol_cntr: u32,
    pub bad_pkey_cntr: u32,
}

/// The C enumeration for an MTU in bytes.
#[inline]
pub(super) fn mtu_to_raw(bytes: u32) -> bindings::ib_mtu {
    match bytes {
        4096.. => bindings::ib_mtu_IB_MTU_4096,
        2048.. => bindings::ib_mtu_IB_MTU_2048,
        1024.. => bindings::ib_mtu_IB_MTU_1024,
        512.. => bindings::ib_mtu_IB_MTU_512,
        _ => bindings::ib_mtu_IB_MTU_256,
    }
}

/// The MTU in bytes for the C enumeration; 0 if it has no such value.
#[inline]
fn mtu_from_raw(raw: bindings::ib_mtu) -> u32 {
    match raw {
        bindings::ib_mtu_IB_MTU_256 => 256,
        bindings::ib_mtu_IB_MTU_512 => 512,
        bindings::ib_mtu_IB_MTU_1024 => 1024,
        bindings::ib_mtu_IB_MTU_2048 => 2048,
        bindings::ib_mtu_IB_MTU_4096 => 4096,
        _ => 0,
    }
}

impl PortAttr {
    /// Writes the C structure, except for speed and width.
    #[inline]
    pub(super) fn fill(&self, to: &mut bindings::ib_port_attr) {
        let (state, phys) = match self.state {
            PortState::Active => (
                bindings::ib_port_state_IB_PORT_ACTIVE,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP,
            ),
            PortState::Polling => (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING,
            ),
            PortState::Disabled => (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED,
            ),
        };

        to.state = state;
        to.phys_state = phys as u8;
        to.max_mtu = mtu_to_raw(self.max_mtu);
        to.active_mtu = mtu_to_raw(self.active_mtu);
        to.gid_tbl_len = self.gid_tbl_len;
        to.pkey_tbl_len = self.pkey_tbl_len;
        to.port_cap_flags = self.port_cap_flags;
        to.max_msg_sz = self.max_msg_sz;
        to.qkey_viol_cntr = self.qkey_viol_cntr;
        to.bad_pkey_cntr = self.bad_pkey_cntr;
        to.max_vl_num = 1;
    }
}

/// Where packets go, as the core describes it.
///
/// Wraps the kernel's C `struct rdma_ah_attr` of a RoCE port.
#[derive(Clone, Copy)]
pub struct AhAttr<'a>(&'a bindings::rdma_ah_attr);

/// Where packets come from: an entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The GID.
    pub gid: [u8; 16],
    /// Its index.
    pub index: u16,
    /// The index of the network interface that it belongs to; 0 if it is gone.
    pub ifindex: u32,
    /// It is of the second version of RoCE, which uses UDP.
    pub udp: bool,
}

impl<'a> AhAttr<'a> {
    /// # Safety
    ///
    /// The `sgid_attr` of `attr` must be null or valid for `'a`.
    #[inline]
    pub(super) unsafe fn new(attr: &'a bindings::rdma_ah_attr) -> Self {
        Self(attr)
    }

    /// Whether there is a global route, without which nothing goes over RoCE.
    #[inline]
    pub fn has_grh(&self) -> bool {
        u32::from(self.0.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0
    }

    /// The port.
    #[inline]
    pub fn port(&self) -> u32 {
        self.0.port_num
    }

    /// The GID of the destination.
    #[inline]
    pub fn dgid(&self) -> [u8; 16] {
        // SAFETY: All variants of the union are 16 bytes.
        unsafe { self.0.grh.dgid.raw }
    }

    /// The entry of the GID table that is the source; `None` if the core has not looked it up.
    #[inline]
    pub fn source(&self) -> Option<Source> {
        let attr = self.0.grh.sgid_attr;

        if attr.is_null() {
            return None;
        }
        // SAFETY: By the requirement of `new()` the entry is valid, and it does not change. All
        // variants of the union are 16 bytes.
        let (gid, index, type_) = unsafe { ((*attr).gid.raw, (*attr).index, (*attr).gid_type) };
        let _guard = rcu::read_lock();
        // SAFETY: As above; the field is a pointer that others may write.
        let ndev = unsafe { (&raw const (*attr).ndev).read_volatile() };
        let ifindex = if ndev.is_null() {
            0
        } else {
            // SAFETY: The interface is not freed before the guard is dropped.
            unsafe { (*ndev).ifindex as u32 }
        };

        Some(Source {
            gid,
            index,
            ifindex,
            udp: type_ == bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP,
        })
    }

    /// The index of the entry of the GID table.
    #[inline]
    pub fn sgid_index(&self) -> u8 {
        self.0.grh.sgid_index
    }

    /// Flow label of IPv6.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.0.grh.flow_label
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.grh.hop_limit
    }

    /// Traffic class.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.0.grh.traffic_class
    }

    /// Service level.
    #[inline]
    pub fn sl(&self) -> u8 {
        self.0.sl
    }

    /// Hardware address of the next hop.
    #[inline]
    pub fn dmac(&self) -> [u8; 6] {
        // SAFETY: The variants of the union are plain data; for a RoCE port it is this one.
        unsafe { self.0.__bindgen_anon_1.roce.dmac }
    }
}

/// Where packets go, as a driver tells it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs)]
pub struct AhInfo {
    pub dgid: [u8; 16],
    pub sgid_index: u8,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub sl: u8,
    pub port: u32,
    pub dmac: [u8; 6],
}

impl AhInfo {
    /// Writes the C structure.
    #[inline]
    pub(super) fn fill(&self, to: &mut bindings::rdma_ah_attr) {
        to.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        to.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        to.grh.dgid = bindings::ib_gid { raw: self.dgid };
        to.grh.sgid_index = self.sgid_index;
        to.grh.flow_label = self.flow_label;
        to.grh.hop_limit = self.hop_limit;
        to.grh.traffic_class = self.traffic_class;
        to.sl = self.sl;
        to.port_num = self.port;
        to.__bindgen_anon_1 = bindings::rdma_ah_attr__bindgen_ty_1 {
            roce: bindings::roce_ah_attr { dmac: self.dmac },
        };
    }
}

/// How to make an address handle.
pub struct AhInit<'a> {
    /// Where it points to.
    pub attr: AhAttr<'a>,
    /// Whether the context is one that may sleep.
    pub sleepable: bool,
}

/// How to make a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqInit {
    /// How many entries it has at least.
    pub cqe: u32,
    /// Its completion vector.
    pub comp_vector: u32,
    /// Flags of the creation.
    pub flags: u32,
}

/// Kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// Reliable connected.
    Rc,
    /// Unreliable connected.
    Uc,
    /// Datagram.
    Ud,
    /// The one for the general services of management, number 1.
    Gsi,
    /// Another one; the number is that of `enum ib_qp_type`.
    Other(u32),
}

impl QpKind {
    #[inline]
    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Self {
        match raw {
            bindings::ib_qp_type_IB_QPT_RC => Self::Rc,
            bindings::ib_qp_type_IB_QPT_UC => Self::Uc,
            bindings::ib_qp_type_IB_QPT_UD => Self::Ud,
            bindings::ib_qp_type_IB_QPT_GSI => Self::Gsi,
            _ => Self::Other(raw),
        }
    }

    #[inline]
    fn into_raw(self) -> bindings::ib_qp_type {
        match self {
            Self::Rc => bindings::ib_qp_type_IB_QPT_RC,
            Self::Uc => bindings::ib_qp_type_IB_QPT_UC,
            Self::Ud => bindings::ib_qp_type_IB_QPT_UD,
            Self::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
            Self::Other(raw) => raw,
        }
    }
}

/// Sizes of the queues of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
}

impl QpCap {
    #[inline]
    pub(super) fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline: raw.max_inline_data,
        }
    }

    #[inline]
    pub(super) fn fill(&self, to: &mut bindings::ib_qp_cap) {
        to.max_send_wr = self.max_send_wr;
        to.max_recv_wr = self.max_recv_wr;
        to.max_send_sge = self.max_send_sge;
        to.max_recv_sge = self.max_recv_sge;
        to.max_inline_data = self.max_inline;
    }
}

/// How to make a queue pair.
///
/// # Invariants
///
/// `qp` and `attr` are what the core calls `create_qp` of a `T` device with.
pub struct QpInit<'a, T> {
    qp: *mut bindings::ib_qp,
    attr: &'a bindings::ib_qp_init_attr,
    user: bool,
    _p: Bound<'a, T>,
}

impl<'a, T: Operations> QpInit<'a, T> {
    /// # Safety
    ///
    /// See the type invariants.
    #[inline]
    pub(super) unsafe fn new(
        qp: *mut bindings::ib_qp,
        attr: &'a bindings::ib_qp_init_attr,
        user: bool,
    ) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            qp,
            attr,
            user,
            _p: PhantomData,
        }
    }

    /// Its kind.
    #[inline]
    pub fn kind(&self) -> QpKind {
        QpKind::from_raw(self.attr.qp_type)
    }

    /// Whether it is one of user space.
    #[inline]
    pub fn is_user(&self) -> bool {
        self.user
    }

    /// Its protection domain.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has none.
    #[inline]
    pub fn pd(&self) -> Result<&'a T::Pd> {
        // SAFETY: By the type invariant; the core has set this before the call.
        let pd = unsafe { (*self.qp).pd };

        if pd.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: It is one of the same device, and exists as long as the queue pair.
        Ok(unsafe { Object::<_, T::Pd>::data(pd) })
    }

    #[inline]
    fn cq(&self, cq: *mut bindings::ib_cq) -> Result<&'a T::Cq> {
        if cq.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: It is one of the same device, and exists as long as the queue pair.
        Ok(unsafe { &Object::<_, (CqHandle, T::Cq)>::data(cq).1 })
    }

    /// The completion queue of its send queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has none.
    #[inline]
    pub fn send_cq(&self) -> Result<&'a T::Cq> {
        self.cq(self.attr.send_cq)
    }

    /// The completion queue of its receive queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has none.
    #[inline]
    pub fn recv_cq(&self) -> Result<&'a T::Cq> {
        self.cq(self.attr.recv_cq)
    }

    /// Its shared receive queue, if it has one.
    #[inline]
    pub fn srq(&self) -> Option<&'a T::Srq> {
        if self.attr.srq.is_null() {
            return None;
        }
        // SAFETY: It is one of the same device, and exists as long as the queue pair.
        Some(unsafe { &Object::<_, SrqData<T>>::data(self.attr.srq).1 })
    }

    /// The sizes that are asked for.
    #[inline]
    pub fn cap(&self) -> QpCap {
        QpCap::from_raw(&self.attr.cap)
    }

    /// Whether each work request makes a completion.
    #[inline]
    pub fn signal_all(&self) -> bool {
        self.attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR
    }

    /// Flags, as in `enum ib_qp_create_flags`.
    #[inline]
    pub fn create_flags(&self) -> u32 {
        self.attr.create_flags
    }

    /// The port, for [`QpKind::Gsi`].
    #[inline]
    pub fn port(&self) -> u32 {
        self.attr.port_num
    }
}

/// A queue pair that the driver has made.
pub struct NewQp<Q> {
    /// What the driver keeps with it.
    pub data: Q,
    /// Its number.
    pub number: u32,
    /// The sizes that it has, which are not less than those asked for.
    pub cap: QpCap,
}

/// What to change of a queue pair: attributes that are not to be changed are `None`.
pub struct QpAttr<'a> {
    attr: &'a bindings::ib_qp_attr,
    mask: u32,
}

macro_rules! qp_attr {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $mask:ident, $e:expr;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name(&self) -> Option<$ty> {
                let get: fn(&bindings::ib_qp_attr) -> $ty = $e;

                self.has(bindings::$mask).then(|| get(self.attr))
            }
        )*
    };
}

impl<'a> QpAttr<'a> {
    /// # Safety
    ///
    /// The GID table entries in `attr` must be valid for `'a` where `mask` says that there are any.
    #[inline]
    pub(super) unsafe fn new(attr: &'a bindings::ib_qp_attr, mask: u32) -> Self {
        Self { attr, mask }
    }

    #[inline]
    fn has(&self, mask: u32) -> bool {
        self.mask & mask != 0
    }

    /// The mask, as in `enum ib_qp_attr_mask`.
    #[inline]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    qp_attr! {
        /// The state to enter, a number of `enum ib_qp_state`.
        state: u32 = ib_qp_attr_mask_IB_QP_STATE, |a| a.qp_state;
        /// The state that it is believed to have.
        cur_state: u32 = ib_qp_attr_mask_IB_QP_CUR_STATE, |a| a.cur_qp_state;
        /// Whether to tell when the send queue is drained.
        sqd_async_notify: bool = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY,
            |a| a.en_sqd_async_notify != 0;
        /// What the other side may do.
        access_flags: u32 = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS, |a| a.qp_access_flags as u32;
        /// Index of the P_Key.
        pkey_index: u16 = ib_qp_attr_mask_IB_QP_PKEY_INDEX, |a| a.pkey_index;
        /// Port.
        port: u32 = ib_qp_attr_mask_IB_QP_PORT, |a| a.port_num;
        /// Q_Key.
        qkey: u32 = ib_qp_attr_mask_IB_QP_QKEY, |a| a.qkey;
        /// MTU of the path in bytes; 0 for a value that there is not.
        path_mtu: u32 = ib_qp_attr_mask_IB_QP_PATH_MTU, |a| mtu_from_raw(a.path_mtu);
        /// Exponent of the time to wait for an answer.
        timeout: u8 = ib_qp_attr_mask_IB_QP_TIMEOUT, |a| a.timeout;
        /// How often to try again without an answer.
        retry_cnt: u8 = ib_qp_attr_mask_IB_QP_RETRY_CNT, |a| a.retry_cnt;
        /// How often to try again without a receive buffer.
        rnr_retry: u8 = ib_qp_attr_mask_IB_QP_RNR_RETRY, |a| a.rnr_retry;
        /// First PSN to expect.
        rq_psn: u32 = ib_qp_attr_mask_IB_QP_RQ_PSN, |a| a.rq_psn;
        /// READs and atomics that this side may have outstanding.
        max_rd_atomic: u8 = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC, |a| a.max_rd_atomic;
        /// Port of the alternate path.
        alt_port: u32 = ib_qp_attr_mask_IB_QP_ALT_PATH, |a| a.alt_port_num;
        /// Timeout of the alternate path.
        alt_timeout: u8 = ib_qp_attr_mask_IB_QP_ALT_PATH, |a| a.alt_timeout;
        /// P_Key of the alternate path.
        alt_pkey_index: u16 = ib_qp_attr_mask_IB_QP_ALT_PATH, |a| a.alt_pkey_index;
        /// Code of the time that the other side waits for receive buffers.
        min_rnr_timer: u8 = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER, |a| a.min_rnr_timer;
        /// First PSN to use.
        sq_psn: u32 = ib_qp_attr_mask_IB_QP_SQ_PSN, |a| a.sq_psn;
        /// READs and atomics that the other side may have outstanding.
        max_dest_rd_atomic: u8 = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
            |a| a.max_dest_rd_atomic;
        /// State of path migration.
        path_mig_state: u32 = ib_qp_attr_mask_IB_QP_PATH_MIG_STATE, |a| a.path_mig_state;
        /// Sizes.
        cap: QpCap = ib_qp_attr_mask_IB_QP_CAP, |a| QpCap::from_raw(&a.cap);
        /// Number of the queue pair of the other side.
        dest_qpn: u32 = ib_qp_attr_mask_IB_QP_DEST_QPN, |a| a.dest_qp_num;
    }

    /// The path.
    #[inline]
    pub fn ah(&self) -> Option<AhAttr<'a>> {
        self.has(bindings::ib_qp_attr_mask_IB_QP_AV)
            .then_some(AhAttr(&self.attr.ah_attr))
    }

    /// The alternate path.
    #[inline]
    pub fn alt_ah(&self) -> Option<AhAttr<'a>> {
        self.has(bindings::ib_qp_attr_mask_IB_QP_ALT_PATH)
            .then_some(AhAttr(&self.attr.alt_ah_attr))
    }

    /// Whether these attributes are those that a transition between two states needs and allows.
    #[doc(alias = "ib_modify_qp_is_ok")]
    #[inline]
    pub fn is_ok(&self, cur: u32, next: u32, kind: QpKind) -> bool {
        // SAFETY: The function only looks at its arguments.
        unsafe { bindings::ib_modify_qp_is_ok(cur, next, kind.into_raw(), self.mask) }
    }
}

/// Attributes of a queue pair, as a driver tells them.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs)]
pub struct QpInfo {
    /// A number of `enum ib_qp_state`.
    pub state: u32,
    /// In bytes; 0 if it is not set yet.
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qpn: u32,
    pub access_flags: u32,
    pub cap: QpCap,
    pub ah: Option<AhInfo>,
    pub alt_ah: Option<AhInfo>,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub sqd_async_notify: bool,
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port: u32,
    pub alt_timeout: u8,
    pub signal_all: bool,
}

impl QpInfo {
    /// Writes the C structures.
    #[inline]
    pub(super) fn fill(&self, to: &mut bindings::ib_qp_attr, init: &mut bindings::ib_qp_init_attr) {
        to.qp_state = self.state;
        to.cur_qp_state = self.state;
        to.path_mtu = if self.path_mtu == 0 {
            0
        } else {
            mtu_to_raw(self.path_mtu)
        };
        to.path_mig_state = self.path_mig_state;
        to.qkey = self.qkey;
        to.rq_psn = self.rq_psn;
        to.sq_psn = self.sq_psn;
        to.dest_qp_num = self.dest_qpn;
        to.qp_access_flags = self.access_flags as c_int;
        self.cap.fill(&mut to.cap);
        if let Some(ah) = &self.ah {
            ah.fill(&mut to.ah_attr);
        }
        if let Some(ah) = &self.alt_ah {
            ah.fill(&mut to.alt_ah_attr);
        }
        to.pkey_index = self.pkey_index;
        to.alt_pkey_index = self.alt_pkey_index;
        to.en_sqd_async_notify = u8::from(self.sqd_async_notify);
        to.sq_draining = u8::from(self.sq_draining);
        to.max_rd_atomic = self.max_rd_atomic;
        to.max_dest_rd_atomic = self.max_dest_rd_atomic;
        to.min_rnr_timer = self.min_rnr_timer;
        to.port_num = self.port;
        to.timeout = self.timeout;
        to.retry_cnt = self.retry_cnt;
        to.rnr_retry = self.rnr_retry;
        to.alt_port_num = self.alt_port;
        to.alt_timeout = self.alt_timeout;
        self.cap.fill(&mut init.cap);
        init.sq_sig_type = if self.signal_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
    }
}

/// Keeps the type of handles in one place.
pub(super) type QpData<T> = (QpHandle, <T as Operations>::Qp);

/// As [`QpData`].
pub(super) type CqData<T> = (CqHandle, <T as Operations>::Cq);

/// As [`QpData`].
pub(super) type SrqData<T> = (SrqHandle, <T as Operations>::Srq);
