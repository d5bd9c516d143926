// SPDX-License-Identifier: GPL-2.0

//! Event queues in debugfs: what they did, and, if the kernel is configured so, a hostile device.
//!
//! `rrxe/eq_state` has a line for each event queue that there is. What is written to `rrxe/trains`
//! says when packets are sent as trains ([`crate::net::Train`]): 0 is never, 1 where the device
//! takes them, 2 always, so that the stack has to cut them. With 0 in `rrxe/direct` queue pairs of
//! the same device talk by packets, as all others do; 1 is the default.
//!
//! With `CONFIG_RDMA_RRXE_HOSTILE`, what is written to `rrxe/eq_inject` makes a device do what one
//! of a hostile hypervisor may do; a command is a line, and numbers may be hexadecimal with `0x`:
//!
//! | command | meaning |
//! | --- | --- |
//! | `event DEV CQN GEN COUNT` | events for a queue, of a generation; 256 is the one that it has |
//! | `sweep DEV FIRST LAST COUNT` | the same for many numbers, of all generations in turn |
//! | `recent DEV SPAN COUNT` | the same for the numbers around the one that was used last |
//! | `random DEV SEED COUNT` | events that are any 32 bits |
//! | `cqe DEV CQN COUNT` | flushed completions that nobody asked for, in a queue of the kernel |
//! | `auto COUNT` | each queue makes events for itself: inside of its creation and destruction |
//!
//! Events come from the CPU that writes, in a softirq there, and every other one from a work item.

use crate::net;
use kernel::{
    debugfs,
    fmt,
    prelude::*,
    uaccess::UserSliceReader, //
};

/// Shows all event queues.
fn show(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for dev in net::devices().map_err(|_| fmt::Error)? {
        let name = dev.ib().name();
        let len = name.iter().position(|c| *c == 0).unwrap_or(name.len());
        let name = name
            .get(..len)
            .and_then(|n| core::str::from_utf8(n).ok())
            .unwrap_or("?");

        for (number, vector) in dev.vectors().iter().enumerate() {
            for (eq, users) in vector.snapshot().map_err(|_| fmt::Error)? {
                let s = eq.state();

                writeln!(
                    f,
                    "{name} vector {number} cqs {users} depth {} dispatched {} stale {} \
                     deferred {} injected {}",
                    s.depth, s.dispatched, s.stale, s.deferred, s.injected
                )?;
            }
        }
    }
    Ok(())
}

/// Reads a number that was written.
fn number(reader: &mut UserSliceReader) -> Result<u32> {
    let mut buf = [0; 8];
    let n = reader.len();
    let bytes = buf.get_mut(..n).ok_or(EINVAL)?;

    reader.read_slice(bytes)?;

    let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;

    text.trim().parse().map_err(|_| EINVAL)
}

/// Sets when trains are sent.
fn set_trains(_: &(), reader: &mut UserSliceReader) -> Result {
    net::set_train_mode(number(reader)?)
}

/// Sets whether queue pairs of a device give packets to each other directly.
fn set_direct(_: &(), reader: &mut UserSliceReader) -> Result {
    match number(reader)? {
        0 => net::set_direct(false),
        1 => net::set_direct(true),
        _ => return Err(EINVAL),
    }
    Ok(())
}

/// The files.
pub(crate) struct Files {
    _state: Pin<KBox<debugfs::File<()>>>,
    _trains: Pin<KBox<debugfs::File<()>>>,
    _direct: Pin<KBox<debugfs::File<()>>>,
    #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
    _inject: Pin<KBox<debugfs::File<()>>>,
}

impl Files {
    /// Makes the files.
    pub(crate) fn new(dir: &debugfs::Dir) -> Result<Self> {
        Ok(Self {
            _state: KBox::pin_init(dir.read_callback_file(c"eq_state", (), &show), GFP_KERNEL)?,
            _trains: KBox::pin_init(
                dir.write_callback_file(c"trains", (), &set_trains),
                GFP_KERNEL,
            )?,
            _direct: KBox::pin_init(
                dir.write_callback_file(c"direct", (), &set_direct),
                GFP_KERNEL,
            )?,
            #[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
            _inject: KBox::pin_init(
                dir.write_callback_file(c"eq_inject", (), &hostile::write),
                GFP_KERNEL,
            )?,
        })
    }
}

#[cfg(CONFIG_RDMA_RRXE_HOSTILE)]
pub(crate) mod hostile {
    use crate::{
        cq::Cq,
        device::Device,
        eq::Event,
        event::Ctx,
        net, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            bh,
            rcu,
            Arc,
            ArcBorrow, //
        },
        uaccess::UserSliceReader,
    };

    /// How many events each queue makes for itself.
    static AUTO: Atomic<u32> = Atomic::new(0);

    /// The number of the queue that was made or destroyed last.
    static LAST: Atomic<u32> = Atomic::new(0);

    /// The most that one command does.
    const MOST: u32 = 1 << 20;

    /// Events of a queue for itself, at a moment when there is none to be expected.
    pub(crate) fn provoke(cq: &Cq) {
        LAST.store(cq.cqn(), Relaxed);
        for i in 0..AUTO.load(Relaxed) {
            cq.inject(if i % 4 == 3 { 1 } else { 0 }, context(i));
        }
    }

    /// Every other event is left to the work item.
    fn context(i: u32) -> Ctx {
        if i % 2 == 0 {
            Ctx::Softirq
        } else {
            Ctx::Method
        }
    }

    /// Makes an event on one of the event queues of a device; `pick` says on which.
    fn event(dev: &Device, pick: u32, event: Event, ctx: Ctx) -> Result {
        let queues = dev.vector(pick).ok_or(EINVAL)?.snapshot()?;

        if let Some((eq, users)) = queues.get(pick as usize % queues.len().max(1)) {
            eq.inject(event, *users, ctx);
        }
        Ok(())
    }

    fn sweep(dev: &Device, first: u32, last: u32, count: u32) -> Result {
        let mut i: u32 = 0;

        for round in 0..count {
            for cqn in first..=last {
                let generation = (round.wrapping_add(cqn)) as u8;

                // On all vectors: only that of the queue may call its handler.
                event(dev, i, Event { cqn, generation }, context(i / 2))?;
                i = i.wrapping_add(1);
                if i > MOST {
                    return Ok(());
                }
            }
            kernel::task::might_sleep();
        }
        Ok(())
    }

    fn random(dev: &Device, mut seed: u32, count: u32) -> Result {
        for i in 0..count {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);

            let bits = seed.rotate_left(11) ^ seed;
            let e = Event {
                cqn: bits & 0x00ff_ffff,
                generation: (bits >> 24) as u8,
            };

            event(dev, i, e, context(i))?;
        }
        Ok(())
    }

    fn on_cq(dev: &Device, cqn: u32, f: impl Fn(ArcBorrow<'_, Cq>)) -> Result {
        let guard = rcu::read_lock();

        f(dev.cqs.get(&guard, cqn).ok_or(ENOENT)?);
        Ok(())
    }

    fn find(name: &str) -> Result<Arc<Device>> {
        let devices = net::devices()?;

        devices
            .iter()
            .find(|d| {
                let full = d.ib().name();

                full.starts_with(name.as_bytes()) && full.get(name.len()) == Some(&0)
            })
            .cloned()
            .ok_or(ENODEV)
    }

    fn number(word: Option<&str>) -> Result<u32> {
        let word = word.ok_or(EINVAL)?;

        match word.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => word.parse(),
        }
        .map_err(|_| EINVAL)
    }

    /// Carries out a command.
    pub(super) fn write(_: &(), reader: &mut UserSliceReader) -> Result {
        let mut buf = [0; 128];
        let n = reader.len();
        let bytes = buf.get_mut(..n).ok_or(E2BIG)?;

        reader.read_slice(bytes)?;

        let mut words = core::str::from_utf8(bytes)
            .map_err(|_| EINVAL)?
            .split_ascii_whitespace();
        let what = words.next().ok_or(EINVAL)?;

        if what == "auto" {
            AUTO.store(number(words.next())?.min(64), Relaxed);
            return Ok(());
        }
        let dev = find(words.next().ok_or(EINVAL)?)?;
        let a = number(words.next())?;
        let b = number(words.next())?;
        let result = match what {
            "event" => {
                let count = number(words.next())?.min(MOST);

                (0..count).try_for_each(|i| {
                    let result = on_cq(&dev, a, |cq| match u8::try_from(b) {
                        Ok(generation) => cq.inject_generation(generation, context(i)),
                        Err(_) => cq.inject(0, context(i)),
                    });

                    // One that is not there, or not any more, has its events all the same.
                    result.or_else(|_| {
                        let e = Event {
                            cqn: a,
                            generation: b as u8,
                        };

                        event(&dev, i, e, context(i))
                    })
                })
            }
            "sweep" => sweep(&dev, a, b, number(words.next())?),
            "recent" => {
                let last = LAST.load(Relaxed);

                sweep(&dev, last.saturating_sub(a), last.saturating_add(a), b)
            }
            "random" => random(&dev, a, b.min(MOST)),
            "cqe" => (0..b.min(MOST)).try_for_each(|i| {
                on_cq(&dev, a, |cq| {
                    Cq::make_up(cq, context(i));
                })
            }),
            _ => Err(EINVAL),
        };

        // The work items that were queued here end before the device or the module can.
        for vector in dev.vectors() {
            vector.flush();
        }
        result
    }

    /// Runs `f` where handlers may be called.
    pub(crate) fn as_softirq(ctx: Ctx, f: impl FnOnce(Ctx)) {
        match (ctx, bh::disable()) {
            (Ctx::Softirq, Some(_bh)) => f(Ctx::Softirq),
            _ => f(Ctx::Method),
        }
    }
}
