// SPDX-License-Identifier: GPL-2.0

//! The operations of a driver as the core calls them.
//!
//! Each function here turns what C has into what [`Operations`] wants, and nothing else. All of
//! them are called by the core, which keeps what they get valid until they return.

use super::{
    attr::{
        AhAttr,
        AhInit,
        CqData,
        CqInit,
        DeviceChange,
        PortChange,
        QpAttr,
        QpData,
        QpInit,
        QpKind,
        SrqData, //
    },
    cq::{
        CqHandle,
        Notify,
        Polled, //
    },
    mad::{
        Mad,
        Outcome, //
    },
    mem::{
        FastPages,
        MapRequest, //
    },
    object::Object,
    qp::QpHandle,
    udata::Udata,
    wr::{
        RecvWrs,
        SendWrs, //
    },
    Operations, //
};
use crate::{
    bindings,
    container_of,
    error::{
        from_result,
        to_result, //
    },
    ffi::{
        c_char,
        c_int,
        c_uint, //
    },
    mm::virt::VmaNew,
    module::this_module,
    prelude::*,
    sync::Arc, //
};
use core::marker::PhantomData;

mod mem;
mod srq;

/// What is behind a memory region: pages, if it is one for fast registration, and the driver's
/// part.
pub(super) type MrData<T> = (Option<Arc<FastPages>>, <T as Operations>::Mr);

type Dev<T> = Object<bindings::ib_device, <T as Operations>::Device>;
type Uctx<T> = Object<bindings::ib_ucontext, <T as Operations>::Ucontext>;
type Pd<T> = Object<bindings::ib_pd, <T as Operations>::Pd>;
type Ah<T> = Object<bindings::ib_ah, <T as Operations>::Ah>;
type Cq<T> = Object<bindings::ib_cq, CqData<T>>;
type Qp<T> = Object<bindings::ib_qp, QpData<T>>;
type Mr<T> = Object<bindings::ib_mr, MrData<T>>;
type Mw<T> = Object<bindings::ib_mw, <T as Operations>::Mw>;
type Srq<T> = Object<bindings::ib_srq, SrqData<T>>;

/// The table of the operations of `T`.
pub(super) struct VTable<T>(PhantomData<T>);

impl<T: Operations> VTable<T> {
    /// The table, without the number of the driver.
    pub(super) const OPS: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: this_module::<T::OwnerModule>().as_ptr(),
        uverbs_abi_ver: T::UVERBS_ABI_VERSION,
        device_group: &Self::GROUP,
        dealloc_driver: Some(Self::dealloc_driver),
        enable_driver: Some(Self::enable_driver),
        query_device: Some(Self::query_device),
        modify_device: Some(Self::modify_device),
        query_port: Some(Self::query_port),
        modify_port: Some(Self::modify_port),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        query_gid: Some(Self::query_gid),
        query_pkey: Some(Self::query_pkey),
        process_mad: Some(Self::process_mad),
        alloc_hw_port_stats: Some(Self::alloc_hw_port_stats),
        get_hw_stats: Some(Self::get_hw_stats),
        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(Self::mmap),
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        create_ah: Some(Self::create_ah),
        create_user_ah: Some(Self::create_ah),
        modify_ah: Some(Self::modify_ah),
        query_ah: Some(Self::query_ah),
        destroy_ah: Some(Self::destroy_ah),
        create_cq: Some(Self::create_cq),
        destroy_cq: Some(Self::destroy_cq),
        resize_user_cq: Some(Self::resize_user_cq),
        poll_cq: Some(Self::poll_cq),
        peek_cq: Some(Self::peek_cq),
        req_notify_cq: Some(Self::req_notify_cq),
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),
        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        rereg_user_mr: Some(Self::rereg_user_mr),
        advise_mr: if T::HAS_ADVISE_MR {
            Some(Self::advise_mr)
        } else {
            None
        },
        alloc_mr: Some(Self::alloc_mr),
        map_mr_sg: Some(Self::map_mr_sg),
        dereg_mr: Some(Self::dereg_mr),
        alloc_mw: Some(Self::alloc_mw),
        dealloc_mw: Some(Self::dealloc_mw),
        create_srq: Some(Self::create_srq),
        modify_srq: Some(Self::modify_srq),
        query_srq: Some(Self::query_srq),
        destroy_srq: Some(Self::destroy_srq),
        post_srq_recv: Some(Self::post_srq_recv),
        attach_mcast: if T::HAS_ATTACH_MCAST {
            Some(Self::attach_mcast)
        } else {
            None
        },
        detach_mcast: if T::HAS_DETACH_MCAST {
            Some(Self::detach_mcast)
        } else {
            None
        },
        size_ib_ucontext: Uctx::<T>::SIZE,
        size_ib_pd: Pd::<T>::SIZE,
        size_ib_ah: Ah::<T>::SIZE,
        size_ib_cq: Cq::<T>::SIZE,
        size_ib_qp: Qp::<T>::SIZE,
        size_ib_mw: Mw::<T>::SIZE,
        size_ib_srq: Srq::<T>::SIZE,
        ..pin_init::zeroed()
    };

    /// The file `parent` of the device in sysfs.
    // With lockdep there are more fields.
    #[allow(clippy::needless_update)]
    const PARENT: bindings::device_attribute = bindings::device_attribute {
        attr: bindings::attribute {
            name: crate::str::as_char_ptr_in_const_context(c"parent"),
            mode: 0o444,
            ..pin_init::zeroed()
        },
        __bindgen_anon_1: bindings::device_attribute__bindgen_ty_1 {
            show: Some(Self::show_parent),
        },
        __bindgen_anon_2: pin_init::zeroed(),
    };

    /// All files of the device in sysfs that are not the core's.
    const ATTRS: [*mut bindings::attribute; 2] = [
        core::ptr::from_ref(&Self::PARENT.attr).cast_mut(),
        core::ptr::null_mut(),
    ];

    const GROUP: bindings::attribute_group = bindings::attribute_group {
        __bindgen_anon_2: bindings::attribute_group__bindgen_ty_2 {
            attrs: core::ptr::from_ref(&Self::ATTRS).cast_mut().cast(),
        },
        ..pin_init::zeroed()
    };

    /// Shows the interface below.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn show_parent(
        dev: *mut bindings::device,
        _attr: *mut bindings::device_attribute,
        buf: *mut c_char,
    ) -> isize {
        // SAFETY: `dev` is that of a device of `T`, or of its image in another namespace.
        let ib = unsafe { (*container_of!(dev, bindings::ib_core_device, dev)).owner };
        // SAFETY: As above.
        let name = T::parent_name(unsafe { Dev::<T>::data(ib) });
        let len = name.iter().position(|c| *c == 0).unwrap_or(name.len());
        let mut line = [b'\n'; 17];

        line[..len].copy_from_slice(&name[..len]);
        // SAFETY: `buf` is a page for us to write to.
        unsafe { core::ptr::copy_nonoverlapping(line.as_ptr(), buf.cast::<u8>(), len + 1) };
        (len + 1) as isize
    }

    /// `process_mad` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn process_mad(
        dev: *mut bindings::ib_device,
        _flags: c_int,
        port: u32,
        _wc: *const bindings::ib_wc,
        _grh: *const bindings::ib_grh,
        input: *const bindings::ib_mad,
        output: *mut bindings::ib_mad,
        _size: *mut usize,
        _pkey_index: *mut u16,
    ) -> c_int {
        if port != 1 {
            return Outcome::Failure.into_raw();
        }
        // SAFETY: Both are datagrams of this size, the latter the core's to be written; and `dev`
        // is a device of `T`.
        let (dev, input, output) = unsafe {
            (
                Dev::<T>::data(dev),
                &*input.cast::<Mad>(),
                &mut *output.cast::<Mad>(),
            )
        };

        T::process_mad(dev, input, output).into_raw()
    }

    /// `dealloc_driver` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn dealloc_driver(dev: *mut bindings::ib_device) {
        // SAFETY: `dev` is a device of `T`, and this is the last call for it.
        unsafe {
            T::dealloc(Dev::<T>::data(dev));
            Dev::<T>::destroy(dev);
        }
    }

    /// `enable_driver` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn enable_driver(dev: *mut bindings::ib_device) -> c_int {
        from_result(|| {
            // SAFETY: `dev` is a device of `T`.
            T::enable(unsafe { Dev::<T>::data(dev) })?;
            Ok(0)
        })
    }

    /// `query_device` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn query_device(
        dev: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // There is nothing that driver and library tell each other here.
            // SAFETY: `udata` is what the core calls us with.
            if let Some(udata) = unsafe { Udata::<T>::from_raw(udata) } {
                udata.none()?;
            }
            // SAFETY: `dev` is a device of `T`, and `attr` is the core's to be written.
            unsafe { T::query_device(Dev::<T>::data(dev)).fill(&mut *attr) };
            Ok(0)
        })
    }

    /// `modify_device` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn modify_device(
        dev: *mut bindings::ib_device,
        mask: c_int,
        change: *mut bindings::ib_device_modify,
    ) -> c_int {
        const GUID: u32 = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_SYS_IMAGE_GUID;
        const DESC: u32 = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC;

        from_result(|| {
            let mask = mask as u32;

            if mask & !(GUID | DESC) != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: `change` is valid, and `dev` is a device of `T`.
            let (change, data) = unsafe { (&*change, Dev::<T>::data(dev)) };

            T::modify_device(
                data,
                DeviceChange {
                    sys_image_guid: (mask & GUID != 0).then(|| change.sys_image_guid.to_be_bytes()),
                },
            )?;
            if mask & DESC != 0 {
                // SAFETY: This is what the core wants to be changed here.
                unsafe { (&raw mut (*dev).node_desc).write(change.node_desc) };
            }
            Ok(0)
        })
    }

    /// `query_port` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn query_port(
        dev: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            if port != 1 {
                return Err(EINVAL);
            }
            // SAFETY: `dev` is a device of `T`, and `attr` is the core's to be written.
            let (attr, data) = unsafe { (&mut *attr, Dev::<T>::data(dev)) };

            T::query_port(data)?.fill(attr);
            // SAFETY: The device has this port, and the rest are places to write to.
            to_result(unsafe {
                bindings::ib_get_eth_speed(
                    dev,
                    port,
                    &mut attr.active_speed,
                    &mut attr.active_width,
                )
            })?;
            Ok(0)
        })
    }

    /// `modify_port` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn modify_port(
        dev: *mut bindings::ib_device,
        port: u32,
        mask: c_int,
        change: *mut bindings::ib_port_modify,
    ) -> c_int {
        const RESET: u32 = bindings::ib_port_modify_flags_IB_PORT_RESET_QKEY_CNTR;

        from_result(|| {
            if port != 1 {
                return Err(EINVAL);
            }
            if mask as u32 & !RESET != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: `change` is valid, and `dev` is a device of `T`.
            let (change, data) = unsafe { (&*change, Dev::<T>::data(dev)) };

            T::modify_port(
                data,
                PortChange {
                    set_caps: change.set_port_cap_mask,
                    clear_caps: change.clr_port_cap_mask,
                    reset_qkey_counter: mask as u32 & RESET != 0,
                },
            )?;
            Ok(0)
        })
    }

    /// `get_port_immutable` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn get_port_immutable(
        dev: *mut bindings::ib_device,
        port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        from_result(|| {
            if port != 1 {
                return Err(EINVAL);
            }
            // SAFETY: `dev` is a device of `T`, and `immutable` is the core's to be written.
            let (immutable, data) = unsafe { (&mut *immutable, Dev::<T>::data(dev)) };
            let attr = T::query_port(data)?;

            immutable.core_cap_flags = bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
            immutable.pkey_tbl_len = attr.pkey_tbl_len.into();
            immutable.gid_tbl_len = attr.gid_tbl_len;
            immutable.max_mad_size = bindings::IB_MGMT_MAD_SIZE;
            Ok(0)
        })
    }

    /// `get_link_layer` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn get_link_layer(
        _dev: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer::IB_LINK_LAYER_ETHERNET
    }

    /// `query_gid` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn query_gid(
        dev: *mut bindings::ib_device,
        _port: u32,
        _index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        let mut raw = [0; 16];
        // SAFETY: `dev` is a device of `T`.
        let mac = T::hw_address(unsafe { Dev::<T>::data(dev) });

        raw[..6].copy_from_slice(&mac);
        // SAFETY: `gid` is the core's to be written.
        unsafe { gid.write(bindings::ib_gid { raw }) };
        0
    }

    /// `query_pkey` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn query_pkey(
        _dev: *mut bindings::ib_device,
        _port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        from_result(|| {
            if index != 0 {
                return Err(EINVAL);
            }
            // SAFETY: `pkey` is the core's to be written.
            unsafe { pkey.write(0xffff) };
            Ok(0)
        })
    }

    /// `alloc_hw_port_stats` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn alloc_hw_port_stats(
        _dev: *mut bindings::ib_device,
        port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        if port != 1 {
            return core::ptr::null_mut();
        }
        // SAFETY: The descriptions live for ever, and are transparent wrappers.
        unsafe {
            bindings::rdma_alloc_hw_stats_struct(
                T::PORT_STATS.as_ptr().cast(),
                T::PORT_STATS.len() as c_int,
                bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as usize,
            )
        }
    }

    /// `get_hw_stats` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn get_hw_stats(
        dev: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        if port != 1 || stats.is_null() {
            return EINVAL.to_errno();
        }
        let len = T::PORT_STATS.len();
        // SAFETY: The structure was made by `alloc_hw_port_stats()`, so it has as many values, and
        // the core holds its lock.
        let values = unsafe {
            core::slice::from_raw_parts_mut((&raw mut (*stats).value).cast::<u64>(), len)
        };

        // SAFETY: `dev` is a device of `T`.
        T::port_stats(unsafe { Dev::<T>::data(dev) }, values);
        len as c_int
    }

    /// `alloc_ucontext` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn alloc_ucontext(
        uctx: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `udata` is what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: The core has set the device, one of `T`.
            let data = T::alloc_ucontext(unsafe { Dev::<T>::data((*uctx).device) }, &udata)?;

            // SAFETY: The core has allocated as much as the table says.
            unsafe { Uctx::<T>::init(uctx, data) };
            Ok(0)
        })
    }

    /// `dealloc_ucontext` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn dealloc_ucontext(uctx: *mut bindings::ib_ucontext) {
        // SAFETY: This is the last call for an object that was made.
        unsafe {
            T::dealloc_ucontext(Uctx::<T>::data(uctx));
            Uctx::<T>::destroy(uctx);
        }
    }

    /// Nothing is to be done: what is mapped is memory. That there is such an operation lets the
    /// core end a device that processes have open.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn disassociate_ucontext(_uctx: *mut bindings::ib_ucontext) {}

    /// `mmap` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn mmap(
        uctx: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The object was made, and the VMA is being set up.
            let (data, vma) = unsafe { (Uctx::<T>::data(uctx), VmaNew::from_raw(vma)) };

            T::mmap(data, &MapRequest::new(vma))?;
            Ok(0)
        })
    }

    /// `alloc_pd` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `udata` is what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(udata) };
            // SAFETY: The core has set the device, one of `T`.
            let data = T::alloc_pd(unsafe { Dev::<T>::data((*pd).device) }, udata.as_ref())?;

            // SAFETY: The core has allocated as much as the table says.
            unsafe { Pd::<T>::init(pd, data) };
            Ok(0)
        })
    }

    /// `dealloc_pd` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: This is the last call for an object that was made.
        unsafe {
            T::dealloc_pd(Pd::<T>::data(pd));
            Pd::<T>::destroy(pd);
        }
        0
    }

    /// `create_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core has set device and domain, both of `T`; the rest is valid.
            let (dev, pd, udata, init) = unsafe {
                (
                    Dev::<T>::data((*ah).device),
                    Pd::<T>::data((*ah).pd),
                    Udata::<T>::from_raw(udata),
                    AhInit {
                        attr: AhAttr::new(&*(*init).ah_attr),
                        sleepable: (*init).flags
                            & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE
                            != 0,
                    },
                )
            };
            let data = T::create_ah(dev, pd, &init, udata.as_ref())?;

            // SAFETY: The core has allocated as much as the table says.
            unsafe { Ah::<T>::init(ah, data) };
            Ok(0)
        })
    }

    /// `modify_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn modify_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The object was made, and `attr` is valid.
            let (data, attr) = unsafe { (Ah::<T>::data(ah), AhAttr::new(&*attr)) };

            T::modify_ah(data, &attr)?;
            Ok(0)
        })
    }

    /// `query_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn query_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        // SAFETY: The object was made, and `attr` is the core's to be written.
        unsafe { T::query_ah(Ah::<T>::data(ah)).fill(&mut *attr) };
        0
    }

    /// `destroy_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, flags: u32) -> c_int {
        let sleepable = flags & bindings::rdma_destroy_ah_flags_RDMA_DESTROY_AH_SLEEPABLE != 0;

        // SAFETY: This is the last call for an object that was made.
        unsafe {
            T::destroy_ah(Ah::<T>::data(ah), sleepable);
            Ah::<T>::destroy(ah);
        }
        0
    }

    /// `create_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `attrs` is null or what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(bindings::rdma_bundle_udata(attrs)) };
            // SAFETY: `attr` is valid.
            let init = unsafe {
                CqInit {
                    cqe: (*attr).cqe,
                    comp_vector: (*attr).comp_vector,
                    flags: (*attr).flags,
                }
            };
            // SAFETY: The handle is closed before the queue is freed: below, or when it is
            // destroyed.
            let handle = unsafe { CqHandle::new(cq) }?;
            // SAFETY: The core has set the device, one of `T`.
            let dev = unsafe { Dev::<T>::data((*cq).device) };

            match T::create_cq(dev, &init, handle.clone(), udata.as_ref()) {
                Ok((data, cqe)) => {
                    // SAFETY: The core has allocated as much as the table says.
                    unsafe {
                        (*cq).cqe = cqe as c_int;
                        Cq::<T>::init(cq, (handle, data));
                    }
                    Ok(0)
                }
                Err(e) => {
                    handle.close();
                    Err(e)
                }
            }
        })
    }

    /// `destroy_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: This is the last call for an object that was made.
        unsafe {
            let (handle, data) = Cq::<T>::data(cq);

            T::destroy_cq(data);
            handle.close();
            Cq::<T>::destroy(cq);
        }
        0
    }

    /// `resize_user_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn resize_user_cq(
        cq: *mut bindings::ib_cq,
        cqe: c_uint,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `udata` is what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: The object was made.
            let (_, data) = unsafe { Cq::<T>::data(cq) };
            let cqe = T::resize_user_cq(data, cqe, &udata)?;

            // SAFETY: The core lets the driver write this, and calls this one at a time.
            unsafe { (*cq).cqe = cqe as c_int };
            Ok(0)
        })
    }

    /// `poll_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn poll_cq(
        cq: *mut bindings::ib_cq,
        num: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        // SAFETY: The object was made, and there is room for `num` completions.
        let ((_, data), mut out) = unsafe { (Cq::<T>::data(cq), Polled::new(wc, num)) };

        T::poll_cq(data, &mut out);
        out.used()
    }

    /// `peek_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn peek_cq(cq: *mut bindings::ib_cq, enough: c_int) -> c_int {
        // SAFETY: The object was made.
        let (_, data) = unsafe { Cq::<T>::data(cq) };
        let enough = u32::try_from(enough).unwrap_or(0);

        T::peek_cq(data, enough).min(enough) as c_int
    }

    /// `req_notify_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        use bindings::ib_cq_notify_flags as Flags;

        // SAFETY: The object was made.
        let (_, data) = unsafe { Cq::<T>::data(cq) };
        let next = flags.0 & Flags::IB_CQ_SOLICITED_MASK.0 != Flags::IB_CQ_SOLICITED.0;
        let what = if next {
            Notify::Next
        } else {
            Notify::Solicited
        };
        let missed = T::req_notify_cq(data, what);

        c_int::from(missed && flags.0 & Flags::IB_CQ_REPORT_MISSED_EVENTS.0 != 0)
    }

    /// `create_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `udata` is what the core calls us with.
            let udata = unsafe { Udata::<T>::from_raw(udata) };
            // SAFETY: The handle is closed before the queue pair is freed: below, or when it is
            // destroyed.
            let handle = unsafe { QpHandle::new(qp) }?;
            // SAFETY: The core has set the device, one of `T`.
            let dev = unsafe { Dev::<T>::data((*qp).device) };
            // SAFETY: This is what the core calls us with.
            let init = unsafe { QpInit::new(qp, &*attr, udata.is_some()) };
            let made = T::create_qp(dev, &init, handle.clone(), udata.as_ref());

            match made {
                Ok(new) => {
                    // SAFETY: The core has allocated as much as the table says, and lets the driver
                    // write the sizes.
                    unsafe {
                        (*qp).qp_num = new.number;
                        new.cap.fill(&mut (*attr).cap);
                        Qp::<T>::init(qp, (handle, new.data));
                    }
                    Ok(0)
                }
                Err(e) => {
                    handle.close();
                    Err(e)
                }
            }
        })
    }

    /// `modify_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            let mask = mask as u32;

            if mask & !bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The object was made, and `attr` is valid.
            let ((_, data), attr) = unsafe { (Qp::<T>::data(qp), QpAttr::new(&*attr, mask)) };

            T::modify_qp(data, &attr)?;
            Ok(0)
        })
    }

    /// `query_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: The object was made; the structures are the core's to be written.
        unsafe {
            let (_, data) = Qp::<T>::data(qp);
            let init = &mut *init;

            T::query_qp(data).fill(&mut *attr, init);
            init.event_handler = (*qp).event_handler;
            init.qp_context = (*qp).qp_context;
            init.send_cq = (*qp).send_cq;
            init.recv_cq = (*qp).recv_cq;
            init.srq = (*qp).srq;
            init.qp_type = (*qp).qp_type;
        }
        0
    }

    /// `destroy_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: This is the last call for an object that was made.
        unsafe {
            let (handle, data) = Qp::<T>::data(qp);

            T::destroy_qp(data);
            handle.close();
            Qp::<T>::destroy(qp);
        }
        0
    }

    /// `post_send` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: The object was made.
        let ((_, data), kind) = unsafe { (Qp::<T>::data(qp), (*qp).qp_type) };
        // SAFETY: For a client in the kernel this is what it has posted; for a queue pair of user
        // space, only a doorbell comes here, whose chain is not looked at.
        let user = unsafe { !(*qp).uobject.is_null() };
        let chain = if user { core::ptr::null() } else { wr };
        // SAFETY: As above.
        let mut wrs = unsafe { SendWrs::<T>::new(chain, QpKind::from_raw(kind)) };

        match T::post_send(data, &mut wrs) {
            Ok(()) => 0,
            Err(e) => {
                // SAFETY: `bad` is the caller's to be written.
                unsafe { bad.write(if user { wr } else { wrs.last() }) };
                e.to_errno()
            }
        }
    }

    /// `post_recv` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: The object was made, and `wr` is what a client has posted.
        let ((_, data), mut wrs) = unsafe { (Qp::<T>::data(qp), RecvWrs::new(wr)) };

        match T::post_recv(data, &mut wrs) {
            Ok(()) => 0,
            Err(e) => {
                // SAFETY: `bad` is the caller's to be written.
                unsafe { bad.write(wrs.last()) };
                e.to_errno()
            }
        }
    }

    /// `attach_mcast` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The object was made; all variants of the union are 16 bytes.
            let ((_, data), gid) = unsafe { (Qp::<T>::data(qp), (*gid).raw) };

            T::attach_mcast(data, &gid)?;
            Ok(0)
        })
    }

    /// `detach_mcast` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The object was made; all variants of the union are 16 bytes.
            let ((_, data), gid) = unsafe { (Qp::<T>::data(qp), (*gid).raw) };

            T::detach_mcast(data, &gid)?;
            Ok(0)
        })
    }
}
