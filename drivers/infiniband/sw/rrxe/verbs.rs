// SPDX-License-Identifier: GPL-2.0

//! The operations that the RDMA core calls. Nothing is decided here.

use crate::{
    ah::Ah,
    arm,
    cq::Cq,
    device::Device,
    mad,
    mr::{
        self,
        Mr, //
    },
    mw::Mw,
    params,
    pd::Pd,
    qp::Qp,
    srq::Srq,
    stats::DESCS,
    uctx::Ucontext, //
};
use kernel::{
    net::netdevice::NetDevice,
    prelude::*,
    rdma::driver::{
        attr::{
            AhAttr,
            AhInfo,
            AhInit,
            CqInit,
            DeviceAttr,
            DeviceChange,
            NewQp,
            PortAttr,
            PortChange,
            QpAttr,
            QpInfo,
            QpInit, //
        },
        cq::{
            CqHandle,
            Notify,
            Polled, //
        },
        link::LinkOperations,
        mad::{
            Mad,
            Outcome, //
        },
        mem::{
            FastPages,
            KernelMemory,
            MapRequest, //
        },
        qp::QpHandle,
        srq::{
            NewSrq,
            SrqAttr,
            SrqChange,
            SrqHandle, //
        },
        stats::Desc,
        wr::{
            RecvWrs,
            SendWrs,
            Sges, //
        },
        Advice,
        MrChange,
        MwKind,
        NewMr,
        Operations,
        Udata,
        UserMr, //
    },
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// The driver.
pub(crate) struct Verbs;

impl LinkOperations for Verbs {
    fn newlink(name: &CStr, netdev: ARef<NetDevice>) -> Result {
        Device::add(name, netdev)
    }
}

#[vtable]
impl Operations for Verbs {
    type Device = Arc<Device>;
    type Ucontext = Arc<Ucontext>;
    type Pd = Arc<Pd>;
    type Ah = Arc<Ah>;
    type Cq = Arc<Cq>;
    type Qp = Arc<Qp>;
    type Mr = Arc<Mr>;
    type Mw = Arc<Mw>;
    type Srq = Arc<Srq>;

    const UVERBS_ABI_VERSION: u32 = params::UVERBS_ABI_VERSION;
    const PORT_STATS: &'static [Desc] = &DESCS;

    fn dealloc(dev: &Arc<Device>) {
        dev.end();
    }

    fn enable(dev: &Arc<Device>) -> Result {
        dev.enable();
        Ok(())
    }

    fn query_device(dev: &Arc<Device>) -> DeviceAttr {
        params::device_attr(dev.guid())
    }

    fn modify_device(dev: &Arc<Device>, change: DeviceChange) -> Result {
        if let Some(guid) = change.sys_image_guid {
            dev.set_guid(guid);
        }
        Ok(())
    }

    fn query_port(dev: &Arc<Device>) -> Result<PortAttr> {
        Ok(dev.port_attr())
    }

    fn modify_port(dev: &Arc<Device>, change: PortChange) -> Result {
        dev.change_caps(change.set_caps, change.clear_caps);
        Ok(())
    }

    fn hw_address(dev: &Arc<Device>) -> [u8; 6] {
        dev.mac()
    }

    fn port_stats(dev: &Arc<Device>, values: &mut [u64]) {
        for (i, value) in values.iter_mut().enumerate() {
            *value = dev.stats.get(i);
        }
    }

    fn parent_name(dev: &Arc<Device>) -> [u8; 16] {
        dev.netdev().name()
    }

    fn process_mad(dev: &Arc<Device>, input: &Mad, output: &mut Mad) -> Outcome {
        mad::process(dev, input, output)
    }

    fn alloc_ucontext(dev: &Arc<Device>, _udata: &Udata<'_, Self>) -> Result<Arc<Ucontext>> {
        Ucontext::new(dev)
    }

    fn dealloc_ucontext(_uctx: &Arc<Ucontext>) {}

    fn mmap(uctx: &Arc<Ucontext>, request: &MapRequest<'_>) -> Result {
        uctx.mmap(request)
    }

    fn alloc_pd(dev: &Arc<Device>, _udata: Option<&Udata<'_, Self>>) -> Result<Arc<Pd>> {
        Pd::new(dev)
    }

    fn dealloc_pd(_pd: &Arc<Pd>) {}

    fn create_ah(
        dev: &Arc<Device>,
        pd: &Arc<Pd>,
        init: &AhInit<'_>,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<Arc<Ah>> {
        Ah::create(dev, pd, init, udata)
    }

    fn modify_ah(ah: &Arc<Ah>, attr: &AhAttr<'_>) -> Result {
        ah.modify(attr)
    }

    fn query_ah(ah: &Arc<Ah>) -> AhInfo {
        ah.info()
    }

    fn destroy_ah(ah: &Arc<Ah>, sleepable: bool) {
        ah.destroy(sleepable);
    }

    fn create_cq(
        dev: &Arc<Device>,
        init: &CqInit,
        handle: CqHandle,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<(Arc<Cq>, u32)> {
        Cq::create(dev, init, handle, udata)
    }

    fn destroy_cq(cq: &Arc<Cq>) {
        cq.destroy();
    }

    fn resize_user_cq(cq: &Arc<Cq>, cqe: u32, udata: &Udata<'_, Self>) -> Result<u32> {
        cq.resize(cqe, udata)
    }

    fn poll_cq(cq: &Arc<Cq>, out: &mut Polled<'_>) {
        cq.poll(out);
    }

    fn peek_cq(cq: &Arc<Cq>, _enough: u32) -> u32 {
        cq.len() as u32
    }

    fn req_notify_cq(cq: &Arc<Cq>, what: Notify) -> bool {
        cq.req_notify(match what {
            Notify::Solicited => arm::Notify::Solicited,
            Notify::Next => arm::Notify::Next,
        })
    }

    fn create_qp(
        dev: &Arc<Device>,
        init: &QpInit<'_, Self>,
        handle: QpHandle,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<NewQp<Arc<Qp>>> {
        Qp::create(dev, init, handle, udata)
    }

    fn modify_qp(qp: &Arc<Qp>, attr: &QpAttr<'_>) -> Result {
        Qp::modify(qp, attr)
    }

    fn query_qp(qp: &Arc<Qp>) -> QpInfo {
        Qp::query(qp)
    }

    fn destroy_qp(qp: &Arc<Qp>) {
        Qp::destroy(qp.clone());
    }

    fn attach_mcast(qp: &Arc<Qp>, gid: &[u8; 16]) -> Result {
        let dev = qp.device();

        dev.groups.attach(dev.netdev(), gid, qp.qpn())
    }

    fn detach_mcast(qp: &Arc<Qp>, gid: &[u8; 16]) -> Result {
        qp.device().groups.detach(gid, qp.qpn())
    }

    fn post_send(qp: &Arc<Qp>, wrs: &mut SendWrs<'_, Self>) -> Result {
        Qp::post_send(qp, wrs)
    }

    fn post_recv(qp: &Arc<Qp>, wrs: &mut RecvWrs<'_>) -> Result {
        Qp::post_recv(qp, wrs)
    }

    fn get_dma_mr(pd: &Arc<Pd>, dma: KernelMemory, access: u32) -> Result<NewMr<Arc<Mr>>> {
        Mr::new_dma(pd, dma, access)
    }

    fn reg_user_mr(pd: &Arc<Pd>, request: &UserMr) -> Result<NewMr<Arc<Mr>>> {
        Mr::new_user(pd, request)
    }

    fn rereg_user_mr(
        mr: &Arc<Mr>,
        pd: &Arc<Pd>,
        change: &MrChange,
    ) -> Result<Option<NewMr<Arc<Mr>>>> {
        mr.rereg(pd, change)
    }

    fn advise_mr(pd: &Arc<Pd>, advice: Advice, wait: bool, sges: Sges<'_>) -> Result {
        mr::advise(pd, advice, wait, sges)
    }

    fn alloc_mr(pd: &Arc<Pd>, pages: Arc<FastPages>) -> Result<NewMr<Arc<Mr>>> {
        Mr::new_fast(pd, pages)
    }

    fn dereg_mr(mr: &Arc<Mr>) -> Result {
        mr.dereg()
    }

    fn alloc_mw(pd: &Arc<Pd>, kind: MwKind) -> Result<(Arc<Mw>, u32)> {
        Mw::new(pd, kind)
    }

    fn dealloc_mw(mw: &Arc<Mw>) {
        mw.dealloc();
    }

    fn create_srq(
        pd: &Arc<Pd>,
        attr: &SrqAttr,
        handle: SrqHandle,
        udata: Option<&Udata<'_, Self>>,
    ) -> Result<NewSrq<Arc<Srq>>> {
        Srq::create(pd, attr, handle, udata)
    }

    fn modify_srq(srq: &Arc<Srq>, change: &SrqChange, udata: Option<&Udata<'_, Self>>) -> Result {
        srq.modify(change, udata)
    }

    fn query_srq(srq: &Arc<Srq>) -> SrqAttr {
        srq.attr()
    }

    fn destroy_srq(srq: &Arc<Srq>) {
        srq.destroy();
    }

    fn post_srq_recv(srq: &Arc<Srq>, wrs: &mut RecvWrs<'_>) -> Result {
        srq.post(wrs)
    }
}
