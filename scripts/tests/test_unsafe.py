# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/check-unsafe on snippets with seeded faults."""

import importlib.machinery
import importlib.util
import os
import sys
import unittest

sys.dont_write_bytecode = True
PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "check-unsafe")
loader = importlib.machinery.SourceFileLoader("check_unsafe", PATH)
unsafe = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_unsafe", loader))
loader.exec_module(unsafe)


def audit(text, path="drivers/infiniband/x.rs"):
    return unsafe.Audit(path, text)


def faults(text, path="drivers/infiniband/x.rs"):
    return audit(text, path).faults


class Counting(unittest.TestCase):
    def test_blocks_and_impls(self):
        found = audit("// SAFETY: a\nunsafe impl A for B {}\nfn f() {\n    // SAFETY: b\n    unsafe { g() };\n}\n"
                      "unsafe fn h() {}\nunsafe extern \"C\" fn i() {}\n")
        self.assertEqual((found.blocks, found.impls, found.faults), (1, 1, []))

    def test_not_in_comments_and_strings(self):
        found = audit('// unsafe { a() }\n/* unsafe { /* b() */ unsafe { } */\nlet s = "unsafe { c() }";\n'
                      'let r = r#"unsafe { " } "#; let c = c"unsafe {";\n//! unsafe impl A for B {}\n')
        self.assertEqual((found.blocks, found.impls, found.faults), (0, 0, []))

    def test_quotes_are_no_lifetimes(self):
        found = audit("fn f<'a>(c: &'a u8) -> char {\n    let q = '\"';\n    // SAFETY: a\n    unsafe { g('\\'') };\n"
                      "    let s = \"x\";\n    q\n}\n")
        self.assertEqual((found.blocks, found.faults), (1, []))

    def test_what_a_macro_matches(self):
        found = audit("macro_rules! m {\n    (unsafe impl A for $t:ty) => {\n        // SAFETY: a\n"
                      "        unsafe impl A for $t {}\n    };\n}\n")
        self.assertEqual((found.impls, found.faults), (1, []))


class Comments(unittest.TestCase):
    def test_none(self):
        self.assertIn("x.rs:2: no 'SAFETY:' comment", faults("fn f() {\n    unsafe { g() };\n}\n")[0])

    def test_another_comment(self):
        self.assertEqual(len(faults("fn f() {\n    // Calls g.\n    unsafe { g() };\n}\n")), 1)

    def test_empty(self):
        self.assertEqual(len(faults("fn f() {\n    // SAFETY:\n    unsafe { g() };\n}\n")), 1)

    def test_of_the_statement_before(self):
        text = "fn f() {\n    // SAFETY: a\n    unsafe { g() };\n    unsafe { h() };\n}\n"
        self.assertIn("x.rs:4:", faults(text)[0])

    def test_not_across_an_empty_line(self):
        self.assertEqual(len(faults("fn f() {\n    // SAFETY: a\n\n    unsafe { g() };\n}\n")), 1)

    def test_above_the_statement(self):
        self.assertEqual(faults("fn f() {\n    // SAFETY: a\n    let x =\n        unsafe { g() };\n}\n"), [])

    def test_above_an_attribute(self):
        self.assertEqual(faults("// SAFETY: a\n#[cfg(X)]\nunsafe impl A for B {}\n"), [])

    def test_anywhere_in_the_comment(self):
        self.assertEqual(faults("// INVARIANT: b\n// SAFETY: a\n// and more\nunsafe impl A for B {}\n"), [])

    def test_to_do(self):
        for word in ("TODO", "todo: later", "FIXME", "?"):
            self.assertIn("says nothing", faults(f"// SAFETY: {word}\nunsafe impl A for B {{}}\n")[-1])


class Forbidden(unittest.TestCase):
    def one(self, text, says, path="drivers/x.rs"):
        found = faults(text, path)
        self.assertEqual(len(found), 1, found)
        self.assertIn(says, found[0])

    def test_core_atomics(self):
        self.one("use core::sync::atomic::AtomicU32;\n", "core::sync::atomic")
        self.one("static X: core::sync::atomic::AtomicBool = A;\n", "core::sync::atomic", "rust/kernel/x.rs")
        self.one("use core::{\n    mem,\n    sync::atomic::AtomicU32, //\n};\n", "core::sync::atomic")
        self.assertEqual(faults("use kernel::sync::atomic::Atomic;\n"), [])
        self.assertEqual(faults("use core::{\n    mem,\n    ptr, //\n};\nuse kernel::sync::atomic::Atomic;\n"), [])

    def test_only_in_the_kernel(self):
        self.assertEqual(faults("use core::sync::atomic::AtomicU32;\n", "tools/x.rs"), [])

    def test_static_mut(self):
        self.one("static mut X: u32 = 0;\n", "static mut", "samples/x.rs")

    def test_static_mut_of_c(self):
        self.one('extern "C" {\n    static mut x: u32;\n}\n', "no comment says why")
        self.assertEqual(faults('// C has it.\nextern "C" {\n    static mut x: u32;\n}\n'), [])
        self.assertEqual(faults('extern "C" {\n    // C has it.\n    static mut x: u32;\n}\n'), [])

    def test_static_mut_after_an_extern_block(self):
        self.one('// C has it.\nextern "C" {\n    fn f();\n}\n// Mine.\nstatic mut X: u32 = 0;\n', "use an atomic")

    def test_transmute(self):
        self.one("fn f() {\n    // SAFETY: a\n    let x = unsafe { core::mem::transmute(y) };\n}\n", "transmute")
        self.assertEqual(faults("fn f() {\n    let x = zerocopy::transmute!(y);\n}\n"), [])

    def test_references(self):
        for body in ("&*p", "&mut *p", "&mut (*p).x", "& (*p).x", "&mut * p", "core::slice::from_raw_parts(p, 1)"):
            self.one(f"fn f() {{\n    // SAFETY: a\n    let x = unsafe {{ {body} }};\n}}\n", "makes a reference")
        text = "fn f() {\n    // SAFETY: a\n    let x = unsafe { &raw mut (*p).x };\n}\n"
        self.assertEqual(faults(text), [])
        self.assertEqual(faults("fn f() {\n    // SAFETY: a\n    let x = unsafe { &*p };\n}\n", "rust/kernel/x.rs"), [])


class Budget(unittest.TestCase):
    TEXT = "// SAFETY: a\nunsafe impl A for B {}\n"

    def test_over_and_under(self):
        one = audit(self.TEXT, "rust/x.rs")
        self.assertEqual(unsafe.over(one, {"rust/x.rs": (0, 1)}), ([], []))
        more, less = unsafe.over(one, {})
        self.assertEqual((len(more), less), (1, []))
        more, less = unsafe.over(one, {"rust/x.rs": (2, 1)})
        self.assertEqual((more, len(less)), ([], 1))

    def test_round_trip(self):
        written = unsafe.write_budget([audit(self.TEXT, "rust/x.rs"), audit("", "rust/y.rs")])
        self.assertEqual(unsafe.parse_budget(written), {"rust/x.rs": (0, 1)})

    def test_bad_line(self):
        with self.assertRaises(SystemExit), open(os.devnull, "w", encoding="utf-8") as sys.stderr:
            unsafe.parse_budget("rust/x.rs 1\n")
        sys.stderr = sys.__stderr__


if __name__ == "__main__":
    unittest.main()
