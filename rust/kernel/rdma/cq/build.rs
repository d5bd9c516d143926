// SPDX-License-Identifier: GPL-2.0

//! The stages in the life of a completion queue.
//!
//! See the [parent module](super) for the picture.

use super::{
    dim,
    poller::{
        self,
        State, //
    },
    Cq,
    EventContext,
    NotifyFlags,
    PollContext,
    Poller, //
};
use crate::{
    bindings,
    error::to_result,
    ffi::{
        c_char,
        c_int, //
    },
    prelude::*,
    rdma::{
        device::Device,
        trace, //
    },
    sync::atomic::{
        Atomic,
        Release, //
    },
    warn_once, //
};
use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};

/// What a new completion queue is to be like.
#[derive(Clone, Copy)]
pub struct Attr {
    /// Number of entries, as the consumer gave it.
    pub nr_cqe: c_int,
    /// Completion vector.
    pub comp_vector: c_int,
    /// Handed to nobody but the consumer, as `ib_cq.cq_context`.
    pub context: *mut c_void,
    /// For several consumers, see [`Pool`](super::Pool).
    pub shared: bool,
}

/// The memory of a queue, with the state of its poller.
struct Memory(NonNull<bindings::ib_cq>);

impl Memory {
    #[inline]
    fn new(dev: &Device) -> Result<Self> {
        // SAFETY: The device is valid.
        let cq = unsafe {
            bindings::rdma_zalloc_obj(
                dev.as_raw(),
                (*dev.as_raw()).ops.size_ib_cq,
                GFP_KERNEL.as_raw(),
                false,
            )
        };
        let this = Self(NonNull::new(cq.cast()).ok_or(ENOMEM)?);
        let state = State::new(this.as_ptr())?;
        // SAFETY: The memory is ours.
        unsafe { (*this.as_ptr()).wc = state.as_ptr().cast() };
        Ok(this)
    }

    #[inline]
    fn as_ptr(&self) -> *mut bindings::ib_cq {
        self.0.as_ptr()
    }
}

impl Drop for Memory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The memory is ours; `wc` is null or the state that `new()` made.
        unsafe {
            let state: *mut State = (*self.as_ptr()).wc.cast();
            if !state.is_null() {
                State::free(state);
            }
            bindings::kfree(self.as_ptr().cast());
        }
    }
}

/// The entry of a queue in the resource tracker, by which `rdma resource show cq` finds it.
struct Tracker {
    res: *mut bindings::rdma_restrack_entry,
    listed: bool,
}

impl Tracker {
    /// # Safety
    ///
    /// `res` must be zeroed and live longer than the result, and `name` as long as the module.
    #[inline]
    unsafe fn new(res: *mut bindings::rdma_restrack_entry, name: *const c_char) -> Self {
        // SAFETY: By the safety requirement.
        unsafe {
            bindings::rdma_restrack_new(
                res,
                bindings::rdma_restrack_type_RDMA_RESTRACK_CQ, //
            );
            bindings::rdma_restrack_set_name(res, name);
        }
        Self { res, listed: false }
    }

    /// Lists the queue.
    #[inline]
    fn add(&mut self) {
        // SAFETY: By the safety requirement of `new()`.
        unsafe { bindings::rdma_restrack_add(self.res) };
        self.listed = true;
    }
}

impl Drop for Tracker {
    /// Takes the queue off the list and waits for those who are looking at it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the safety requirement of `new()`.
        unsafe {
            if self.listed {
                bindings::rdma_restrack_del(self.res);
            } else {
                bindings::rdma_restrack_put(self.res);
            }
        }
    }
}

/// First stage: memory.
pub struct Allocated {
    // The tracker's entry lies in the memory, so it is dropped first.
    tracker: Tracker,
    memory: Memory,
    attr: Attr,
}

impl Allocated {
    /// Allocates a queue that nobody knows.
    ///
    /// `name` names the owner in the resource tracker.
    ///
    /// # Safety
    ///
    /// `name` must be a string that lives as long as the queue.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EOPNOTSUPP` if the device has no kernel verbs.
    #[inline]
    pub unsafe fn new(dev: &Device, attr: Attr, name: *const c_char) -> Result<Self> {
        dev.check_kernel_verbs()?;
        let memory = Memory::new(dev)?;
        let cq = memory.as_ptr();

        // SAFETY: The memory is ours and zeroed; the caller promises that `name` lives long enough.
        let tracker = unsafe {
            (*cq).device = dev.as_raw();
            (*cq).cq_context = attr.context;
            (*cq).comp_vector = attr.comp_vector as u32;
            (*cq).set_shared(attr.shared.into());
            Tracker::new(&raw mut (*cq).res, name)
        };
        Ok(Self {
            tracker,
            memory,
            attr,
        })
    }

    /// Makes the queue ready for direct polling.
    #[inline]
    pub fn set_direct<P: Poller>(self) -> Initialised<Direct, P> {
        self.set_handler(PollContext::Direct)
    }

    /// Makes the queue ready for events.
    #[inline]
    pub fn set_events<P: Poller>(self, ctx: EventContext) -> Initialised<Evented, P> {
        self.set_handler(ctx.into())
    }

    #[inline]
    fn set_handler<K, P: Poller>(self, ctx: PollContext) -> Initialised<K, P> {
        let cq = self.memory.as_ptr();

        // SAFETY: Nobody else knows the queue.
        let handler = unsafe {
            (*cq).poll_ctx = ctx.into_raw();
            dim::enable::<P>(cq, ctx);
            poller::init::<P>(cq, ctx)
        };
        // SAFETY: Nobody else knows the queue.
        unsafe { store_handler(cq, handler) };

        Initialised {
            handler: Handler {
                cq,
                ctx,
                stopped: false,
                _p: PhantomData,
            },
            queue: self,
            _kind: PhantomData,
        }
    }
}

/// Stores the handler, so that who sees it sees all that was written before.
///
/// Drivers load it with an acquire, or after they have found the queue by something that orders as
/// much.
///
/// # Safety
///
/// `cq` must be valid, and what `handler` touches must be initialised.
// Litmus: MP+handler-release+acquire, MP+handler-cqn-once+acquire
// Litmus: MP+handler-before-publish
#[inline]
unsafe fn store_handler(cq: *mut bindings::ib_cq, handler: bindings::ib_comp_handler) {
    // SAFETY: A function pointer that may be null has the layout of a pointer, and the field is
    // valid.
    let slot = unsafe { Atomic::<*mut c_void>::from_ptr((&raw mut (*cq).comp_handler).cast()) };

    slot.store(
        handler.map_or(core::ptr::null_mut(), |h| h as *mut c_void),
        Release,
    );
}

/// A queue that is polled by its consumer.
pub struct Direct;

/// A queue that is polled when its device raises an event.
pub struct Evented;

/// What the handler needs beyond the memory of the queue.
struct Handler<P: Poller> {
    cq: *mut bindings::ib_cq,
    ctx: PollContext,
    stopped: bool,
    _p: PhantomData<P>,
}

impl<P: Poller> Handler<P> {
    /// Stops the poller and the moderation. An event that still arrives does nothing.
    #[inline]
    fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            // SAFETY: The queue is initialised for this context, and `stopped` was not set.
            unsafe {
                poller::quiesce::<P>(self.cq, self.ctx);
                dim::stop::<P>(self.cq);
            }
        }
    }
}

impl<P: Poller> Drop for Handler<P> {
    /// A queue that was never published has to be stopped too: its device may have raised an event
    /// within a `create_cq()` that then failed.
    #[inline]
    fn drop(&mut self) {
        self.stop();
        // SAFETY: The device does not know the queue, or has forgotten it.
        unsafe { dim::free(self.cq) };
    }
}

/// Second stage: an event that arrives does what it should.
pub struct Initialised<K, P: Poller> {
    // Dropped in this order: nothing may run when the memory goes away.
    handler: Handler<P>,
    queue: Allocated,
    _kind: PhantomData<K>,
}

impl<K, P: Poller> Initialised<K, P> {
    /// Makes the queue known to the device and to the resource tracker.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// That of `ops.create_cq()`.
    // Litmus: MP+handler-cqn-rcu+plain, MP+handler-cqn-lock+plain, MP+handler-cqn-release+plain
    #[inline]
    pub fn publish(self) -> Result<Published<K, P>> {
        let cq = self.queue.memory.as_ptr();
        let attr = self.queue.attr;
        let cq_attr = bindings::ib_cq_init_attr {
            cqe: attr.nr_cqe as u32,
            comp_vector: attr.comp_vector as u32,
            flags: 0,
        };

        // SAFETY: `Allocated::new()` has checked that the operation exists, and the queue is
        // complete.
        let ret = unsafe {
            let create_cq = (*(*cq).device).ops.create_cq.unwrap_unchecked();
            create_cq(cq, &cq_attr, core::ptr::null_mut())
        };
        if ret != 0 {
            to_result(ret)?;
        }

        let Initialised {
            handler, mut queue, ..
        } = self;
        queue.tracker.add();
        let hw = Hardware {
            cq,
            tracker: ManuallyDrop::new(queue.tracker),
            handler: ManuallyDrop::new(handler),
            memory: ManuallyDrop::new(queue.memory),
        };
        // Before anything can happen to it.
        trace::alloc(hw.cq(), attr.nr_cqe, attr.comp_vector, hw.handler.ctx);
        Ok(Published {
            hw,
            _kind: PhantomData,
        })
    }
}

/// Third stage: the device knows the queue. Events are possible, but were not asked for.
pub struct Published<K, P: Poller> {
    hw: Hardware<P>,
    _kind: PhantomData<K>,
}

impl<P: Poller> Published<Evented, P> {
    /// Asks the device for an event on the first completion.
    ///
    /// The handler that polls takes over before that, and also handles an event that came while
    /// the queue was created. A queue without queue pairs has no completions yet, so there is
    /// nothing to miss.
    // Litmus: MP+comp_wq-arm+rmw, MP+handler-again+once
    #[inline]
    pub fn arm(self) -> Live<P> {
        let Handler { cq, ctx, .. } = *self.hw.handler;
        // SAFETY: The queue is created by its device, and initialised for this context.
        unsafe {
            store_handler(cq, poller::handler::<P>(ctx));
            poller::open::<P>(cq, ctx);
        }
        self.hw.cq().req_notify(NotifyFlags::NEXT_COMP);
        Live(self.hw)
    }
}

impl<P: Poller> Published<Direct, P> {
    /// Leaves the queue as it is: who polls directly wants no events.
    #[inline]
    pub fn unarmed(self) -> Live<P> {
        Live(self.hw)
    }
}

/// A queue that the device knows; dropping it destroys and frees it.
struct Hardware<P: Poller> {
    cq: *mut bindings::ib_cq,
    tracker: ManuallyDrop<Tracker>,
    handler: ManuallyDrop<Handler<P>>,
    memory: ManuallyDrop<Memory>,
}

impl<P: Poller> Hardware<P> {
    #[inline]
    fn cq(&self) -> &Cq {
        // SAFETY: The queue is published.
        unsafe { Cq::from_raw(self.cq) }
    }

    /// Stops the producer, if the driver can do this as a step of its own. Otherwise events may
    /// arrive until the queue is destroyed; they find a disabled poller. Returns whether it worked.
    #[inline]
    fn pre_destroy(&self) -> bool {
        // SAFETY: The queue is published.
        let Some(pre_destroy_cq) = (unsafe { (*(*self.cq).device).ops.pre_destroy_cq }) else {
            return true;
        };
        // SAFETY: As above.
        let ret = unsafe { pre_destroy_cq(self.cq) };
        !warn_once!(
            ret != 0,
            "Disable of kernel CQ shouldn't fail ({}), leaking it\n",
            ret
        )
    }

    /// Destroys the queue on the device. Returns whether it worked.
    #[inline]
    fn destroy(&self) -> bool {
        // SAFETY: The queue is published; nobody uses it any more. `Allocated::new()` has checked
        // that the mandatory operations exist.
        let ret = unsafe {
            let ops = &raw const (*(*self.cq).device).ops;
            if let Some(post_destroy_cq) = (*ops).post_destroy_cq {
                post_destroy_cq(self.cq);
                0
            } else {
                (*ops).destroy_cq.unwrap_unchecked()(self.cq, core::ptr::null_mut())
            }
        };
        !warn_once!(
            ret != 0,
            "Destroy of kernel CQ shouldn't fail ({}), leaking it\n",
            ret
        )
    }
}

impl<P: Poller> Drop for Hardware<P> {
    fn drop(&mut self) {
        // Leave the tracker while the queue is whole, and wait for its readers.
        //
        // SAFETY: It is not used again.
        unsafe { ManuallyDrop::drop(&mut self.tracker) };

        let disabled = self.pre_destroy();
        self.handler.stop();
        trace::free(self.cq());
        let destroyed = self.destroy();

        if disabled && destroyed {
            // SAFETY: Neither is used again, and the device has forgotten the queue.
            unsafe {
                ManuallyDrop::drop(&mut self.handler);
                ManuallyDrop::drop(&mut self.memory);
            }
        } else {
            // The device may still write to the memory, so nobody else can ever have it.
            //
            // SAFETY: The memory is allocated; what it points to is found from it.
            unsafe { bindings::kmemleak_not_leak(self.cq.cast()) };
        }
    }
}

/// Last stage: a queue that its consumer can use.
pub struct Live<P: Poller>(Hardware<P>);

// SAFETY: Queues are not bound to a thread.
unsafe impl<P: Poller> Send for Live<P> {}

impl<P: Poller> Live<P> {
    /// The pointer for the C side.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.0.cq
    }

    /// Gives the queue to the C side.
    #[inline]
    pub(super) fn into_raw(self) -> *mut bindings::ib_cq {
        ManuallyDrop::new(self).0.cq
    }

    /// Takes the queue back from the C side.
    ///
    /// # Safety
    ///
    /// `cq` must come from [`Live::into_raw`], and must not be used by anybody else.
    #[inline]
    pub(super) unsafe fn from_raw(cq: *mut bindings::ib_cq) -> Self {
        // SAFETY: The queue is valid and has its state.
        let (res, ctx) = unsafe { (&raw mut (*cq).res, (*State::of(cq)).ctx) };
        // SAFETY: It is not null.
        let memory = Memory(unsafe { NonNull::new_unchecked(cq) });
        Self(Hardware {
            cq,
            tracker: ManuallyDrop::new(Tracker { res, listed: true }),
            handler: ManuallyDrop::new(Handler {
                cq,
                ctx,
                stopped: false,
                _p: PhantomData,
            }),
            memory: ManuallyDrop::new(memory),
        })
    }
}
