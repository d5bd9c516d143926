# SPDX-License-Identifier: GPL-2.0
"""What passed, and of what: a suite of the same parts need not run again.

The parts are found by content, so a build that gives the same kernel, or a comment
that only rustfmt sees, costs no hour in emulated machines. A suite is remembered when
nothing in it failed, for a week and on this machine only: races are found by chance,
and who wants the next throw says "scripts/check --fresh", or names the suite. When it
fails with the same parts what is remembered of it is forgotten.
"""

import collections
import glob
import hashlib
import json
import os
import platform
import time

import ktap
from check_common import CACHE, RESULTS, SCRIPTS, SELFTESTS

# How long something that passed is worth something, in seconds.
WORTH = 7 * 24 * 3600

# What a suite is made of, besides what all have in common.
Parts = collections.namedtuple("Parts", (
    "kernel",   # The flavour,
    "core",     # and the CQ code in ib_core
    "scripts",  # A function: which scripts in the selftests' folder run
    "without",  # Modules that it does not load
    "words"))   # Whatever else is told to the tests

# What a test in the VM, and the judgement of it, depends on in scripts/.
COMMON = ("check", "check_*.py", "inroot", "ktap.py", "lib.sh", "qmp.py", "vm", "vm-*")

# A suite that passed.
Passed = collections.namedtuple("Passed", ("results", "seconds", "attempts", "when", "output"))


def content(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def below(folder):
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(d for d in folders if d != "__pycache__")
        for name in sorted(files):
            yield os.path.join(where, name)


def runs(path):
    """Is it one of the scripts that the suites choose from?"""
    return path.endswith(".sh") and os.access(path, os.X_OK)


def files(parts):
    """All files that it is made of."""
    built = os.path.join(CACHE, "build", parts.kernel, "vm")
    yield os.path.join(built, "bzImage")
    for path in below(os.path.join(built, "modules-" + parts.core)):
        if os.path.basename(path) not in parts.without and not os.path.islink(path):
            yield path
    yield from sorted(glob.glob(os.path.join(CACHE, "build/tools/bin/*")))
    for pattern in COMMON:
        yield from sorted(glob.glob(os.path.join(SCRIPTS, pattern)))
    chosen = parts.scripts()
    for path in below(SELFTESTS):
        # Libraries, programs and lists are for all of them.
        if not runs(path) or os.path.basename(path) in chosen:
            yield path


def key(parts):
    """A name for all that it is made of; None when something is not there."""
    digest = hashlib.sha256()
    try:
        for path in files(parts):
            digest.update(f"{os.path.relpath(path, CACHE)} {content(path)}\n".encode())
    except OSError:
        return None
    root = os.path.basename(os.path.realpath(os.path.join(CACHE, "root")))
    machine = (root, platform.release(), platform.machine(), os.cpu_count(), os.environ.get("RUST_RDMA_ACCEL"),
               os.path.exists("/dev/kvm"))
    digest.update(repr((machine, sorted(parts.scripts()), parts.words)).encode())
    return digest.hexdigest()


class Memory:
    """What passed, in the cache."""

    def __init__(self, folder=os.path.join(CACHE, "passed"), output=RESULTS, now=time.time):
        self.folder, self.output, self.now = folder, output, now

    def path(self, name, of):
        return os.path.join(self.folder, f"{name}.{of[:16]}.json")

    def recall(self, name, of):
        """What it was when it passed, of exactly these parts; or None."""
        if not of:
            return None
        try:
            with open(self.path(name, of), encoding="utf-8") as f:
                found = json.load(f)
            if found["of"] != of or not 0 <= self.now() - found["when"] <= WORTH:
                return None
            return Passed([ktap.Result(*r) for r in found["results"]], found["seconds"], found["attempts"],
                          found["when"], found["output"])
        except (OSError, ValueError, KeyError, TypeError):
            # Half a file of a run that was ended, or one of an older version.
            return None

    def restore(self, name, passed):
        """Its output is where it was."""
        with open(os.path.join(self.output, name + ".ktap"), "w", encoding="utf-8") as f:
            f.write(passed.output)

    def remember(self, name, of, results, seconds, attempts):
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.output, name + ".ktap"), encoding="utf-8") as f:
            output = f.read()
        found = {"of": of, "when": self.now(), "seconds": seconds, "attempts": attempts,
                 "results": [[r.name, r.status, r.detail] for r in results], "output": output}
        path = self.path(name, of)
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(found, f)
        os.replace(path + ".new", path)
        self.prune()

    def forget(self, name, of):
        if of and os.path.exists(self.path(name, of)):
            os.unlink(self.path(name, of))

    def prune(self):
        for path in glob.glob(os.path.join(self.folder, "*.json*")):
            if self.now() - os.stat(path).st_mtime > WORTH:
                os.unlink(path)
