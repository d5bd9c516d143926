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
    """The accesses of a function as (kind, order, offset)."""
    insns = asm.parse(dump("f", *lines))["f"]
    return [(a.kind, "+".join(sorted(a.order)), a.offset) for a in asm.accesses(arch, insns, helpers)]


class Parse(unittest.TestCase):
    def test_local_labels_and_relocations(self):
        text = ("0000000000000010 <f<'a>::g>:\n      10:      \tauipc\tra, 0x0\n"
                "\t\t0000000000000010:  R_RISCV_CALL_PLT\tirq_poll_init\n\t\t0000000000000010:  R_RISCV_RELAX\t*ABS*\n"
                "      14:      \tjalr\tra <f<'a>::g+0x4>\n\n0000000000000018 <.Lpcrel_hi1>:\n"
                "      18:      \tret\n\n000000000000001c <h>:\n      1c:      \tret\n")
        found = asm.parse(text)
        self.assertEqual([(f, len(i)) for f, i in found.items()], [("f<'a>::g", 3), ("h", 1)])
        self.assertEqual(found["f<'a>::g"][0].target, "irq_poll_init")


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
        kind, order, _ = one(asm.Arm64, "ldxr w8, [x0]", "stlxr w9, w8, [x0]", "cbnz w9, 0x0", "dmb ish")[0]
        self.assertEqual((kind, "full" in order), ("rmw", True))

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
        kind, order, _ = one(asm.Riscv64, "lr.w a4, (a0)", "bne a4, a3, 0x10", "sc.w.rl a5, a2, (a0)",
                             "bnez a5, 0x0", "fence rw, rw")[0]
        self.assertEqual((kind, "full" in order), ("rmw", True))


class Powerpc64(unittest.TestCase):
    def test_release(self):
        self.assertEqual(one(asm.Powerpc64, "lwsync", "std 4, 16(3)"), [("store", "release", 16)])
        self.assertEqual(one(asm.Powerpc64, "std 4, 16(3)"), [("store", "", 16)])

    def test_acquire(self):
        self.assertEqual(one(asm.Powerpc64, "lwz 4, 0(3)", "lwsync"), [("load", "acquire", 0)])
        self.assertEqual(one(asm.Powerpc64, "lwz 4, 0(3)"), [("load", "", 0)])

    def test_atomics(self):
        self.assertEqual(one(asm.Powerpc64, "lwsync", "lwarx 5, 0, 4", "add 5, 3, 5", "stwcx. 5, 0, 4")[0][:2],
                         ("rmw", "release"))
        kind, order, _ = one(asm.Powerpc64, "sync", "lwarx 5, 0, 4", "stwcx. 5, 0, 4", "bne- 0x4", "sync")[0]
        self.assertEqual((kind, "full" in order), ("rmw", True))


RUST = (
    "addi a0, s4, 0x50", "auipc ra, 0x0", "R_RISCV_CALL_PLT irq_poll_init", "jalr ra",
    "addi a0, s4, 0x10", "auipc ra, 0x0", "R_RISCV_CALL_PLT rust_helper_atomic_ptr_set_release", "jalr ra",
    "sd a2, 0x10(s0)", "ret")
C = (
    "sd a1, 0x10(s4)", "addi a0, s4, 0x50", "auipc ra, 0x0", "R_RISCV_CALL_PLT irq_poll_init", "jalr ra", "ret")


class Sites(unittest.TestCase):
    def judge(self, rust, c=C):
        helpers = asm.parse(dump("rust_helper_atomic_ptr_set_release", "fence rw, w", "sd a1, 0x0(a0)", "ret"))
        return {name: faults for name, faults, _ in asm.judge(
            asm.Riscv64, asm.parse(dump("set_handler", *rust)), helpers, asm.parse(dump("__ib_alloc_cq", *c)))}

    def faults(self, key, *args):
        return next(f for n, f in self.judge(*args).items() if n.startswith(key))

    def test_release_in_a_helper(self):
        self.assertEqual(self.faults("R: comp_handler", RUST), [])

    def test_plain_store(self):
        text = "\n".join(self.faults("R: comp_handler", C))
        self.assertIn("nothing of the kind", text)
        self.assertIn("plain sd a1, 0x10(s4)", text)

    def test_plain_store_beside(self):
        self.assertIn("plain", self.faults("R: comp_handler", ("sd a1, 0x10(s4)",) + RUST)[0])

    def test_the_order_is_gone(self):
        relaxed = [line.replace("set_release", "set") for line in RUST]
        self.assertEqual(len(self.faults("R: comp_handler", relaxed)), 1)

    def test_no_such_function(self):
        self.assertIn("no function", self.faults("D2: the runs", RUST)[0])

    def test_control(self):
        self.assertEqual(self.faults("R: C cq.c", RUST), [])
        # A release in the C code, or nothing at all, is news.
        self.assertTrue(self.faults("R: C cq.c", RUST, RUST))
        self.assertTrue(self.faults("R: C cq.c", RUST, C[1:]))


class Names(unittest.TestCase):
    def test_short(self):
        self.assertEqual(asm.short("<kernel::rdma::cq::build::Handler<cq_rust::poll::CorePoller>>::stop"),
                         "build::Handler::stop")
        self.assertEqual(asm.short("kernel::rdma::cq::poller::handler_early::<cq_rust::poll::CorePoller>"),
                         "poller::handler_early")


if __name__ == "__main__":
    unittest.main()
