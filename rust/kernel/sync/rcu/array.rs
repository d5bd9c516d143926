// SPDX-License-Identifier: GPL-2.0

//! Arrays of shared objects that are looked up under RCU.
//!
//! An [`RcuArray`] gives each object a number, and finds the object that has a number without a
//! lock and without counting references: what [`RcuArray::get`] returns is valid as long as the RCU
//! read-side lock is held. That suits objects that are looked up for each packet.
//!
//! # Life of an entry
//!
//! ```text
//!           insert_with()                f returned Ok                remove()
//!  [free] ----------------> [reserved] ----------------> [published] ----------> [free]
//!    ^                          |                                       |
//!    +--------------------------+                          replace()    +--> Retired
//!           f returned Err
//! ```
//!
//! An object may use its number before anybody can find it by that number. After
//! [`RcuArray::remove`] no new look-up finds it, but old ones may still use it: the array's
//! reference is in a [`Retired`], which gives it back only after a grace period.
//!
//! # Examples
//!
//! ```
//! use kernel::sync::{
//!     rcu::{
//!         self,
//!         array::RcuArray, //
//!     },
//!     Arc, //
//! };
//!
//! let array = KBox::pin_init(RcuArray::<u32>::new(16, 0xffff), GFP_KERNEL)?;
//! let obj = array.insert_with(GFP_KERNEL, |index| {
//!     assert!(array.get(&rcu::read_lock(), index).is_none());
//!     Ok(Arc::new(index * 2, GFP_KERNEL)?)
//! })?;
//! let index = *obj / 2;
//!
//! assert!((16..=0xffff).contains(&index));
//! {
//!     let guard = rcu::read_lock();
//!     assert_eq!(array.get(&guard, index).map(|obj| *obj), Some(index * 2));
//! }
//! assert!(array.insert_at(GFP_KERNEL, index, obj.clone()).is_err());
//!
//! // Another object in its place, and back again.
//! let other = Arc::new(0, GFP_KERNEL)?;
//! let same = array.replace(GFP_KERNEL, index, other)?.wait();
//! assert!(Arc::ptr_eq(&same, &obj));
//! assert_eq!(array.get(&rcu::read_lock(), index).map(|obj| *obj), Some(0));
//! drop(array.replace(GFP_KERNEL, index, same)?);
//! assert!(array.replace(GFP_KERNEL, index + 1, obj.clone()).is_err());
//! {
//!     let guard = rcu::read_lock();
//!     let recent = array.recent(&guard);
//!
//!     assert_eq!(recent.get(index).map(|obj| *obj), Some(index * 2));
//!     assert_eq!(recent.get(index).map(|obj| *obj), Some(index * 2));
//!     assert!(recent.get(index + 1).is_none());
//! }
//!
//! let same = array.remove(index).map(|retired| retired.wait());
//! assert!(same.is_some_and(|same| Arc::ptr_eq(&same, &obj)));
//! assert!(array.get(&rcu::read_lock(), index).is_none());
//! # Ok::<(), Error>(())
//! ```
//!
//! C header: [`include/linux/xarray.h`](srctree/include/linux/xarray.h)

use crate::{
    alloc::Flags,
    bindings,
    error::to_result,
    ffi::{
        c_ulong,
        c_void, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu::{
            rcu_barrier,
            Guard, //
        },
        Arc,
        ArcBorrow, //
    },
    types::Opaque,
};
use core::{
    cell::{
        Cell,
        UnsafeCell, //
    },
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};

/// What an entry of the array points to.
///
/// `rcu` is the first field, so that a pointer to it is one to the node.
#[repr(C)]
struct Node<T> {
    rcu: Opaque<bindings::callback_head>,
    value: Arc<T>,
}

impl<T> Node<T> {
    fn new(value: Arc<T>, gfp: Flags) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                rcu: Opaque::uninit(),
                value,
            },
            gfp,
        )?)
    }
}

/// An array of shared objects.
///
/// # Invariants
///
/// `xa` is an initialised XArray with interrupt-safe lock. Its entries are reserved ones, or come
/// from `KBox::<Node<T>>::into_raw` and are owned by the array; an entry that was taken out is
/// freed only after a grace period. `next` is accessed under the lock of `xa` only.
#[pin_data(PinnedDrop)]
pub struct RcuArray<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    next: UnsafeCell<u32>,
    first: u32,
    last: u32,
    /// There was something that RCU was to free.
    deferred: Atomic<bool>,
    _p: PhantomData<Node<T>>,
}

// SAFETY: The array gives out shared references to `T`, and may drop a `T` on any thread.
unsafe impl<T: Send + Sync + 'static> Send for RcuArray<T> {}
// SAFETY: As above; changes are made under the lock.
unsafe impl<T: Send + Sync + 'static> Sync for RcuArray<T> {}

impl<T: Send + Sync + 'static> RcuArray<T> {
    /// Creates an initialiser of an empty array, with numbers from `first` to `last`, both
    /// included, for [`RcuArray::insert_with`].
    pub fn new(first: u32, last: u32) -> impl PinInit<Self> {
        // INVARIANT: The XArray is initialised and empty.
        pin_init!(Self {
            // SAFETY: `xa` is valid memory for an XArray.
            xa <- Opaque::ffi_init(|xa| unsafe { bindings::xa_init_alloc_irq(xa) }),
            next: UnsafeCell::new(first),
            first,
            last,
            deferred: Atomic::new(false),
            _p: PhantomData,
        })
    }

    /// Runs `f` with the lock held.
    fn locked<R>(&self, f: impl FnOnce(*mut bindings::xarray) -> R) -> R {
        // SAFETY: By the type invariants the XArray is valid.
        let flags: c_ulong = unsafe { bindings::xa_lock_irqsave(self.xa.get()) };
        let ret = f(self.xa.get());

        // SAFETY: The lock was taken above, with these flags.
        unsafe { bindings::xa_unlock_irqrestore(self.xa.get(), flags) };
        ret
    }

    /// Takes a free number.
    fn reserve(&self, gfp: Flags) -> Result<u32> {
        let limit = bindings::xa_limit {
            max: self.last,
            min: self.first,
        };
        let mut index = 0;
        let ret = self.locked(|xa| {
            // SAFETY: The lock is held, so `next` is ours, and all pointers are valid. A null entry
            // reserves an index. The lock is dropped inside only if `gfp` lets sleep, in which
            // case the caller may.
            unsafe {
                bindings::__xa_alloc_cyclic(
                    xa,
                    &mut index,
                    null_mut(),
                    limit,
                    self.next.get(),
                    gfp.as_raw(),
                )
            }
        });

        // 1 says that it began anew.
        if ret < 0 {
            Err(Error::from_errno(ret))
        } else {
            Ok(index)
        }
    }

    /// Takes this number.
    fn reserve_at(&self, index: u32, gfp: Flags) -> Result {
        let ret = self.locked(|xa| {
            // SAFETY: The lock is held. A null entry reserves the index.
            unsafe { bindings::__xa_insert(xa, index as c_ulong, null_mut(), gfp.as_raw()) }
        });

        to_result(ret)
    }

    /// Makes the entry at an index that was reserved findable.
    // Litmus: MP+cqn-rcu
    fn publish(&self, index: u32, node: KBox<Node<T>>) -> Result {
        let ptr = KBox::into_raw(node);
        let ret = self.locked(|xa| {
            // INVARIANT: The entry comes from `KBox::into_raw`.
            // SAFETY: The lock is held; the pointer has the alignment of a `Node`, which is that of
            // a pointer at least. Storing has release semantics.
            let old = unsafe { bindings::__xa_store(xa, index as c_ulong, ptr.cast(), 0) };

            // SAFETY: Just looks at the pointer.
            unsafe { bindings::xa_err(old) }
        });

        if ret < 0 {
            // SAFETY: It was not stored, so it is ours again. This does not happen for an index
            // that is reserved.
            drop(unsafe { KBox::from_raw(ptr) });
            self.erase(index);
        }
        to_result(ret)
    }

    /// Takes out what is at an index.
    // Litmus: RCU+cqn-erase+free
    fn erase(&self, index: u32) -> Option<NonNull<Node<T>>> {
        let old = self.locked(|xa| {
            // SAFETY: The lock is held.
            unsafe { bindings::__xa_erase(xa, index as c_ulong) }
        });

        NonNull::new(old.cast())
    }

    /// Adds an object that `f` makes for the number that it gets, and returns it.
    ///
    /// Numbers are given out cyclically, so that one that became free is not used again soon. With
    /// `GFP_ATOMIC` this may be called in any context, as far as `f` may.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is no free number, `ENOMEM`, or the error of `f`.
    pub fn insert_with(&self, gfp: Flags, f: impl FnOnce(u32) -> Result<Arc<T>>) -> Result<Arc<T>> {
        let index = self.reserve(gfp)?;
        let made = f(index).and_then(|value| {
            let node = Node::new(value.clone(), gfp)?;

            Ok((value, node))
        });

        match made {
            Ok((value, node)) => self.publish(index, node).map(|()| value),
            Err(e) => {
                self.erase(index);
                Err(e)
            }
        }
    }

    /// Adds an object with a certain number, which need not be one of those that are given out.
    ///
    /// # Errors
    ///
    /// `EBUSY` if that number is taken, or `ENOMEM`.
    pub fn insert_at(&self, gfp: Flags, index: u32, value: Arc<T>) -> Result {
        let node = Node::new(value, gfp)?;

        self.reserve_at(index, gfp)?;
        self.publish(index, node)
    }

    /// Finds an object by its number. Any context.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard, index: u32) -> Option<ArcBorrow<'g, T>> {
        self.find(guard, index)
            .map(|node| node.value.as_arc_borrow())
    }

    // Litmus: MP+cqn-rcu
    #[inline]
    fn find<'g>(&'g self, _guard: &'g Guard, index: u32) -> Option<&'g Node<T>> {
        // SAFETY: By the type invariants the XArray is valid. A reserved entry looks like none.
        let node = unsafe { bindings::xa_load(self.xa.get(), index as c_ulong) }.cast::<Node<T>>();
        let node = NonNull::new(node)?;

        // SAFETY: By the type invariants this is a node that is not freed before a grace period
        // has passed, and the guard, which lives for `'g`, keeps one from passing.
        Some(unsafe { node.as_ref() })
    }

    /// Look-ups of one read-side section that are likely to be for the same object again and again.
    #[inline]
    pub fn recent<'g>(&'g self, guard: &'g Guard) -> Recent<'g, T> {
        // INVARIANT: Nothing was found yet.
        Recent {
            array: self,
            guard,
            last: Cell::new(None),
        }
    }

    /// Puts an object in the place of the one that has a number, and returns that one. A look-up
    /// finds one or the other. With `GFP_ATOMIC` in any context.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, or `ENOMEM`.
    pub fn replace(&self, gfp: Flags, index: u32, value: Arc<T>) -> Result<Retired<'_, T>> {
        let new = KBox::into_raw(Node::new(value, gfp)?);
        let old = self.locked(|xa| {
            // SAFETY: The lock is held. A reserved entry looks like none.
            if unsafe { bindings::xa_load(xa, index as c_ulong) }.is_null() {
                return null_mut();
            }
            // INVARIANT: The entry comes from `KBox::into_raw`.
            // SAFETY: The lock is held; the pointer has the alignment of a `Node`. The entry is
            // there, so no memory is needed. Storing has release semantics.
            unsafe { bindings::__xa_store(xa, index as c_ulong, new.cast(), 0) }
        });

        match NonNull::new(old.cast()) {
            // INVARIANT: The array has given the node away.
            Some(node) => Ok(Retired {
                node,
                deferred: &self.deferred,
            }),
            None => {
                // SAFETY: It was not stored, so it is ours again.
                drop(unsafe { KBox::from_raw(new) });
                Err(ENOENT)
            }
        }
    }

    /// Takes out an object. No look-up that begins later finds it, and its number may be used
    /// again. Any context.
    pub fn remove(&self, index: u32) -> Option<Retired<'_, T>> {
        // INVARIANT: The array has given the node away.
        self.erase(index).map(|node| Retired {
            node,
            deferred: &self.deferred,
        })
    }
}

#[pinned_drop]
impl<T: Send + Sync + 'static> PinnedDrop for RcuArray<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut index: c_ulong = 0;

        loop {
            // SAFETY: By the type invariants the XArray is valid; nobody else has it.
            let node = unsafe {
                bindings::xa_find(
                    self.xa.get(),
                    &mut index,
                    c_ulong::MAX,
                    bindings::XA_PRESENT,
                )
            };

            if node.is_null() {
                break;
            }
            // SAFETY: As above.
            unsafe { bindings::xa_erase(self.xa.get(), index) };
            // SAFETY: By the type invariants the entry is a node; it was taken out. Nobody looks at
            // it, because look-ups borrow the array.
            drop(unsafe { KBox::<Node<T>>::from_raw(node.cast()) });
        }
        // SAFETY: As above.
        unsafe { bindings::xa_destroy(self.xa.get()) };

        // The callbacks may be code of a module that is about to go away.
        if self.deferred.load(Relaxed) {
            rcu_barrier();
        }
    }
}

/// Look-ups of one read-side section, which remember what they have found last.
///
/// An object that is found again is what a look-up had found earlier in the section: it may have
/// been taken out of the array since, and its number may be that of another one. Objects for which
/// that matters say themselves that they are no more valid; [`Recent::look_up`] then finds what
/// there is now.
///
/// # Invariants
///
/// The node in `last` was found in `array` by its number while the read-side lock was held that
/// `guard` stands for, and that has been held ever since.
pub struct Recent<'g, T: Send + Sync + 'static> {
    array: &'g RcuArray<T>,
    guard: &'g Guard,
    /// A pointer, as a reference would have to have exactly the lifetime of the guard.
    last: Cell<Option<(u32, NonNull<Node<T>>)>>,
}

impl<'g, T: Send + Sync + 'static> Recent<'g, T> {
    /// The section.
    #[inline]
    pub fn guard(&self) -> &'g Guard {
        self.guard
    }

    /// Finds an object by its number, or finds it again.
    #[inline]
    pub fn get(&self, index: u32) -> Option<ArcBorrow<'g, T>> {
        match self.last.get() {
            Some((last, node)) if last == index => {
                // SAFETY: By the type invariants the node was in the array during the read-side
                // section, and so is not freed before it ends, which is after `'g`.
                let node: &'g Node<T> = unsafe { node.as_ref() };

                Some(node.value.as_arc_borrow())
            }
            _ => self.look_up(index),
        }
    }

    /// Finds the object that has a number now.
    #[inline]
    pub fn look_up(&self, index: u32) -> Option<ArcBorrow<'g, T>> {
        let node = self.array.find(self.guard, index)?;

        // INVARIANT: It has just been found.
        self.last.set(Some((index, NonNull::from(node))));
        Some(node.value.as_arc_borrow())
    }
}

/// The array's reference to an object that was taken out of it.
///
/// If this is dropped, in whatever context, the reference is dropped after a grace period, in
/// softirq context; should it be the last one, dropping the object must not sleep.
///
/// # Invariants
///
/// `node` comes from `KBox::into_raw`, is owned, and is in no array any more.
pub struct Retired<'a, T: Send + Sync + 'static> {
    node: NonNull<Node<T>>,
    deferred: &'a Atomic<bool>,
}

// SAFETY: This is a reference to a `T`, which may be dropped on any thread.
unsafe impl<T: Send + Sync + 'static> Send for Retired<'_, T> {}

impl<T: Send + Sync + 'static> Retired<'_, T> {
    /// Waits for a grace period and returns the reference. Process context.
    ///
    /// After that nothing that a look-up found is in use any more, but for references that were
    /// taken from it.
    // Litmus: RCU+cqn-erase+free
    pub fn wait(self) -> Arc<T> {
        let this = ManuallyDrop::new(self);

        // SAFETY: This is process context.
        unsafe { bindings::synchronize_rcu_expedited() };

        // SAFETY: By the type invariants the node is owned, and is in no array since before the
        // grace period.
        let node = unsafe { KBox::from_raw(this.node.as_ptr()) };

        KBox::into_inner(node).value
    }
}

impl<T: Send + Sync + 'static> Deref for Retired<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants the node is owned, and nobody has mutable access to it.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T: Send + Sync + 'static> Drop for Retired<'_, T> {
    fn drop(&mut self) {
        self.deferred.store(true, Relaxed);

        let node = self.node.as_ptr();

        // SAFETY: By the type invariants the node is owned. `free_node` gets it back. The array
        // waits for the callback before it goes away, and the module is there as long as it.
        unsafe { bindings::call_rcu((&raw mut (*node).rcu).cast(), Some(free_node::<T>)) };
    }
}

/// Frees a node after a grace period.
///
/// # Safety
///
/// `rcu` is the first field of a `Node<T>` that is owned by the call.
unsafe extern "C" fn free_node<T>(rcu: *mut bindings::callback_head) {
    // SAFETY: By the safety requirements, and because `Node` is `repr(C)`.
    drop(unsafe { KBox::from_raw(rcu.cast::<c_void>().cast::<Node<T>>()) });
}
