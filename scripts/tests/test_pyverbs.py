# SPDX-License-Identifier: GPL-2.0
"""Tests of rrxe_pyverbs.py, with tests of its own in place of those of rdma-core."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.dont_write_bytecode = True
SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, SCRIPTS)
import ktap  # noqa: E402 # pylint: disable=wrong-import-position

COMPARE = os.path.join(os.path.dirname(SCRIPTS), "tools/testing/selftests/rdma/rrxe_pyverbs.py")
# In the order in which they run.
CASES = """\
    def test_a(self):
        pass

    def test_b_skipped(self):
        self.skipTest("no such thing")

    def test_c_fails(self):
        self.assertEqual(1, 2)

    def test_d_dies(self):
        os.kill(os.getpid(), 9)

    def test_e_hangs(self):
        time.sleep(100)

    def test_f(self):
        pass
"""


def compare(expected, *options, cases=CASES):
    """{test: result} of what it says, its other lines, and its status."""
    with tempfile.TemporaryDirectory() as folder:
        tests = os.path.join(folder, "tests")
        os.mkdir(tests)
        for name, text in (
                ("tests/__init__.py", "from . import test_own\n__test_modules__ = [test_own]\n"),
                ("tests/args_parser.py", "class parser:\n    parse_args = staticmethod(lambda: None)\n"),
                ("tests/test_own.py", "import os\nimport time\nimport unittest\n\nclass Own(unittest.TestCase):\n" + cases),
                ("expected", textwrap.dedent(expected))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, "-B", COMPARE, *options, "--limit", "5", tests,
                               os.path.join(folder, "expected"), "dev", "1"],
                              stdout=subprocess.PIPE, text=True, check=False)
    text = done.stdout + ("ok" if done.returncode == 0 else "not ok") + " 1 all\n1..1\n"
    results = {r.name.removeprefix("all.test_own.Own."): r for r in ktap.parse(text)}
    return results, done.stdout, done.returncode


class Compare(unittest.TestCase):
    def test_all_kinds(self):
        results, text, status = compare("""\
            one ok test_own.Own.test_a
            one ok test_own.Own.test_b_skipped
            one skip test_own.Own.test_f
            one ok test_own.Own.test_gone
            two ok test_own.Own.test_not_here
            """)
        self.assertEqual({name: r.status for name, r in results.items()}, {
            "test_a": "pass", "test_b_skipped": "fail", "test_c_fails": "fail", "test_d_dies": "fail",
            "test_e_hangs": "fail", "test_f": "pass", "test_gone": "fail"})
        self.assertEqual(status, 1)
        self.assertIn("no such thing", results["test_b_skipped"].detail)
        self.assertIn("AssertionError", results["test_c_fails"].detail)
        self.assertIn("signal 9", results["test_d_dies"].detail)
        self.assertIn("not done", results["test_e_hangs"].detail)
        self.assertIn("passes, but not with the driver in C: test_own.Own.test_f", text)

    def test_as_in_c(self):
        results, _, status = compare("""\
            one ok test_own.Own.test_a
            one skip test_own.Own.test_b_skipped
            one fail test_own.Own.test_c_fails
            one fail test_own.Own.test_d_dies
            one fail test_own.Own.test_e_hangs
            one ok test_own.Own.test_f
            """)
        self.assertEqual([r.status for r in results.values()], ["pass", "skip", "xfail", "xfail", "xfail", "pass"])
        self.assertEqual(results["test_b_skipped"].detail, "no such thing")
        self.assertEqual(status, 0)

    def test_gaps(self):
        cases = CASES[:CASES.index("    def test_c")]
        expected = """\
            one ok test_own.Own.test_a
            one ok test_own.Own.test_b_skipped
            gap test_own.Own.test_b* it has none
            """
        results, _, status = compare(expected, "--gaps", cases=cases)
        self.assertEqual((results["test_b_skipped"].status, results["test_b_skipped"].detail, status),
                         ("skip", "it has none", 0))
        # For the driver in C it is none.
        results, _, status = compare(expected, cases=cases)
        self.assertEqual((results["test_b_skipped"].status, status), ("fail", 1))
        # A test that fails is no gap, and one that is closed has to go.
        _, text, status = compare(expected + "            gap test_own.Own.test_a it has none\n", "--gaps", cases=cases)
        self.assertEqual(status, 1)
        self.assertIn("it is called a gap, and is none", text)

    def test_nothing_runs(self):
        results, _, status = compare("one ok test_own.Own.test_a\n", cases="    syntax error\n")
        self.assertEqual(status, 1)
        self.assertTrue(all(r.status == "fail" for r in results.values()))


if __name__ == "__main__":
    unittest.main()
