// SPDX-License-Identifier: GPL-2.0

//! The operations of memory regions and windows, as the core calls them.

use super::{
    Mr,
    Mw,
    Pd,
    VTable, //
};
use crate::{
    bindings,
    error::from_result,
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    rdma::driver::{
        mem::{
            FastPages,
            KernelMemory, //
        },
        wr::Sges,
        Advice,
        MrChange,
        MwKind,
        NewMr,
        Operations,
        UserMr, //
    },
    sync::Arc, //
};

impl Advice {
    #[inline]
    fn from_raw(raw: bindings::ib_uverbs_advise_mr_advice) -> Option<Self> {
        match raw {
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => {
                Some(Self::Prefetch)
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
                Some(Self::PrefetchWrite)
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
                Some(Self::PrefetchPresent)
            }
            _ => None,
        }
    }
}

impl<T: Operations> VTable<T> {
    /// Allocates a region, with `make` for what the driver keeps with it; null if that is nothing.
    ///
    /// `make` is called when nothing else can fail.
    #[inline]
    fn new_mr(
        fast: Option<Arc<FastPages>>,
        make: impl FnOnce() -> Result<Option<NewMr<T::Mr>>>,
    ) -> Result<*mut bindings::ib_mr> {
        // SAFETY: Any size will do.
        let mr = unsafe {
            bindings::rdma_kmalloc(Mr::<T>::SIZE, bindings::GFP_KERNEL | bindings::__GFP_ZERO)
        }
        .cast::<bindings::ib_mr>();

        if mr.is_null() {
            return Err(ENOMEM);
        }
        match make() {
            Ok(Some(new)) => {
                // SAFETY: The memory was allocated just now, large enough.
                unsafe {
                    (*mr).lkey = new.lkey;
                    (*mr).rkey = new.rkey;
                    Mr::<T>::init(mr, (fast, new.data));
                }
                Ok(mr)
            }
            none => {
                // SAFETY: It is ours, and nothing is in it.
                unsafe { bindings::kfree(mr.cast()) };
                none.map(|_| core::ptr::null_mut())
            }
        }
    }

    /// `get_dma_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: The object was made.
        let data = unsafe { Pd::<T>::data(pd) };

        Self::new_mr(None, || {
            T::get_dma_mr(data, KernelMemory::new(), access as u32).map(Some)
        })
        .unwrap_or_else(|e| e.to_ptr())
    }

    /// `reg_user_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        _udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: The object was made.
        let data = unsafe { Pd::<T>::data(pd) };
        let request = UserMr {
            start,
            length,
            iova,
            access: access as u32,
        };

        Self::new_mr(None, || T::reg_user_mr(data, &request).map(Some))
            .unwrap_or_else(|e| e.to_ptr())
    }

    /// `rereg_user_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn rereg_user_mr(
        mr: *mut bindings::ib_mr,
        flags: c_int,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        const TRANS: u32 = bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS;
        const PD: u32 = bindings::ib_mr_rereg_flags_IB_MR_REREG_PD;
        const ACCESS: u32 = bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS;

        let flags = flags as u32;

        if flags & !(TRANS | PD | ACCESS) != 0 {
            return EOPNOTSUPP.to_ptr();
        }
        let change = MrChange {
            access: (flags & ACCESS != 0).then_some(access as u32),
            memory: (flags & TRANS != 0).then_some((start, length, iova)),
        };
        // SAFETY: The objects were made. `pd` is the domain that the region has or is to have.
        let (old, pd) = unsafe { (Mr::<T>::data(mr), Pd::<T>::data(pd)) };
        let new = Self::new_mr(None, || T::rereg_user_mr(&old.1, pd, &change));

        if let Some(new) = new.as_ref().ok().filter(|new| !new.is_null()) {
            // The core sets the rest.
            // SAFETY: Both are valid, and nobody else knows the new one.
            unsafe {
                ((**new).length, (**new).iova) = match change.memory {
                    Some((_, length, iova)) => (length, iova),
                    None => ((*mr).length, (*mr).iova),
                };
            }
        }
        new.unwrap_or_else(|e| e.to_ptr())
    }

    /// `advise_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn advise_mr(
        pd: *mut bindings::ib_pd,
        advice: bindings::ib_uverbs_advise_mr_advice,
        flags: u32,
        list: *mut bindings::ib_sge,
        count: u32,
        _attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        const FLUSH: u32 = bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;

        from_result(|| {
            let advice = Advice::from_raw(advice).ok_or(EOPNOTSUPP)?;

            if flags & !FLUSH != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The object was made, and the list is the core's, who does not change it.
            let (pd, list) = unsafe {
                (
                    Pd::<T>::data(pd),
                    core::slice::from_raw_parts(list, count as usize),
                )
            };

            T::advise_mr(pd, advice, flags & FLUSH != 0, Sges::new(list))?;
            Ok(0)
        })
    }

    /// `alloc_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        max: u32,
    ) -> *mut bindings::ib_mr {
        if kind != bindings::ib_mr_type::IB_MR_TYPE_MEM_REG {
            return EINVAL.to_ptr();
        }
        // SAFETY: The object was made.
        let data = unsafe { Pd::<T>::data(pd) };
        let make = || -> Result<*mut bindings::ib_mr> {
            let pages = Arc::new(FastPages::new(max)?, GFP_KERNEL)?;

            Self::new_mr(Some(pages.clone()), || T::alloc_mr(data, pages).map(Some))
        };

        make().unwrap_or_else(|e| e.to_ptr())
    }

    /// `map_mr_sg` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        sg: *mut bindings::scatterlist,
        nents: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: The object was made; the client maps one at a time.
        let (pages, size) = unsafe { (&Mr::<T>::data(mr).0, (*mr).page_size) };
        let Some(pages) = pages else {
            return EINVAL.to_errno();
        };

        if !size.is_power_of_two() {
            return EINVAL.to_errno();
        }
        pages.restart(size);
        // SAFETY: The list is what the client calls this with.
        unsafe { bindings::ib_sg_to_pages(mr, sg, nents, offset, Some(Self::set_page)) }
    }

    /// `set_page` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn set_page(mr: *mut bindings::ib_mr, addr: u64) -> c_int {
        // SAFETY: The object was made.
        let pages = unsafe { &Mr::<T>::data(mr).0 };

        match pages.as_ref().ok_or(EINVAL).and_then(|p| p.push(addr)) {
            Ok(()) => 0,
            Err(e) => e.to_errno(),
        }
    }

    /// `dereg_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The object was made.
            T::dereg_mr(&unsafe { Mr::<T>::data(mr) }.1)?;
            // SAFETY: This is the last call for it, and the memory is ours.
            unsafe {
                Mr::<T>::destroy(mr);
                bindings::kfree(mr.cast());
            }
            Ok(0)
        })
    }

    /// `alloc_mw` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core has set domain and kind.
            let (pd, kind) = unsafe { (Pd::<T>::data((*mw).pd), (*mw).type_) };
            let kind = match kind {
                bindings::ib_mw_type_IB_MW_TYPE_1 => MwKind::One,
                bindings::ib_mw_type_IB_MW_TYPE_2 => MwKind::Two,
                _ => return Err(EINVAL),
            };
            let (data, rkey) = T::alloc_mw(pd, kind)?;

            // SAFETY: The core has allocated as much as the table says, and lets the driver write
            // the key.
            unsafe {
                (*mw).rkey = rkey;
                Mw::<T>::init(mw, data);
            }
            Ok(0)
        })
    }

    /// `dealloc_mw` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core may call it, for a device of this driver, as it calls that operation.
    pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        // SAFETY: This is the last call for an object that was made.
        unsafe {
            T::dealloc_mw(Mw::<T>::data(mw));
            Mw::<T>::destroy(mw);
        }
        0
    }
}
