// SPDX-License-Identifier: GPL-2.0

//! Accesses to memory by the key of a region or window.
//!
//! Each looks the key up, checks rights and range, and does its work, in the read-side section of
//! RCU that [`Who`] has. If memory is not there yet, that is noted for the half that wants it; see
//! [`crate::fault`].

use super::{
    find,
    Key,
    Mr,
    Who, //
};
use crate::{
    device::Device,
    env::{
        Access,
        AtomicOp,
        MemError, //
    },
    fault::Fault,
    params::access,
    wire::{
        feth::Feth,
        reth::Reth, //
    }, //
};
use kernel::{
    prelude::*,
    rdma::driver::{
        mem::Piece,
        umem_odp::{
            Miss,
            Want, //
        }, //
    },
    sync::{
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        barrier::smp_mb, //
    }, //
};

/// Calls `f` with the region of a key, and address and offset of a range in it, if the range may be
/// accessed as `need` says. `f` finds out whether the memory is there.
fn with<R>(
    dev: &Device,
    who: &Who<'_>,
    key: Key,
    need: u32,
    (va, len): (u64, usize),
    f: impl FnOnce(&Mr, u64, u64) -> Result<R, Miss>,
) -> Result<R, MemError> {
    let (mr, va, offset) = find(dev, who, key, need, (va, len as u64)).ok_or(MemError::Access)?;

    f(&mr, va, offset).map_err(|miss| match miss {
        Miss::Never => MemError::Access,
        Miss::Yet => missing(who, &mr, (offset, len), need),
    })
}

/// Has what is not there made available.
#[cold]
fn missing(who: &Who<'_>, mr: &Mr, (offset, len): (u64, usize), need: u32) -> MemError {
    let want = if need & access::WRITES != 0 {
        Want::Write
    } else {
        Want::Read
    };

    let fault = Fault {
        key: mr.key(),
        at: offset as usize,
        len,
        want,
    };

    if who.misses.note(fault) {
        MemError::Wait
    } else {
        MemError::Access
    }
}

impl Key {
    /// The rights that it takes to read.
    const fn to_read(self) -> u32 {
        match self {
            Self::Local(_) => 0,
            Self::Remote(_) => access::REMOTE_READ,
        }
    }

    /// The rights that it takes to write.
    const fn to_write(self) -> u32 {
        match self {
            Self::Local(_) => access::LOCAL_WRITE,
            Self::Remote(_) => access::REMOTE_WRITE,
        }
    }
}

/// Reads memory. Any context.
pub(crate) fn read(
    dev: &Device,
    who: &Who<'_>,
    key: Key,
    va: u64,
    out: &mut [u8],
) -> Result<(), MemError> {
    if out.is_empty() {
        return Ok(());
    }
    let need = key.to_read();

    with(dev, who, key, need, (va, out.len()), |mr, va, offset| {
        mr.read(va, offset, out)
    })
}

/// Writes memory. Any context.
pub(crate) fn write(
    dev: &Device,
    who: &Who<'_>,
    key: Key,
    va: u64,
    data: &[u8],
) -> Result<(), MemError> {
    if data.is_empty() {
        return Ok(());
    }
    let need = key.to_write();

    with(dev, who, key, need, (va, data.len()), |mr, va, offset| {
        mr.write(va, offset, data.into())
    })
}

/// Calls `f` with each piece of memory, in order, to read it. Any context.
///
/// # Errors
///
/// As [`read`]; `f` may have been called for a part.
pub(crate) fn lend(
    dev: &Device,
    who: &Who<'_>,
    key: Key,
    (va, len): (u64, usize),
    f: impl FnMut(Piece<'_>),
) -> Result<(), MemError> {
    if len == 0 {
        return Ok(());
    }
    with(dev, who, key, key.to_read(), (va, len), |mr, va, offset| {
        mr.lend(va, offset, len, f)
    })
}

/// Checks that memory may be read. Any context.
///
/// # Errors
///
/// As [`read`].
pub(crate) fn may_read(
    dev: &Device,
    who: &Who<'_>,
    key: Key,
    (va, len): (u64, usize),
) -> Result<(), MemError> {
    if len == 0 {
        return Ok(());
    }
    with(dev, who, key, key.to_read(), (va, len), |_, _, _| Ok(()))
}

/// A range of memory that is written from its start to its end.
pub(crate) struct Sink<'a> {
    mr: &'a Mr,
    va: u64,
    offset: u64,
    left: usize,
    failed: Option<Miss>,
}

impl Sink<'_> {
    /// Writes the next bytes.
    pub(crate) fn put(&mut self, piece: Piece<'_>) {
        let len = piece.len();

        if self.failed.is_some() {
            return;
        }
        self.failed = if len > self.left {
            Some(Miss::Never)
        } else {
            self.mr.write(self.va, self.offset, piece).err()
        };
        if self.failed.is_some() {
            return;
        }
        self.left -= len;
        self.va = self.va.wrapping_add(len as u64);
        self.offset += len as u64;
    }
}

/// Writes memory, piece by piece: `f` gets what takes them. Any context.
///
/// # Errors
///
/// As [`write`], or the error of `f`; a part may be written.
pub(crate) fn write_with(
    dev: &Device,
    who: &Who<'_>,
    key: Key,
    (va, len): (u64, usize),
    f: impl FnOnce(&mut Sink<'_>) -> Result<(), MemError>,
) -> Result<(), MemError> {
    if len == 0 {
        return Ok(());
    }
    with(
        dev,
        who,
        key,
        key.to_write(),
        (va, len),
        |mr, va, offset| {
            let mut sink = Sink {
                mr,
                va,
                offset,
                left: len,
                failed: None,
            };
            let result = f(&mut sink);

            // What was not written is not received.
            match (result, sink.failed) {
                (Ok(()), Some(miss)) => Err(miss),
                (Ok(()), None) if sink.left != 0 => Err(Miss::Never),
                (result, _) => Ok(result),
            }
        },
    )?
}

/// Checks that the other side may access a range. Any context.
pub(crate) fn check(
    dev: &Device,
    who: &Who<'_>,
    rkey: u32,
    va: u64,
    len: u32,
    access: Access,
) -> Result<(), MemError> {
    if len == 0 {
        return Ok(());
    }
    let need = match access {
        Access::Read => access::REMOTE_READ,
        Access::Write => access::REMOTE_WRITE,
    };
    let range = (va, len as usize);

    with(dev, who, Key::Remote(rkey), need, range, |_, _, _| Ok(()))
}

/// Calls `f` with a word that the other side may access as `need` says.
fn with_word<R>(
    dev: &Device,
    who: &Who<'_>,
    rkey: u32,
    need: u32,
    va: u64,
    f: impl FnOnce(&Atomic<u64>) -> R,
) -> Result<R, MemError> {
    let key = Key::Remote(rkey);

    with(dev, who, key, need, (va, 8), |mr, va, offset| {
        mr.with_word(va, offset, f)
    })
}

/// Does an atomic operation, and returns what was there. Any context.
///
/// It is atomic to the CPUs as well, which is more than the other side may expect.
pub(crate) fn atomic(
    dev: &Device,
    who: &Who<'_>,
    rkey: u32,
    va: u64,
    op: AtomicOp,
) -> Result<u64, MemError> {
    with_word(dev, who, rkey, access::REMOTE_ATOMIC, va, |word| match op {
        AtomicOp::CompareSwap { compare, swap } => match word.cmpxchg(compare, swap, Full) {
            Ok(old) | Err(old) => old,
        },
        AtomicOp::FetchAdd(add) => word.fetch_add(add, Full),
    })
}

/// Writes eight bytes as one, behind all that was written before. Any context.
pub(crate) fn atomic_write(
    dev: &Device,
    who: &Who<'_>,
    rkey: u32,
    va: u64,
    value: [u8; 8],
) -> Result<(), MemError> {
    with_word(dev, who, rkey, access::REMOTE_WRITE, va, |word| {
        word.store(u64::from_ne_bytes(value), Release);
    })
}

/// Makes what was written to a range visible. Any context.
///
/// Memory of this machine is coherent, so there is an order to keep and nothing else. No region
/// says that it is persistent.
pub(crate) fn flush(dev: &Device, who: &Who<'_>, feth: &Feth, reth: &Reth) -> Result<(), MemError> {
    let mut need = 0;

    if feth.types & Feth::GLOBAL != 0 {
        need |= access::FLUSH_GLOBAL;
    }
    if feth.types & Feth::PERSISTENT != 0 {
        need |= access::FLUSH_PERSISTENT;
    }
    let len = if feth.level == Feth::RANGE {
        u64::from(reth.len)
    } else {
        0
    };
    let key = Key::Remote(reth.rkey);

    find(dev, who, key, need, (reth.va, len)).ok_or(MemError::Access)?;
    smp_mb(Full);
    Ok(())
}
