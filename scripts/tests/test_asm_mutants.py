# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/asm_mutants.py on snippets of machine code with debug information."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import asm_mutants as mutants  # noqa: E402 # pylint: disable=wrong-import-position
import asm_order as asm  # noqa: E402 # pylint: disable=wrong-import-position
from test_asm_order import dump  # noqa: E402 # pylint: disable=wrong-import-position
from test_asm_sites import CONVERTED, DISPATCH, POP, in_pop, obj  # noqa: E402 # pylint: disable=wrong-import-position


def point(thing, function):
    """(what is said in the name, what was not noticed) of a site."""
    points = mutants.of_sites(thing)
    name, missed, _ = next(p for p in points if f" {function}()" in p[0])
    return name.partition("(): ")[2], missed


class Plain(unittest.TestCase):
    def test_names(self):
        for arch, name, plain in (
            (asm.Arm64, "stlr", "str"), (asm.Arm64, "stlrb", "strb"), (asm.Arm64, "stlur", "stur"),
            (asm.Arm64, "ldar", "ldr"), (asm.Arm64, "ldaprb", "ldrb"), (asm.Arm64, "ldapur", "ldur"),
            (asm.Arm64, "ldaxr", "ldxr"), (asm.Arm64, "stlxrb", "stxrb"),
            (asm.Arm64, "casal", "cas"), (asm.Arm64, "swpalb", "swpb"), (asm.Arm64, "ldsetl", "ldset"),
            (asm.Arm64, "ldadda", "ldadd"), (asm.Arm64, "cas", "cas"), (asm.Arm64, "str", "str"),
            (asm.Riscv64, "amoadd.w.aqrl", "amoadd.w"), (asm.Riscv64, "lr.d.aq", "lr.d"),
            (asm.Riscv64, "sc.w.rl", "sc.w"), (asm.Riscv64, "amoswap.d", "amoswap.d"),
            (asm.Powerpc64, "stwcx.", "stwcx."),
        ):
            self.assertEqual(arch.plain(asm.Insn(0, name, "x")), plain, name)

    def test_no_order_is_left(self):
        for arch, names in ((asm.Arm64, ("stlr", "ldar", "casal", "ldadda", "swpl")),
                            (asm.Riscv64, ("amoadd.w.aqrl", "amoswap.d.rl"))):
            for name in names:
                insn = asm.Insn(0, name, "x1, [x0]")
                self.assertTrue(arch.access(insn)[1], name)
                insn.name = arch.plain(insn)
                self.assertFalse(arch.access(insn)[1], name)


class Mutants(unittest.TestCase):
    def test_each_order(self):
        thing = obj(asm.Arm64, "rrxe_main", *in_pop(POP))
        self.assertEqual(point(thing, "eq::Eq::pop"), ("2 weakened, 2 noticed", []))

    def test_nothing_stays_weak(self):
        thing = obj(asm.Arm64, "rrxe_main", *in_pop(POP))
        before = [i.text for i in thing.code["main"].insns]
        mutants.of_sites(thing)
        self.assertEqual([i.text for i in thing.code["main"].insns], before)
        self.assertEqual(mutants.asm_sites.judge_sites(asm.Arm64, thing)[0][0][:1], "H")
        faults = {n: f for n, f, _ in mutants.asm_sites.judge_sites(asm.Arm64, thing)}
        self.assertEqual(next(f for n, f in faults.items() if "Eq::pop()" in n), [])

    def test_one_that_nobody_would_miss(self):
        """A second acquire in the function makes up for the first."""
        lines = list(POP)
        lines.insert(1, "ldar w5, [x5] | load_acquire@7 pop@142")
        said, missed = point(obj(asm.Arm64, "rrxe_main", *in_pop(lines)), "eq::Eq::pop")
        self.assertEqual((said, len(missed)), ("3 weakened, 1 noticed", 2))
        self.assertIn("without the order of ldar nothing is found", missed[0])

    def test_nothing_to_weaken(self):
        _, missed = point(obj(asm.Arm64, "rrxe_main", "ret"), "eq::Eq::pop")
        self.assertEqual(missed, ["there is nothing to weaken"])

    def test_two_fences_where_one_is_enough(self):
        """Either of them may go, so that neither is a mutant: that is to be looked at."""
        pop = in_pop(("lwz 4, 0(5) | load@7 pop@143", "lwsync", "lwsync | store@8 pop@146",
                      "stw 4, 0(6) | store@8 pop@146", "blr"))
        said, missed = point(obj(asm.Powerpc64, "rrxe_main", *pop), "eq::Eq::pop")
        self.assertEqual((said, missed), ("0 weakened, 0 noticed", ["there is nothing to weaken"]))

    def test_a_fence(self):
        pop = in_pop(("lwz 4, 0(5) | load@7 pop@143", "lwsync", "std 4, 0(7) | store@6 pop@144",
                      "lwsync", "stw 4, 0(6) | store@8 pop@146", "blr"))
        said, missed = point(obj(asm.Powerpc64, "rrxe_main", *pop), "eq::Eq::pop")
        # The store in between is ordered, too, and makes up for the other one; but
        # its fence is that of the load.
        self.assertEqual((said, len(missed)), ("3 weakened, 2 noticed", 1))
        self.assertIn("lwsync; stw 4, 0(6)", missed[0])

    def test_both_forms_of_an_atomic_operation(self):
        arm = ("casal w1, w2, [x0] | lse@1 arm@9", "ldxr w1, [x0] | llsc@2 arm@9",
               "stlxr w3, w2, [x0] | llsc@2 arm@9", "cbnz w3, 0x4", "dmb ish", "ret")
        thing = obj(asm.Arm64, "rrxe_main", *(line.replace("arm@", "arm::Arm::arm@") for line in arm))
        self.assertEqual(point(thing, "arm::Arm::arm"), ("3 weakened, 3 noticed", []))

    def test_in_a_helper(self):
        helper = asm.parse(dump("cas", "lr.w a4, (a0)", "bne a4, a3, 0x14", "sc.w.rl a5, a2, (a0)", "bnez a5, 0x0",
                                "fence rw, rw", "ret"))
        thing = obj(asm.Riscv64, "rrxe_main", "auipc ra, 0x0", "R_RISCV_CALL_PLT cas", "jalr ra | arm::Arm::arm@9",
                    "ret")
        thing.inline(helper)
        self.assertEqual(point(thing, "arm::Arm::arm"), ("2 weakened, 2 noticed", []))
        self.assertEqual([i.name for i in helper["cas"]], ["lr.w", "bne", "sc.w.rl", "bnez", "fence", "ret"])

    def test_a_converted_driver(self):
        thing = obj(asm.Powerpc64, "x", *DISPATCH)
        self.assertEqual(mutants.of_completion(thing, CONVERTED, "x.c"), (1, []))


if __name__ == "__main__":
    unittest.main()
