# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/asm_sites.py on snippets of machine code with debug information."""

import os
import re
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import asm_order as asm  # noqa: E402 # pylint: disable=wrong-import-position
import asm_sites as sites  # noqa: E402 # pylint: disable=wrong-import-position
from test_asm_order import dump  # noqa: E402 # pylint: disable=wrong-import-position

PROJECT = os.path.dirname(os.path.dirname(HERE))


def obj(arch, name, *lines, helpers=None):
    """An object with a function main; a line is "INSTRUCTION | FRAME FRAME...".

    A frame is FUNCTION@LINE, innermost first; all are in the file x.c.
    """
    code, where, addr = [], [], 0
    for line in lines:
        insn, _, chain = line.partition(" | ")
        code.append(insn)
        if insn.startswith("R_"):
            continue
        where.append(hex(addr))
        for frame in chain.split() + ["main@1"]:
            function, at = frame.rsplit("@", 1)
            where += [function, f"x.c:{at}:1"]
        where.append("")
        addr += 4
    return sites.Object(arch, name, dump("main", *code), "\n".join(where), helpers)


def faults(arch, key, name, *lines, helpers=None):
    """What is said about a site, by its function."""
    points = sites.judge_sites(arch, obj(arch, name, *lines, helpers=helpers))
    return next(f for n, f, _ in points if f": {key}()" in n)


class Names(unittest.TestCase):
    def test_simple(self):
        for long, path in (
            ("f", "f"),
            ("a::b::f::<c::D<e>>", "a::b::f"),
            ("<a::b::C<d::E<f>>>::g", "a::b::C::g"),
            ("<a::b::C<d::E> as h::T<i>>::g::<j>", "a::b::C::g"),
            ("<a::C>::g::{closure#0}", "a::C::g::{closure#0}"),
            ("<a::C<fn(u8) -> b::D>>::g", "a::C::g"),
            ("a::g (2)", "a::g"),
        ):
            self.assertEqual(sites.simple(long), path)

    def test_site_of_a_path(self):
        site = sites.Site("X", "", "", "eq::Eq::push")
        self.assertTrue(site.is_at("rrxe_main::eq::Eq::push"))
        self.assertTrue(site.is_at("eq::Eq::push"))
        self.assertFalse(site.is_at("rrxe_main::peq::Eq::push"))
        self.assertFalse(site.is_at("rrxe_main::eq::Eq::push::{closure#0}"))

    def test_a_closure_is_no_site(self):
        self.assertEqual(sites.sites_of("rrxe_main::arm::Arm::fire::{closure#0}"), [])
        self.assertEqual(len(sites.sites_of("rrxe_main::arm::Arm::fire")), 1)


class Frames(unittest.TestCase):
    def test_frames(self):
        text = "0x10\nf\n/a/x.c:3:4\nmain\n/a/y.c:1:0\n\n0x14\n??\n??:0:0\n\n"
        self.assertEqual(sites.frames(text), {
            0x10: [("f", "x.c", 3, 4), ("main", "y.c", 1, 0)], 0x14: [("??", "??", 0, 0)]})

    def test_wanted(self):
        functions = asm.parse(dump("f", "mov x1, x2", "ldr x1, [x2]", "str x1, [sp, #0x8]", "dmb ish", "bl 0x40 <g>"))
        self.assertEqual(list(asm.wanted(asm.Arm64, functions)), [4, 12, 16])


POP = (
    "ldr w1, [x0] | load@5 pop@141",
    "ldar w2, [x1] | load_acquire@7 pop@143",
    "str w3, [x1] | store@9 pop@145",
    "stlr w4, [x0] | store_release@8 pop@146",
    "ret",
)


def in_pop(lines):
    return [line.replace("pop@", "rrxe_main::eq::Eq::pop@") for line in lines]


class Sites(unittest.TestCase):
    def pop(self, *lines):
        return faults(asm.Arm64, "eq::Eq::pop", "rrxe_main", *in_pop(lines))

    def test_good(self):
        self.assertEqual(self.pop(*POP), [])

    def test_the_acquire_is_gone(self):
        text = self.pop(*(line.replace("ldar", "ldr") for line in POP))
        self.assertEqual(len(text), 1)
        self.assertIn("in main: acquire load 0 times instead of 1", text[0])

    def test_the_release_is_gone(self):
        self.assertIn("release store 0 times", self.pop(*(line.replace("stlr", "str") for line in POP))[0])

    def test_one_of_two_copies(self):
        """A copy elsewhere that is right does not make up for one that is not."""
        copy = [re.sub(r"$", " outer@7", line.replace("ldar", "ldr")) for line in POP[:-1]]
        self.assertEqual(len(self.pop(*POP[:-1], *copy, "ret")), 1)

    def test_a_duplicate_without_order(self):
        """The compiler has made two of one load, and one of them is not right."""
        twice = (POP[0], POP[1], POP[1].replace("ldar", "ldr"), *POP[2:])
        self.assertEqual(len(self.pop(*twice)), 1)

    def test_no_such_function(self):
        self.assertIn("is it called otherwise now?", self.pop("ret")[0])

    def test_both_forms_of_an_atomic_operation(self):
        good = ("casal w1, w2, [x0] | lse@1 arm@9", "ldxr w1, [x0] | llsc@2 arm@9",
                "stlxr w3, w2, [x0] | llsc@2 arm@9", "cbnz w3, 0x4", "dmb ish", "ret")
        good = [line.replace("arm@", "arm::Arm::arm@") for line in good]
        self.assertEqual(faults(asm.Arm64, "arm::Arm::arm", "rrxe_main", *good), [])
        self.assertEqual(len(faults(asm.Arm64, "arm::Arm::arm", "rrxe_main", *good[:4], "nop", "ret")), 1)

    def test_by_a_helper(self):
        helper = asm.parse(dump("cas", "lr.w a4, (a0)", "bne a4, a3, 0x14", "sc.w.rl a5, a2, (a0)", "bnez a5, 0x0",
                                "fence rw, rw", "ret"))["cas"]
        lines = ("auipc ra, 0x0", "R_RISCV_CALL_PLT cas", "jalr ra | arm::Arm::arm@9", "ret")
        good = {"cas": asm.accesses(asm.Riscv64, helper)}
        weak = {"cas": asm.accesses(asm.Riscv64, helper[:4] + helper[5:])}
        self.assertEqual(faults(asm.Riscv64, "arm::Arm::arm", "rrxe_main", *lines, helpers=good), [])
        self.assertIn("full rmw 0 times",
                      faults(asm.Riscv64, "arm::Arm::arm", "rrxe_main", *lines, helpers=weak)[0])

    def test_a_barrier_of_its_own(self):
        """That of the operation behind it does not count."""
        swap = ("lr.w a4, (a0) | swap@3 fire@69", "sc.w.rl a5, a2, (a0) | swap@3 fire@69",
                "bnez a5, 0x{:x}", "fence rw, rw | swap@3 fire@69", "ret")
        fires = [line.replace("fire@", "arm::Arm::fire@") for line in swap]
        alone = [line.format(0) for line in fires]
        both = ["fence rw, rw | barrier@46 arm::Arm::fire@66"] + [line.format(4) for line in fires]
        self.assertEqual(faults(asm.Riscv64, "arm::Arm::fire", "rrxe_main", *both), [])
        self.assertIn("full fence 0 times", faults(asm.Riscv64, "arm::Arm::fire", "rrxe_main", *alone)[0])

    def test_a_release_besides_a_full_barrier(self):
        """The full barrier does not make up for the release."""
        where = " | driver::gate::Gate::enter@"
        for name, n in (("ldaddl", 0), ("ldadd", 1)):
            text = faults(asm.Arm64, "driver::gate::Gate::enter", "rrxe_main", f"casal w1, w2, [x0]{where}73",
                          f"{name} w1, w2, [x0]{where}80", "ret")
            self.assertEqual(len(text), n)

    def test_what_another_site_does(self):
        """The barrier of take() does not make up for that of ring()."""
        lines = ("{} w1, w2, [x0] | update@9 bell::Bell::ring@89", "casal w1, w2, [x0] | bell::Bell::take@106 "
                 "bell::Bell::ring@94", "ret")
        for name, n in (("casal", 0), ("casl", 1)):
            text = faults(asm.Arm64, "bell::Bell::ring", "rrxe_main", lines[0].format(name), *lines[1:])
            self.assertEqual(len(text), n)

    def test_every_modelled_function_has_a_site(self):
        """What the litmus tests are about is looked for, or has no order of its own."""
        none = {
            "poll_softirq": "arms after irq_poll_complete(), which is C",
            "complete": "calls irq_poll_complete(), which is C",
            "disable_and_wait": "calls C and waits for RCU",
            "arm": "has those of store_handler() and open()",
            "publish": "calls the driver",
            "create": "has that of RcuArray",
            "handle_event": "compares a constant",
            "dispatch": "has that of RcuArray",
            "recv": "reads once",
            "send": "reads once",
            "erase": "calls __xa_erase()",
            "wait": "waits for RCU",
        }
        where = os.path.join(PROJECT, "Documentation/litmus-tests/rdma")
        names = set()
        for name in os.listdir(where):
            with open(os.path.join(where, name), encoding="utf-8") as f:
                names |= set(re.findall(r"Models: (\S+\.rs)::(\w+)", f.read()))
        self.assertGreater(len(names), 20)
        there = {s.function.rsplit("::", 1)[-1] for s in sites.SITES}
        self.assertEqual([n for _, n in sorted(names) if n not in there and n not in none], [])


CONVERTED = "void f(void)\n{\n\tib_cq_completion(cq);\n}\n"
DISPATCH = (
    "ld 12, 16(3) | ib_cq_completion@7 f@3",
    "lwsync",
    "cmpldi 12, 0",
    "beq 0, 0x1c",
    "ld 4, 24(3) | ib_cq_completion@10 f@3",
    "mtctr 12",
    "bctrl | ib_cq_completion@10 f@3",
    "blr",
)
DIRECT = """void f(void)
{
	/* cq->comp_handler(cq); */
	if (cq->comp_handler)
		cq->comp_handler(cq,
				 cq->cq_context);
	(*chp->ibcq.comp_handler)(&chp->ibcq, chp->ibcq.cq_context);
}
"""


class Drivers(unittest.TestCase):
    def converted(self, *lines, source=CONVERTED):
        return sites.judge_converted(obj(asm.Powerpc64, "x", *lines), source, "x.c")

    def test_calls_in(self):
        self.assertEqual(sites.calls_in(DIRECT, sites.DIRECT), [(5, 6), (7, 7)])

    def test_converted(self):
        rows, calls, bad = self.converted(*DISPATCH)
        self.assertEqual((rows, calls, bad), ([("main", "ld 12, 16(3); lwsync")], 1, []))

    def test_no_fence(self):
        lines = [line.replace("lwsync", "nop") for line in DISPATCH]
        self.assertIn("acquire load 0 times", self.converted(*lines)[2][0])

    def test_a_way_around_the_fence(self):
        """The handler is called without the load, on one way."""
        lines = ["beq 0, 0x1c"] + [line.replace("0x1c", "0x20") for line in DISPATCH]
        self.assertIn("is reached without an acquire", self.converted(*lines)[2][-1])

    def test_a_call_that_is_not_compiled(self):
        self.assertIn("x.c:4: this call is not in the object",
                      self.converted(*DISPATCH, source=CONVERTED.replace("\tib", "\n\tib"))[2][0])

    def direct(self, *lines):
        return sites.judge_direct(obj(asm.Arm64, "x", *lines), DIRECT.replace("(*chp", "//(*chp"), "x.c")

    def test_direct(self):
        rows, calls, bad = self.direct("ldr x8, [x0, #0x10] | f@5", "ldr x1, [x0, #0x18] | f@6", "blr x8 | f@5")
        self.assertEqual((rows, calls, bad), ([("main", "ldr x8, [x0, #0x10]")], 1, []))

    def test_direct_with_an_acquire(self):
        """That would be news."""
        bad = self.direct("ldar x8, [x9] | f@5", "blr x8 | f@5")[2]
        self.assertEqual(bad, ["x.c:5: ldar x8, [x9]"])

    def test_direct_that_is_not_seen(self):
        self.assertIn("is not seen", self.direct("ldr x8, [x0, #0x10] | f@5", "ret")[2][0])


class Merged(unittest.TestCase):
    """Two calls of one function that share their end, which is of no line then."""

    CODE = (
        "cbz x1, 0xc",
        "ldar x8, [x9] | ib_cq_completion@7 f@3",
        "b 0x10",
        "ldar x8, [x10] | ib_cq_completion@7 f@4",
        "cbz x8, 0x18",
        "blr x8 | f@0",
        "ret",
    )
    SOURCE = CONVERTED.replace("\tib", "\tib_cq_completion(cq);\n\tib")

    def test_converted(self):
        self.assertEqual(sites.judge_converted(obj(asm.Arm64, "x", *self.CODE), self.SOURCE, "x.c")[2], [])

    def test_another_handler(self):
        """One of another kind is called by the same instruction."""
        code = (*self.CODE[:3], "ldr x8, [x10] | f@9", *self.CODE[4:])
        self.assertEqual(sites.judge_converted(obj(asm.Arm64, "x", *code), CONVERTED, "x.c")[2], [])

    def test_one_without_an_acquire(self):
        code = (*self.CODE[:3], self.CODE[3].replace("ldar", "ldr"), *self.CODE[4:])
        bad = sites.judge_converted(obj(asm.Arm64, "x", *code), self.SOURCE, "x.c")[2]
        self.assertIn("blr x8 has a handler of ldr x8, [x10]", " ".join(bad))

    def test_no_call(self):
        code = self.CODE[:5] + ("nop", "ret")
        bad = sites.judge_converted(obj(asm.Arm64, "x", *code), self.SOURCE, "x.c")[2]
        self.assertIn("there is no call of what is loaded", bad[0])

    def test_direct(self):
        source = "void f(void)\n{\n\tcq->comp_handler(cq);\n}\n"
        for name, n in (("ldr", 0), ("ldar", 1)):
            code = (f"{name} x8, [x9] | f@2", "blr x8 | f@0", "ret")
            self.assertEqual(len(sites.judge_direct(obj(asm.Arm64, "x", *code), source, "x.c")[2]), n)


C = ("sd a1, 0x10(s4)", "addi a0, s4, 0x50", "auipc ra, 0x0", "R_RISCV_CALL_PLT irq_poll_init", "jalr ra",
     "auipc ra, 0x0", "R_RISCV_CALL_PLT irq_poll_complete", "jalr ra",
     "auipc ra, 0x0", "R_RISCV_CALL_PLT irq_poll_disable", "jalr ra", "lw a0, 0x0(s4)", "ret")


class CoreInC(unittest.TestCase):
    def faults(self, *lines):
        return [f for _, found, _ in sites.judge_cq(asm.Riscv64, obj(asm.Riscv64, "cq", *lines)) for f in found]

    def test_nothing_is_found(self):
        self.assertEqual(self.faults(*C), [])

    def test_a_release_is_news(self):
        self.assertIn("fence rw, w; sd a1", self.faults("fence rw, w", *C)[0])

    def test_the_store_has_to_be_seen(self):
        self.assertIn("not seen either", self.faults(*C[1:])[0])

    def test_an_acquire_is_news(self):
        self.assertIn("lw a0, 0x0(s4); fence r, rw", self.faults(*C[:-1], "fence r, rw", "ret")[0])


if __name__ == "__main__":
    unittest.main()
