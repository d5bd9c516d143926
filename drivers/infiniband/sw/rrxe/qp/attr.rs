// SPDX-License-Identifier: GPL-2.0

//! Attributes: `ib_modify_qp()` and `ib_query_qp()`.
//!
//! What was set is kept here as it was set, for queries. Requester and responder get what they
//! need of it as a whole, [`TxConfig`] and [`RxConfig`], while nobody else owns them.

use super::{
    object::{
        Qp,
        RxHalf,
        TxHalf, //
    },
    run::Todo,
    state::{
        self,
        timeout_ns,
        Entry,
        QpState, //
    },
};
use crate::{
    ah::Av,
    device::Device,
    net::Flow,
    opcode::Transport,
    params,
    psn::Psn,
    resp::{
        Resource,
        Rights,
        RxConfig, //
    },
    sync::Word,
    tx::TxConfig, //
};
use kernel::{
    bindings,
    prelude::*,
    rdma::driver::attr::{
        QpAttr,
        QpInfo, //
    },
    sync::Arc, //
};

/// The only partition key there is.
const PKEY: u16 = 0xffff;

/// What was set.
#[derive(Clone)]
pub(crate) struct Attrs {
    access: u32,
    pkey_index: u16,
    port: u32,
    qkey: u32,
    av: Option<Av>,
    flow: Option<Arc<Flow>>,
    mtu: u32,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    rq_psn: u32,
    sq_psn: u32,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    dest_qpn: u32,
    sqd_notify: bool,
}

impl Attrs {
    /// Makes those of a new queue pair.
    pub(super) fn new(qkey: u32) -> Self {
        Self {
            access: 0,
            pkey_index: 0,
            port: 1,
            qkey,
            av: None,
            flow: None,
            mtu: 256,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            rq_psn: 0,
            sq_psn: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            dest_qpn: 0,
            sqd_notify: false,
        }
    }

    /// Path MTU; datagrams have that of the port.
    fn mtu(&self, transport: Transport, dev: &Device) -> u32 {
        match transport {
            Transport::Ud => dev.active_mtu(),
            _ => self.mtu,
        }
    }

    /// What the requester needs.
    pub(super) fn tx(
        &self,
        transport: Transport,
        gsi: bool,
        qpn: u32,
        signal_all: bool,
        dev: &Device,
    ) -> TxConfig {
        TxConfig {
            transport,
            gsi,
            qpn,
            dest_qpn: self.dest_qpn,
            pkey: PKEY,
            qkey: self.qkey,
            mtu: self.mtu(transport, dev),
            max_rd_atomic: u32::from(self.max_rd_atomic),
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            timeout: timeout_ns(self.timeout).filter(|_| transport == Transport::Rc),
            signal_all,
            thin_acks: true,
        }
    }

    /// What the responder needs.
    pub(super) fn rx(
        &self,
        transport: Transport,
        qpn: u32,
        shared: bool,
        dev: &Device,
    ) -> RxConfig {
        let may = |flags: u32| self.access & flags != 0;

        RxConfig {
            transport,
            qpn,
            dest_qpn: self.dest_qpn,
            pkey: PKEY,
            mtu: self.mtu(transport, dev),
            rights: Rights {
                write: may(bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE),
                read: may(bindings::ib_access_flags_IB_ACCESS_REMOTE_READ),
                atomic: may(bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC),
                flush: may(bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL
                    | bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT),
            },
            min_rnr_timer: self.min_rnr_timer,
            resume_in_place: true,
            shared,
        }
    }

    /// Takes over what is to be changed, after it was checked.
    fn update(&mut self, qp: &Qp, attr: &QpAttr<'_>) -> Result {
        let dev = state::Device {
            mtu: params::MAX_MTU,
            max_rd_atomic: params::MAX_RD_ATOMIC,
        };
        let values = state::Attrs {
            port: attr.port(),
            alt_port: attr.alt_port(),
            mtu: attr.path_mtu(),
            max_rd_atomic: attr.max_rd_atomic(),
            max_dest_rd_atomic: attr.max_dest_rd_atomic(),
            min_rnr_timer: attr.min_rnr_timer(),
            timeout: attr.timeout(),
            retry_cnt: attr.retry_cnt(),
            rnr_retry: attr.rnr_retry(),
        };

        if !values.are_valid(&dev) {
            return Err(EINVAL);
        }
        if let Some(ah) = attr.alt_ah() {
            // It is never used, since nothing migrates.
            Av::from_attr(&ah)?;
        }
        if let Some(ah) = attr.ah() {
            let av = Av::from_attr(&ah)?;

            self.flow = Some(Arc::new(Flow::new(&qp.dev, &av, qp.qpn)?, GFP_KERNEL)?);
            self.av = Some(av);
        }

        fn set<T>(to: &mut T, from: Option<T>) {
            if let Some(value) = from {
                *to = value;
            }
        }

        set(&mut self.access, attr.access_flags());
        set(&mut self.pkey_index, attr.pkey_index());
        set(&mut self.port, attr.port());
        set(&mut self.qkey, attr.qkey());
        set(&mut self.mtu, attr.path_mtu());
        set(&mut self.timeout, attr.timeout());
        set(&mut self.retry_cnt, attr.retry_cnt());
        set(&mut self.rnr_retry, attr.rnr_retry());
        set(&mut self.rq_psn, attr.rq_psn());
        set(&mut self.sq_psn, attr.sq_psn());
        set(&mut self.max_rd_atomic, attr.max_rd_atomic());
        set(&mut self.max_dest_rd_atomic, attr.max_dest_rd_atomic());
        set(&mut self.min_rnr_timer, attr.min_rnr_timer());
        set(&mut self.dest_qpn, attr.dest_qpn());
        set(&mut self.sqd_notify, attr.sqd_async_notify());
        Ok(())
    }
}

impl Qp {
    /// Changes attributes, the state among them.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the state does not allow the change, or a value makes no sense; `ENOMEM`.
    /// Nothing has changed then.
    #[doc(alias = "ib_modify_qp")]
    pub(crate) fn modify(this: &Arc<Qp>, attr: &QpAttr<'_>) -> Result {
        let mut attrs = this.attrs.lock();
        let now = this.state();
        let from = match attr.cur_state() {
            Some(state) => QpState::from_verbs(state).ok_or(EINVAL)?,
            None => now,
        };
        let to = match attr.state() {
            Some(state) => QpState::from_verbs(state).ok_or(EINVAL)?,
            None => from,
        };

        if !attr.is_ok(from as u32, to as u32, this.kind) {
            return Err(EINVAL);
        }

        let mut new = attrs.clone();

        new.update(this, attr)?;

        let entry = match attr.state() {
            Some(_) => state::transition(now, to).ok_or(EINVAL)?,
            None => Entry::Nothing,
        };
        let resources = match entry {
            Entry::StartReceiving => {
                KVVec::from_elem(None, usize::from(new.max_dest_rd_atomic), GFP_KERNEL)?
            }
            // The send queue is drained, the other side's is not: what it asked for stays.
            Entry::Nothing if new.max_dest_rd_atomic > attrs.max_dest_rd_atomic => {
                KVVec::from_elem(None, usize::from(new.max_dest_rd_atomic), GFP_KERNEL)?
            }
            _ => KVVec::new(),
        };
        // What was rung for before is answered in the old state.
        Self::catch_up(this.as_arc_borrow());

        let mut tx = this.tx.own();
        let mut rx = this.rx.own();

        if attr.state().is_some() {
            // A half may have entered the error state meanwhile, and then stays in it.
            match this.state() {
                QpState::Error if !matches!(to, QpState::Reset | QpState::Error) => {
                    this.rx.leave(rx);
                    this.tx.leave(tx);
                    Self::kick(this.as_arc_borrow(), Todo::BOTH);
                    return Err(EINVAL);
                }
                _ => this.set_state(to),
            }
        }
        this.apply(&new, entry, resources, &mut tx, &mut rx);
        *attrs = new;
        drop(attrs);
        this.rx.leave(rx);
        this.tx.leave(tx);
        Self::kick(this.as_arc_borrow(), Todo::BOTH);
        Ok(())
    }

    /// Gives both halves what has changed.
    fn apply(
        &self,
        attrs: &Attrs,
        entry: Entry,
        resources: KVVec<Option<Resource>>,
        tx: &mut TxHalf,
        rx: &mut RxHalf,
    ) {
        let tx_config = attrs.tx(
            self.transport,
            self.gsi,
            self.qpn,
            self.signal_all,
            &self.dev,
        );
        let rx_config = attrs.rx(self.transport, self.qpn, self.shared, &self.dev);

        Word::store(&self.dest_qpn, attrs.dest_qpn);
        tx.flow.clone_from(&attrs.flow);
        rx.flow.clone_from(&attrs.flow);
        rx.qkey = attrs.qkey;
        match entry {
            Entry::StartReceiving => {
                rx.engine
                    .start(rx_config, resources, Psn::new(attrs.rq_psn & Psn::MASK));
            }
            _ => {
                rx.engine.configure(rx_config);
                rx.engine.grow(resources);
            }
        }
        match entry {
            Entry::StartSending => {
                tx.engine
                    .start(tx_config, Psn::new(attrs.sq_psn & Psn::MASK));
                tx.engine.set_state(QpState::Rts);
            }
            _ => tx.engine.configure(tx_config),
        }
        match entry {
            Entry::Reset => {
                Self::forget(tx, rx);
                self.purge();
            }
            Entry::Drain => tx.engine.set_state(QpState::Sqd),
            Entry::Resume => tx.engine.set_state(QpState::Rts),
            Entry::Flush => {
                // The user wants it; nothing is to be answered any more.
                rx.engine.cancel();
                rx.parked = None;
                tx.parked = None;
                tx.engine.set_state(QpState::Error);
            }
            Entry::Nothing | Entry::StartReceiving | Entry::StartSending => {}
        }
    }

    /// Returns all attributes.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    #[doc(alias = "ib_query_qp")]
    pub(crate) fn query(this: &Arc<Qp>) -> QpInfo {
        let attrs = this.attrs.lock().clone();
        let tx = this.tx.own();
        let rx = this.rx.own();
        let sq_psn = tx.engine.next.get();
        let rq_psn = rx.engine.expected().get();
        let draining = this.state() == QpState::Sqd && !tx.engine.q.is_empty();
        let again = this.rx.leave(rx);

        if this.tx.leave(tx) || again {
            Self::kick(this.as_arc_borrow(), Todo::BOTH);
        }

        let state = this.state() as u32;

        QpInfo {
            state,
            path_mtu: attrs.mtu,
            qkey: attrs.qkey,
            rq_psn,
            sq_psn,
            dest_qpn: attrs.dest_qpn,
            access_flags: attrs.access,
            ah: attrs.av.as_ref().map(Av::info),
            pkey_index: attrs.pkey_index,
            sqd_async_notify: attrs.sqd_notify,
            sq_draining: draining,
            max_rd_atomic: attrs.max_rd_atomic,
            max_dest_rd_atomic: attrs.max_dest_rd_atomic,
            min_rnr_timer: attrs.min_rnr_timer,
            port: attrs.port,
            timeout: attrs.timeout,
            retry_cnt: attrs.retry_cnt,
            rnr_retry: attrs.rnr_retry,
            cap: this.cap(),
            signal_all: this.signal_all,
            ..Default::default()
        }
    }
}
