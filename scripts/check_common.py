# SPDX-License-Identifier: GPL-2.0
"""What the parts of scripts/check share: where things are, and how to run them."""

import os
import subprocess
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(SCRIPTS)
RESULTS = os.path.join(PROJECT, "results")
CACHE = os.environ.get("RUST_RDMA_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rust-rdma")
SELFTESTS = os.path.join(PROJECT, "tools/testing/selftests/rdma")

START = time.monotonic()
os.environ.setdefault("RUST_RDMA_START", str(int(time.time())))
PRINT = threading.Lock()


def clock(seconds):
    return "%d:%02d" % divmod(int(seconds), 60)


def say(text):
    with PRINT:
        print(f"[{clock(time.time() - int(os.environ['RUST_RDMA_START'])):>6}] {text}", flush=True)


def run(command, **kwargs):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **kwargs)


def inroot(*command):
    return run([os.path.join(SCRIPTS, "inroot"), "-w", "/k/tree"] + list(command))


def tail(text, lines=30):
    return "\n".join(text.rstrip().split("\n")[-lines:])
