// SPDX-License-Identifier: GPL-2.0

//! All memory of a process, present and future, that is not pinned.
//!
//! Only where it is accessed there is a table: for each chunk of the address space an [`OnDemand`]
//! is made when something in it is wanted for the first time. Look-ups of chunks take no lock. A
//! chunk stays until all goes, unless it turns out that nothing was there: what the other side
//! may ask for at random must not cost memory.

use super::{
    Miss,
    OnDemand,
    Registration,
    Want, //
};
use crate::{
    bindings,
    error::from_err_ptr,
    ffi::c_int,
    new_mutex,
    prelude::*,
    rdma::{
        device::Device,
        driver::mem::Piece, //
    },
    sync::{
        atomic::Atomic,
        rcu::{
            self,
            array::RcuArray, //
        },
        Arc,
        Mutex, //
    },
};
use core::ptr::NonNull;

/// Size of chunks as a power of two: so that each address of a process has one with a number of 32
/// bits, also with five levels of page tables.
const CHUNK_SHIFT: u32 = 25;

const CHUNK: usize = 1 << CHUNK_SHIFT;

/// Calls `f` for each piece of a range that is in one chunk, with address, offset in the range, and
/// length.
fn pieces<E: From<Miss>>(
    at: usize,
    len: usize,
    mut f: impl FnMut(usize, usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let end = at.checked_add(len).ok_or(Miss::Never)?;
    let mut next = at;

    while next < end {
        let n = (CHUNK - next % CHUNK).min(end - next);

        f(next, next - at, n)?;
        next += n;
    }
    Ok(())
}

/// Number of the chunk that an address is in.
fn number(at: usize) -> Result<u32, Miss> {
    u32::try_from(at >> CHUNK_SHIFT).map_err(|_| Miss::Never)
}

impl Registration {
    /// Registers all memory of the current process.
    #[inline]
    fn implicit(dev: &Device, access: u32) -> Result<Self> {
        // SAFETY: The device is valid; the rest is checked by the function.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_odp_alloc_implicit(dev.as_raw(), access as c_int)
        })?;

        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }
}

/// All memory of a process.
///
/// Addresses are those of the process. Accesses are as those of [`OnDemand`], but that a part may
/// have been done if there is a miss.
#[pin_data]
pub struct Implicit {
    #[pin]
    chunks: RcuArray<OnDemand>,
    /// To be held to add chunks.
    #[pin]
    adding: Mutex<()>,
    /// Dropped last: chunks are made of it.
    root: Registration,
    writable: bool,
}

impl Implicit {
    /// Registers all memory of the current process.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[doc(alias = "ib_umem_odp_alloc_implicit")]
    #[inline]
    pub fn get(dev: &Device, access: u32) -> Result<Pin<KBox<Self>>> {
        let root = Registration::implicit(dev, access)?;
        let writable = root.is_writable();

        KBox::pin_init(
            pin_init!(Self {
                chunks <- RcuArray::new(0, u32::MAX),
                adding <- new_mutex!((), "rdma::Implicit::adding"),
                root,
                writable,
            }),
            GFP_KERNEL,
        )
    }

    /// Whether it may be written.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Calls `f` with the chunk of an address, and the offset in it.
    fn with<R>(
        &self,
        at: usize,
        f: impl FnOnce(&OnDemand, usize) -> Result<R, Miss>,
    ) -> Result<R, Miss> {
        let guard = rcu::read_lock();
        let chunk = self.chunks.get(&guard, number(at)?).ok_or(Miss::Yet)?;

        f(&chunk, at % CHUNK)
    }

    /// Reads bytes.
    ///
    /// # Context
    ///
    /// Any but a hard interrupt.
    ///
    /// # Errors
    ///
    /// [`Miss`].
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), Miss> {
        pieces(at, to.len(), |at, done, n| {
            let to = to.get_mut(done..done + n).ok_or(Miss::Never)?;

            self.with(at, |chunk, at| chunk.read(at, to))
        })
    }

    /// Writes bytes; as [`Self::read`].
    ///
    /// # Errors
    ///
    /// [`Miss`].
    #[inline]
    pub fn write(&self, at: usize, from: Piece<'_>) -> Result<(), Miss> {
        if !self.writable {
            return Err(Miss::Never);
        }
        pieces(at, from.len(), |at, done, n| {
            let from = from.part(done, n).ok_or(Miss::Never)?;

            self.with(at, |chunk, at| chunk.write(at, from))
        })
    }

    /// Calls `f` with a word, whose address has to be a multiple of eight; as [`Self::read`].
    ///
    /// # Errors
    ///
    /// [`Miss`].
    #[inline]
    pub fn word<R>(&self, at: usize, f: impl FnOnce(&Atomic<u64>) -> R) -> Result<R, Miss> {
        if !self.writable {
            return Err(Miss::Never);
        }
        self.with(at, |chunk, at| chunk.word(at, f))
    }

    /// Makes a range available; as [`OnDemand::fault`].
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// As there, and `ENOMEM`.
    #[inline]
    pub fn fault(&self, at: usize, len: usize, want: Want) -> Result {
        pieces(at, len, |at, _, n| {
            let number = number(at)?;
            let (chunk, is_new) = self.chunk(number)?;
            let result = chunk.fault(at % CHUNK, n, want);

            // Others may have found it; they ask again then.
            if result.is_err() && is_new {
                if let Some(retired) = self.chunks.remove(number) {
                    drop(retired.wait());
                }
            }
            result.map_err(Failure)
        })
        .map_err(|Failure(e)| e)
    }

    /// Finds or makes a chunk. Also tells whether it was made.
    #[inline]
    fn chunk(&self, number: u32) -> Result<(Arc<OnDemand>, bool), Failure> {
        let _adding = self.adding.lock();
        let found = self.chunks.get(&rcu::read_lock(), number).map(Arc::from);

        if let Some(chunk) = found {
            return Ok((chunk, false));
        }
        let chunk = OnDemand::part_of(&self.root, (number as usize) << CHUNK_SHIFT, CHUNK)?;

        self.chunks.insert_at(GFP_KERNEL, number, chunk.clone())?;
        Ok((chunk, true))
    }
}

/// Why memory was not made available.
struct Failure(Error);

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self(e)
    }
}

impl From<Miss> for Failure {
    fn from(_: Miss) -> Self {
        Self(EFAULT)
    }
}
