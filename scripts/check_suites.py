# SPDX-License-Identifier: GPL-2.0
"""The suites: what they run, on what, and how they share the machine."""

import glob
import os

from check_common import CACHE, SELFTESTS
from check_controls import controls_arm64, controls_debug, controls_kcsan, controls_release
from check_guest import kunit, selftests
from check_style import ktap_tool, lint, style


def scripts():
    found = sorted(os.path.basename(p) for kind in ("cq", "fork")
                   for p in glob.glob(os.path.join(SELFTESTS, kind + "_*.sh")) if os.access(p, os.X_OK))
    # These are no tests: one is for people, two measure.
    found = [s for s in found if s not in ("cq_demo.sh", "cq_bench.sh", "fork_bench.sh")]
    # It has suites of its own.
    found = [s for s in found if s not in EVENTS]
    # NVMe last: lockdep may be off after it, see known_reports.
    return sorted(found, key=lambda s: s == "cq_nvme.sh")


# What every cell of the matrix runs; --full takes all scripts instead, which
# with the debug kernel in an emulated machine takes an hour.
SHORT = ("cq_traffic.sh", "cq_nvme.sh", "cq_nfs.sh")
FULL = [False]


def short(*more):
    return lambda: [s for s in scripts() if FULL[0] or s in SHORT + more]


# Events that nobody asked for, whatever the device is.
EVENTS = ("cq_storm.sh",)


# What other devices and networks may do to the RoCE driver in Rust.
FAULTS = ("rrxe_interop.sh", "rrxe_netem.sh")


# Suites that others wrote: of rdma-core, of the kernel, tools, dissectors.
TOOLS = ("rrxe_kernel.sh", "rrxe_tools.sh", "rrxe_dissect.sh")
PYVERBS = ("rrxe_pyverbs.sh",)
MPI = ("rrxe_mpi.sh", "rrxe_ucx.sh")
# In several VMs, of which each has one CPU.
CLUSTER = ("rrxe_cluster.sh",)
# Of the kernel's source, which the VM does not see otherwise.
KERNEL_SELFTESTS = os.path.join(CACHE, "src/tools/testing/selftests")


def only(*chosen):
    return lambda: list(chosen)


# Where CPUs, or queues that come and go, may get into each other's way.
RACES = ("cq_teardown.sh", "cq_traffic.sh", "cq_user.sh", "cq_nvme.sh")
RACES_RRXE = ("rrxe_cq.sh", "rrxe_direct.sh", "rrxe_storm.sh", "rrxe_fuzz.sh", "rrxe_bugs.sh",
              "rrxe_mem.sh", "cq_traffic.sh", "cq_nvme.sh")
RACES_KCSAN = ("rrxe_cq.sh", "rrxe_direct.sh", "rrxe_storm.sh", "rrxe_bugs.sh", "rrxe_mem.sh")

# What there is user space for on arm64.
ARM64 = ("rrxe_cq.sh", "rrxe_storm.sh", "cq_traffic.sh")


def others(*without):
    """All scripts but those about forks, which other suites run, and these."""
    return lambda: [s for s in scripts() if FULL[0] or s not in without and not s.startswith("fork_")]


def forks():
    return [s for s in scripts() if s.startswith("fork_")]


def rrxe(*chosen):
    """The other tests of the RoCE driver in Rust, and the short ones on it; or those that are named."""
    def these():
        found = sorted(os.path.basename(p) for p in glob.glob(os.path.join(SELFTESTS, "rrxe_*.sh"))
                       if os.access(p, os.X_OK) and not p.endswith(("lib.sh", "_bench.sh")))
        if chosen and not FULL[0]:
            return [s for s in found + scripts() if s in chosen]
        return ([s for s in found if s not in FAULTS + RACES_RRXE + TOOLS + PYVERBS + MPI + CLUSTER] +
                (scripts() if FULL[0] else short()()))
    return these


def tools(kernel, dev):
    """What others wrote; the kernel's own selftests are in its source."""
    return selftests(kernel, "rust", dev, only(*TOOLS), {"KERNEL_SELFTESTS": "/share"}, KERNEL_SELFTESTS)


# How suites share the machine. KUnit is the only VM: some of its tests are about
# what happens in which order, and give up when a CPU stands still for too long.
# The others run some at a time, since VMs wait a lot. An emulated machine with
# two CPUs does not get far while another one has a CPU of the host, for its CPUs
# wait for each other: those for which concurrency is not the point have one, and
# the others count twice. (siw has two because it starves with one: its thread that
# sends, user space and the network are never done.) What needs no VM runs one
# after the other beside all that. First what wants to be alone, for which the
# others would have to come to their end, then what takes longest.
ALONE, THREE, PAIR, SINGLE, LIGHT = "alone", 3, 2, 1, 0

# Shorter storms, and less nonsense, than the tests by themselves have.
STORM = {"STORM_SECONDS": "4", "RESIZES": "20", "FUZZ_RINGS": "10000", "FUZZ_PACKETS": "50000", "FUZZ_CALLS": "5000",
         "TEARDOWNS": "5"}

# name: (function, what it needs, what it is, how it shares the machine).
SUITES = {
    "style": (style, ("source",), "rustfmt, checkpatch --strict, shellcheck, tests of the scripts", LIGHT),
    "unsafe": (ktap_tool(["check-unsafe"]), (), "the audit of the unsafe code", LIGHT),
    "litmus": (ktap_tool(["check-litmus"]), ("source",), "the orderings, on the kernel's memory model", LIGHT),
    "clippy": (lint("clippy"), ("release",), "our Rust code with CLIPPY=1", LIGHT),
    "rustdoc": (lint("rustdoc"), ("release",), "the documentation of the kernel crate", LIGHT),
    "types": (ktap_tool(["check-types", "release"]), ("release",), "what the types forbid does not compile", LIGHT),
    "kunit-release": (kunit("release", "rust"), ("release",), "KUnit, release kernel", ALONE),
    "kunit-c": (kunit("release", "c"), ("release",), "KUnit with the C cq.c, expected failures", ALONE),
    "kunit-debug": (kunit("debug", "rust"), ("debug",), "KUnit and doctests, debug kernel", ALONE),
    "traffic-debug-rxe": (selftests("debug", "rust", "rxe", short()), ("debug",), "kselftests, debug kernel, rxe",
                          SINGLE),
    "samples-debug-rxe": (selftests("debug", "rust", "rxe", only("cq_rust_sample.sh", "cq_fault_injection.sh")),
                          ("debug",), "the sample, and allocations that fail, debug kernel, rxe", SINGLE),
    "races-rrxe": (selftests("release", "rust", "rrxe", only(*RACES_RRXE), STORM),
                   ("release",), "two CPUs, Rust CQs, rrxe, a hostile device, nonsense", PAIR),
    "traffic-debug-siw": (selftests("debug", "rust", "siw", short()), ("debug",), "kselftests, debug kernel, siw",
                          PAIR),
    "traffic-rust-rrxe": (selftests("release", "rust", "rrxe", rrxe()), ("release",), "kselftests, Rust CQs, rrxe",
                          SINGLE),
    "faults-rrxe": (selftests("release", "rust", "rrxe", only(*FAULTS)), ("release",),
                    "rrxe beside rdma_rxe, and on bad networks", SINGLE),
    "traffic-rust-siw": (selftests("release", "rust", "siw", others()), ("release",), "kselftests, Rust CQs, siw", PAIR),
    "traffic-rust-rxe": (selftests("release", "rust", "rxe", others("cq_teardown.sh", "cq_user.sh")), ("release",),
                         "kselftests, Rust CQs, rxe", SINGLE),
    "controls-debug": (controls_debug, ("debug",), "KASAN, kmemleak, lockdep and others see what they have to", SINGLE),
    "forks-rxe": (selftests("release", "rust", "rxe", forks), ("release",), "forks, rxe", SINGLE),
    "races-rxe": (selftests("release", "rust", "rxe", only(*RACES)), ("release",), "two CPUs, Rust CQs, rxe", PAIR),
    "storm-rxe": (selftests("release", "rust", "rxe", only(*EVENTS)), ("release",),
                  "two CPUs, Rust CQs, rxe, events that nobody asked for", PAIR),
    "storm-siw": (selftests("release", "rust", "siw", only(*EVENTS)), ("release",), "the same, siw", PAIR),
    "controls": (controls_release, ("release",), "what has to fail, does", SINGLE),
    "forks-siw": (selftests("release", "rust", "siw", forks), ("release",), "forks, siw", SINGLE),
    "traffic-c-siw": (selftests("release", "c", "siw", short()), ("release",), "kselftests, C CQs, siw", PAIR),
    "traffic-c-rxe": (selftests("release", "c", "rxe", short()), ("release",), "kselftests, C CQs, rxe", SINGLE),
    "forks-rrxe": (selftests("release", "rust", "rrxe", only("fork_copy.sh", "fork_child.sh")), ("release",),
                   "forks, rrxe", SINGLE),
    "traffic-debug-c-rxe": (selftests("debug", "c", "rxe", short()), ("debug",),
                            "kselftests, debug kernel, C CQs, rxe (only by name)", SINGLE),
    "races-debug-rxe": (selftests("debug", "rust", "rxe", only(*RACES)), ("debug",),
                        "two CPUs, debug kernel, rxe (only by name)", PAIR),
    "traffic-debug-c-siw": (selftests("debug", "c", "siw", short()), ("debug",),
                            "kselftests, debug kernel, C CQs, siw (only by name)", PAIR),
    "storm-debug-rxe": (selftests("debug", "rust", "rxe", only(*EVENTS)), ("debug",),
                        "two CPUs, debug kernel, rxe, events that nobody asked for (only by name)", PAIR),
    "storm-debug-siw": (selftests("debug", "rust", "siw", only(*EVENTS)), ("debug",), "the same, siw (only by name)",
                        PAIR),
    "traffic-debug-rrxe": (selftests("debug", "rust", "rrxe", rrxe("rrxe_basic.sh", "cq_nvme.sh")), ("debug",),
                           "kselftests, debug kernel, rrxe (only by name)", SINGLE),
    "races-debug-rrxe": (selftests("debug", "rust", "rrxe", only(*RACES_RRXE), STORM), ("debug",),
                         "two CPUs, debug kernel, rrxe (only by name)", PAIR),
    "faults-debug-rrxe": (selftests("debug", "rust", "rrxe", only(*FAULTS)), ("debug",),
                          "bad networks, debug kernel (only by name)", SINGLE),
    "forks-debug-rxe": (selftests("debug", "rust", "rxe", forks), ("debug",),
                        "forks, debug kernel, rxe (only by name)", SINGLE),
    "forks-debug-rrxe": (selftests("debug", "rust", "rrxe", forks), ("debug",),
                         "forks, debug kernel, rrxe (only by name)", SINGLE),
    "kunit-kcsan": (kunit("kcsan", "rust"), ("kcsan",), "KUnit, KCSAN kernel (only by name)", ALONE),
    "controls-kcsan": (controls_kcsan, ("kcsan",), "KCSAN sees races in Rust (only by name)", PAIR),
    "races-kcsan-rrxe": (selftests("kcsan", "rust", "rrxe", only(*RACES_KCSAN), STORM), ("kcsan",),
                         "two CPUs, KCSAN kernel, rrxe (only by name)", PAIR),
    "traffic-kcsan-rrxe": (selftests("kcsan", "rust", "rrxe", rrxe("rrxe_basic.sh", "cq_traffic.sh", "cq_nvme.sh")),
                           ("kcsan",), "kselftests, KCSAN kernel, rrxe (only by name)", PAIR),
    "tools-rrxe": (tools("release", "rrxe"), ("release",),
                   "tools, kselftests and dissectors of others, rrxe (only by name)", SINGLE),
    "tools-rxe": (tools("release", "rxe"), ("release",), "the same for rxe (only by name)", SINGLE),
    "tools-debug-rrxe": (tools("debug", "rrxe"), ("debug",), "the same, debug kernel, rrxe (only by name)", SINGLE),
    "pyverbs-rrxe": (selftests("release", "rust", "rrxe", only(*PYVERBS)), ("release",),
                     "the tests of rdma-core, rrxe against rxe (only by name)", SINGLE),
    "pyverbs-rxe": (selftests("release", "rust", "rxe", only(*PYVERBS)), ("release",),
                    "the tests of rdma-core, rxe (only by name)", SINGLE),
    "pyverbs-debug-rrxe": (selftests("debug", "rust", "rrxe", only(*PYVERBS)), ("debug",),
                           "the tests of rdma-core, debug kernel, rrxe (only by name)", SINGLE),
    "mpi-rrxe": (selftests("release", "rust", "rrxe", only(*MPI)), ("release", "mpi"),
                 "Open MPI and UCX, rrxe (only by name)", PAIR),
    "mpi-debug-rrxe": (selftests("debug", "rust", "rrxe", only(*MPI)), ("debug", "mpi"),
                       "Open MPI and UCX, debug kernel, rrxe (only by name)", PAIR),
    "mpi-cluster-rrxe": (selftests("release", "rust", "rrxe", only(*CLUSTER), nodes=3), ("release", "mpi"),
                         "RC and Open MPI between three VMs, rrxe (only by name)", THREE),
    "mpi-cluster-rxe": (selftests("release", "rust", "rxe", only(*CLUSTER), nodes=3), ("release", "mpi"),
                        "the same for rxe (only by name)", THREE),
    "arm64-kunit": (kunit("arm64", "rust", ("ib_cq_kunit", "rrxe")), ("arm64",),
                    "KUnit and doctests on an emulated arm64 CPU (only by name)", ALONE),
    "arm64-rrxe": (selftests("arm64", "rust", "rrxe", only(*ARM64), STORM), ("arm64",),
                   "two emulated arm64 CPUs, rrxe, a hostile device (only by name)", PAIR),
    "arm64-controls": (controls_arm64, ("arm64",), "what has to fail on arm64, does (only by name)", SINGLE),
    "asm": (ktap_tool(["check-asm"]), ("source",), "the orderings in machine code (only by name)", LIGHT),
    "drivers": (ktap_tool(["check-drivers"]), ("source",),
                "all drivers, converted to ib_cq_completion() (only by name)", LIGHT),
    "asm-mutants": (ktap_tool(["check-asm", "--mutants"]), ("source",),
                    "the orderings weakened, for the check of machine code (only by name)", LIGHT),
    "patches": (ktap_tool(["patches", "--check"]), ("source",), "the mail series (only by name)",
                LIGHT),
    "patches-build": (ktap_tool(["patches", "--build"]), ("source",), "each step of the series compiles (only by name)",
                      LIGHT),
    "host": (ktap_tool(["check-host"]), ("source",),
             "kernel-free modules and forkguard in user space (only by name)", LIGHT),
    "mutants": (ktap_tool(["check-mutants"]), ("source",),
                "rrxe's algorithms, spoiled, for the model checker (only by name)", LIGHT),
}
# Not part of "all": they build more than there is time for, or need more than
# the build root has.
BY_NAME = tuple(name for name, suite in SUITES.items() if suite[2].endswith("(only by name)"))
