// SPDX-License-Identifier: GPL-2.0

//! Where the parts of the driver meet.
//!
//! Stubs, until the real ones are here: each name is to become a re-export.

#![allow(dead_code, unused_variables)]

pub(crate) use table::Table;

pub(crate) mod table {
    use core::marker::PhantomData;
    use kernel::{
        prelude::*,
        sync::{
            rcu,
            Arc,
            ArcBorrow, //
        },
        xarray::{
            AllocKind,
            XArray, //
        }, //
    };

    #[pin_data]
    pub(crate) struct Table<T: 'static> {
        #[pin]
        xa: XArray<Arc<T>>,
        next: kernel::sync::atomic::Atomic<u32>,
        first: u32,
        last: u32,
        _p: PhantomData<T>,
    }

    pub(crate) struct Retired<T: 'static>(Arc<T>);

    impl<T> Retired<T> {
        pub(crate) fn wait(self) -> Arc<T> {
            rcu::synchronize_rcu();
            self.0
        }
    }

    impl<T: Send + Sync + 'static> Table<T> {
        pub(crate) fn new(first: u32, last: u32) -> impl PinInit<Self> {
            pin_init!(Self {
                xa <- XArray::new(AllocKind::Alloc),
                next: kernel::sync::atomic::Atomic::new(first),
                first,
                last,
                _p: PhantomData,
            })
        }

        pub(crate) fn insert_with(
            &self,
            gfp: kernel::alloc::Flags,
            f: impl FnOnce(u32) -> Result<Arc<T>>,
        ) -> Result<Arc<T>> {
            let i = self.next.fetch_add(1u32, kernel::sync::atomic::Relaxed);
            let obj = f(i)?;

            self.xa
                .lock()
                .store(i as usize, obj.clone(), gfp)
                .map_err(|e| e.error)?;
            Ok(obj)
        }

        pub(crate) fn insert_at(
            &self,
            gfp: kernel::alloc::Flags,
            i: u32,
            obj: Arc<T>,
        ) -> Result {
            self.xa
                .lock()
                .store(i as usize, obj, gfp)
                .map_err(|e| e.error)?;
            Ok(())
        }

        pub(crate) fn get<'g>(
            &'g self,
            guard: &'g rcu::Guard,
            i: u32,
        ) -> Option<ArcBorrow<'g, T>> {
            None
        }

        pub(crate) fn get_arc(&self, i: u32) -> Option<Arc<T>> {
            self.xa.lock().get(i as usize).map(Arc::from)
        }

        pub(crate) fn remove(&self, i: u32) -> Option<Retired<T>> {
            self.xa.lock().remove(i as usize).map(Retired)
        }
    }
}

pub(crate) mod net {
    use crate::{
        ah::Av,
        device::Device, //
    };
    use kernel::{
        prelude::*,
        rdma::driver::link::NetDev,
        sync::Arc, //
    };

    pub(crate) struct Registrations;

    pub(crate) fn init(module: &'static ThisModule) -> Result<Registrations> {
        Ok(Registrations)
    }

    pub(crate) struct Attachment(Arc<Device>);

    impl Attachment {
        pub(crate) fn new(dev: &Arc<Device>, netdev: &NetDev) -> Result<Self> {
            Ok(Self(dev.clone()))
        }
    }

    pub(crate) struct Flow;

    impl Flow {
        pub(crate) fn new(dev: &Device, av: &Av, entropy: u32) -> Result<Self> {
            Ok(Self)
        }
    }

    pub(crate) struct Drops;

    impl Drops {
        pub(crate) fn new() -> Self {
            Self
        }
    }

    pub(crate) fn is_vlan(netdev: &NetDev) -> bool {
        false
    }
}

pub(crate) mod qp {
    use crate::{
        device::Device,
        verbs::Verbs, //
    };
    use kernel::{
        prelude::*,
        rdma::driver::{
            attr::{
                NewQp,
                QpAttr,
                QpInfo,
                QpInit,
                QpKind, //
            },
            qp::QpHandle,
            wr::{
                RecvWrs,
                SendWrs, //
            },
            Udata, //
        },
        sync::Arc, //
    };

    pub(crate) struct Qp {
        handle: QpHandle,
    }

    impl Qp {
        pub(crate) fn create(
            dev: &Arc<Device>,
            init: &QpInit<'_, Verbs>,
            handle: QpHandle,
            udata: Option<&Udata<'_, Verbs>>,
        ) -> Result<NewQp<Arc<Self>>> {
            Ok(NewQp {
                data: Arc::new(Self { handle }, GFP_KERNEL)?,
                number: if init.kind() == QpKind::Gsi { 1 } else { 17 },
                cap: init.cap(),
            })
        }

        pub(crate) fn modify(this: &Arc<Self>, attr: &QpAttr<'_>) -> Result {
            Ok(())
        }

        pub(crate) fn query(this: &Arc<Self>) -> QpInfo {
            QpInfo::default()
        }

        pub(crate) fn destroy(this: Arc<Self>) {}

        pub(crate) fn post_send(this: &Arc<Self>, wrs: &mut SendWrs<'_, Verbs>) -> Result {
            Err(EINVAL)
        }

        pub(crate) fn post_recv(this: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
            Ok(())
        }

        pub(crate) fn handle(&self) -> &QpHandle {
            &self.handle
        }
    }
}
