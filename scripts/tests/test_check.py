# SPDX-License-Identifier: GPL-2.0
"""Tests of which suites scripts/check runs, and which it need not."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, SCRIPTS)
import check_reuse  # noqa: E402
from check_reuse import WORTH, Memory, Parts, key  # noqa: E402
from ktap import FAIL, PASS, SKIP, Result  # noqa: E402


def load():
    loader = importlib.machinery.SourceFileLoader("check", os.path.join(SCRIPTS, "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


check = load()


class Case(unittest.TestCase):
    """A cache, scripts and selftests that are a few files."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        for name in ("CACHE", "SCRIPTS", "SELFTESTS"):
            patch = mock.patch.object(check_reuse, name, os.path.join(self.top, name.lower()))
            patch.start()
            self.addCleanup(patch.stop)
        self.write("cache/build/release/vm/bzImage", "kernel")
        self.write("cache/build/release/vm/modules-rust/lib/ib_core.ko", "core")
        self.write("cache/build/release/vm/modules-rust/lib/rrxe.ko", "driver")
        self.write("cache/build/release/vm/modules-c/lib/ib_core.ko", "core in C")
        self.write("cache/build/tools/bin/rrxe_wire", "program")
        self.write("scripts/check_suites.py", "suites")
        self.write("scripts/vm", "vm")
        self.write("scripts/bench", "bench")
        self.write("selftests/cq_lib.sh", "library")
        self.write("selftests/cq_a.sh", "test", 0o755)
        self.write("selftests/cq_b.sh", "test", 0o755)
        self.write("selftests/known_reports", "list")
        self.out = os.path.join(self.top, "results")
        os.mkdir(self.out)
        self.clock = 1000.0
        self.memory = Memory(os.path.join(self.top, "passed"), self.out, lambda: self.clock)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)


RXE = Parts("release", "rust", lambda: ["cq_a.sh"], ("rrxe.ko",), ("rxe",))
RRXE = RXE._replace(without=(), words=("rrxe",))


class Key(Case):
    def changed(self, parts, name, text="other", mode=0o644):
        before = key(parts)
        self.assertEqual(before, key(parts))
        self.write(name, text, mode)
        return key(parts) != before

    def test_what_it_is_made_of(self):
        for name in ("cache/build/release/vm/bzImage", "cache/build/release/vm/modules-rust/lib/ib_core.ko",
                     "cache/build/release/vm/modules-rust/lib/new.ko", "cache/build/tools/bin/rrxe_wire",
                     "scripts/check_suites.py", "scripts/check_new.py", "scripts/vm", "selftests/cq_lib.sh",
                     "selftests/known_reports", "selftests/new.c"):
            self.assertTrue(self.changed(RXE, name), name)
        self.assertTrue(self.changed(RXE, "selftests/cq_a.sh", mode=0o755))

    def test_what_it_is_not_made_of(self):
        self.assertFalse(self.changed(RXE, "cache/build/release/vm/modules-c/lib/ib_core.ko"))
        self.assertFalse(self.changed(RXE, "cache/build/release/vm/modules-rust/lib/rrxe.ko"))
        self.assertFalse(self.changed(RXE, "scripts/bench"))
        self.assertFalse(self.changed(RXE, "selftests/cq_b.sh", mode=0o755))
        self.assertFalse(self.changed(RXE, "selftests/__pycache__/x.pyc"))

    def test_the_driver_is_for_its_own_tests(self):
        self.assertTrue(self.changed(RRXE, "cache/build/release/vm/modules-rust/lib/rrxe.ko", "newer"))

    def test_what_is_told_to_it(self):
        self.assertEqual(len({key(p) for p in (RXE, RRXE, RXE._replace(words=()), RXE._replace(core="c"),
                                               RXE._replace(scripts=lambda: ["cq_b.sh"]))}), 5)

    def test_a_new_machine(self):
        before = key(RXE)
        with mock.patch.dict(os.environ, {"RUST_RDMA_ACCEL": "tcg"}):
            self.assertNotEqual(key(RXE), before)

    def test_no_kernel(self):
        os.unlink(os.path.join(self.top, "cache/build/release/vm/bzImage"))
        self.assertIsNone(key(RXE))


class Remember(Case):
    def setUp(self):
        super().setUp()
        self.write("results/s.ktap", "ok 1 a\n")
        self.memory.remember("s", "k" * 64, [Result("a", PASS), Result("b", SKIP, "no card")], 61.5, 2)

    def test_again(self):
        os.unlink(os.path.join(self.out, "s.ktap"))
        passed = self.memory.recall("s", "k" * 64)
        self.assertEqual([(r.name, r.status, r.detail) for r in passed.results], [("a", PASS, ""), ("b", SKIP, "no card")])
        self.assertEqual((passed.seconds, passed.attempts, passed.when), (61.5, 2, 1000.0))
        self.memory.restore("s", passed)
        with open(os.path.join(self.out, "s.ktap"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "ok 1 a\n")

    def test_something_else(self):
        self.assertIsNone(self.memory.recall("s", "l" * 64))
        self.assertIsNone(self.memory.recall("t", "k" * 64))
        self.assertIsNone(self.memory.recall("s", None))
        # The file's name has a part of it only.
        self.assertIsNone(self.memory.recall("s", "k" * 63 + "l"))

    def test_too_old_or_of_the_future(self):
        self.clock += WORTH
        self.assertIsNotNone(self.memory.recall("s", "k" * 64))
        self.clock += 1
        self.assertIsNone(self.memory.recall("s", "k" * 64))
        self.clock = 999.0
        self.assertIsNone(self.memory.recall("s", "k" * 64))

    def test_half_a_file(self):
        path = self.memory.path("s", "k" * 64)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for broken in ("", text[:40], "[]", "{}", json.dumps({**json.loads(text), "results": [1]})):
            with open(path, "w", encoding="utf-8") as f:
                f.write(broken)
            self.assertIsNone(self.memory.recall("s", "k" * 64), broken)

    def test_forget(self):
        self.memory.forget("s", "k" * 64)
        self.memory.forget("s", "k" * 64)
        self.memory.forget("s", None)
        self.assertIsNone(self.memory.recall("s", "k" * 64))


class Run(Case):
    """Suites "one" and "two", of which each run is counted."""

    def setUp(self):
        super().setUp()
        self.runs = []
        self.say = {"one": [Result("a", PASS)], "two": [Result("b", PASS), Result("c", SKIP, "no")]}

        def suite(parts):
            def function(name, _):
                self.runs.append(name)
                return list(self.say[name])
            function.made_of = parts
            return function

        suites = {"one": (suite(RXE), (), "the first", 1),
                  "two": (suite(RRXE._replace(scripts=lambda: ["cq_b.sh"])), (), "the second", check.ALONE)}
        for patch in (mock.patch.object(check, "SUITES", suites), mock.patch.object(check, "RESULTS", self.out),
                      mock.patch.dict(check.AGAIN, clear=True)):
            patch.start()
            self.addCleanup(patch.stop)

    def run_all(self, again=()):
        """Which suites ran, and the last line."""
        self.runs.clear()
        runner = check.Runner(["one", "two"], 2, again)
        runner.memory = self.memory
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            runner.run()
            runner.report()
        self.text = out.getvalue()
        return sorted(self.runs), self.text.strip().split("\n")[-1]

    def test_nothing_changed(self):
        self.assertEqual(self.run_all(), (["one", "two"], "2 passed, 0 failed, 1 skipped"))
        self.assertNotIn("earlier run", self.text)
        self.assertEqual(self.run_all(), ([], "2 passed, 0 failed, 1 skipped"))
        self.assertIn("2 of 2 suites, with 3 tests, passed in an earlier run", self.text)
        with open(os.path.join(self.out, "summary.json"), encoding="utf-8") as f:
            self.assertEqual([s["passed_at"] for s in json.load(f)["suites"]], [1000, 1000])

    def test_the_driver_changed(self):
        self.run_all()
        self.write("cache/build/release/vm/modules-rust/lib/rrxe.ko", "newer")
        self.assertEqual(self.run_all(), (["two"], "2 passed, 0 failed, 1 skipped"))

    def test_who_asks_for_it_gets_it(self):
        self.run_all()
        self.assertEqual(self.run_all(["one"])[0], ["one"])
        self.assertEqual(self.run_all(["one", "two"])[0], ["one", "two"])

    def test_what_failed_runs_again(self):
        self.say["one"] = [Result("a", FAIL, "why")]
        self.assertEqual(self.run_all(), (["one", "two"], "1 passed, 1 failed, 1 skipped"))
        self.assertEqual(self.run_all(), (["one"], "1 passed, 1 failed, 1 skipped"))

    def test_a_failure_is_stronger_than_what_passed(self):
        self.run_all()
        self.say["one"] = [Result("a", FAIL, "by chance")]
        self.run_all(["one"])
        self.say["one"] = [Result("a", PASS)]
        self.assertEqual(self.run_all()[0], ["one"])

    def test_changed_while_it_ran(self):
        function = check.SUITES["one"][0]

        def edit(name, sharing):
            self.write("selftests/cq_a.sh", "edited", 0o755)
            return function(name, sharing)

        edit.made_of = RXE
        with mock.patch.dict(check.SUITES, one=(edit, (), "the first", 1)):
            self.run_all()
            self.assertEqual(self.run_all()[0], ["one"])


if __name__ == "__main__":
    unittest.main()
