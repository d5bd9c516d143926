# SPDX-License-Identifier: GPL-2.0
"""Tests of what scripts/check-mutants changes and of how it judges."""

import importlib.machinery
import importlib.util
import os
import sys
import unittest

sys.dont_write_bytecode = True
SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, SCRIPTS)
loader = importlib.machinery.SourceFileLoader("check_mutants", os.path.join(SCRIPTS, "check-mutants"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_mutants", loader))
loader.exec_module(mutants)

TEXT = """
impl A {
    fn first(&self) {
        self.0.update(|n| n);
    }

    pub(crate) fn second(&self) {
        self.0.update(|n| n);
    }
}
"""


def mutant(function, old, new="x", tests=("t",)):
    return mutants.Mutant("name", ("file", function), "what", old, new, tests)


class Change(unittest.TestCase):
    def test_only_in_its_function(self):
        out = mutant("second", "update").apply(TEXT)
        self.assertEqual(out.count("update"), 1)
        self.assertLess(out.index("update"), out.index("second"))

    def test_needs_one_place(self):
        for function, old in (("third", "update"), ("first", "second"), ("first", "self")):
            with self.assertRaises(ValueError):
                mutant(function, old).apply(TEXT.replace("self.0", "self.self"))

    def test_weaker_order(self):
        self.assertEqual(mutants.weak("ACQUIRE", "self.0.update("), "self.0.update_weak::<1>(")
        self.assertEqual(mutants.weak("RELEASE", "self.tail.cmpxchg("), "self.tail.cmpxchg_weak::<2>(")


class Verdict(unittest.TestCase):
    def test_noticed(self):
        self.assertEqual(mutants.judge(mutant("f", "a"), ["t"], []), "")

    def test_nobody_noticed(self):
        self.assertTrue(mutants.judge(mutant("f", "a"), [], ["t"]))

    def test_does_not_build(self):
        self.assertTrue(mutants.judge(mutant("f", "a"), [], []))

    def test_without_tests_all_have_to_pass(self):
        self.assertEqual(mutants.judge(mutant("f", "a", tests=()), [], ["t"]), "")
        self.assertTrue(mutants.judge(mutant("f", "a", tests=()), ["t"], []))


class Table(unittest.TestCase):
    def test_all_apply(self):
        for m in mutants.MUTANTS:
            with self.subTest(m.name):
                self.assertNotEqual(m.apply(mutants.read(m.file)), mutants.read(m.file))

    def test_names_are_unique(self):
        names = [m.name for m in mutants.MUTANTS]
        self.assertEqual(len(names), len(set(names)))

    def test_tests_exist(self):
        source = mutants.read(mutants.INTERLEAVE)
        for m in mutants.MUTANTS:
            self.assertTrue(m.tests or m.why, m.name)
            for test in m.tests:
                self.assertIn(f"fn {test}()", source)

    def test_document_has_it(self):
        self.assertIn(mutants.table(), mutants.read("Documentation/infiniband/rrxe-model.rst"))


if __name__ == "__main__":
    unittest.main()
