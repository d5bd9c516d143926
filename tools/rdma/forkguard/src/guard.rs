// SPDX-License-Identifier: GPL-2.0

//! What is looked at when a function is called.

use crate::heap;
use crate::maps::{self, Mapping};
use crate::pages::{round_out, Registry};
use crate::real;
use crate::report::{frames, Finding, Kind, Summary};
use std::backtrace::Backtrace;
use std::collections::HashSet;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// So many findings are kept and printed; of the others only the number is.
const KEPT: usize = 64;
/// So many chunks are named.
const CHUNKS: usize = 4;

/// What happens with a call that takes memory from children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Warn,
    Reject,
}

/// What the environment says.
pub(crate) struct Config {
    pub(crate) policy: Policy,
    log: Option<String>,
    json: Option<String>,
    page: usize,
    /// The library looks for huge pages.
    huge: bool,
}

impl Config {
    fn read() -> Self {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            policy: if set("FORKGUARD_POLICY").as_deref() == Some("reject") {
                Policy::Reject
            } else {
                Policy::Warn
            },
            log: set("FORKGUARD_LOG"),
            json: set("FORKGUARD_JSON"),
            page: real::page_size(),
            huge: env::var_os("RDMAV_HUGEPAGES_SAFE").is_some()
                || env::var_os("IBV_HUGEPAGES_SAFE").is_some(),
        }
    }

    /// The size of the pages that the library rounds to.
    fn page_at(&self, addr: usize) -> usize {
        let found = if self.huge {
            maps::page_size_at(addr)
        } else {
            None
        };
        found.unwrap_or(self.page)
    }

    fn put(&self, text: &str) {
        match &self.log {
            Some(path) => append(path, text),
            None => {
                let _ = std::io::stderr().lock().write_all(text.as_bytes());
            }
        }
    }
}

fn append(path: &str, text: &str) {
    let done = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut f| f.write_all(text.as_bytes()));
    if let Err(e) = done {
        let _ = writeln!(std::io::stderr(), "forkguard: {path}: {e}");
    }
}

/// Each line with who says it in front.
fn prefixed(text: &str) -> String {
    let pid = std::process::id();
    text.lines()
        .map(|line| format!("forkguard[{pid}]: {line}\n"))
        .collect()
}

#[derive(Default)]
struct State {
    registry: Registry,
    /// What each region was rounded to, for its end.
    pages: std::collections::HashMap<usize, usize>,
    findings: Vec<Finding>,
    seen: HashSet<(&'static str, usize, usize)>,
    more: usize,
    registrations: usize,
    refused: usize,
    /// The library was told to mark memory, successfully.
    fork_init: bool,
    in_force: bool,
    marked: bool,
}

/// Everything that is known.
pub(crate) struct Guard {
    pub(crate) config: Config,
    maps_start: usize,
    state: Mutex<State>,
}

static GUARD: OnceLock<Guard> = OnceLock::new();

/// The one of this process.
pub(crate) fn guard() -> &'static Guard {
    GUARD.get_or_init(|| Guard {
        config: Config::read(),
        maps_start: maps::count(),
        state: Mutex::default(),
    })
}

/// What is known of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// It marks what is registered.
    Marks,
    /// It does not.
    Not,
    /// It is not known.
    Nothing,
}

impl Guard {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind it is a record, and stays one.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// `ibv_fork_init()` returned this.
    pub(crate) fn fork_init(&self, rc: i32) {
        self.state().fork_init |= rc == 0;
    }

    /// Whether the library will mark what is registered.
    fn protects(state: &State, says: Says) -> bool {
        match says {
            Says::Marks => true,
            Says::Not => false,
            Says::Nothing => {
                state.fork_init
                    || env::var_os("RDMAV_FORK_SAFE").is_some()
                    || env::var_os("IBV_FORK_SAFE").is_some()
            }
        }
    }

    /// Before a registration; false if it must not be made.
    pub(crate) fn before_reg(
        &self,
        call: &'static str,
        range: &Range<usize>,
        odp: bool,
        says: Says,
    ) -> bool {
        let page = self.config.page_at(range.start);
        let mut state = self.state();
        let protects = Self::protects(&state, says);
        state.in_force |= protects;
        // On-demand regions are not marked by the library. What the program marked itself counts
        // in any case.
        let stake = state.registry.foreign(range, page, odp || !protects);
        if stake.is_empty() {
            return true;
        }
        let rejected = self.config.policy == Policy::Reject;
        state.refused += usize::from(rejected);
        self.found(&mut state, Kind::Registration, call, range, stake, rejected);
        !rejected
    }

    /// A registration succeeded.
    pub(crate) fn after_reg(&self, handle: usize, range: Range<usize>) {
        let page = self.config.page_at(range.start);
        let mut state = self.state();
        state.registrations += 1;
        state.pages.insert(handle, page);
        state.registry.add(handle, range, page);
    }

    /// A registration failed for lack of something, which often means mappings.
    pub(crate) fn no_memory(&self, call: &'static str, range: &Range<usize>) {
        let Some(limit) = maps::limit() else { return };
        // Some of them do not count, and to split one takes two more.
        if maps::count() + 4 >= limit {
            self.found(
                &mut self.state(),
                Kind::MapsExhausted,
                call,
                range,
                Vec::new(),
                false,
            );
        }
    }

    /// A region is about to end. What it was, to put it back if that fails.
    pub(crate) fn before_dereg(&self, handle: usize) -> Option<Range<usize>> {
        let mut state = self.state();
        let page = state.pages.remove(&handle)?;
        state.registry.remove(handle, page)
    }

    /// It did not.
    pub(crate) fn dereg_failed(&self, handle: usize, range: Range<usize>) {
        let page = self.config.page_at(range.start);
        let mut state = self.state();
        state.pages.insert(handle, page);
        state.registry.add(handle, range, page);
    }

    /// Before `MADV_DONTFORK` by the program itself; false if it must not be done.
    pub(crate) fn before_dontfork(&self, range: &Range<usize>) -> bool {
        let mut state = self.state();
        // What was meant is not known, so only what is certainly needed by the child counts.
        let Some(needed) = state_of_arena(range) else {
            return true;
        };
        let rejected = self.config.policy == Policy::Reject;
        state.refused += usize::from(rejected);
        self.found(
            &mut state,
            Kind::Madvise,
            "madvise",
            range,
            vec![needed],
            rejected,
        );
        !rejected
    }

    /// `MADV_DONTFORK` or `MADV_DOFORK` succeeded.
    pub(crate) fn marked(&self, range: &Range<usize>, dontfork: bool, by: &'static str) {
        let range = round_out(range, self.config.page);
        let mut state = self.state();
        state.marked = true;
        if !dontfork {
            let stake = state.registry.still_needed(&range);
            if !stake.is_empty() {
                self.found(&mut state, Kind::EarlyDofork, by, &range, stake, false);
            }
        }
        state.registry.mark(&range, dontfork);
    }

    fn found(
        &self,
        state: &mut State,
        kind: Kind,
        call: &'static str,
        range: &Range<usize>,
        stake: Vec<Range<usize>>,
        rejected: bool,
    ) {
        // One of each is enough to read.
        if state.findings.len() >= KEPT || !state.seen.insert((call, range.start, range.end)) {
            state.more += 1;
            return;
        }
        // Without mappings there is no memory, and who looks for names needs much of it.
        let exhausted = kind == Kind::MapsExhausted;
        let all = if exhausted { Vec::new() } else { maps::all() };
        let mapping = all.iter().find(|m| m.range.contains(&range.start));
        let finding = Finding {
            kind,
            call,
            range: range.clone(),
            neighbours: neighbours(&all, &stake),
            stake,
            mapping: mapping.map_or_else(|| "[unknown]".to_owned(), |m| m.name.clone()),
            backtrace: if exhausted {
                Vec::new()
            } else {
                frames(&Backtrace::force_capture().to_string(), call)
            },
            rejected,
        };
        self.config.put(&prefixed(&finding.to_string()));
        state.findings.push(finding);
    }

    /// At the end.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        // Most programs that a command starts have nothing to do with RDMA.
        if state.registrations == 0 && state.findings.is_empty() && !state.marked {
            return;
        }
        let program =
            env::current_exe().map_or_else(|_| "?".to_owned(), |p| p.display().to_string());
        let summary = Summary {
            program,
            pid: std::process::id(),
            policy: if self.config.policy == Policy::Reject {
                "reject"
            } else {
                "warn"
            },
            in_force: state.in_force,
            registrations: state.registrations,
            still_registered: state.registry.len(),
            refused: state.refused,
            maps_start: self.maps_start,
            maps_end: maps::count(),
            maps_limit: maps::limit(),
            // Much of it may have been unmapped since.
            left_over: maps::left_out(&state.registry.left_over()),
            findings: std::mem::take(&mut state.findings),
            more: state.more,
        };
        self.config.put(&prefixed(&summary.to_string()));
        if let Some(path) = &self.config.json {
            append(path, &summary.json());
        }
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// The state of an arena in `range`.
fn state_of_arena(range: &Range<usize>) -> Option<Range<usize>> {
    let all = maps::all();
    let memory = heap::Own::open()?;
    let mapping = all.iter().find(|m| m.range.contains(&range.start))?;
    let state = heap::find(&memory, mapping, range.start)?.state?;
    Some(overlap(&state, range)).filter(|part| !part.is_empty())
}

/// What is at stake, as far as it is known.
fn neighbours(all: &[Mapping], stake: &[Range<usize>]) -> Vec<String> {
    let local = 0u8;
    let here = std::ptr::from_ref(&local).addr();
    let memory = heap::Own::open();
    let mut found = Vec::new();
    for part in stake {
        let Some(mapping) = all.iter().find(|m| m.range.contains(&part.start)) else {
            continue;
        };
        if mapping.range.contains(&here) || mapping.name == "[stack]" {
            found.push(format!("a stack ({})", mapping.name));
            continue;
        }
        let Some(heap) = memory
            .as_ref()
            .and_then(|memory| heap::find(memory, mapping, part.start))
        else {
            continue;
        };
        if heap
            .state
            .is_some_and(|state| !overlap(&state, part).is_empty())
        {
            found.push(
                "the state of a malloc arena: the next malloc or free of a child dies".to_owned(),
            );
        }
        let used: Vec<_> = heap
            .used
            .iter()
            .filter(|chunk| !overlap(chunk, part).is_empty())
            .collect();
        for chunk in used.iter().take(CHUNKS) {
            // The header is in front of what the program got.
            let size = size_of::<usize>();
            found.push(format!(
                "malloc chunk {:#x}, {} bytes",
                chunk.start + 2 * size,
                chunk.len() - size
            ));
        }
        if used.len() > CHUNKS {
            found.push(format!("{} more malloc chunks", used.len() - CHUNKS));
        }
    }
    found
}
