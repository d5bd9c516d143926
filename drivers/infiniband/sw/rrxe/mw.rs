// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys for parts of regions, which work requests bind.
//!
//! A window that is bound says which region it is bound to by number. A region is not deregistered
//! while windows are bound to it ([`Mr::hold`]), so the number means the same as long as the window
//! is bound.

use crate::{
    device::Device,
    mr::{
        Mr,
        Who, //
    },
    params::access,
    pd::Pd,
    wc::Status,
    wqe::BindMw, //
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    rdma::driver::MwKind,
    sync::{
        rcu,
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
};

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
struct Binding {
    /// Number of the region.
    mr: u32,
    addr: u64,
    len: u64,
    access: u32,
    /// The queue pair that may be used, for the second type.
    qpn: u32,
}

struct State {
    /// The part of the key that changes.
    key: u8,
    binding: Option<Binding>,
}

/// A memory window.
#[pin_data]
pub(crate) struct Mw {
    dev: Arc<Device>,
    number: u32,
    pd: u64,
    kind: MwKind,
    #[pin]
    state: SpinLockIrq<State>,
}

/// Part of a region that a window leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Number of the region.
    pub(crate) mr: u32,
    /// The address in the region.
    pub(crate) va: u64,
}

/// Rights that may be asked for. Those that mean something for a window are those of the other
/// side; the rest does no harm.
const RIGHTS: u32 = access::MR | access::ZERO_BASED;

impl Mw {
    /// Makes a window; also returns its key.
    #[doc(alias = "ib_alloc_mw")]
    pub(crate) fn new(pd: &Arc<Pd>, kind: MwKind) -> Result<(Arc<Self>, u32)> {
        let dev = &pd.dev;
        let key = dev.next_generation().wrapping_mul(59).wrapping_add(17);
        let mw = dev.mws.insert_with(GFP_KERNEL, |number| {
            Arc::pin_init(
                pin_init!(Self {
                    dev: dev.clone(),
                    number,
                    pd: pd.id,
                    kind,
                    state <- new_spinlock_irq!(State { key, binding: None }, "Mw::state"),
                }),
                GFP_KERNEL,
            )
        })?;
        let rkey = mw.number << 8 | u32::from(key);

        Ok((mw, rkey))
    }

    /// Ends the window. After this nobody gets through it.
    #[doc(alias = "ib_dealloc_mw")]
    pub(crate) fn dealloc(&self) {
        let binding = self.state.lock().binding.take();

        // Whoever has found the window may be on the way through it.
        if let Some(retired) = self.dev.mws.remove(self.number) {
            drop(retired.wait());
        }
        self.let_go(binding);
    }

    /// The region of a binding that is no more may be deregistered.
    fn let_go(&self, binding: Option<Binding>) {
        let guard = rcu::read_lock();

        if let Some(mr) = binding.and_then(|b| self.dev.mrs.get(&guard, b.mr)) {
            mr.let_go();
        }
    }

    /// Where a range of addresses is, if it may be accessed by `who` as `need` says. Any context.
    pub(crate) fn view(
        &self,
        who: &Who<'_>,
        rkey: u32,
        need: u32,
        (va, len): (u64, u64),
    ) -> Option<View> {
        let state = self.state.lock();
        let b = state.binding.filter(|b| {
            state.key == rkey as u8
                && self.pd == who.pd.id
                && (self.kind == MwKind::One || b.qpn == who.qpn)
                && b.access & need == need
        })?;
        let offset = if b.access & access::ZERO_BASED != 0 {
            va
        } else {
            va.checked_sub(b.addr)?
        };

        offset.checked_add(len).filter(|end| *end <= b.len)?;
        Some(View {
            mr: b.mr,
            va: b.addr.checked_add(offset)?,
        })
    }

    /// Makes the key invalid. Only for the second type (IBA vol. 1, o10-37.2.26).
    pub(crate) fn invalidate(&self, who: &Who<'_>, key: u32) -> bool {
        let binding = {
            let mut state = self.state.lock();

            if self.kind != MwKind::Two || state.key != key as u8 || self.pd != who.pd.id {
                return false;
            }
            state.binding.take()
        };

        self.let_go(binding);
        true
    }

    /// Checks and does what a work request asks for.
    fn bind(&self, who: &Who<'_>, bind: &BindMw, mr: Option<ArcBorrow<'_, Mr>>) -> bool {
        let mut state = self.state.lock();

        if state.key != bind.mw_rkey as u8 || self.pd != who.pd.id || bind.access & !RIGHTS != 0 {
            return false;
        }
        match self.kind {
            // o10-36.2.2
            MwKind::One if bind.access & access::ZERO_BASED != 0 => return false,
            // o10-37.2.30, o10-37.2.40
            MwKind::Two if state.binding.is_some() || mr.is_none() => return false,
            _ => (),
        }
        // C10-72 to C10-75
        if mr.as_ref().is_some_and(|mr| !mr.may_bind(who, bind)) {
            return false;
        }
        let number = match mr {
            Some(mr) if mr.hold() => Some(mr.number()),
            Some(_) => return false,
            None => None,
        };
        let before = core::mem::replace(
            &mut state.binding,
            number.map(|mr| Binding {
                mr,
                addr: bind.addr,
                len: bind.len,
                access: bind.access,
                qpn: who.qpn,
            }),
        );

        state.key = bind.rkey as u8;
        drop(state);
        self.let_go(before);
        true
    }
}

/// Binds a window, or makes one of the first type lead nowhere if the length is 0. Any context.
///
/// # Errors
///
/// What the completion says.
pub(crate) fn bind(dev: &Device, who: &Who<'_>, bind: &BindMw) -> Result<(), Status> {
    let guard = rcu::read_lock();
    let mw = dev
        .mws
        .get(&guard, bind.mw_rkey >> 8)
        .ok_or(Status::MwBind)?;
    let mr = if bind.len == 0 {
        None
    } else {
        Some(
            dev.mrs
                .get(&guard, bind.mr_lkey >> 8)
                .ok_or(Status::MwBind)?,
        )
    };

    mw.bind(who, bind, mr).then_some(()).ok_or(Status::MwBind)
}
