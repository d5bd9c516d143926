// SPDX-License-Identifier: GPL-2.0

//! What the kernel says about the mappings of this process.

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) range: Range<usize>,
    pub(crate) name: String,
}

/// Reads a line of `/proc/PID/maps`.
fn parse_line(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    // Behind the permissions are an offset, a device and an inode.
    let mut rest = rest.trim_start();
    for _ in 0..4 {
        rest = rest
            .split_once(' ')
            .map_or("", |(_, more)| more.trim_start());
    }
    let name = if rest.is_empty() { "[anon]" } else { rest };
    Some(Mapping {
        range,
        name: name.to_owned(),
    })
}

/// All mappings.
pub(crate) fn all() -> Vec<Mapping> {
    let text = fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(parse_line)
        .collect()
}

/// How many mappings there are.
///
/// This needs no memory of its own: there is none when there are too many.
pub(crate) fn count() -> usize {
    let Ok(mut file) = File::open("/proc/self/maps") else {
        return 0;
    };
    let mut buf = [0; 4096];
    let mut lines = 0;
    while let Ok(n @ 1..) = file.read(&mut buf) {
        lines += buf[..n].iter().filter(|&&b| b == b'\n').count();
    }
    lines
}

/// How many there may be.
pub(crate) fn limit() -> Option<usize> {
    fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// What `/proc/PID/smaps` says in addition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    range: Range<usize>,
    page: usize,
    dontfork: bool,
}

fn parse_details(text: &str) -> Vec<Details> {
    let mut found: Vec<Details> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) =
            parse_line(line).filter(|_| !line.starts_with(|c: char| c.is_ascii_uppercase()))
        {
            found.push(Details {
                range: mapping.range,
                page: 0,
                dontfork: false,
            });
        } else if let (Some(last), Some((key, value))) = (found.last_mut(), line.split_once(':')) {
            match key {
                "KernelPageSize" => {
                    let kib = value
                        .trim()
                        .trim_end_matches("kB")
                        .trim()
                        .parse()
                        .unwrap_or(0usize);
                    last.page = kib * 1024;
                }
                "VmFlags" => last.dontfork = value.split_whitespace().any(|flag| flag == "dc"),
                _ => {}
            }
        }
    }
    found
}

fn details() -> Vec<Details> {
    let text = fs::read("/proc/self/smaps").unwrap_or_default();
    parse_details(&String::from_utf8_lossy(&text))
}

/// The size of the pages at `addr`, which takes long to find out.
pub(crate) fn page_size_at(addr: usize) -> Option<usize> {
    details()
        .into_iter()
        .find(|d| d.range.contains(&addr))
        .map(|d| d.page)
        .filter(|p| p.is_power_of_two())
}

/// The parts of `ranges` that the kernel really leaves out at fork.
pub(crate) fn left_out(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let details = details();
    let mut found = Vec::new();
    for range in ranges {
        for d in details.iter().filter(|d| d.dontfork) {
            let part = d.range.start.max(range.start)..d.range.end.min(range.end);
            if !part.is_empty() {
                found.push(part);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let m =
            parse_line("7f00a000-7f00b000 rw-p 00000000 00:00 0                          [heap]")
                .unwrap();
        assert_eq!(
            (m.range, m.name.as_str()),
            (0x7f00a000..0x7f00b000, "[heap]")
        );
        let m =
            parse_line("1000-2000 r-xp 00002000 fe:00 123    /usr/lib/a b.so (deleted)").unwrap();
        assert_eq!(m.name, "/usr/lib/a b.so (deleted)");
        assert_eq!(
            parse_line("1000-2000 rw-p 00000000 00:00 0").unwrap().name,
            "[anon]"
        );
        assert_eq!(parse_line("nonsense"), None);
    }

    #[test]
    fn details_of_two_mappings() {
        let text = "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nKernelPageSize:        4 kB\n\
                    VmFlags: rd wr mr mw me ac dc\n\
                    200000-400000 rw-p 00000000 00:0f 5 /anon_hugepage (deleted)\n\
                    KernelPageSize:     2048 kB\nVmFlags: rd wr ht\n";
        assert_eq!(
            parse_details(text),
            vec![
                Details {
                    range: 0x1000..0x3000,
                    page: 4096,
                    dontfork: true
                },
                Details {
                    range: 0x200000..0x400000,
                    page: 2 << 20,
                    dontfork: false
                },
            ]
        );
    }

    #[test]
    fn this_process() {
        let local = 0u8;
        let addr = std::ptr::from_ref(&local).addr();
        assert!(all().iter().any(|m| m.range.contains(&addr)));
        assert!(count() > 3);
        assert_eq!(page_size_at(addr), Some(4096));
    }
}
