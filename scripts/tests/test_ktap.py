# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/ktap.py."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import ktap  # noqa: E402

KUNIT = """\
[    1.0] random line
[    1.1] KTAP version 1
[    1.1] 1..2
[    1.2]     KTAP version 1
[    1.2]     # Subtest: first
[    1.2]     1..3
[    1.2]     ok 1 a
[    1.3]     # b: EXPECTATION FAILED at x.c:1
[    1.3] unrelated
[    1.3]     not ok 2 b
[    1.3]     ok 3 c # SKIP no device
[    1.4] # first: pass:1 fail:1 skip:1 total:3
[    1.4] not ok 1 first
[    1.5]     KTAP version 1
[    1.5]     1..1
[    1.5]         KTAP version 1
[    1.5]         # Subtest: param
[    1.5]         ok 1 one
[    1.5]         ok 2 two
[    1.5]     ok 1 param
[    1.6] ok 2 second
"""


def flat(text):
    return [(r.name, r.status) for r in ktap.parse(text)]


class Ktap(unittest.TestCase):
    def test_kunit(self):
        self.assertEqual(flat(KUNIT), [("first.a", "pass"), ("first.b", "fail"), ("first.c", "skip"),
                                       ("second.param.one", "pass"), ("second.param.two", "pass")])
        results = ktap.parse(KUNIT)
        self.assertIn("EXPECTATION FAILED", results[1].detail)
        self.assertEqual(results[2].detail, "no device")

    def test_two_documents(self):
        self.assertEqual(len(flat(KUNIT + KUNIT)), 10)

    def test_missing(self):
        text = KUNIT.replace("[    1.3]     not ok 2 b\n", "")
        self.assertIn(("first.(plan)", "fail"), flat(text))
        # The kernel died in the middle.
        text = KUNIT.split("[    1.3]     # b")[0]
        names = flat(text)
        self.assertTrue(any(status == "fail" for _, status in names), names)

    def test_suite_fails_alone(self):
        text = "1..1\n    1..1\n    ok 1 a\nnot ok 1 s\n"
        self.assertEqual(flat(text), [("s.a", "pass"), ("s", "fail")])

    def test_kselftest(self):
        text = "TAP version 13\n1..3\n# note\nok 1 x: one\nnot ok 2 x: two\nok 3 x: three # SKIP why\n"
        self.assertEqual(flat(text), [("x: one", "pass"), ("x: two", "fail"), ("x: three", "skip")])

    def test_skip_all(self):
        results = ktap.parse("TAP version 13\n1..0 # SKIP no module\n")
        self.assertEqual([(r.status, r.detail) for r in results], [("skip", "no module")])

    def test_nothing(self):
        self.assertEqual(ktap.parse("no tests here\n"), [])

    def test_write(self):
        results = [ktap.Result("a", ktap.PASS), ktap.Result("b", ktap.FAIL, "x\ny"),
                   ktap.Result("c", ktap.SKIP, "why"), ktap.Result("d", ktap.XFAIL, "known")]
        again = ktap.parse(ktap.write(results))
        self.assertEqual([(r.name, r.status) for r in again],
                         [("a", "pass"), ("b", "fail"), ("c", "skip"), ("d", "xfail")])


if __name__ == "__main__":
    unittest.main()
