// SPDX-License-Identifier: GPL-2.0

//! Memory regions.
//!
//! What decides about an access, key, rights and state, is in one word of the region, so that it is
//! looked at once, and it is looked at for each access. The engine finds a region under RCU, and
//! keeps it for one go at most: a region that is deregistered first is not valid any more, then is
//! taken out of the table, and its memory is given back after a grace period.

#[path = "mr/by_key.rs"]
mod by_key;

pub(crate) use self::by_key::{
    atomic,
    atomic_write,
    check,
    flush,
    lend,
    may_read,
    read,
    write,
    write_with,
    Sink, //
};

use crate::{
    device::Device,
    env::MemError,
    fault::{
        Fault,
        Misses,
        Prefetch, //
    },
    params::{
        self,
        access, //
    },
    pd::Pd,
    qp::rings::RegMr,
    table::Recent,
    wc::Status,
    wqe::BindMw, //
};
use kernel::{
    prelude::*,
    rdma::driver::{
        mem::{
            FastPages,
            KernelMemory,
            Piece,
            Umem, //
        },
        umem_odp::{
            Implicit,
            Miss,
            OnDemand,
            Want, //
        },
        wr,
        Advice,
        MrChange,
        NewMr,
        UserMr, //
    },
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        rcu,
        Arc,
        ArcBorrow, //
    }, //
};

/// Who wants to access memory: what only the protection domain of a queue pair may use.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    /// Its protection domain.
    pub(crate) pd: &'a Pd,
    /// The number of the queue pair.
    pub(crate) qpn: u32,
    /// Where to note what is not there.
    pub(crate) misses: &'a Misses,
    /// The regions, and which of them was used last.
    pub(crate) mrs: &'a Recent<'a, Mr>,
}

/// A key of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// In a work request of this side.
    Local(u32),
    /// In a packet of the other side.
    Remote(u32),
}

impl Key {
    const fn value(self) -> u32 {
        match self {
            Self::Local(key) | Self::Remote(key) => key,
        }
    }
}

/// Number of the region or window that a key names.
const fn index(key: u32) -> u32 {
    key >> 8
}

/// The word: rights, the part of the key that changes, and whether the region is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const VALID: u64 = 1 << 40;

    const fn new(access: u32, key: u8, valid: bool) -> Self {
        Self(access as u64 | (key as u64) << 32 | if valid { Self::VALID } else { 0 })
    }

    const fn access(self) -> u32 {
        self.0 as u32
    }

    const fn key(self) -> u8 {
        (self.0 >> 32) as u8
    }

    const fn is_valid(self) -> bool {
        self.0 & Self::VALID != 0
    }
}

/// The memory.
enum Memory {
    /// All of the kernel's.
    Kernel(KernelMemory),
    /// Of a process.
    User(Umem),
    /// Of a process, as far as it is there.
    OnDemand(Arc<OnDemand>),
    /// All of a process, as far as it is there.
    Implicit(Pin<KBox<Implicit>>),
    /// Of a client in the kernel that says so by work requests.
    Fast(Arc<FastPages>),
}

impl Memory {
    /// Registers memory of the current process.
    fn new(dev: &Device, request: &UserMr) -> Result<Self> {
        let UserMr {
            start,
            length,
            iova,
            access,
        } = *request;

        match (start, length) {
            _ if access & access::ON_DEMAND == 0 => {
                Ok(Self::User(Umem::get(dev.ib(), start, length, access)?))
            }
            // As all drivers have it; addresses are those of the process then.
            (0, u64::MAX) if iova == 0 => Ok(Self::Implicit(Implicit::get(dev.ib(), access)?)),
            (0, u64::MAX) => Err(EINVAL),
            _ => Ok(Self::OnDemand(OnDemand::get(
                dev.ib(),
                start,
                length,
                access,
            )?)),
        }
    }

    /// Start and length in the address space, and whether it may be written; if it is memory of a
    /// process.
    fn of_process(&self) -> Option<(u64, u64, bool)> {
        match self {
            Self::User(m) => Some((m.start() as u64, m.len() as u64, m.is_writable())),
            Self::OnDemand(m) => Some((m.start() as u64, m.len() as u64, m.is_writable())),
            Self::Implicit(m) => Some((0, u64::MAX, m.is_writable())),
            Self::Kernel(_) | Self::Fast(_) => None,
        }
    }

    /// Makes a range available.
    fn fault(&self, at: usize, len: usize, want: Want) -> Result {
        match self {
            Self::OnDemand(m) => m.fault(at, len, want),
            Self::Implicit(m) => m.fault(at, len, want),
            _ => Err(EINVAL),
        }
    }
}

/// A memory region.
pub(crate) struct Mr {
    dev: Arc<Device>,
    number: u32,
    word: Atomic<u64>,
    /// Number of the protection domain, [`Pd::id`].
    pd: Atomic<u64>,
    iova: Atomic<u64>,
    length: Atomic<u64>,
    /// How many windows are bound to it; [`GONE`] if none can be any more.
    windows: Atomic<u32>,
    memory: Memory,
}

/// The region is being deregistered.
const GONE: u32 = 1 << 31;

/// Rights that no region, or none but those that are paged on demand, can have, or that need more
/// than there is here.
fn check_access(access: u32) -> Result {
    if access & !(access::MR | access::ZERO_BASED) != 0 {
        return Err(EOPNOTSUPP);
    }
    // There is no persistent memory that this driver knows how to write back.
    if access & access::FLUSH_PERSISTENT != 0 {
        return Err(EINVAL);
    }
    Ok(())
}

impl Mr {
    fn add(
        pd: &Arc<Pd>,
        memory: Memory,
        access: u32,
        (iova, length): (u64, u64),
        valid: bool,
    ) -> Result<NewMr<Arc<Self>>> {
        let dev = &pd.dev;
        // Never one that the region with this number has just had.
        let key = dev.next_generation().wrapping_mul(59).wrapping_add(17);

        let mr = dev.mrs.insert_with(GFP_KERNEL, |number| {
            Ok(Arc::new(
                Self {
                    dev: dev.clone(),
                    number,
                    word: Atomic::new(Word::new(access, key, valid).0),
                    pd: Atomic::new(pd.id),
                    iova: Atomic::new(iova),
                    length: Atomic::new(length),
                    windows: Atomic::new(0),
                    memory,
                },
                GFP_KERNEL,
            )?)
        })?;
        let key = mr.number << 8 | u32::from(key);

        Ok(NewMr {
            data: mr,
            lkey: key,
            rkey: key,
        })
    }

    /// Makes a region of all memory of the kernel.
    pub(crate) fn new_dma(
        pd: &Arc<Pd>,
        memory: KernelMemory,
        access: u32,
    ) -> Result<NewMr<Arc<Self>>> {
        check_access(access)?;
        Self::add(pd, Memory::Kernel(memory), access, (0, u64::MAX), true)
    }

    /// Registers memory of the current process.
    pub(crate) fn new_user(pd: &Arc<Pd>, request: &UserMr) -> Result<NewMr<Arc<Self>>> {
        check_access(request.access & !access::ON_DEMAND)?;
        request
            .iova
            .checked_add(request.length)
            .filter(|_| request.length != 0)
            .ok_or(EINVAL)?;

        let memory = Memory::new(&pd.dev, request)?;

        Self::add(
            pd,
            memory,
            request.access,
            (request.iova, request.length),
            true,
        )
    }

    /// Makes a region for fast registration, which is not valid until it is registered.
    pub(crate) fn new_fast(pd: &Arc<Pd>, pages: Arc<FastPages>) -> Result<NewMr<Arc<Self>>> {
        Self::add(pd, Memory::Fast(pages), 0, (0, 0), false)
    }

    /// Changes the region, or makes another one that takes its place. That is necessary for other
    /// memory, and to write what was registered for reading only.
    ///
    /// # Errors
    ///
    /// `EINVAL` if windows are bound to it, `EOPNOTSUPP` if it is none of a process, or what
    /// registering says. Nothing has changed then.
    #[doc(alias = "ibv_rereg_mr")]
    pub(crate) fn rereg(
        &self,
        pd: &Arc<Pd>,
        change: &MrChange,
    ) -> Result<Option<NewMr<Arc<Self>>>> {
        let (start, len, writable) = self.memory.of_process().ok_or(EOPNOTSUPP)?;
        let word = Word(self.word.load(Relaxed));
        let access = change.access.unwrap_or(word.access());
        let stays = (access ^ word.access()) & access::ON_DEMAND == 0
            && (writable || access & access::WRITES == 0);

        check_access(access & !access::ON_DEMAND)?;
        // From here on no window is bound to it, so that `dereg` succeeds.
        self.windows.cmpxchg(0, GONE, Full).map_err(|_| EINVAL)?;
        if change.memory.is_none() && stays {
            self.hand_over(pd, access);
            self.windows.store(0, Release);
            return Ok(None);
        }

        let here = (start, len, self.iova.load(Relaxed));
        let (start, length, iova) = change.memory.unwrap_or(here);
        let new = Self::new_user(
            pd,
            &UserMr {
                start,
                length,
                iova,
                access,
            },
        );

        if new.is_err() {
            self.windows.store(0, Release);
        }
        new.map(Some)
    }

    /// Gives it to a protection domain, with other rights. When this returns, nobody makes use of
    /// what was before; whoever had the same rights before does not notice.
    fn hand_over(&self, pd: &Pd, access: u32) {
        let old = Word(self.word.load(Relaxed));
        let new = Word::new(access, old.key(), old.is_valid());

        if self.pd.load(Relaxed) == pd.id {
            self.word.store(new.0, Release);
            rcu::synchronize_rcu();
            return;
        }
        // The domain is looked at after the word, so nobody may go on with the old one.
        self.word.store(Word::new(0, old.key(), false).0, Release);
        rcu::synchronize_rcu();
        self.pd.store(pd.id, Relaxed);
        self.word.store(new.0, Release);
    }

    /// Ends the region. After this nothing accesses the memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if windows are bound to it.
    pub(crate) fn dereg(&self) -> Result {
        match self.windows.cmpxchg(0, GONE, Full) {
            // Another one has taken its place.
            Ok(_) | Err(GONE) => {}
            Err(_) => return Err(EINVAL),
        }
        self.word.store(0, Release);
        if let Some(retired) = self.dev.mrs.remove(self.number) {
            drop(retired.wait());
        }
        Ok(())
    }

    /// Its key.
    fn key(&self) -> u32 {
        self.number << 8 | u32::from(Word(self.word.load(Acquire)).key())
    }

    /// The number of the region, by which work requests that wait refer to it.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Binds one more window to it, so that it stays; returns false if it is being deregistered.
    pub(crate) fn hold(&self) -> bool {
        let mut n = self.windows.load(Relaxed);

        while n & GONE == 0 {
            match self.windows.cmpxchg(n, n + 1, Full) {
                Ok(_) => return true,
                Err(now) => n = now,
            }
        }
        false
    }

    /// Undoes [`Self::hold`].
    pub(crate) fn let_go(&self) {
        self.windows.fetch_sub(1u32, Full);
    }

    /// Tells whether a window may be bound so (IBA vol. 1, C10-72 to C10-75).
    pub(crate) fn may_bind(&self, who: &Who<'_>, bind: &BindMw) -> bool {
        let rights = Word(self.word.load(Acquire)).access();
        let writes = bind.access & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;

        self.permits(who, bind.mr_lkey, access::MW_BIND)
            && rights & access::ZERO_BASED == 0
            && (!writes || rights & access::LOCAL_WRITE != 0)
            && self.offset(bind.addr, bind.len).is_some()
    }

    /// Checks that a key is that of this region, and lets `who` do what `need` says.
    fn permits(&self, who: &Who<'_>, key: u32, need: u32) -> bool {
        let word = Word(self.word.load(Acquire));

        word.is_valid()
            && word.key() == key as u8
            && word.access() & need == need
            && self.pd.load(Relaxed) == who.pd.id
    }

    /// Returns the offset of a range of addresses in the region.
    fn offset(&self, va: u64, len: u64) -> Option<u64> {
        let offset = va.checked_sub(self.iova.load(Relaxed))?;
        let end = offset.checked_add(len)?;

        (end <= self.length.load(Relaxed)).then_some(offset)
    }

    /// Where the memory of an offset starts, for fast registration: pages begin before the region.
    fn fast_at(&self, pages: &FastPages, offset: u64) -> usize {
        pages.offset_of(self.iova.load(Relaxed)) + offset as usize
    }

    fn read(&self, va: u64, offset: u64, out: &mut [u8]) -> Result<(), Miss> {
        match &self.memory {
            Memory::Kernel(m) => {
                m.read(va, out);
                Ok(())
            }
            Memory::User(m) => there(m.read(offset as usize, out)),
            Memory::Fast(m) => there(m.read(self.fast_at(m, offset), out)),
            Memory::OnDemand(m) => m.read(offset as usize, out),
            Memory::Implicit(m) => m.read(offset as usize, out),
        }
    }

    fn lend(&self, va: u64, offset: u64, len: usize, f: impl FnMut(Piece<'_>)) -> Result<(), Miss> {
        let at = offset as usize;

        match &self.memory {
            Memory::Kernel(m) => {
                m.lend(va, len, f);
                Ok(())
            }
            Memory::User(m) => there(m.lend(at, len, f)),
            Memory::Fast(m) => there(m.lend(self.fast_at(m, offset), len, f)),
            Memory::OnDemand(m) => lend_copies(len, f, |done, to| m.read(at + done, to)),
            Memory::Implicit(m) => lend_copies(len, f, |done, to| m.read(at + done, to)),
        }
    }

    fn write(&self, va: u64, offset: u64, data: Piece<'_>) -> Result<(), Miss> {
        match &self.memory {
            Memory::Kernel(m) => {
                m.write(va, data);
                Ok(())
            }
            Memory::User(m) => there(m.write(offset as usize, data)),
            Memory::Fast(m) => there(m.write(self.fast_at(m, offset), data)),
            Memory::OnDemand(m) => m.write(offset as usize, data),
            Memory::Implicit(m) => m.write(offset as usize, data),
        }
    }

    fn with_word<R>(
        &self,
        va: u64,
        offset: u64,
        f: impl FnOnce(&Atomic<u64>) -> R,
    ) -> Result<R, Miss> {
        let done = match &self.memory {
            Memory::Kernel(m) => m.word(va, f),
            Memory::User(m) => m.word(offset as usize, f),
            Memory::Fast(m) => m.word(self.fast_at(m, offset), f),
            Memory::OnDemand(m) => return m.word(offset as usize, f),
            Memory::Implicit(m) => return m.word(offset as usize, f),
        };

        done.ok_or(Miss::Never)
    }
}

/// Copies `len` bytes with `read`, and calls `f` with each copy. Memory on demand is not lent: its
/// table would be locked while that of other memory is, which may be the same one.
fn lend_copies(
    len: usize,
    mut f: impl FnMut(Piece<'_>),
    read: impl Fn(usize, &mut [u8]) -> Result<(), Miss>,
) -> Result<(), Miss> {
    let mut bytes = [0; 256];
    let mut done = 0;

    while done < len {
        let n = bytes.len().min(len - done);
        let copy = bytes.get_mut(..n).ok_or(Miss::Never)?;

        read(done, copy)?;
        f((&*copy).into());
        done += n;
    }
    Ok(())
}

/// Of memory that is pinned nothing comes later.
fn there(done: bool) -> Result<(), Miss> {
    done.then_some(()).ok_or(Miss::Never)
}

/// Finds the region that has a number and is as it should be.
fn usable<'g>(
    who: &Who<'g>,
    number: u32,
    is_right: impl Fn(&Mr) -> bool,
) -> Option<ArcBorrow<'g, Mr>> {
    match who.mrs.get(number) {
        Some(mr) if is_right(&mr) => Some(mr),
        // It may not be valid any more, and another one have its number.
        _ => who.mrs.look_up(number).filter(|mr| is_right(mr)),
    }
}

/// Finds what a key and a range of addresses mean, if the range may be accessed as `need` says: the
/// region, and address and offset in it. Of a range that is empty only the key is looked at.
fn find<'g>(
    dev: &Device,
    who: &Who<'g>,
    key: Key,
    need: u32,
    (va, len): (u64, u64),
) -> Option<(ArcBorrow<'g, Mr>, u64, u64)> {
    let number = index(key.value());

    if matches!(key, Key::Remote(_)) && number >= params::MWN.0 {
        let guard = rcu::read_lock();
        let mw = dev.mws.get(&guard, number)?;
        let view = mw.view(who, key.value(), need, (va, len))?;
        let mr = usable(who, view.mr, |mr| {
            Word(mr.word.load(Acquire)).is_valid() && mr.pd.load(Relaxed) == who.pd.id
        })?;
        let offset = mr.offset(view.va, len)?;

        return Some((mr, view.va, offset));
    }

    let mr = usable(who, number, |mr| mr.permits(who, key.value(), need))?;
    let offset = if len == 0 { 0 } else { mr.offset(va, len)? };

    Some((mr, va, offset))
}

/// Finds the region with a key.
fn region<'g>(dev: &'g Device, guard: &'g rcu::Guard, key: u32) -> Option<ArcBorrow<'g, Mr>> {
    dev.mrs.get(guard, index(key)).filter(|mr| mr.key() == key)
}

/// Makes what is missing available.
///
/// # Context
///
/// Process context, may sleep.
///
/// # Errors
///
/// `EFAULT` if there is no such memory, `EINVAL` if there is no such region or process any more.
pub(crate) fn resolve(dev: &Device, fault: &Fault) -> Result {
    let mr = {
        let guard = rcu::read_lock();

        Arc::from(region(dev, &guard, fault.key).ok_or(EINVAL)?)
    };

    mr.memory.fault(fault.at, fault.len, fault.want)
}

/// Makes a key invalid, if it is one of a region for fast registration or of a window.
fn invalidate(dev: &Device, who: &Who<'_>, key: u32) -> bool {
    let guard = rcu::read_lock();

    if index(key) >= params::MWN.0 {
        return dev
            .mws
            .get(&guard, index(key))
            .is_some_and(|mw| mw.invalidate(who, key));
    }
    let Some(mr) = dev.mrs.get(&guard, index(key)) else {
        return false;
    };

    if !matches!(mr.memory, Memory::Fast(_)) || mr.pd.load(Relaxed) != who.pd.id {
        return false;
    }
    let old = Word(mr.word.load(Relaxed));

    // One that is not valid may be made so again; that is no error as long as the key is right.
    old.key() == key as u8
        && mr.windows.load(Relaxed) == 0
        && mr
            .word
            .cmpxchg(old.0, Word::new(0, old.key(), false).0, Full)
            .is_ok()
}

/// Makes a key invalid because the other side wants so. Any context.
pub(crate) fn invalidate_remote(dev: &Device, who: &Who<'_>, rkey: u32) -> Result<(), MemError> {
    invalidate(dev, who, rkey)
        .then_some(())
        .ok_or(MemError::Access)
}

/// Makes a key invalid because a work request says so. Any context.
pub(crate) fn invalidate_local(dev: &Device, who: &Who<'_>, key: u32) -> Result<(), Status> {
    invalidate(dev, who, key)
        .then_some(())
        .ok_or(Status::LocQpOp)
}

/// Registers a region with what its client has named, under a new key. Any context.
pub(crate) fn register(who: &Who<'_>, mr: &Mr, reg: &RegMr) -> Result<(), Status> {
    let Memory::Fast(pages) = &mr.memory else {
        return Err(Status::LocQpOp);
    };
    let old = Word(mr.word.load(Relaxed));
    let RegMr {
        key,
        access,
        iova,
        length,
        ..
    } = *reg;
    let room = (pages.bytes() - pages.offset_of(iova).min(pages.bytes())) as u64;

    // Only the part of the key that may be chosen can change.
    if old.is_valid()
        || mr.pd.load(Relaxed) != who.pd.id
        || index(key) != mr.number
        || check_access(access).is_err()
        || iova.checked_add(length).is_none()
        || length > room
    {
        return Err(Status::LocQpOp);
    }
    mr.iova.store(iova, Relaxed);
    mr.length.store(length, Relaxed);
    mr.word
        .cmpxchg(old.0, Word::new(access, key as u8, true).0, Full)
        .map(|_| ())
        .map_err(|_| Status::LocQpOp)
}

/// Follows advice about memory of regions that are paged on demand: at once if `wait`, or some
/// time.
///
/// # Context
///
/// Process context, may sleep.
///
/// # Errors
///
/// `ENOENT` if there is no region with a key, `EPERM` if it is of another protection domain or may
/// not be written, `EINVAL` if it is not paged on demand, `EFAULT` if the range is not part of it,
/// and with `wait` if there is no such memory; `ENOMEM`.
#[doc(alias = "ibv_advise_mr")]
pub(crate) fn advise(
    pd: &Arc<Pd>,
    advice: Advice,
    wait: bool,
    sges: impl Iterator<Item = wr::Sge>,
) -> Result {
    let mut faults = KVec::new();

    for sge in sges {
        faults.push(advised(pd, advice, &sge)?, GFP_KERNEL_ACCOUNT)?;
    }
    if !wait {
        return Prefetch::start(&pd.dev, faults);
    }
    faults.iter().try_for_each(|fault| resolve(&pd.dev, fault))
}

/// What an element of advice is about.
fn advised(pd: &Pd, advice: Advice, sge: &wr::Sge) -> Result<Fault> {
    let guard = rcu::read_lock();
    let mr = region(&pd.dev, &guard, sge.lkey).ok_or(ENOENT)?;

    if mr.pd.load(Relaxed) != pd.id {
        return Err(EPERM);
    }
    let writable = match &mr.memory {
        Memory::OnDemand(memory) => memory.is_writable(),
        Memory::Implicit(memory) => memory.is_writable(),
        _ => return Err(EINVAL),
    };
    let want = match advice {
        Advice::Prefetch => Want::Read,
        Advice::PrefetchWrite if writable => Want::Write,
        Advice::PrefetchWrite => return Err(EPERM),
        Advice::PrefetchPresent => Want::Present,
    };

    Ok(Fault {
        key: sge.lkey,
        at: mr.offset(sge.addr, sge.len.into()).ok_or(EFAULT)? as usize,
        len: sge.len as usize,
        want,
    })
}
