# SPDX-License-Identifier: GPL-2.0
"""Tests of the conversion of drivers.  Run: python3 -m unittest discover scripts/tests"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
import unittest

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROJECT = os.path.dirname(SCRIPTS)
sys.path.insert(0, SCRIPTS)
import asm_order  # noqa: E402 # pylint: disable=wrong-import-position
import convert  # noqa: E402 # pylint: disable=wrong-import-position
import drivers_order  # noqa: E402 # pylint: disable=wrong-import-position


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(SCRIPTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


integrate, patches = load("integrate"), load("patches")

# Does with sed what the rules ask for, so that these tests need no coccinelle.
SPATCH = """#!/bin/sh
for last; do :; done
case "$*" in
*cq_completion.cocci*) s='s/CALL/ib_cq_completion/' ;;
*) s='s/early/late/' ;;
esac
for file; do
	case $file in drivers/*.c) sed -i "$s" "$file" ;; esac
done
echo ran >>"$SPATCH_LOG"
"""
RULE = """// SPDX-License-Identifier: GPL-2.0
// Subject: RDMA/x: Do it late
// Files: drivers/infiniband/hw/x/x.c
//
// Because.

@@
@@

- early
+ late
"""
DRIVER = "int x; /* comp_handler */\nCALL\nearly\nint y;\n"
HOOKS = "file drivers/infiniband/hw/x/x.c\nafter int x; /* comp_handler */\n+int hook;\n"


class Drivers(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.tree, self.project = os.path.join(self.dir, "tree"), os.path.join(self.dir, "project")
        self.put("tree/Makefile", "VERSION = 7\nPATCHLEVEL = 3\n")
        self.put("tree/Kbuild", "")
        self.put("tree/drivers/infiniband/hw/x/x.c", DRIVER)
        self.put("tree/drivers/infiniband/hw/x/other.c", "CALL\n")
        self.put("project/scripts/hooks.txt", HOOKS)
        self.put("project/scripts/coccinelle/rdma/cq_completion.cocci", "// SPDX\n")
        self.put("project/scripts/drivers/macros.h", "")
        self.put("project/scripts/drivers/10-x.cocci", RULE)
        self.put("spatch", SPATCH)
        os.chmod(os.path.join(self.dir, "spatch"), 0o755)
        self.log = os.path.join(self.dir, "log")
        for key, value in (("SPATCH", os.path.join(self.dir, "spatch")), ("SPATCH_LOG", self.log)):
            old = os.environ.get(key)
            os.environ[key] = value
            self.addCleanup(
                lambda k=key, v=old: os.environ.pop(k) if v is None else os.environ.update({k: v})
            )
        self.before = self.snapshot()

    def put(self, path, text):
        path = os.path.join(self.dir, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def get(self, path="drivers/infiniband/hw/x/x.c"):
        with open(os.path.join(self.tree, path), encoding="utf-8") as f:
            return f.read()

    def snapshot(self):
        return {
            os.path.relpath(os.path.join(w, n), self.tree): integrate.read(os.path.join(w, n))
            for w, _, names in os.walk(self.tree)
            for n in names
        }

    def runs(self):
        return (integrate.read(self.log) or b"").count(b"ran")

    def integrate(self, *args, status=0):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            got = integrate.main(["--project", self.project, self.tree] + list(args))
        self.assertEqual(got, status, out.getvalue())
        return out.getvalue()

    def test_convert_and_undo(self):
        self.integrate("--drivers")
        self.assertEqual(
            self.get(), "int x; /* comp_handler */\nint hook;\nib_cq_completion\nlate\nint y;\n"
        )
        self.assertEqual(self.get("drivers/infiniband/hw/x/other.c"), "CALL\n")
        self.integrate("--undo")
        self.assertEqual(self.snapshot(), self.before)

    def test_twice_is_once(self):
        self.integrate("--drivers")
        there, runs = self.snapshot(), self.runs()
        self.integrate("--drivers", "--check")
        self.integrate("--drivers")
        self.assertEqual(self.snapshot(), there)
        # What is known is not worked out again.
        self.assertEqual(self.runs(), runs)

    def test_without_drivers_takes_it_back(self):
        self.integrate()
        plain = self.get()
        self.integrate("--drivers", "--check", status=1)
        self.integrate("--drivers")
        self.integrate("--check", status=1)
        self.integrate()
        self.assertEqual(self.get(), plain)

    def test_a_changed_rule_is_applied_to_the_original(self):
        self.integrate("--drivers")
        self.put("project/scripts/drivers/10-x.cocci", RULE.replace("Because.", "Therefore."))
        runs = self.runs()
        self.integrate("--drivers")
        self.assertGreater(self.runs(), runs)
        self.assertIn("\nlate\n", self.get())
        self.integrate("--undo")
        self.assertEqual(self.snapshot(), self.before)

    def test_a_hook_goes_under_the_conversion(self):
        self.integrate("--drivers")
        self.put("project/scripts/hooks.txt", HOOKS.replace("int hook;", "int hooks;"))
        self.integrate("--drivers")
        self.assertEqual(
            self.get(), "int x; /* comp_handler */\nint hooks;\nib_cq_completion\nlate\nint y;\n"
        )

    def test_a_rule_that_does_not_fit_changes_nothing(self):
        self.put("tree/drivers/infiniband/hw/x/x.c", DRIVER.replace("early", "never"))
        there = self.snapshot()
        self.assertIn("10-x.cocci does not fit", self.integrate("--drivers", status=2))
        self.assertEqual(self.snapshot(), there)

    def test_somebody_elses_change_is_kept(self):
        self.integrate("--drivers")
        mine = self.get() + "int z;\n"
        self.put("tree/drivers/infiniband/hw/x/x.c", mine)
        self.assertIn("was changed in the tree", self.integrate("--drivers", status=2))
        self.assertIn("kept drivers/infiniband/hw/x/x.c", self.integrate("--undo"))
        self.assertIn("int z;\n", self.get())

    def test_spatch_that_fails(self):
        self.put("spatch", "#!/bin/sh\necho 'minus: parse error:' >&2\n")
        self.assertIn("spatch failed", self.integrate("--drivers", status=2))
        self.assertEqual(self.snapshot(), self.before)


class Record(unittest.TestCase):
    def test_there_and_back(self):
        for before, after in (
            (b"a\nb\nc\n", b"a\nx\ny\nc\nz\n"),
            (b"a\nb", b"b"),
            (b"", b"a\n"),
            (b"\xff\n", b"\xfe\n"),
        ):
            entry = convert.record(before, after)
            self.assertEqual(convert.again(entry, before), after)
            self.assertEqual(convert.back(entry, after), before)
            self.assertIsNone(convert.back(entry, after + b"more"))
            self.assertIsNone(convert.again(entry, before + b"more"))


SAMPLE = """\
void a(struct d *cq)
{
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

void b(struct ib_cq *cq, int notify)
{
	if (notify && cq->comp_handler)
		(*cq->comp_handler)(cq, cq->cq_context);
}

void c(struct d *cq, unsigned long flags)
{
	if (cq->ibcq.comp_handler) {
		spin_lock_irqsave(&cq->lock, flags);
		(*cq->ibcq.comp_handler)(&cq->ibcq, cq->ibcq.cq_context);
		spin_unlock_irqrestore(&cq->lock, flags);
	}
}

void e(struct ib_cq *cq)
{
	cq->comp_handler(cq, cq->cq_context);
}

void f(struct ib_cq *cq)
{
	ib_comp_handler h = cq->comp_handler;

	if (h)
		h(cq, cq->cq_context);
}

void g(struct ib_cq *cq)
{
	cq->comp_handler = NULL;
	cq->comp_handler = handler;
}

int h(struct ib_cq *cq)
{
	return !!cq->comp_handler;
}
"""


def have_spatch():
    try:
        convert.spatch(tempfile.gettempdir(), PROJECT, ["--version"])
        return True
    except convert.Fault:
        return False


@unittest.skipUnless(have_spatch(), "there is no coccinelle")
class Semantic(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        with open(os.path.join(self.dir, "x.c"), "w", encoding="utf-8") as f:
            f.write(SAMPLE)

    def where(self, *options):
        out = convert.spatch(
            self.dir,
            PROJECT,
            convert.QUIET + ["--cocci-file", f"@PROJECT@/{convert.COMMON}", *options, "x.c"],
        )
        return out

    def test_report(self):
        found = re.findall(r"(?m)^x\.c:(\d+):.*WARNING: (\w+ \w+)", self.where("-D", "report"))
        self.assertEqual(
            sorted((int(n), what) for n, what in found),
            [
                (4, "direct call"),
                (10, "direct call"),
                (17, "direct call"),
                (24, "direct call"),
                (29, "comp_handler loaded"),
                (38, "comp_handler stored"),
            ],
        )

    def test_org_and_context(self):
        self.assertEqual(self.where("-D", "org").count("TODO"), 6)
        self.assertIn("\n-\tcq->comp_handler(cq, cq->cq_context);", self.where("-D", "context"))

    def test_patch(self):
        convert.apply(
            self.dir, PROJECT, os.path.join(PROJECT, convert.COMMON), ["x.c"], "-D", "patch"
        )
        with open(os.path.join(self.dir, "x.c"), encoding="utf-8") as f:
            text = f.read()
        self.assertIn("{\n\tib_cq_completion(&cq->ibcq);\n}", text)
        self.assertIn("\tif (notify)\n\t\tib_cq_completion(cq);\n", text)
        self.assertIn(
            "{\n\tspin_lock_irqsave(&cq->lock, flags);\n\tib_cq_completion(&cq->ibcq);\n"
            "\tspin_unlock_irqrestore(&cq->lock, flags);\n}",
            text,
        )
        self.assertEqual(text.count("ib_cq_completion("), 4)
        # What is no call, or needs thought, is left.
        self.assertIn("ib_comp_handler h = cq->comp_handler;", text)
        self.assertIn("return !!cq->comp_handler;", text)


GOOD = """
0000000000000000 <f>:
       0: 	add	x8, x0, #0x10
       4: 	ldar	x8, [x8]
       8: 	cbz	x8, 0x18 <f+0x18>
       c: 	ldr	x1, [x0, #0x20]
      10: 	blr	x8
"""


class Code(unittest.TestCase):
    def counted(self, text):
        return drivers_order.count({"x.o": asm_order.parse(text)})[:2]

    def test_acquire_and_test(self):
        self.assertEqual(self.counted(GOOD), (1, 1))
        self.assertEqual(self.counted(GOOD.replace("blr", "br")), (1, 1))

    def test_without_order(self):
        self.assertEqual(
            self.counted(GOOD.replace("ldar\tx8, [x8]", "ldr\tx8, [x0, #0x10]")), (0, 0)
        )

    def test_without_test(self):
        self.assertEqual(self.counted(GOOD.replace("cbz\tx8", "cbz\tx9")), (1, 0))

    def test_another_value(self):
        self.assertEqual(
            self.counted(GOOD.replace("ldr\tx1, [x0, #0x20]", "ldr\tx8, [x0, #0x20]")), (0, 0)
        )

    def test_call(self):
        calls = re.findall(drivers_order.CALL, SAMPLE)
        self.assertEqual(len(calls), 4)


class Objects(unittest.TestCase):
    def test_failed_and_missing(self):
        tree = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, tree)
        log, where = os.path.join(tree, "log"), os.path.join(tree, "drivers/infiniband/hw/x")
        os.makedirs(where)
        with open(log, "w", encoding="utf-8") as f:
            f.write(
                "make[6]: *** [/k/Makefile.build:287: drivers/infiniband/hw/x/y.o] Error 1\n"
                "make[5]: *** [/k/Makefile.build:544: drivers/infiniband/hw/x] Error 2\n"
            )
        self.assertEqual(drivers_order.failed_objects(log), ["drivers/infiniband/hw/x/y.o"])
        with open(os.path.join(where, "z.c"), "w", encoding="utf-8") as f:
            f.write("comp_handler\n")
        self.assertEqual(drivers_order.uncompiled(tree, tree, "x"), ["drivers/infiniband/hw/x/z.o"])
        with open(os.path.join(where, "z.o"), "w", encoding="utf-8"):
            pass
        self.assertEqual(drivers_order.uncompiled(tree, tree, "x"), [])


class Counts(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)

    def put(self, tree, path, text):
        path = os.path.join(self.dir, tree, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def test_tested_elsewhere(self):
        path = "drivers/infiniband/sw/siw/siw_qp.c"
        self.put("a", path, "int siw_cq_notify_now(void)\n{\n\tif (!cq->comp_handler)\n\t\treturn;\n}\n")
        self.put("b", path, "int siw_cq_notify_now(void)\n{\n\treturn 0;\n}\n")
        for tree, name in (("a", "siw_cq_notify_now"), ("b", None)):
            where = os.path.join(self.dir, tree)
            self.assertEqual(drivers_order.elsewhere(where, "siw"), name)
            self.assertIsNone(drivers_order.elsewhere(where, "rxe"))

    def test_converted(self):
        path = "drivers/infiniband/hw/x/x.c"
        self.put("a", path, "cq->comp_handler(cq, c);\n/* comp_handler */ cq->comp_handler(cq, c);\n")
        self.put("b", path, "ib_cq_completion(cq);\n/* ib_cq_completion(cq) */ ib_cq_completion(cq);\n")
        a, b = os.path.join(self.dir, "a"), os.path.join(self.dir, "b")
        self.assertEqual(drivers_order.converted(a, b, "x"), 2)
        self.assertEqual(drivers_order.converted(a, a, "x"), 0)


class Publish(unittest.TestCase):
    def fault(self, body, *first):
        tree = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, tree)
        os.makedirs(os.path.join(tree, "drivers"))
        with open(os.path.join(tree, "drivers/x.c"), "w", encoding="utf-8") as f:
            f.write("static int make(struct a *a,\n\t\tint b)\n{\n%s\n}\n" % body)
        return drivers_order.Publication(("x.c", "make"), r"xa_store\(", *first).fault(tree)

    def test_order(self):
        self.assertEqual(self.fault("\tinit(a);\n\txa_store(a);", r"init\("), "")
        self.assertIn("comes later", self.fault("\txa_store(a);\n\tinit(a);", r"init\("))
        self.assertIn("comes later", self.fault("\t/* init(a) */\n\txa_store(a);", r"init\("))
        self.assertIn("not published", self.fault("\tinit(a);\n\ttable[0] = a;", r"init\("))


class Series(unittest.TestCase):
    def test_everything_has_a_patch(self):
        """No file and no hook of the project is left out, and none is named in vain."""
        series = patches.parse(os.path.join(SCRIPTS, "series.txt"))
        every = [p for one in series for p in one.patches if p.kind == "patch"]
        files = integrate.overlay_files(PROJECT)
        left = [f for f in files if not any(patches.matches(f, g) for p in every for g in p.globs)]
        self.assertEqual(left, [])
        hooks = integrate.parse_hooks(os.path.join(SCRIPTS, "hooks.txt"))
        for path in hooks:
            if path != "MAINTAINERS":
                self.assertTrue(any(path == h for p in every for h, _ in p.hooks), path)

    def test_what_is_compiled_of_a_step(self):
        files = integrate.overlay_files(PROJECT)
        hooks = integrate.parse_hooks(os.path.join(SCRIPTS, "hooks.txt"))
        rules = [p for r in convert.rules(PROJECT) for p in r.files]
        for path in [*files, *hooks, *rules]:
            self.assertIsNotNone(patches.targets_of([path]), path)
        self.assertEqual(
            patches.targets_of(["MAINTAINERS", "drivers/x/a.c", "include/rdma/ib_verbs.h"]),
            ["drivers/x/a.o", "drivers/infiniband/core/", "drivers/infiniband/sw/"],
        )
        self.assertEqual(
            patches.targets_of(["drivers/infiniband/core/verbs.c", "drivers/infiniband/Kconfig"]),
            ["drivers/infiniband/core/"],
        )
        self.assertEqual(patches.targets_of(["Documentation/x.rst"]), [])
        self.assertIsNone(patches.targets_of(["mm/x.h"]))

    def test_message(self):
        text = patches.message(["word " * 30, "", "* end"])
        self.assertTrue(all(len(line) <= 75 for line in text.split("\n")))
        self.assertEqual(text.split("\n\n")[1], "* end")

    def test_thinned(self):
        self.assertEqual(patches.thinned(b"a\n\nconfig X\n\thelp\n\nb\n", ["X"]), b"a\n\nb\n")

    def test_visible(self):
        self.assertTrue(
            patches.visible("MAINTAINERS", "F:\trust/kernel/rdma*", {"rust/kernel/rdma/cq.rs"})
        )
        self.assertFalse(
            patches.visible("MAINTAINERS", "F:\tdrivers/x/", {"rust/kernel/rdma/cq.rs"})
        )
        self.assertFalse(patches.visible("Documentation/a/index.rst", "   doc", {}))


if __name__ == "__main__":
    unittest.main()
