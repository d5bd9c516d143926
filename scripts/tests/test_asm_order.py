# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/asm_order.py on snippets of three instruction sets."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import asm_order as asm  # noqa: E402 # pylint: disable=wrong-import-position


def dump(name, *lines):
    """As llvm-objdump -dr prints it; a line that begins with R_ is a relocation."""
    text, addr = [f"0000000000000000 <{name}>:"], 0
    for line in lines:
        if line.startswith("R_"):
            kind, symbol = line.split(" ", 1)
            text.append(f"\t\t{addr - 4:016x}:  {kind}\t{symbol}")
        else:
            mnemonic, _, operands = line.partition(" ")
            text.append(f"{addr:8x}:      \t{mnemonic}\t{operands}")
            addr += 4
    return "\n".join(text) + "\n\n"


def one(arch, *lines, helpers=None):
    """The accesses of a function as (kind, order, offset); a full order says so alone."""
    insns = asm.parse(dump("f", *lines))["f"]
    return [(a.kind, "full" if "full" in a.order else "+".join(sorted(a.order)), a.offset)
            for a in asm.accesses(arch, insns, helpers) if a.kind != "fence"]


class Parse(unittest.TestCase):
    def test_local_labels_and_relocations(self):
        text = ("0000000000000010 <f<'a>::g>:\n      10:      \tauipc\tra, 0x0\n"
                "\t\t0000000000000010:  R_RISCV_CALL_PLT\tirq_poll_init\n\t\t0000000000000010:  R_RISCV_RELAX\t*ABS*\n"
                "      14:      \tjalr\tra <f<'a>::g+0x4>\n\n0000000000000018 <.Lpcrel_hi1>:\n"
                "      18:      \tret\n\n000000000000001c <h>:\n      1c:      \tret\n")
        found = asm.parse(text)
        self.assertEqual([(f, len(i)) for f, i in found.items()], [("f<'a>::g", 3), ("h", 1)])
        self.assertEqual(found["f<'a>::g"][0].target, "irq_poll_init")

    def test_functions_that_look_alike(self):
        self.assertEqual(list(asm.parse(dump("f", "ret") + dump("f", "nop", "ret"))), ["f", "f (2)"])

    def test_a_branch_that_the_linker_fills_in(self):
        text = ("0000000000000000 <f>:\n       0:      \tbnez\ta0, 0x0 <f>\n"
                "\t\t0000000000000000:  R_RISCV_BRANCH\t.LBB0_1\n       4:      \tld\ta0, 0x0(a0)\n\n"
                "0000000000000008 <.LBB0_1>:\n       8:      \tret\n")
        insns = asm.parse(text)["f"]
        self.assertEqual(asm.Code(asm.Riscv64, insns).next, [[1, 2], [2], []])

    def test_a_call_without_a_relocation(self):
        insns = asm.parse("0000000000000000 <f>:\n       0:      \tbl\t0x40 <<a::B<C> as d::E>::g>\n"
                          "       4:      \tcbz\tx0, 0x0 <f>\n       8:      \tret\n")["f"]
        code = asm.Code(asm.Arm64, insns)
        self.assertEqual(code.call(0), "<a::B<C> as d::E>::g")
        self.assertEqual(code.next, [[1], [2, 0], []])


class Arm64(unittest.TestCase):
    def test_release(self):
        self.assertEqual(one(asm.Arm64, "add x9, x20, #0x10", "stlr x8, [x9]"), [("store", "release", 16)])
        self.assertEqual(one(asm.Arm64, "str x8, [x20, #0x10]"), [("store", "", 16)])

    def test_acquire(self):
        self.assertEqual(one(asm.Arm64, "ldar w8, [x0]"), [("load", "acquire", 0)])
        self.assertEqual(one(asm.Arm64, "ldapr w8, [x0]"), [("load", "acquire", 0)])
        self.assertEqual(one(asm.Arm64, "ldr w8, [x0]"), [("load", "", 0)])

    def test_exclusive(self):
        self.assertEqual(one(asm.Arm64, "ldxr w8, [x0]", "add w8, w8, #0x1", "stlxr w9, w8, [x0]"),
                         [("rmw", "release", 0)])
        self.assertEqual(one(asm.Arm64, "ldxr w8, [x0]", "stxr w9, w8, [x0]"), [("rmw", "", 0)])
        loop = ("ldxr w8, [x0]", "stlxr w9, w8, [x0]", "cbnz w9, 0x0")
        self.assertEqual(one(asm.Arm64, *loop, "dmb ish"), [("rmw", "full", 0)])
        self.assertEqual(one(asm.Arm64, *loop, "ret"), [("rmw", "release", 0)])

    def test_exclusive_that_compares(self):
        """The way without a store has no barrier, and needs none."""
        self.assertEqual(one(asm.Arm64, "ldxr w8, [x0]", "cmp w8, w1", "b.ne 0x18", "stlxr w9, w2, [x0]",
                             "cbnz w9, 0x0", "dmb ish", "ret"), [("rmw", "full", 0)])

    def test_atomics(self):
        self.assertEqual(one(asm.Arm64, "ldaddl w8, w9, [x0]"), [("rmw", "release", 0)])
        self.assertEqual(one(asm.Arm64, "casal w8, w9, [x0]"), [("rmw", "full", 0)])
        self.assertEqual(one(asm.Arm64, "swp w8, w9, [x0]"), [("rmw", "", 0)])


class Riscv64(unittest.TestCase):
    def test_release(self):
        self.assertEqual(one(asm.Riscv64, "fence rw, w", "sd a1, 0x10(s0)"), [("store", "release", 16)])
        self.assertEqual(one(asm.Riscv64, "sd a1, 0x10(s0)"), [("store", "", 16)])
        self.assertEqual(one(asm.Riscv64, "fence w, w", "sd a1, 0x10(s0)"), [("store", "", 16)])

    def test_a_fence_is_for_one_access(self):
        self.assertEqual(one(asm.Riscv64, "fence rw, w", "sd a1, 0x8(s0)", "sd a1, 0x10(s0)"),
                         [("store", "release", 8), ("store", "", 16)])

    def test_acquire(self):
        self.assertEqual(one(asm.Riscv64, "lw a0, 0x0(a0)", "fence r, rw"), [("load", "acquire", 0)])
        self.assertEqual(one(asm.Riscv64, "lw a0, 0x0(a0)", "sd a1, 0x8(a0)", "fence r, rw"),
                         [("load", "", 0), ("store", "", 8)])

    def test_atomics(self):
        self.assertEqual(one(asm.Riscv64, "fence rw, w", "amoadd.w a0, a1, (a2)"), [("rmw", "release", 0)])
        self.assertEqual(one(asm.Riscv64, "amoswap.w.aqrl a0, a1, (a0)"), [("rmw", "full", 0)])
        loop = ("lr.w a4, (a0)", "bne a4, a3, 0x14", "sc.w.rl a5, a2, (a0)", "bnez a5, 0x0")
        self.assertEqual(one(asm.Riscv64, *loop, "fence rw, rw", "ret"), [("rmw", "full", 0)])
        self.assertEqual(one(asm.Riscv64, *loop, "fence r, rw", "ret"), [("rmw", "acquire+release", 0)])

    def test_a_fence_on_one_way_only(self):
        """A load that one way leads away from without its fence is no acquire."""
        self.assertEqual(one(asm.Riscv64, "ld a0, 0x0(a0)", "beqz a0, 0xc", "fence r, rw", "ret"), [("load", "", 0)])
        self.assertEqual(one(asm.Riscv64, "ld a0, 0x0(a0)", "beqz a0, 0x10", "fence r, rw", "ret",
                             "fence r, rw", "ret"), [("load", "acquire", 0)])
        self.assertEqual(one(asm.Riscv64, "beqz a2, 0x8", "fence rw, w", "sd a1, 0x0(a0)", "ret"), [("store", "", 0)])
        self.assertEqual(one(asm.Riscv64, "beqz a2, 0xc", "fence rw, w", "j 0x10", "fence rw, w", "sd a1, 0x0(a0)"),
                         [("store", "release", 0)])

    def test_a_fence_behind_a_jump(self):
        self.assertEqual(one(asm.Riscv64, "ld a0, 0x0(a0)", "j 0xc", "ret", "fence r, rw", "ret"),
                         [("load", "acquire", 0)])

    def test_the_stack_does_not_count(self):
        self.assertEqual(one(asm.Riscv64, "ld a0, 0x0(a0)", "sd a0, 0x8(sp)", "fence r, rw")[0],
                         ("load", "acquire", 0))

    def test_a_call_in_between(self):
        self.assertEqual(one(asm.Riscv64, "ld a0, 0x0(a0)", "jalr a1", "fence r, rw")[0], ("load", "", 0))

    def test_a_helper(self):
        helper = asm.parse(dump("set", "fence rw, w", "sw a1, 0x4(a0)", "ret"))["set"]
        self.assertEqual(one(asm.Riscv64, "addi a0, s4, 0x10", "auipc ra, 0x0", "R_RISCV_CALL_PLT set", "jalr ra",
                             helpers={"set": asm.accesses(asm.Riscv64, helper)}), [("store", "release", 0x14)])


class Powerpc64(unittest.TestCase):
    def test_release(self):
        self.assertEqual(one(asm.Powerpc64, "lwsync", "std 4, 16(3)"), [("store", "release", 16)])
        self.assertEqual(one(asm.Powerpc64, "std 4, 16(3)"), [("store", "", 16)])

    def test_acquire(self):
        self.assertEqual(one(asm.Powerpc64, "lwz 4, 0(3)", "lwsync"), [("load", "acquire", 0)])
        self.assertEqual(one(asm.Powerpc64, "lwz 4, 0(3)"), [("load", "", 0)])
        self.assertEqual(one(asm.Powerpc64, "ld 12, 16(3)", "cmpldi 12, 0", "beq 0, 0x14", "lwsync", "blr", "blr"),
                         [("load", "", 16)])

    def test_atomics(self):
        self.assertEqual(one(asm.Powerpc64, "lwsync", "lwarx 5, 0, 4", "add 5, 3, 5", "stwcx. 5, 0, 4")[0][:2],
                         ("rmw", "release"))
        loop = ("lwarx 5, 0, 4", "stwcx. 5, 0, 4", "bne- 0x4")
        self.assertEqual(one(asm.Powerpc64, "sync", *loop, "sync")[0][:2], ("rmw", "full"))
        # What is stored before may come after what is loaded.
        self.assertEqual(one(asm.Powerpc64, "lwsync", *loop, "sync")[0][:2], ("rmw", "acquire+release"))
        self.assertEqual(one(asm.Powerpc64, "lwsync", *loop, "blr")[0][:2], ("rmw", "release"))


class Ways(unittest.TestCase):
    def test_always_behind(self):
        code = asm.Code(asm.Arm64, asm.parse(dump(
            "f", "cbz x1, 0x8", "ldar x8, [x0]", "cbz x8, 0x10", "blr x8", "ret"))["f"])
        self.assertFalse(code.always_behind({1}, 3))
        self.assertTrue(code.always_behind({2}, 3))
        self.assertEqual(code.reach({2}), {3, 4})

    def test_pointer_loads(self):
        for arch, *lines, found in (
            (asm.Arm64, "ldr x8, [x0, #0x10]", "cmp x8, #0x0", "mov x9, x8", "blr x9", {0}),
            (asm.Arm64, "cbz x1, 0xc", "ldr x8, [x0]", "b 0x10", "ldr x8, [x2]", "blr x8", {1, 3}),
            (asm.Arm64, "ldr x8, [x0]", "add x8, x8, #0x8", "nop", "blr x8", set()),
            (asm.Riscv64, "ld a2, 0x10(a0)", "beqz a2, 0x10", "sd a2, 0x0(sp)", "jalr a2", "ret", {0}),
            (asm.Powerpc64, "ld 12, 16(3)", "cmpldi 12, 0", "mtctr 12", "ld 12, 0(3)", "bctrl", {0}),
        ):
            code = asm.Code(arch, asm.parse(dump("f", *lines))["f"])
            call = max(i for i in range(len(lines)) if code.call(i))
            self.assertEqual(asm.pointer_loads(code, call), found)

    def test_calls_and_jumps(self):
        code = asm.Code(asm.Powerpc64, asm.parse(dump(
            "f", "bctrl", "b 0x0", "b 0x0", "R_PPC64_REL24 g", "bctr"))["f"])
        self.assertEqual([code.call(i) for i in range(4)], ["(indirect)", None, "g", "(indirect)"])
        self.assertEqual(code.next, [[1], [0], [], []])


if __name__ == "__main__":
    unittest.main()
