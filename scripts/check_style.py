# SPDX-License-Identifier: GPL-2.0
"""Suites that need no VM: style, lint, and scripts of ours that print KTAP."""

import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys

import ktap
from check_common import CACHE, PROJECT, RESULTS, SCRIPTS, inroot, run, tail
from ktap import FAIL, PASS, SKIP, Result


def our_files():
    out = subprocess.run(["git", "-c", "safe.directory=*", "-C", PROJECT, "ls-files", "--cached", "--others",
                          "--exclude-standard"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [f for f in out.split("\n") if f and os.path.isfile(os.path.join(PROJECT, f))]


def first_line(path):
    with open(os.path.join(PROJECT, path), encoding="utf-8", errors="replace") as f:
        return f.readline()


def tool(name, result):
    """A result from a tool's exit status."""
    bad = result.returncode != 0
    return Result(name, FAIL if bad else PASS, tail(result.stdout, 60) if bad else "")


# What scripts/integrate copies.
OVERLAY = ("drivers/", "rust/", "samples/", "include/", "Documentation/", "tools/", "scripts/coccinelle/")


def checkpatch_stamp(path):
    """Where it is noted that a file of this content was passed by this checkpatch."""
    digest = hashlib.sha256()
    # What is looked at is the copy in the kernel tree.
    file = os.path.join(CACHE, "src", path) if path.startswith(OVERLAY) else os.path.join(PROJECT, path)
    for part in (os.path.join(CACHE, "src", "scripts", "checkpatch.pl"), file):
        with open(part, "rb") as f:
            digest.update(hashlib.sha256(f.read()).digest())
    # What is right for a file depends on where it is.
    digest.update(path.encode())
    return os.path.join(CACHE, "checkpatch", digest.hexdigest())


def checkpatch(files):
    """Each file as a whole, as it lies in the kernel tree; but for those that were passed before."""
    stamps = {f: checkpatch_stamp(f) for f in files}
    files = [f for f in files if not os.path.exists(stamps[f])]
    # That a script says its own name is nothing that the kernel's rule about
    # file names is meant for.
    command = [os.path.join(SCRIPTS, "inroot"), "-w", "/k/src", "scripts/checkpatch.pl", "--root=/k/src", "--strict",
               "--terse", "--no-summary", "--quiet", "--show-types", "--ignore", "EMBEDDED_FILENAME", "--file"]
    jobs = os.cpu_count() or 1
    os.makedirs(os.path.join(CACHE, "checkpatch"), exist_ok=True)

    def some(n):
        part = files[n::jobs * 4]
        if not part:
            return ""
        done = run(command + [f if f.startswith(OVERLAY) else "/k/tree/" + f for f in part])
        if done.returncode or done.stdout.strip():
            return done.stdout or f"checkpatch.pl: status {done.returncode}\n"
        for f in part:
            with open(stamps[f], "w", encoding="ascii"):
                pass
        return ""

    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        out = "".join(pool.map(some, range(jobs * 4)))
    out = out.replace("/k/tree/", "")
    return Result("checkpatch --strict", FAIL if out.strip() else PASS, tail(out, 60))


def style(*_):
    files = our_files()
    results = []
    rust = [f for f in files if f.endswith(".rs")]
    results.append(tool("rustfmt", inroot("rustfmt", "--check", "--color", "never", "--config-path", "/k/src/.rustfmt.toml", *rust))
                   if rust else Result("rustfmt", SKIP, "no Rust files"))
    results.append(checkpatch([f for f in files if not f.startswith("LICENSES/")]))
    results.append(tool("codespell", inroot("codespell", "--ignore-words-list=nin,ans,hist,sme", *[
        f for f in files if not f.startswith("LICENSES/")])))
    shell = [f for f in files if f.endswith(".sh") or re.match(r"#!.*\b(?:ba|busybox )?sh\b", first_line(f))]
    results.append(tool("shellcheck", inroot("shellcheck", "-x", "-P", "SCRIPTDIR", *shell)))
    results.append(tool("unit tests of the scripts", run(
        [sys.executable, "-B", "-m", "unittest", "discover", "-s", os.path.join(SCRIPTS, "tests")])))
    missing = [f for f in files if not f.startswith("LICENSES/") and not any(
        "SPDX-License-Identifier:" in line for line in head(f))]
    results.append(Result("SPDX lines", FAIL if missing else PASS, "no SPDX line: " + ", ".join(missing)))
    return results


def head(path):
    with open(os.path.join(PROJECT, path), encoding="utf-8", errors="replace") as f:
        return [f.readline() for _ in range(4)]


def lint(what):
    def suite(*_):
        return [tool(f"{what} without a message about our files", run([os.path.join(SCRIPTS, "lint"), what]))]
    return suite


def ktap_tool(command):
    """A script of ours on this machine that prints KTAP."""
    def suite(name, _):
        done = subprocess.run([os.path.join(SCRIPTS, command[0])] + command[1:], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        with open(os.path.join(RESULTS, name + ".ktap"), "w", encoding="utf-8") as f:
            f.write(done.stdout)
        results = ktap.parse(done.stdout)
        if done.returncode and not any(r.status == FAIL for r in results):
            results.append(Result("(exit status)", FAIL, f"status {done.returncode}\n{tail(done.stderr)}"))
        return results
    return suite
