// SPDX-License-Identifier: GPL-2.0

//! Programs that do things wrong, with and without the library, on a libibverbs that has no device.

mod json;

use json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

struct Built {
    dir: PathBuf,
    library: PathBuf,
}

fn cc(arguments: &[&str]) {
    let done = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The library lies beside the command or where the dependencies of the tests are.
fn library() -> PathBuf {
    let dir = Path::new(env!("CARGO_BIN_EXE_forkguard")).parent().unwrap();
    let newest = [
        dir.join("libforkguard.so"),
        dir.join("deps/libforkguard.so"),
    ]
    .into_iter()
    .filter(|path| path.exists())
    .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    newest.expect("the library was built with the tests")
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake");
        fs::create_dir_all(&dir).unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let path = |p: PathBuf| p.to_str().unwrap().to_owned();
        let fake = path(dir.join("libibverbs.so.1"));
        cc(&[
            "-shared",
            "-fPIC",
            "-Wl,-soname,libibverbs.so.1",
            "-o",
            &fake,
            &path(here.join("fake_verbs.c")),
        ]);
        let old = dir.join("old");
        fs::create_dir_all(&old).unwrap();
        cc(&[
            "-DOLD",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libibverbs.so.1",
            "-o",
            &path(old.join("libibverbs.so.1")),
            &path(here.join("fake_verbs.c")),
        ]);
        let victim = path(dir.join("victim"));
        // Not DT_RPATH, so that the environment can choose the old one.
        let rpath = format!("-Wl,--enable-new-dtags,-rpath,{}", dir.display());
        // With its symbols for the dynamic linker, as the names in backtraces come from there.
        cc(&[
            "-rdynamic",
            "-pthread",
            &rpath,
            "-o",
            &victim,
            &path(here.join("victim.c")),
            &fake,
        ]);
        Built {
            dir,
            library: library(),
        }
    })
}

struct Run {
    status: i32,
    stderr: String,
    json: Vec<Value>,
}

impl Run {
    fn kinds(&self) -> Vec<&str> {
        self.json
            .iter()
            .flat_map(|j| j["findings"].as_array().unwrap())
            .map(|f| f["kind"].as_str().unwrap())
            .collect()
    }

    fn only(&self) -> &Value {
        assert_eq!(self.json.len(), 1, "{}", self.stderr);
        &self.json[0]
    }
}

fn finish(done: Output, json: &Path) -> Run {
    let text = fs::read_to_string(json).unwrap_or_default();
    let _ = fs::remove_file(json);
    Run {
        status: done.status.code().unwrap_or(-1),
        stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
        json: text.lines().map(json::parse).collect(),
    }
}

fn bare(what: &str) -> i32 {
    Command::new(built().dir.join("victim"))
        .arg(what)
        .status()
        .unwrap()
        .code()
        .unwrap_or(-1)
}

fn guarded(policy: &str, what: &str, env: &[(&str, &str)]) -> Run {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let built = built();
    let json = built.dir.join(format!(
        "{what}.{}.json",
        NUMBER.fetch_add(1, Ordering::Relaxed)
    ));
    let _ = fs::remove_file(&json);
    let done = Command::new(env!("CARGO_BIN_EXE_forkguard"))
        .args(["--policy", policy, "--json"])
        .arg(&json)
        .arg("--library")
        .arg(&built.library)
        .arg(built.dir.join("victim"))
        .arg(what)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    finish(done, &json)
}

#[test]
fn child_dies_without_guard() {
    assert_eq!(bare("field"), 10);
    assert_eq!(bare("direct"), 10);
}

#[test]
fn field_of_a_small_allocation_is_reported() {
    let run = guarded("warn", "field", &[]);
    assert_eq!(run.status, 10, "{}", run.stderr);
    assert_eq!(run.kinds(), ["registration"]);
    let finding = &run.only()["findings"][0];
    assert_eq!(finding["rejected"], false);
    assert_eq!(finding["stake"].as_array().unwrap().len(), 2);
    let there = format!("{:?}", finding["neighbours"]);
    assert!(
        there.contains("state of a malloc arena") && there.contains("malloc chunk"),
        "{there}"
    );
    let by = finding["backtrace"].as_array().unwrap();
    assert!(by[0].as_str().unwrap().contains("register_field"), "{by:?}");
    assert_eq!(run.only()["in_force"], true);
    assert!(
        run.stderr
            .contains("registration takes other memory from forked children\n"),
        "{}",
        run.stderr
    );
}

#[test]
fn field_of_a_small_allocation_is_refused() {
    let run = guarded("reject", "field", &[]);
    assert_eq!(run.status, 11, "{}", run.stderr);
    assert_eq!(run.only()["refused"], 1);
    assert_eq!(run.only()["registrations"], 0);
    assert_eq!(run.only()["left_over"], Value::Array(vec![]));
}

#[test]
fn piece_of_a_stack_is_called_so() {
    let run = guarded("warn", "stack", &[]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let finding = &run.only()["findings"][0];
    assert_eq!(finding["mapping"], "[stack]");
    assert_eq!(finding["neighbours"][0], "a stack ([stack])");
    assert_eq!(guarded("reject", "stack", &[]).status, 11);
}

#[test]
fn what_the_library_does_counts_and_not_what_it_says() {
    for says in ["0", "2"] {
        let run = guarded("reject", "field", &[("FAKE_SAYS", says)]);
        assert_eq!(run.status, 11, "{}", run.stderr);
    }
    // One that cannot be tried out: then what it says, and what it was told.
    let old = built().dir.join("old");
    let env = [("LD_LIBRARY_PATH", old.to_str().unwrap())];
    let run = guarded("reject", "field", &env);
    assert_eq!(run.status, 11, "{}", run.stderr);
    let run = guarded("reject", "field", &[env[0], ("FAKE_UNNEEDED", "1")]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let run = guarded("reject", "field", &[env[0], ("FAKE_SAYS", "0")]);
    assert_eq!(run.status, 11, "{}", run.stderr);
}

#[test]
fn whole_pages_are_fine() {
    let run = guarded("reject", "aligned", &[]);
    assert_eq!((run.status, run.kinds().len()), (0, 0), "{}", run.stderr);
    assert_eq!(run.only()["registrations"], 1);
    assert_eq!(run.only()["still_registered"], 0);
}

#[test]
fn nothing_to_say_where_the_kernel_copies() {
    let run = guarded("reject", "field", &[("FAKE_UNNEEDED", "1")]);
    assert_eq!((run.status, run.kinds().len()), (0, 0), "{}", run.stderr);
    assert_eq!(run.only()["in_force"], false);
}

#[test]
fn pieces_of_a_page_count_together() {
    let run = guarded("warn", "together", &[]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    // The first takes the other half, the second one takes nothing.
    assert_eq!(run.kinds(), ["registration"]);
    assert_eq!(run.only()["registrations"], 2);
}

#[test]
fn page_given_back_too_early() {
    let run = guarded("warn", "twice", &[]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.kinds(), ["early-dofork"]);
    assert_eq!(run.only()["findings"][0]["call"], "ibv_dereg_mr");
}

#[test]
fn madvise_of_the_program_itself() {
    let run = guarded("warn", "direct", &[]);
    assert_eq!(run.status, 10, "{}", run.stderr);
    assert_eq!(run.kinds(), ["madvise", "registration"]);
    let run = guarded("reject", "direct", &[]);
    assert_eq!(run.status, 11, "{}", run.stderr);
    assert_eq!(run.only()["left_over"], Value::Array(vec![]));
}

#[test]
fn what_is_never_given_back() {
    let run = guarded("warn", "left", &[]);
    assert_eq!(
        run.only()["left_over"].as_array().unwrap().len(),
        1,
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("not given back to children"),
        "{}",
        run.stderr
    );
    // What is not there any more needs not be given back.
    let run = guarded("warn", "unmapped", &[]);
    assert_eq!(
        run.only()["left_over"],
        Value::Array(vec![]),
        "{}",
        run.stderr
    );
}

#[test]
fn no_mappings_left() {
    let limit: usize = fs::read_to_string("/proc/sys/vm/max_map_count")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    if limit > 70000 {
        // The program does not try that many.
        return;
    }
    let run = guarded("warn", "exhaust", &[]);
    assert_eq!(run.status, 20, "{}", run.stderr);
    assert_eq!(run.kinds(), ["maps-exhausted"]);
    assert!(
        run.only()["maps_end"].as_number().unwrap()
            > run.only()["maps_start"].as_number().unwrap() + 10000.0
    );
}

#[test]
fn others_are_left_alone() {
    let done = Command::new(env!("CARGO_BIN_EXE_forkguard"))
        .arg("--library")
        .arg(&built().library)
        .args(["sh", "-c", "echo out; exit 3"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(3));
    assert_eq!(
        (done.stdout.as_slice(), done.stderr.as_slice()),
        (&b"out\n"[..], &b""[..])
    );
}
