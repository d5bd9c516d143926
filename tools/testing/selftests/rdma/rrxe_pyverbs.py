#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run the tests of rdma-core (pyverbs), as they are, and compare what they say.

	rrxe_pyverbs.py [--peer DEV] [--gaps] [--record FILE] [--limit S] TESTS EXPECTED DEV GID

TESTS is the directory of the tests, without compressed files, EXPECTED a file of
what each of them did with the driver in C: "MODE RESULT TEST", where MODE is "one"
or "two" devices.  A test that passes there and does not here has failed, which
includes that it was skipped.  With --gaps what EXPECTED calls a gap may be skipped,
and some of it has to be.

With --peer the two sides of a test are on different devices: DEV and the peer,
with the same index of the GID.  The tests know only one; where they make the
second side, it gets the other device, and where they make an address, that of the
other device.  Those that do not make two sides in the usual way are left out.

Prints KTAP, as a subtest.  The tests run in a process of their own, which may die
or hang: that fails one test, and another process goes on behind it.
"""

import argparse
import fnmatch
import functools
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import unittest

# Of devices that other drivers are for.
OTHERS = ("tests.test_mlx5_*", "tests.test_efa*", "tests.test_cuda_*")
# To load the modules of all tests on a slow machine, in seconds.
START = 180
# What a process says of a test, the worse of two counts.
RANK = {"ok": 0, "skip": 1, "fail": 2}


# In the process that runs the tests -------------------------------------------


class Report(unittest.TestResult):
    """Says what becomes of each test, as lines of JSON in a pipe."""

    def __init__(self, pipe):
        super().__init__()
        self.pipe = pipe
        self.status = self.why = self.crossed = None

    def say(self, **what):
        os.write(self.pipe, json.dumps(what).encode() + b"\n")

    def startTest(self, test):
        super().startTest(test)
        self.status, self.why, self.crossed = None, "", False
        self.say(begin=test.id())

    def stopTest(self, test):
        super().stopTest(test)
        self.say(end=test.id(), status=self.status or "fail", why=self.why, crossed=self.crossed)

    def note(self, status, why=""):
        if self.status is None or RANK[status] > RANK[self.status]:
            self.status, self.why = status, why

    def bad(self, test, err):
        self.note("fail", self._exc_info_to_string(err, test))

    def addSuccess(self, test):
        self.note("ok")

    def addSkip(self, test, reason):
        self.note("skip", reason)

    def addError(self, test, err):
        self.bad(test, err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err:
            self.bad(test, err)

    def addExpectedFailure(self, test, err):
        self.note("ok")

    def addUnexpectedSuccess(self, test):
        self.note("fail", "passed, which the test does not expect")


def flat(suite):
    """The test cases of a suite."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from flat(part)
        else:
            yield part


def cross(args, report):
    """The second side of each test on the other device."""
    # pylint: disable=import-error,import-outside-toplevel
    import pyverbs.device
    from tests import base, utils
    devices = (args.device, args.peer)
    gids = [pyverbs.device.Context(name=name).query_gid(1, args.gid) for name in devices]
    other = {gids[0].gid: gids[1], gids[1].gid: gids[0]}
    original, route = base.RDMATestCase.create_players, base.GlobalRoute

    def create_players(self, resource, *args, **kwargs):
        turn = itertools.cycle(devices)

        @functools.wraps(resource)
        def one(**attrs):
            return resource(**{**attrs, "dev_name": next(turn)})

        report.crossed = True
        return original(self, one, *args, **kwargs)

    def global_route(dgid=None, **attrs):
        if report.crossed:
            dgid = other.get(getattr(dgid, "gid", None), dgid)
        return route(dgid=dgid, **attrs)

    base.RDMATestCase.create_players = create_players
    base.GlobalRoute = utils.GlobalRoute = global_route


def spoil():
    """The control: data are not what they were, and tests are skipped that could run."""
    # pylint: disable=import-error,import-outside-toplevel
    from tests import test_srq, utils
    validate = utils.validate

    def other(received, *args, **kwargs):
        return validate("x" + received[1:], *args, **kwargs)

    def no_srq(self):
        self.skipTest("spoiled")

    utils.validate = other
    test_srq.SrqTestCase.setUp = no_srq


def worker(args):
    """Run the tests but for some, in their order."""
    # One module of it is taken as if it were none of the package.
    sys.path[:0] = [args.tests, os.path.dirname(args.tests)]
    # The way that run_tests.py takes, whose options these are.
    sys.argv[1:] = ["--dev", args.device, "--gid", str(args.gid)]
    # pylint: disable=import-error,import-outside-toplevel
    from args_parser import parser
    parser.parse_args()
    import tests
    report = Report(args.worker)
    cases = [case for module in tests.__test_modules__ for case in
             flat(unittest.defaultTestLoader.loadTestsFromModule(module))]
    mine = [case for case in cases if not any(fnmatch.fnmatchcase(case.id(), other) for other in OTHERS)]
    left_out = len(cases) - len(mine)
    if args.peer:
        # Those of the connection manager bring their two sides along.
        mine = [case for case in mine if isinstance(case, tests.base.RDMATestCase)
                and not isinstance(case, tests.base.RDMACMBaseTest)]
        cross(args, report)
    if os.environ.get("SELFTEST_BREAK") == "1":
        spoil()
    report.say(tests=[case.id() for case in mine], left_out=left_out)
    # By itself each, so that fixtures of classes are no matter of others.
    unittest.TestSuite(mine[args.skip:]).run(report)


# In the process that compares --------------------------------------------------


class Process:
    """One that runs the tests from number SKIP on, and the lines that it says."""

    def __init__(self, skip):
        ours, theirs = os.pipe()
        # pylint: disable=consider-using-with
        self.log = open("/dev/null", "w", encoding="ascii") if not os.environ.get("CQ_LOG") else \
            open(os.environ["CQ_LOG"], "a", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--worker", str(theirs), "--skip", str(skip)] + sys.argv[1:],
            pass_fds=[theirs], stdout=self.log, stderr=self.log, start_new_session=True)
        os.close(theirs)
        self.pipe, self.buffer = ours, b""

    def line(self, limit):
        """What it says next; None at its end, or when it says nothing for so long."""
        while b"\n" not in self.buffer:
            if not select.select([self.pipe], [], [], limit)[0]:
                return None
            data = os.read(self.pipe, 65536)
            if not data:
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def end(self):
        """How it ended; it is killed if it has not."""
        try:
            status = self.process.wait(3)
            how = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
        except subprocess.TimeoutExpired:
            status, how = None, "not done in time"
        try:
            # With the children that it may have.
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.pipe)
        self.log.close()
        return status, how


class Expected:
    """What the driver in C does, and what is known to be missing in that in Rust."""

    def __init__(self, args):
        self.mode = "two" if args.peer else "one"
        self.results, self.gaps, self.needed = {}, [], set()
        with open(args.expected, encoding="utf-8") as file:
            for line in file:
                words = line.split(maxsplit=2)
                if not words or line.startswith("#"):
                    continue
                if words[0] == "gap":
                    self.gaps += [(words[1], words[2].strip())] if args.gaps else []
                elif words[0] == self.mode:
                    self.results[words[2].strip()] = words[1]

    def judge(self, test, status, why):
        """The result in KTAP: whether it is good, and the directive."""
        wanted = self.results.get(test)
        if status == "ok":
            return True, ""
        if status == "skip" and wanted != "ok":
            return True, f" # SKIP {why}"
        if status == "fail" and wanted == "fail":
            return True, " # XFAIL it fails with the driver in C, too"
        for pattern, reason in self.gaps:
            if status == "skip" and fnmatch.fnmatchcase(test, pattern):
                self.needed.add(pattern)
                return True, f" # SKIP {reason}"
        return False, ""

    def closed(self):
        """Gaps that are none any more."""
        return [pattern for pattern, _ in self.gaps if pattern not in self.needed]


class Comparison:
    """All tests, of which each gets a line."""

    def __init__(self, args):
        self.args = args
        self.expected = Expected(args)
        self.count = self.failed = self.aside = 0
        self.found = {}

    def result(self, test, status, why):
        """Say it."""
        name = test.removeprefix("tests.")
        self.found[name] = status
        self.count += 1
        good, directive = self.expected.judge(name, status, why.split("\n")[0])
        if not good:
            self.failed += 1
            if status == "skip":
                why = f"skipped, but it passes with the driver in C: {why}"
            print("".join(f"    # {line}\n" for line in why.rstrip().split("\n")[-25:]), end="")
        print(f"    {'ok' if good else 'not ok'} {self.count} {name}{directive}", flush=True)

    def run(self):
        """Until there is nothing left to run."""
        tests, done = None, 0
        while tests is None or done < len(tests):
            process, now, limit = Process(done), None, START
            while True:
                said = process.line(limit)
                if said is None:
                    break
                limit = self.args.limit
                if "tests" in said:
                    tests, left_out = said["tests"], said["left_out"]
                elif "begin" in said:
                    now = said["begin"]
                else:
                    now = None
                    done += 1
                    if self.args.peer and not said["crossed"] and said["status"] != "fail":
                        self.aside += 1
                    else:
                        self.result(said["end"], said["status"], said["why"])
            status, how = process.end()
            if now:
                done += 1
                self.result(now, "fail", how)
            elif status or tests is None:
                # Not by a test: a fault in here, or of what is loaded first.
                self.result("(start)", "fail", how)
                break
        self.after(len(tests or []), left_out if tests else 0)
        return self.failed

    def after(self, total, left_out):
        """What is missing, what is new, and the sums."""
        for name in self.expected.results:
            if self.expected.results[name] == "ok" and name not in self.found:
                self.result(name, "fail", "it passes with the driver in C, and was not run here")
        for pattern in self.expected.closed():
            self.result(pattern, "fail", "it is called a gap, and is none: take the line out")
        print(f"    1..{self.count}")
        new = [name for name, status in self.found.items() if status == "ok" and
               self.expected.results.get(name) != "ok"]
        for name in new:
            print(f"# passes, but not with the driver in C: {name}")
        sums = {status: list(self.found.values()).count(status) for status in RANK}
        print(f"# {self.expected.mode}: {total} tests, {sums['ok']} passed, {sums['skip']} skipped, {sums['fail']} failed,"
              f" {len(new)} of them new; {self.aside} use one device only, {left_out} are for other devices", flush=True)
        if self.args.record:
            with open(self.args.record, "a", encoding="utf-8") as file:
                file.write("".join(f"{self.expected.mode} {status} {name}\n"
                                   for name, status in sorted(self.found.items())))


def main():
    """Parse the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--gaps", action="store_true")
    parser.add_argument("--record")
    parser.add_argument("--limit", type=int, default=60)
    # For itself.
    parser.add_argument("--worker", type=int)
    parser.add_argument("--skip", type=int, default=0)
    for name in ("tests", "expected", "device"):
        parser.add_argument(name)
    parser.add_argument("gid", type=int)
    args = parser.parse_args()
    if args.worker is not None:
        worker(args)
    else:
        sys.exit(1 if Comparison(args).run() else 0)


if __name__ == "__main__":
    main()
