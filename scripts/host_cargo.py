# SPDX-License-Identifier: GPL-2.0
"""The cargo that runs our kernel-free Rust code in user space.

That of the build root has the crates that Debian packages, so that no network
is needed. What it builds is a copy of the sources without its lock file, which
has the versions of the registry. That of this machine takes the lock file, and
the network if there is something to fetch.
"""

import os
import re
import shutil
import subprocess

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(SCRIPTS)
RRXE = "tools/rdma/rrxe-host"
FORKGUARD = "tools/rdma/forkguard"
# All that the two are made of.
SOURCES = ("tools/rdma", "drivers/infiniband/sw/rrxe")
CACHE = os.environ.get("RUST_RDMA_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rust-rdma")
HOST = os.path.join(CACHE, "host")
CONFIG = """\
[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "/usr/share/cargo/registry"
"""


class Native:
    """The cargo of this machine."""

    def __init__(self):
        self.target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(HOST, "native")

    def missing(self):
        return "" if shutil.which("cargo") else "there is no cargo on this machine"

    def command(self, crate, env, arguments):
        env = dict(env, CARGO_TARGET_DIR=self.target)
        manifest = os.path.join(PROJECT, crate, "Cargo.toml")
        return (["env"] + [f"{key}={value}" for key, value in env.items()] + ["cargo", arguments[0], "--locked",
                "--manifest-path", manifest] + arguments[1:])


class Root:
    """The cargo of the build root, on a copy of the sources."""

    def __init__(self, name="tree", target="root"):
        self.name = name
        self.target = target
        self.tree = os.path.join(HOST, name)
        shutil.rmtree(self.tree, ignore_errors=True)
        for source in SOURCES:
            # With the times of the files, by which cargo knows what changed.
            shutil.copytree(os.path.join(PROJECT, source), os.path.join(self.tree, source),
                            ignore=shutil.ignore_patterns("target"))
        os.unlink(os.path.join(self.tree, RRXE, "Cargo.lock"))
        home = os.path.join(HOST, "home")
        os.makedirs(home, exist_ok=True)
        with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as f:
            f.write(CONFIG)

    def missing(self):
        root = os.path.join(CACHE, "root")
        if all(os.path.exists(os.path.join(root, p)) for p in ("usr/bin/cargo", "usr/share/cargo/registry")):
            return ""
        return f"the build root in {CACHE} has no cargo, run scripts/setup-root"

    def command(self, crate, env, arguments):
        env = dict(env, CARGO_HOME="/k/host/home", CARGO_TARGET_DIR=f"/k/host/{self.target}")
        return ([os.path.join(SCRIPTS, "inroot"), "-b", f"{HOST}:/k/host", "-w", f"/k/host/{self.name}/{crate}", "env"]
                + [f"{key}={value}" for key, value in env.items()]
                + ["cargo", arguments[0], "--offline"] + arguments[1:])


def cargo(where, crate, arguments, jobs, env, timeout=None):
    command = where.command(crate, env, arguments[:1] + ["-j", str(jobs)] + arguments[1:])
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          check=False, timeout=timeout)


def tests_of(out):
    """Pairs of name and verdict, as libtest prints them."""
    return re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", out, re.M)
