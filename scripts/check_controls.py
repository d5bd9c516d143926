# SPDX-License-Identifier: GPL-2.0
"""Controls: what has to fail, does."""

import os
import re

import ktap
from check_common import SELFTESTS, tail
from check_guest import RRXE, Guest, segments
from check_reuse import Parts
from ktap import FAIL, PASS, SKIP, Result

# What scripts/vm says with a report of the kernel.
VM_REPORT = 99


def control(name, number, what, command, wanted, *options, says="", env=None, nodes=1):
    guest = Guest(f"{name}.{number}", command, *options, env=env, nodes=nodes)
    if guest.status == wanted and re.search(says, guest.err + guest.out):
        return Result(what, PASS)
    return Result(what, FAIL, f"status {guest.status} instead of {wanted} (with {says!r})\n{tail(guest.err)}")


def crash(kind, then="sleep 1"):
    return ["sh", "-c", f"modprobe lkdtm && echo {kind} > /sys/kernel/debug/provoke-crash/DIRECT; {then}"]


# Whose checks have to see that data are wrong.
SPOILED = ("cq_traffic.sh", "cq_nvme.sh", "cq_nfs.sh", "fork_check.sh")


def controls_release(name, _):
    bare = ["--kernel", "release", "--cpus", "1", "--modules", "", "--timeout", "120"]
    results = [
        control(name, 1, "the command's status comes back", ["sh", "-c", "exit 42"], 42, *bare),
        control(name, 2, "the timeout ends the VM", ["sleep", "1000"], 124, *bare[:-1], "20"),
        control(name, 3, "a WARN fails the run", crash("WARNING"), VM_REPORT, *bare, says="WARNING: "),
        control(name, 4, "an oops fails the run", crash("BUG"), VM_REPORT, *bare, says="kernel BUG at"),
        control(name, 5, "an expected WARN does not", crash("WARNING"), 0, *bare,
                "--expect-report", "WARNING: .*lkdtm"),
        control(name, 6, "an expected report has to come", ["true"], 98, *bare, "--expect-report", "WARNING: "),
        control(name, 7, "a module that does not load fails the run", ["true"], 125, "--cpus", "1",
                "--modules", "no_such", "--timeout", "120", says="cannot load module no_such"),
        control(name, 8, "a WARN in another VM of several fails the run",
                ["sh", "-c", f"$CLUSTER_RSH node1 \"{crash('WARNING')[-1]}\""], VM_REPORT, *bare,
                says="(?m)^vm: node1: the kernel reported:\n(?s:.*)WARNING: ", nodes=2),
    ]
    # The checks of the traffic tests have to see data that are wrong, that of
    # registrations that nothing is said.
    for script in SPOILED:
        if not os.path.exists(os.path.join(SELFTESTS, script)):
            continue
        guest = Guest(f"{name}.{script[:-3]}", ["bash", "scripts/vm-selftests", script], "--kernel", "release",
                      "--cpus", "1", "--modules", "ib_core", "--timeout", "600",
                      env={"SELFTEST_BREAK": "1", "CQ_SCALE": "3"})
        out, status = segments(guest.out).get(script, ("", None))
        leaves = ktap.parse(out)
        bad = [r for r in leaves if r.status == FAIL]
        what = f"{script[:-3]} sees spoiled data and a complaint"
        if leaves and all(r.status == SKIP for r in leaves):
            results.append(Result(what, SKIP, leaves[0].detail))
        elif status and len(bad) >= 2 and any("no complaint" in r.name for r in bad) and guest.status == 1:
            # Data, and a complaint of the kernel that was made up.
            results.append(Result(what, PASS))
        else:
            results.append(Result(what, FAIL, f"status {status}\n{tail(out)}\n{tail(guest.err)}"))
    return results


def reported(name, number, command, wanted, *options, also=None):
    """One VM for several bugs: each has to be in a report of its own that fails the run.

    Each names the function with the bug, for anything else may be reported by chance.
    What is in "also" may be reported, and need not.
    """
    guest = Guest(f"{name}.{number}", command, *options)
    reports = [part for part in re.split(r"(?m)^vm: ", guest.err) if part.startswith("the kernel reported:\n")]

    def one(what, says):
        if guest.status == VM_REPORT and any(re.search(says, report) for report in reports):
            return Result(what, PASS)
        return Result(what, FAIL, f"status {guest.status} instead of {VM_REPORT}, or none of {len(reports)} reports "
                      f"has {says!r}\n{tail(guest.err)}")

    results = [one(what, says) for what, says in wanted.items()]
    # Who sees reports everywhere sees these, too.
    fit = [*wanted.values()] + ([also] if also else [])
    others = [report for report in reports if not any(re.search(says, report) for says in fit)]
    return results + [Result("a report of something else", FAIL, report) for report in others]


def controls_debug(name, _):
    # A boot takes a minute: all in one, which then must not end with the first report.
    # After a report of KASAN lockdep is off, so that one is last.
    command = crash("REFCOUNT_INC_ZERO", "modprobe ib_seed bug=leak,lockdep,atomic_sleep,objects,kasan")
    return reported(name, 1, command, {
        "kmemleak: a leak in Rust fails the run": r"(?s)unreferenced object .* seed_leak\+",
        "lockdep: two orders of locks in Rust fail the run":
            r"(?s)possible circular locking dependency .* seed_lockdep\+",
        "DEBUG_ATOMIC_SLEEP: a mutex under a spinlock in Rust fails the run":
            r"(?s)sleeping function called from invalid context .* seed_atomic_sleep\+",
        "a wrong reference count fails the run": r"(?s)refcount_t: .*lkdtm_REFCOUNT_INC_ZERO\+",
        "DEBUG_OBJECTS: freeing a timer that runs fails the run": r"(?s)ODEBUG: free active .* seed_objects\+",
        "KASAN: a use after free in Rust fails the run": r"BUG: KASAN: slab-use-after-free in seed_kasan\+",
    }, "--kernel", "debug", "--cpus", "1", "--mem", "1024", "--modules", "", "--timeout", "900",
                    "--append", "panic_on_warn=0")


def controls_arm64(name, _):
    """Its kernel words some reports in a way of its own."""
    bare = ["--kernel", "arm64", "--cpus", "1", "--modules", "", "--timeout", "300"]
    return [
        control(name, 1, "a WARN fails the run", crash("WARNING"), VM_REPORT, *bare, says="WARNING: "),
        control(name, 2, "a wrong pointer fails the run", crash("ACCESS_NULL"), VM_REPORT, *bare,
                says="Unable to handle kernel NULL pointer dereference"),
    ]


def controls_kcsan(name, _):
    """What has to be reported, and that the order of accesses is seen when it is there."""
    bare = ["--kernel", "kcsan", "--cpus", "2", "--modules", "", "--timeout", "600", "--known-reports"]

    # The boot need not be watched as closely.
    closely = "echo 100 > /sys/module/kcsan/parameters/skip_watch; "
    # A race is seen by chance, and the later the busier this machine is.
    until = ("for bug in race order; do for n in $(seq 12); do modprobe ib_seed bug=$bug && rmmod ib_seed || exit; "
             "dmesg | grep -q \"data-race in seed_${bug}_read .ib_seed. / seed_${bug}_write\" && break; done; done")

    results = reported(name, 1, ["sh", "-c", closely + until], {
        "KCSAN: a data race in Rust fails the run":
            r"(?m)KCSAN: data-race in seed_race_read \[ib_seed\] / seed_race_write \[ib_seed\]$",
        "KCSAN: a release that is missing in Rust fails the run":
            r"(?s)KCSAN: data-race in seed_order_read \[ib_seed\] / seed_order_write \[ib_seed\]\n.*\(reordered\)",
        # The same of one side only, or with the function that an interrupt was in.
    }, *bare, also=r"(?s)KCSAN: data-race in .* seed_thread\+")
    return results + [control(name, 2, "KCSAN: the same with a release does not",
                              ["sh", "-c", closely + "modprobe ib_seed bug=ordered"], 0, *bare)]


controls_release.made_of = Parts("release", "rust", lambda: SPOILED, RRXE, ())
controls_debug.made_of = Parts("debug", "rust", lambda: (), RRXE, ())
