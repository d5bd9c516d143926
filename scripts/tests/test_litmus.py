# SPDX-License-Identifier: GPL-2.0
"""Tests of what scripts/check-litmus makes of tests, sources and verdicts."""

import importlib.machinery
import importlib.util
import os
import sys
import unittest

sys.dont_write_bytecode = True
PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "check-litmus")
loader = importlib.machinery.SourceFileLoader("check_litmus", PATH)
litmus = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_litmus", loader))
loader.exec_module(litmus)

GOOD = """C MP+x
(* SPDX-License-Identifier: GPL-2.0 *)

(*
 * Result: Never
 *
 * Says something.
 *
 * Models: rust/a.rs::f
 *)

{}

P0(int *x, int *y, spinlock_t *l)
{
	WRITE_ONCE(*x, 1);
	smp_store_release(y, 1);
}

P1(int *x, int *y, spinlock_t *l)
{
	int r0;
	int r1;

	spin_lock(l);
	r0 = smp_load_acquire(y);
	spin_unlock(l);
	smp_mb();
	r1 = atomic_fetch_or(1, x);
}

exists (1:r0=1 /\\ 1:r1=0)
"""


class Form(unittest.TestCase):
    def test_good(self):
        test = litmus.Litmus(GOOD)
        self.assertEqual(test.faults("MP+x"), [])
        self.assertEqual((test.result, test.models, test.notes), ("Never", ["rust/a.rs::f"], []))

    def test_bad(self):
        for old, new, says in (
                ("C MP+x", "C MP+y", "first line"),
                ("Result: Never", "Result: No", "Result:"),
                ("Result: Never", "Result: Sometimes", "-broken"),
                (" * Says something.\n", "", "paragraph"),
                (" * Models: rust/a.rs::f\n", "", "Models:")):
            faults = litmus.Litmus(GOOD.replace(old, new)).faults("MP+x")
            self.assertTrue(any(says in f for f in faults), (new, faults))

    def test_race_is_part_of_the_result(self):
        self.assertEqual(litmus.Litmus(GOOD.replace("Never", "Sometimes DATARACE")).result, "Sometimes DATARACE")

    def test_notes_name_no_function(self):
        test = litmus.Litmus(GOOD.replace("rust/a.rs::f", "(rrxe, not yet)"))
        self.assertEqual((test.models, test.notes), ([], ["(rrxe, not yet)"]))


class Mutants(unittest.TestCase):
    def test_one_for_each_ordering(self):
        found = litmus.mutants(GOOD)
        texts = [text for _, text in found]
        self.assertEqual(len(found), 5)
        self.assertEqual(len(set(texts)), 5)
        for part in ("WRITE_ONCE(*y, 1)", "READ_ONCE(*y)", "atomic_fetch_or_relaxed(1, x)"):
            self.assertEqual(sum(part in t for t in texts), 1, part)
        self.assertEqual(sum("smp_mb" not in t for t in texts), 1)
        self.assertEqual(sum("spin_lock(" not in t for t in texts), 1)

    def test_the_comment_is_left_alone(self):
        text = GOOD.replace("Says something.", "As smp_mb() and smp_store_release(x, 1) do.")
        self.assertEqual(len(litmus.mutants(text)), 5)


class Functions(unittest.TestCase):
    SOURCE = """
/// Does it.
// Litmus: MP+x, MP+y
// Litmus: SB+z
#[inline]
pub(super) unsafe extern "C" fn f() {
}

fn g() {}

// Litmus: MP+lost

fn h() {}
"""

    def test_comments(self):
        found = litmus.functions_of(self.SOURCE)
        self.assertEqual(found, {"f": ["MP+x", "MP+y", "SB+z"], "g": [], "h": []})

    def test_stray(self):
        self.assertEqual(litmus.stray(self.SOURCE), ["MP+lost"])

    def test_lists_are_equal(self):
        faults, other = litmus.models({("a.rs", "f"): ["MP+x"]}, {"MP+x": ["a.rs::f"]})
        self.assertEqual((faults, other), ({"MP+x": []}, []))

    def test_lists_differ(self):
        functions = {("a.rs", "f"): ["MP+x", "MP+gone"], ("a.rs", "g"): []}
        faults, other = litmus.models(functions, {"MP+x": ["a.rs::g", "b.rs::f", "c.rs"], "MP+y": []})
        self.assertEqual(len(faults["MP+x"]), 4)
        self.assertEqual(faults["MP+y"], [])
        self.assertEqual(len(other), 1)
        self.assertIn("MP+gone", other[0])


class Verdicts(unittest.TestCase):
    def test_verdicts(self):
        out = ("Test MP+a Allowed\nNo\nObservation MP+a Never 0 2\nTime MP+a 0.01\n\n"
               "Test MP+b Allowed\nOk\nFlag data-race\nObservation MP+b Sometimes 1 2\n\n"
               'Warning: File "/k/x/MP+c.litmus", line 3, characters 1-2: unexpected (User error)\n')
        found = litmus.verdicts(out)
        self.assertEqual({n: v for n, (v, _) in found.items()},
                         {"MP+a": "Never", "MP+b": "Sometimes DATARACE", "MP+c": "an error"})


if __name__ == "__main__":
    unittest.main()
