# SPDX-License-Identifier: GPL-2.0
"""Suites in a VM: KUnit and kselftests."""

import fnmatch
import json
import os
import re
import subprocess

import ktap
from check_common import CACHE, RESULTS, SCRIPTS, SELFTESTS, tail
from check_reuse import Parts
from ktap import FAIL, PASS, SKIP, XFAIL, Result

class Guest:
    """One run of scripts/vm and what came out."""

    running = set()
    still = {}  # {run: what scripts/vm said of a boot that it made once more}

    def __init__(self, name, command, *options, env=None, nodes=1):
        self.console = os.path.join(RESULTS, name + ".console")
        action = ["run"] if nodes == 1 else ["cluster", str(nodes)]
        args = [os.path.join(SCRIPTS, "vm"), *action, "--console", self.console] + list(options)
        for key, value in (env or {}).items():
            args += ["--env", f"{key}={value}"]
        # Into a file, so that it can be watched.
        output = os.path.join(RESULTS, name + ".log")
        with open(output, "wb") as f:
            with subprocess.Popen(args + ["--"] + command, stdout=f, stderr=subprocess.PIPE) as process:
                self.running.add(process)
                err = process.communicate()[1]
                self.running.discard(process)
        with open(output, encoding="utf-8", errors="replace") as f:
            self.out = f.read()
        self.status, self.err = process.returncode, err.decode(errors="replace")
        if re.search(r"(?m)^vm: it boots once more$", self.err):
            self.still[name] = self.err
        try:
            with open(self.console, encoding="utf-8", errors="replace") as f:
                self.log = f.read()
        except FileNotFoundError:
            self.log = ""

    def failure(self, what):
        return Result(what, FAIL, f"scripts/vm: status {self.status}\n" + tail(self.err, 80))


def expectations(path):
    """What is known to fail on the C core: [(glob, regex, reason)].

    The file has three lines for each: "test GLOB", "says REGEX", "why TEXT".
    """
    found = []
    try:
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                word, _, rest = line.strip().partition(" ")
                if not word or word.startswith("#"):
                    continue
                if word == "test":
                    found.append([rest.strip(), "", ""])
                elif word in ("says", "why") and found:
                    found[-1][1 if word == "says" else 2] = rest.strip()
                else:
                    raise SystemExit(f"check: error: {path}:{number}: test, says or why is needed")
    except FileNotFoundError:
        pass
    return found


def apply_expectations(results, known):
    """Tests that fail as they should count as passed; others of them as failed."""
    for glob_, regex, why in known:
        matching = [r for r in results if fnmatch.fnmatchcase(r.name, glob_)]
        if not matching:
            results.append(Result(glob_, FAIL, "expected to fail on the C core, but no such test ran"))
        for result in matching:
            if result.status == FAIL and re.search(regex, result.detail):
                result.status, result.detail = XFAIL, why
            elif result.status == FAIL:
                result.detail = f"failed, but not as expected ({regex!r}):\n{result.detail}"
            elif result.status == PASS:
                result.status = FAIL
                result.detail = f"passed, but is expected to fail here: {why}"
    return results


# What only tests of rrxe load.
RRXE = ("rrxe.ko",)


# All that is slower than the release kernel on this machine's own kind of CPU.
SLOW = ("debug", "kcsan", "arm64")


# What is in the name of some test of a module.
KUNIT_NAMES = {"ib_cq_kunit": "ib_cq_alloc", "rrxe": "rrxe_"}


def kunit(kernel, core, modules=("ib_cq_kunit",)):
    def suite(name, _):
        options = ["--kernel", kernel, "--core", core, "--append", "kunit.enable=1 kunit.stats_enabled=2",
                   "--modules", "ib_core", "--timeout", "1500" if kernel in SLOW else "600"]
        if kernel == "debug":
            # The kernel's own doctests put a timer on the stack without
            # telling the object tracker, which says so.  Not ours.
            options += ["--expect-report", "rust_doctest_kernel_time_hrtimer_rs"]
        if kernel == "kcsan":
            options += ["--known-reports"]
        # Allocations that may sleep fail only when told to.
        command = ("cd /sys/kernel/debug/failslab && echo N > ignore-gfp-wait && echo 0 > verbose; cd /; "
                   + "".join(f"modprobe {m} && " for m in modules)
                   + f"modprobe -r {' '.join(reversed(modules))} ib_core")
        guest = Guest(name, ["sh", "-c", command], *options)
        results = ktap.parse(guest.log)
        with open(os.path.join(RESULTS, name + ".ktap"), "w", encoding="utf-8") as f:
            f.write("".join(ktap.STAMP.sub("", line) for line in guest.log.splitlines(True)
                            if re.match(r" *(?:not ok|ok \d|KTAP|1\.\.\d|#)", ktap.STAMP.sub("", line))))
        for module in modules:
            if not any(KUNIT_NAMES[module] in r.name for r in results):
                results.append(Result(f"{module} ran", FAIL, tail(guest.log)))
        if core == "c":
            apply_expectations(results, expectations(os.path.join(SELFTESTS, "cq_kunit_c.xfail")))
        if guest.status:
            results.append(guest.failure("the VM ended without a kernel report"))
        return results
    suite.made_of = Parts(kernel, core, lambda: (), () if "rrxe" in modules else RRXE, modules)
    return suite


def segments(out):
    """{script: (text, status or None)} of what vm-selftests printed."""
    found = {}
    for part in re.split(r"(?m)^##begin ", out)[1:]:
        script, _, rest = part.partition("\n")
        match = re.search(r"(?m)^##end \S+ (\d+) (\d+)$", rest)
        found[script.strip()] = (rest[:match.start()] if match else rest, int(match.group(1)) if match else None)
    return found


def converted():
    """Whether the drivers of the kernel's source are converted: DRIVERS=1 when it was built."""
    try:
        with open(os.path.join(CACHE, "src", ".rust-rdma-overlay.json"), encoding="utf-8") as f:
            return bool(json.load(f).get("drivers"))
    except FileNotFoundError:
        return False


# How many pairs of user-space tools needed another attempt, by suite.
AGAIN = {}


def selftests(kernel, core, dev, chosen, env=None, share=None, nodes=1):
    def suite(name, cpus):
        todo = chosen()
        if not todo:
            return [Result("selftests", SKIP, f"there are no scripts in {SELFTESTS}")]
        variables = {"DEV_TYPE": dev, "CQ_SCALE": "3"}
        if kernel in ("debug", "kcsan"):
            # The limit is that of one script, in seconds.
            variables.update(CQ_SCALE="10", SELFTEST_LIMIT="2700")
        variables.update(env or {})
        if converted():
            variables["DRIVERS"] = "1"
        results, text, boot = [], [], 0
        while todo:
            boot += 1
            label = name if boot == 1 else f"{name}.{boot}"
            guest = Guest(label, ["bash", "scripts/vm-selftests"] + todo, "--kernel", kernel, "--core", core,
                          "--modules", "ib_core", "--known-reports", "--cpus", str(cpus // nodes),
                          "--timeout", "6000" if kernel in SLOW else "1500",
                          *(("--share", share) if share else ()), env=variables, nodes=nodes)
            found = segments(guest.out)
            text.append(guest.out)
            AGAIN[name] = AGAIN.get(name, 0) + len(re.findall(r"(?m)^# .*: attempt \d+$", guest.out))
            for script, (out, status) in found.items():
                leaves = ktap.parse(out)
                for leaf in leaves:
                    leaf.name = f"{script[:-3]}: {leaf.name.partition(': ')[2] or leaf.name}"
                results += leaves
                if status is None:
                    results.append(Result(f"{script[:-3]}: (unfinished)", FAIL, tail(out)))
                elif not leaves:
                    results.append(Result(f"{script[:-3]}: (no results)", FAIL, f"status {status}\n{tail(out)}"))
                elif status not in (0, 4) and not any(r.status == FAIL for r in leaves):
                    results.append(Result(f"{script[:-3]}: (exit status)", FAIL, f"status {status}"))
                todo.remove(script)
            # The scripts' own status is in their results.
            if guest.status not in (0, 1):
                results.append(guest.failure(f"no kernel report ({', '.join(found) or 'boot'})"))
            # The rest again only when something ran: else it would not end.
            if not found:
                break
        results += [Result(f"{s[:-3]}: (not run)", FAIL, "the VM ended before") for s in todo]
        with open(os.path.join(RESULTS, name + ".ktap"), "w", encoding="utf-8") as f:
            f.write("".join(text))
        if core == "c":
            known = expectations(os.path.join(SELFTESTS, "cq_traffic_c.xfail"))
            apply_expectations(results, known)
        return results
    # What is shared, and the network of a cluster, nobody looks at.
    if not share and nodes == 1 and kernel != "arm64":
        suite.made_of = Parts(kernel, core, chosen, () if dev == "rrxe" else RRXE, (dev, tuple((env or {}).items())))
    return suite
