// SPDX-License-Identifier: GPL-2.0

//! What is found, as text and as JSON.

use std::fmt::{self, Write};
use std::ops::Range;

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A registration takes other memory from children.
    Registration,
    /// A call of madvise() takes what malloc needs from children.
    Madvise,
    /// Memory is given to children again while it is registered.
    EarlyDofork,
    /// There are as many mappings as there may be.
    MapsExhausted,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Registration => "registration",
            Kind::Madvise => "madvise",
            Kind::EarlyDofork => "early-dofork",
            Kind::MapsExhausted => "maps-exhausted",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Kind::Registration => "registration takes other memory from forked children",
            Kind::Madvise => "madvise(MADV_DONTFORK) takes other memory from forked children",
            Kind::EarlyDofork => "MADV_DOFORK on memory that is still registered",
            Kind::MapsExhausted => {
                "registration failed, and there are as many mappings as there may be"
            }
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// The function that was called.
    pub(crate) call: &'static str,
    pub(crate) range: Range<usize>,
    /// The bytes that children lose, or what is still registered.
    pub(crate) stake: Vec<Range<usize>>,
    pub(crate) mapping: String,
    /// What is known to be at stake.
    pub(crate) neighbours: Vec<String>,
    pub(crate) backtrace: Vec<String>,
    pub(crate) rejected: bool,
}

struct Hex<'a>(&'a Range<usize>);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#x}-{:#x} ({} bytes)",
            self.0.start,
            self.0.end,
            self.0.len()
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}{}",
            self.kind.text(),
            if self.rejected { "; refused" } else { "" }
        )?;
        writeln!(
            f,
            "  {}: {} of {}",
            self.call,
            Hex(&self.range),
            self.mapping
        )?;
        for stake in &self.stake {
            writeln!(f, "  at stake: {}", Hex(stake))?;
        }
        for neighbour in &self.neighbours {
            writeln!(f, "  there: {neighbour}")?;
        }
        for frame in &self.backtrace {
            writeln!(f, "  by {frame}")?;
        }
        Ok(())
    }
}

/// What is known at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) policy: &'static str,
    /// Whether the library says that it marks memory.
    pub(crate) in_force: bool,
    pub(crate) registrations: usize,
    pub(crate) still_registered: usize,
    pub(crate) refused: usize,
    pub(crate) maps_start: usize,
    pub(crate) maps_end: usize,
    pub(crate) maps_limit: Option<usize>,
    /// Left out at fork though nothing there is registered.
    pub(crate) left_over: Vec<Range<usize>>,
    pub(crate) findings: Vec<Finding>,
    /// How many more there were.
    pub(crate) more: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.findings.len() + self.more;
        writeln!(
            f,
            "summary: {} findings in {} registrations, {} refused, {} still registered",
            found, self.registrations, self.refused, self.still_registered
        )?;
        write!(
            f,
            "  mappings: {} at the start, {} at the end",
            self.maps_start, self.maps_end
        )?;
        if let Some(limit) = self.maps_limit {
            write!(f, ", {limit} allowed")?;
        }
        writeln!(f)?;
        for range in &self.left_over {
            writeln!(
                f,
                "  not given back to children, and not registered: {}",
                Hex(range)
            )?;
        }
        Ok(())
    }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn list<T>(out: &mut String, items: &[T], mut each: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        each(out, item);
    }
    out.push(']');
}

/// Addresses are strings: they need not fit into what others make of a number.
fn range(out: &mut String, r: &Range<usize>) {
    let _ = write!(out, "[\"{:#x}\",\"{:#x}\"]", r.start, r.end);
}

fn finding(out: &mut String, f: &Finding) {
    let _ = write!(
        out,
        "{{\"kind\":\"{}\",\"call\":\"{}\",\"range\":",
        f.kind.name(),
        f.call
    );
    range(out, &f.range);
    out.push_str(",\"stake\":");
    list(out, &f.stake, range);
    out.push_str(",\"mapping\":");
    string(out, &f.mapping);
    out.push_str(",\"neighbours\":");
    list(out, &f.neighbours, |out, s| string(out, s));
    out.push_str(",\"backtrace\":");
    list(out, &f.backtrace, |out, s| string(out, s));
    let _ = write!(out, ",\"rejected\":{}}}", f.rejected);
}

impl Summary {
    /// One line of JSON.
    pub(crate) fn json(&self) -> String {
        let mut out = String::from("{\"program\":");
        string(&mut out, &self.program);
        let _ = write!(
            out,
            ",\"pid\":{},\"policy\":\"{}\",\"in_force\":{},\"registrations\":{},\
             \"still_registered\":{},\"refused\":{},\
             \"maps_start\":{},\"maps_end\":{},\"maps_limit\":",
            self.pid,
            self.policy,
            self.in_force,
            self.registrations,
            self.still_registered,
            self.refused,
            self.maps_start,
            self.maps_end
        );
        match self.maps_limit {
            Some(limit) => drop(write!(out, "{limit}")),
            None => out.push_str("null"),
        }
        out.push_str(",\"left_over\":");
        list(&mut out, &self.left_over, range);
        out.push_str(",\"findings\":");
        list(&mut out, &self.findings, finding);
        let _ = writeln!(out, ",\"more_findings\":{}}}", self.more);
        out
    }
}

/// The frames of a backtrace that are not ours: those behind the last one that is in `own`.
///
/// The text has a line with a number and a name for each, and perhaps one with a place.
pub(crate) fn frames(text: &str, own: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(last) = found.last_mut() {
                *last = format!("{last} ({place})");
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            if name == own {
                found.clear();
            } else {
                found.push(name.to_owned());
            }
        }
    }
    // Deeper than this nobody looks.
    found.truncate(24);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{self, Value};

    fn example() -> Summary {
        Summary {
            program: "a \"b\"\\\n".to_owned(),
            pid: 7,
            policy: "warn",
            findings: vec![Finding {
                kind: Kind::Registration,
                call: "ibv_reg_mr",
                range: 0x1010..0x1020,
                stake: vec![0x1000..0x1010, 0x1020..0x2000],
                mapping: "[heap]".to_owned(),
                neighbours: vec!["state".to_owned()],
                backtrace: vec!["main".to_owned()],
                rejected: true,
            }],
            ..Summary::default()
        }
    }

    #[test]
    fn json_can_be_read() {
        let value = json::parse(&example().json());
        assert_eq!(value["program"], "a \"b\"\\\n");
        assert_eq!(value["maps_limit"], Value::Null);
        assert_eq!(value["findings"][0]["stake"][1][0], "0x1020");
        assert_eq!(value["findings"][0]["rejected"], true);
        let mut with_limit = example();
        with_limit.maps_limit = Some(65530);
        let value = json::parse(&with_limit.json());
        assert_eq!(value["maps_limit"], 65530);
    }

    #[test]
    fn text() {
        let text = example().findings[0].to_string();
        assert!(
            text.contains("; refused\n  ibv_reg_mr: 0x1010-0x1020 (16 bytes) of [heap]\n"),
            "{text}"
        );
        assert!(
            text.contains("at stake: 0x1020-0x2000 (4064 bytes)"),
            "{text}"
        );
    }

    #[test]
    fn own_frames_are_left_out() {
        let text = "   0: forkguard::look\n             at ./src/lib.rs:1:1\n   1: ibv_reg_mr\n   \
                    2: setup\n             at ./a.c:3\n   3: main\n";
        assert_eq!(frames(text, "ibv_reg_mr"), vec!["setup (./a.c:3)", "main"]);
    }
}
