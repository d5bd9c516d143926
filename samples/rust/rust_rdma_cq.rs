// SPDX-License-Identifier: GPL-2.0

//! Rust RDMA client sample.
//!
//! For each RDMA device this allocates a completion queue in the poll context given as a module
//! parameter, connects a queue pair with itself and sends messages until the given number of
//! completions has been handled. Each message makes two, one for the sender and one for the
//! receiver, who looks at every byte of it. Then a line like this one appears in the kernel log:
//!
//! ```text
//! infiniband rxe0: rust_rdma_cq: context softirq: 1000 completions, 500 messages, 2048000 bytes,
//!  2048000 verified, 0 asynchronous events, 35 ms
//! ```
//!
//! To see it without RDMA hardware:
//!
//! ```sh
//! ip link add v0 type veth peer name v1
//! ip addr add 10.0.0.1/24 dev v0
//! ip link set v0 up; ip link set v1 up
//! rdma link add rxe0 type rxe netdev v0
//! modprobe rust_rdma_cq poll_ctx=1 completions=1000
//! ```
//!
//! The receive requests that were posted last stay with the device. They come back when the device
//! is removed or the module unloaded.
//!
//! # Limitations
//!
//! - Only RoCE ports, and only the first port of a device: queue pairs of iWARP devices cannot be
//!   connected without the connection manager, those of InfiniBand ports have no MAC address.
//! - A device needs an address when it appears; it is not tried again later.

use kernel::{
    impl_rdma_client,
    prelude::*,
    rdma::{
        client::{
            Client,
            ClientDevice,
            Registration, //
        },
        consumer::ConsumerCq,
        cq::{
            PollContext,
            Wq, //
        },
        pd::Pd,
        port::{
            Gid,
            Port,
            Transport, //
        },
        qp::{
            Depth,
            IdleQp,
            Qp, //
        },
        wr::{
            Done,
            Queue,
            RecvQueue,
            RecvRequest,
            Request,
            SendQueue,
            SendRequest,
            Status,
            Wc, //
        },
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_condvar,
        new_spinlock_irq,
        Arc,
        CondVar,
        CondVarTimeoutResult,
        SpinLockIrq, //
    },
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        self,
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};

module! {
    type: RdmaCq,
    name: "rust_rdma_cq",
    authors: ["Rust for Linux Contributors"],
    description: "Rust RDMA client sample",
    license: "GPL",
    params: {
        poll_ctx: u32 {
            default: 2,
            description: "Poll context: 0 direct, 1 softirq, 2 workqueue, 3 unbound workqueue",
        },
        completions: u32 {
            default: 1000,
            description: "Completions per device, two for each message",
        },
        bytes: u32 {
            default: 4096,
            description: "Size of a message in bytes",
        },
        depth: u16 {
            default: 16,
            description: "Number of messages that are under way at a time",
        },
        spoil: bool {
            default: false,
            description: "Send wrong data, to see that this is noticed",
        },
    },
}

/// After this time without any completion we give up.
const PATIENCE: Delta = Delta::from_secs(10);

/// How many completions are taken at a time where we poll ourselves.
const DIRECT_BUDGET: u32 = 16;

/// The largest message. Larger buffers are hard to get in one piece.
const MAX_BYTES: u32 = 1 << 20;

fn context_name(ctx: PollContext) -> &'static str {
    match ctx {
        PollContext::Direct => "direct",
        PollContext::Softirq => "softirq",
        PollContext::Workqueue(Wq::Bound) => "workqueue",
        PollContext::Workqueue(Wq::Unbound) => "unbound workqueue",
    }
}

/// What to do, from the module parameters.
#[derive(Clone, Copy)]
struct Plan {
    ctx: PollContext,
    messages: u32,
    bytes: usize,
    depth: u16,
    spoil: bool,
}

impl Plan {
    fn from_parameters() -> Result<Self> {
        let ctx = match module_parameters::poll_ctx.value() {
            0 => PollContext::Direct,
            1 => PollContext::Softirq,
            2 => PollContext::Workqueue(Wq::Bound),
            3 => PollContext::Workqueue(Wq::Unbound),
            _ => {
                pr_err!("poll_ctx must be 0, 1, 2 or 3\n");
                return Err(EINVAL);
            }
        };
        let completions = module_parameters::completions.value();
        if completions == 0 {
            pr_err!("completions must not be 0\n");
            return Err(EINVAL);
        }
        let bytes = module_parameters::bytes.value();
        if !(1..=MAX_BYTES).contains(&bytes) {
            pr_err!("bytes must be between 1 and {MAX_BYTES}\n");
            return Err(EINVAL);
        }
        let depth = module_parameters::depth.value();
        if !(1..=1024).contains(&depth) {
            pr_err!("depth must be between 1 and 1024\n");
            return Err(EINVAL);
        }
        Ok(Self {
            ctx,
            messages: completions.div_ceil(2),
            bytes: bytes as usize,
            depth,
            spoil: module_parameters::spoil.value(),
        })
    }
}

/// The contents of message number `seq`.
fn pattern(seq: u32) -> impl Iterator<Item = u8> {
    let start = seq.wrapping_mul(0x9e37_79b1);
    (0u32..).map(move |i| (start.wrapping_add(i.wrapping_mul(0x0101_0107)) >> 16) as u8)
}

/// Where requests are put when they come back.
#[pin_data]
struct Mailbox {
    #[pin]
    arrived: CondVar,
    #[pin]
    inner: SpinLockIrq<Returned>,
}

struct Returned {
    /// Nobody looks into it any more.
    closed: bool,
    sent: KVec<SendRequest<Ticket>>,
    received: KVec<RecvRequest<Ticket>>,
    /// How many requests came back since the queue pair goes away.
    flushed: u32,
    /// How the first request failed, if one did for another reason.
    failure: Option<Status>,
}

impl Returned {
    /// An empty one with room for `depth` requests of each kind.
    fn new(depth: u16) -> Result<Self> {
        Ok(Self {
            closed: false,
            sent: KVec::with_capacity(depth.into(), GFP_KERNEL)?,
            received: KVec::with_capacity(depth.into(), GFP_KERNEL)?,
            flushed: 0,
            failure: None,
        })
    }

    fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.received.is_empty()
    }
}

impl Mailbox {
    fn new(depth: u16) -> Result<Arc<Self>> {
        let inner = Returned::new(depth)?;
        Arc::pin_init(
            pin_init!(Self {
                arrived <- new_condvar!("Mailbox::arrived"),
                inner <- new_spinlock_irq!(inner, "Mailbox::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// Keeps a request that was successful, if anybody wants it.
    ///
    /// Runs in any of the poll contexts.
    fn put<Q: Queue>(
        request: Request<Ticket, Q>,
        status: Status,
        list: fn(&mut Returned) -> &mut KVec<Request<Ticket, Q>>,
    ) where
        Ticket: Done<Q>,
    {
        let mailbox = request.data().0.clone();
        let mut inner = mailbox.inner.lock();
        match status {
            // There is room for all requests that there are, so this does not fail.
            Status::SUCCESS if !inner.closed => {
                let _ = list(&mut inner).push_within_capacity(request);
            }
            Status::SUCCESS => (),
            Status::FLUSHED => inner.flushed += 1,
            _ => {
                inner.failure.get_or_insert(status);
            }
        }
        drop(inner);
        mailbox.arrived.notify_all();
    }

    /// Swaps the requests that are here for the ones in `batch`.
    fn take(&self, batch: &mut Returned) -> Result<(), Status> {
        let mut inner = self.inner.lock();
        core::mem::swap(&mut inner.sent, &mut batch.sent);
        core::mem::swap(&mut inner.received, &mut batch.received);
        inner.failure.map_or(Ok(()), Err)
    }

    /// Drops what is here and what comes. The requests refer to us, so this would not happen by
    /// itself.
    fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let sent = core::mem::take(&mut inner.sent);
        let received = core::mem::take(&mut inner.received);
        drop(inner);
        drop((sent, received));
    }
}

/// Our part of a request.
struct Ticket(Arc<Mailbox>);

impl Done<SendQueue> for Ticket {
    fn done(request: SendRequest<Self>, wc: &Wc) {
        Mailbox::put(request, wc.status(), |inner| &mut inner.sent);
    }
}

impl Done<RecvQueue> for Ticket {
    fn done(request: RecvRequest<Self>, wc: &Wc) {
        Mailbox::put(request, wc.status(), |inner| &mut inner.received);
    }
}

/// What was seen on a device.
#[derive(Default)]
struct Summary {
    completions: u64,
    messages: u32,
    bytes: u64,
    verified: u64,
}

/// Why the messages stopped.
enum Stop {
    /// The device is about to go.
    Removed,
    /// A request failed.
    Failed(Status),
    /// The device or the core says no.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Self::Error(e)
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// The traffic on a device.
#[pin_data(PinnedDrop)]
struct Session {
    dev: Arc<ClientDevice>,
    plan: Plan,
    removed: Atomic<bool>,
    #[pin]
    work: Work<Session>,
    // Dropped in this order; the first one waits for its requests.
    qp: Qp,
    cq: Arc<ConsumerCq>,
    mailbox: Arc<Mailbox>,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.work }
}

impl WorkItem for Session {
    type Pointer = Arc<Session>;

    fn run(this: Arc<Session>) {
        this.report();
    }
}

#[pinned_drop]
impl PinnedDrop for Session {
    fn drop(self: Pin<&mut Self>) {
        self.mailbox.close();
    }
}

impl Session {
    fn new(
        dev: &Arc<ClientDevice>,
        plan: Plan,
        port: &Port<'_>,
        gid: &Gid<'_>,
    ) -> Result<Arc<Self>> {
        let depth = Depth {
            send: plan.depth,
            recv: plan.depth,
        };
        // One completion for each request, and those that tell that the queues are empty.
        let entries = 2 * (u32::from(plan.depth) + 1);
        let pd = Pd::new(dev)?;
        let cq = ConsumerCq::new(dev, entries, 0, plan.ctx)?;
        let qp = IdleQp::new(&pd, &cq, &cq, depth)?.connect_to_self(port, gid)?;
        let mailbox = Mailbox::new(plan.depth)?;
        Arc::pin_init(
            pin_init!(Self {
                dev: dev.clone(),
                plan,
                removed: Atomic::new(false),
                work <- new_work!("rust_rdma_cq::Session::work"),
                qp,
                cq,
                mailbox,
            }),
            GFP_KERNEL,
        )
    }

    /// Stops the traffic, and waits until nobody works for it any more.
    fn stop(&self) {
        self.removed.store(true, Relaxed);
        // Who is about to sleep either sees the flag or is woken up.
        let guard = self.mailbox.inner.lock();
        self.mailbox.arrived.notify_all();
        drop(guard);
        self.work.flush();
    }

    /// Runs the traffic and says how it went.
    fn report(&self) {
        let dev: &ClientDevice = &self.dev;
        let context = context_name(self.cq.poll_context());
        let start = Instant::<Monotonic>::now();
        let mut sum = Summary::default();

        match self.pump(&mut sum) {
            Ok(()) => (),
            Err(Stop::Removed) => dev_info!(dev, "rust_rdma_cq: removed while busy\n"),
            Err(Stop::Failed(status)) => {
                dev_err!(
                    dev,
                    "rust_rdma_cq: a request failed: {}\n",
                    status.message()
                );
            }
            Err(Stop::Error(e)) => dev_err!(dev, "rust_rdma_cq: stopped: {e:?}\n"),
        }
        dev_info!(
            dev,
            "rust_rdma_cq: context {}: {} completions, {} messages, {} bytes, {} verified, \
             {} asynchronous events, {} ms\n",
            context,
            sum.completions,
            sum.messages,
            sum.bytes,
            sum.verified,
            self.qp.async_events(),
            start.elapsed().as_millis(),
        );
    }

    fn pump(&self, sum: &mut Summary) -> Result<(), Stop> {
        let Plan {
            messages,
            bytes,
            depth,
            ..
        } = self.plan;
        let mut back = Returned::new(depth)?;
        let mut idle = KVec::new();
        let mut posted = 0;

        for _ in 0..depth {
            let ticket = Ticket(self.mailbox.clone());
            let request = SendRequest::new(&self.qp, ticket, bytes)?;
            idle.push(request, GFP_KERNEL).map_err(Error::from)?;

            let ticket = Ticket(self.mailbox.clone());
            let request = RecvRequest::new(&self.qp, ticket, bytes)?;
            self.qp.post_recv(request).map_err(Error::from)?;
        }

        loop {
            // In the order in which they were received, which is the one in which they were sent.
            for mut request in back.received.drain_all() {
                self.check(&mut request, sum);
                // Before the next message is sent there has to be a place for it.
                self.qp.post_recv(request).map_err(Error::from)?;
            }
            for request in back.sent.drain_all() {
                sum.completions += 1;
                idle.push(request, GFP_KERNEL).map_err(Error::from)?;
            }
            if sum.completions >= 2 * u64::from(messages) {
                return Ok(());
            }

            while posted < messages && posted - sum.messages < u32::from(depth) {
                let Some(mut request) = idle.pop() else {
                    break;
                };
                self.fill(&mut request, posted);
                self.qp.post_send(request).map_err(Error::from)?;
                posted += 1;
            }
            self.wait(&mut back)?;
        }
    }

    fn fill(&self, request: &mut SendRequest<Ticket>, seq: u32) {
        let buffer = request.buffer();
        buffer
            .iter_mut()
            .zip(pattern(seq))
            .for_each(|(b, p)| *b = p);
        if self.plan.spoil {
            if let Some(last) = buffer.last_mut() {
                *last = !*last;
            }
        }
    }

    fn check(&self, request: &mut RecvRequest<Ticket>, sum: &mut Summary) {
        let message = request.message();
        let len = message.len();
        sum.bytes += len as u64;
        if len == self.plan.bytes && message.iter().copied().eq(pattern(sum.messages).take(len)) {
            sum.verified += len as u64;
        }
        sum.messages += 1;
        sum.completions += 1;
        // What was there must not be taken for the next message.
        request.buffer().fill(0);
    }

    /// Waits until some requests are back.
    fn wait(&self, back: &mut Returned) -> Result<(), Stop> {
        let start = Instant::<Monotonic>::now();
        loop {
            if self.removed.load(Relaxed) {
                return Err(Stop::Removed);
            }
            self.mailbox.take(back)?;
            if !back.is_empty() {
                return Ok(());
            }
            if self.plan.ctx == PollContext::Direct {
                // Nobody tells us, this is the point of it.
                if self.cq.process_direct(DIRECT_BUDGET)? == 0 {
                    fsleep(Delta::from_micros(50));
                }
                if start.elapsed() > PATIENCE {
                    return Err(ETIMEDOUT.into());
                }
            } else if !self.sleep() {
                return Err(ETIMEDOUT.into());
            }
        }
    }

    /// Sleeps until there is something to look at. Returns whether that was in time.
    fn sleep(&self) -> bool {
        let patience = msecs_to_jiffies(PATIENCE.as_millis() as u32);
        let mut inner = self.mailbox.inner.lock();
        while inner.is_empty() && inner.failure.is_none() && !self.removed.load(Relaxed) {
            let woken = self
                .mailbox
                .arrived
                .wait_interruptible_timeout(&mut inner, patience);
            if let CondVarTimeoutResult::Timeout = woken {
                return false;
            }
        }
        true
    }
}

struct Loopback;

impl Loopback {
    /// The address of the port that is most likely to have a route.
    fn address<'d>(port: &Port<'d>) -> Option<Gid<'d>> {
        port.gids().max_by_key(|gid| {
            let address = gid.address();
            if address.to_ipv4_mapped().is_some() {
                2
            } else if !address.is_unicast_link_local() {
                1
            } else {
                0
            }
        })
    }
}

#[vtable]
impl Client for Loopback {
    type Data = Arc<Session>;

    fn add(dev: &Arc<ClientDevice>) -> Result<Arc<Session>> {
        let plan = Plan::from_parameters()?;
        let port = Port::first(dev);

        match port.transport() {
            Transport::Roce => (),
            Transport::Iwarp => {
                dev_info!(
                    **dev,
                    "rust_rdma_cq: skipped: an iWARP queue pair cannot be connected without \
                     the connection manager\n"
                );
                return Err(EOPNOTSUPP);
            }
            Transport::Other => {
                dev_info!(**dev, "rust_rdma_cq: skipped: not a RoCE port\n");
                return Err(EOPNOTSUPP);
            }
        }
        let Some(gid) = Self::address(&port) else {
            dev_info!(**dev, "rust_rdma_cq: skipped: the port has no address\n");
            return Err(EADDRNOTAVAIL);
        };
        let session = Session::new(dev, plan, &port, &gid)
            .inspect_err(|e| dev_err!(**dev, "rust_rdma_cq: no session: {e:?}\n"))?;
        // It cannot be queued yet.
        let _ = workqueue::system_long().enqueue(session.clone());
        Ok(session)
    }

    fn remove(dev: &Arc<ClientDevice>, session: Arc<Session>) {
        let mailbox = session.mailbox.clone();

        session.stop();
        drop(session);
        let flushed = mailbox.inner.lock().flushed;
        dev_info!(**dev, "rust_rdma_cq: removed, {flushed} requests flushed\n");
        // Each request refers to it.
        if Arc::into_unique_or_drop(mailbox).is_none() {
            dev_err!(**dev, "rust_rdma_cq: not all requests came back\n");
        }
    }

    fn rename(dev: &Arc<ClientDevice>, _session: &Arc<Session>) {
        dev_info!(**dev, "rust_rdma_cq: renamed\n");
    }
}

impl_rdma_client!(Loopback);

struct RdmaCq {
    _registration: Registration<Loopback>,
}

impl kernel::Module for RdmaCq {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Plan::from_parameters()?;
        Ok(Self {
            _registration: Registration::new()?,
        })
    }
}
