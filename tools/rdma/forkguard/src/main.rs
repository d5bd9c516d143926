// SPDX-License-Identifier: GPL-2.0

//! Runs a program with the library of the same name preloaded.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: forkguard [OPTION]... [--] PROGRAM [ARGUMENT]...

Runs PROGRAM and tells which of its RDMA registrations take other memory from
forked children.

  --policy warn     only tell (default)
  --policy reject   make such registrations fail with EINVAL as well
  --log FILE        append what is found to FILE, not to standard error
  --json FILE       at the end append one line of JSON for each process to FILE
  --library FILE    the library, if it is not beside this program
";

const LIBRARY: &str = "libforkguard.so";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    policy: Option<OsString>,
    log: Option<OsString>,
    json: Option<OsString>,
    library: Option<PathBuf>,
    program: Vec<OsString>,
}

/// `Ok(None)` is a call for help.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                (name.to_owned(), Some(OsString::from(value)))
            }
            _ => (text, None),
        };
        let mut value = || {
            attached
                .clone()
                .or_else(|| arguments.next())
                .ok_or(format!("{name} needs a value"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--policy" => {
                let policy = value()?;
                if policy != "warn" && policy != "reject" {
                    return Err(format!("no policy {}", policy.to_string_lossy()));
                }
                options.policy = Some(policy);
            }
            "--log" => options.log = Some(value()?),
            "--json" => options.json = Some(value()?),
            "--library" => options.library = Some(value()?.into()),
            "--" => {
                options.program.extend(arguments);
                break;
            }
            _ if name.starts_with('-') => return Err(format!("no option {name}")),
            _ => {
                options.program.push(argument);
                options.program.extend(arguments);
                break;
            }
        }
    }
    if options.program.is_empty() {
        return Err("no program is given".to_owned());
    }
    Ok(Some(options))
}

/// The library beside this program, or where a distribution puts it.
fn library() -> Option<PathBuf> {
    let here = env::current_exe().ok()?;
    let dir = here.parent()?;
    [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)]
        .into_iter()
        .find(|path| path.exists())
}

/// Ours first: it has to be in front of what it watches.
fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

fn main() -> ExitCode {
    let options = match parse(env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprint!("forkguard: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let found = options
        .library
        .clone()
        .or_else(library)
        .and_then(|path| path.canonicalize().ok());
    let Some(library) = found else {
        eprintln!("forkguard: there is no {LIBRARY}; give it with --library");
        return ExitCode::from(2);
    };
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]);
    command.env(
        "LD_PRELOAD",
        preload(&library, env::var_os("LD_PRELOAD").as_deref()),
    );
    for (name, value) in [
        ("FORKGUARD_POLICY", &options.policy),
        ("FORKGUARD_LOG", &options.log),
        ("FORKGUARD_JSON", &options.json),
    ] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let error = command.exec();
    eprintln!(
        "forkguard: {}: {error}",
        options.program[0].to_string_lossy()
    );
    ExitCode::from(127)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Option<Options>, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn options_end_at_the_program() {
        let options = parsed(&["--policy=reject", "--json", "a", "prog", "--policy", "x"])
            .unwrap()
            .unwrap();
        assert_eq!(options.policy, Some("reject".into()));
        assert_eq!(options.json, Some("a".into()));
        assert_eq!(options.program, ["prog", "--policy", "x"]);
        assert_eq!(parsed(&["--", "-x"]).unwrap().unwrap().program, ["-x"]);
    }

    #[test]
    fn wrong_options() {
        assert_eq!(parsed(&["-h", "x"]), Ok(None));
        for bad in [
            &[][..],
            &["--policy", "off", "x"],
            &["--json"],
            &["--what", "x"],
            &["--policy", "warn"],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn first_in_the_list() {
        assert_eq!(preload(Path::new("/a.so"), None), "/a.so");
        assert_eq!(
            preload(Path::new("/a.so"), Some(OsStr::new("/b.so"))),
            "/a.so:/b.so"
        );
    }
}
