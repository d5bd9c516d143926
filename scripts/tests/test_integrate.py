# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/integrate on a tiny tree.  Run: python3 -m unittest discover scripts/tests"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integrate")
loader = importlib.machinery.SourceFileLoader("integrate", SCRIPT)
integrate = importlib.util.module_from_spec(importlib.util.spec_from_loader("integrate", loader))
loader.exec_module(integrate)

HOOKS = """\
# A comment
file drivers/x/Kconfig
after config X
+config Y
+\tbool "y"

file drivers/x/Makefile
after-last~ ^obj-\\$\\(
+obj-$(CONFIG_Y) += y.o
end
+# the end
"""
KCONFIG = "menu\n\nconfig  X\n\tbool\n\nendmenu\n"
MAKEFILE = "obj-$(CONFIG_X) += x.o\nobj-$(CONFIG_Z) += z.o\n\nfoo\n"


class Integrate(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.tree = os.path.join(self.dir, "tree")
        self.project = os.path.join(self.dir, "project")
        self.put("tree", "Makefile", "VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\n")
        self.put("tree", "Kbuild", "")
        self.put("tree", "drivers/x/Kconfig", KCONFIG)
        self.put("tree", "drivers/x/Makefile", MAKEFILE)
        self.put("project", "scripts/hooks.txt", HOOKS)
        self.put("project", "drivers/x/y.c", "int y;\n")
        self.put("project", "rust/new/deep/z.rs", "fn z() {}\n")
        self.put("project", "README.md", "not for the tree\n")
        self.before = self.snapshot()

    def put(self, where, path, text):
        path = os.path.join(self.dir, where, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def get(self, path):
        with open(os.path.join(self.tree, path), encoding="utf-8") as f:
            return f.read()

    def snapshot(self, mtime=False):
        found = {}
        for where, dirs, names in os.walk(self.tree):
            for name in names + dirs:
                path = os.path.join(where, name)
                key = os.path.relpath(path, self.tree)
                if os.path.isdir(path):
                    found[key] = None
                else:
                    with open(path, "rb") as f:
                        found[key] = f.read()
                    if mtime:
                        found[key] = (found[key], os.stat(path).st_mtime_ns, os.stat(path).st_ino)
        return found

    def run_it(self, *args):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = integrate.main(["--project", self.project, self.tree] + list(args))
        return status, out.getvalue(), err.getvalue()

    def good(self, *args):
        status, _, err = self.run_it(*args)
        self.assertEqual((status, err), (0, ""))

    def test_apply(self):
        self.good()
        self.assertEqual(self.get("drivers/x/y.c"), "int y;\n")
        self.assertEqual(self.get("rust/new/deep/z.rs"), "fn z() {}\n")
        self.assertFalse(os.path.exists(os.path.join(self.tree, "README.md")))
        self.assertEqual(self.get("drivers/x/Kconfig"),
                         'menu\n\nconfig  X\nconfig Y\n\tbool "y"\n\tbool\n\nendmenu\n')
        self.assertEqual(self.get("drivers/x/Makefile"),
                         "obj-$(CONFIG_X) += x.o\nobj-$(CONFIG_Z) += z.o\nobj-$(CONFIG_Y) += y.o\n\nfoo\n# the end\n")

    def test_idempotent_and_no_touch(self):
        self.good()
        after = self.snapshot(mtime=True)
        self.good()
        self.assertEqual(self.snapshot(mtime=True), after)

    def test_undo(self):
        self.good()
        self.good("--undo")
        self.assertEqual(self.snapshot(), self.before)
        self.good("--undo")

    def test_update(self):
        self.good()
        os.unlink(os.path.join(self.project, "rust/new/deep/z.rs"))
        self.put("project", "drivers/x/y.c", "long y;\n")
        self.put("project", "scripts/hooks.txt", HOOKS.replace("config Y", "config YY").split("end\n")[0])
        self.good()
        self.assertEqual(self.get("drivers/x/y.c"), "long y;\n")
        self.assertFalse(os.path.exists(os.path.join(self.tree, "rust")))
        self.assertIn("config YY\n", self.get("drivers/x/Kconfig"))
        self.assertNotIn("config Y\n", self.get("drivers/x/Kconfig"))
        self.assertNotIn("# the end", self.get("drivers/x/Makefile"))
        self.good("--undo")
        self.assertEqual(self.snapshot(), self.before)

    def test_removed_hook_file(self):
        self.good()
        self.put("project", "scripts/hooks.txt", HOOKS.split("file drivers/x/Makefile")[0])
        self.good()
        self.assertEqual(self.get("drivers/x/Makefile"), MAKEFILE)

    def test_lost_manifest(self):
        self.good()
        after = self.snapshot()
        os.unlink(os.path.join(self.tree, integrate.MANIFEST))
        self.good()
        self.assertEqual({k: v for k, v in self.snapshot().items() if k != integrate.MANIFEST},
                         {k: v for k, v in after.items() if k != integrate.MANIFEST})

    def test_check_and_dry_run(self):
        self.assertEqual(self.run_it("--check")[0], 1)
        status, out, _ = self.run_it("--dry-run")
        self.assertEqual(status, 0)
        self.assertIn("add drivers/x/y.c", out)
        self.assertEqual(self.snapshot(), self.before)
        self.good()
        self.assertEqual(self.run_it("--check")[0], 0)

    def test_missing_anchor(self):
        self.put("tree", "drivers/x/Makefile", "nothing here\n")
        before = self.snapshot()
        status, _, err = self.run_it()
        self.assertEqual(status, 2)
        self.assertIn("drivers/x/Makefile: anchor not found", err)
        self.assertEqual(err.count("\n"), 1)
        self.assertEqual(self.snapshot(), before)

    def test_ambiguous_anchor(self):
        self.put("tree", "drivers/x/Kconfig", KCONFIG + KCONFIG)
        before = self.snapshot()
        status, _, err = self.run_it()
        self.assertEqual(status, 2)
        self.assertIn("found 2 times", err)
        self.assertEqual(self.snapshot(), before)

    def test_foreign_file(self):
        self.put("tree", "drivers/x/y.c", "int theirs;\n")
        before = self.snapshot()
        status, _, err = self.run_it()
        self.assertEqual(status, 2)
        self.assertIn("drivers/x/y.c is not ours", err)
        status, _, err = self.run_it("--force")
        self.assertEqual(status, 2)
        self.assertEqual(self.snapshot(), before)

    def test_changed_in_tree(self):
        self.good()
        self.put("tree", "drivers/x/y.c", "int changed;\n")
        status, _, err = self.run_it()
        self.assertEqual(status, 2)
        self.assertIn("was changed in the tree", err)
        status, _, err = self.run_it("--undo")
        self.assertEqual(status, 0)
        self.assertIn("kept drivers/x/y.c", err)
        self.assertEqual(self.get("drivers/x/y.c"), "int changed;\n")

    def test_force(self):
        self.good()
        self.put("tree", "drivers/x/y.c", "int changed;\n")
        self.good("--force")
        self.assertEqual(self.get("drivers/x/y.c"), "int y;\n")

    def test_undo_keeps_other_changes(self):
        self.good()
        self.put("tree", "drivers/x/Kconfig", "# mine\n" + self.get("drivers/x/Kconfig"))
        self.good("--undo")
        self.assertEqual(self.get("drivers/x/Kconfig"), "# mine\n" + KCONFIG)

    def test_undo_of_a_line_that_is_there_twice(self):
        # The kernel's own is nearer to where ours was, once what is above ours is gone.
        text = "{\n\tx;\n\ty;\n}\n"
        self.put("tree", "drivers/x/Makefile", text)
        self.put("project", "scripts/hooks.txt",
                 "file drivers/x/Makefile\nbefore~ x;\n+{\n+\ta;\n+\tb;\n+\tc;\nafter~ x;\n+}\n")
        self.good()
        self.good("--undo")
        self.assertEqual(self.get("drivers/x/Makefile"), text)

    def test_undo_with_lines_gone(self):
        self.good()
        self.put("tree", "drivers/x/Kconfig", KCONFIG)
        status, _, err = self.run_it("--undo")
        self.assertEqual(status, 0)
        self.assertIn("kept drivers/x/Kconfig", err)
        self.assertEqual(self.snapshot(), self.before)

    def test_interrupted(self):
        for stop in range(1, 8):
            with self.subTest(stop=stop):
                calls = [0]
                real = integrate.write

                def failing(*args, calls=calls, stop=stop, real=real):
                    calls[0] += 1
                    if calls[0] == stop:
                        raise KeyboardInterrupt
                    real(*args)

                integrate.write = failing
                try:
                    with self.assertRaises(KeyboardInterrupt):
                        self.run_it()
                except AssertionError:
                    if calls[0] >= stop:
                        raise
                finally:
                    integrate.write = real
                # What was planned changes before the next run.
                self.put("project", "drivers/x/y.c", f"int again{stop};\n")
                self.good()
                self.good("--undo")
                self.assertEqual(self.snapshot(), self.before)

    def test_wrong_tree(self):
        self.put("tree", "Makefile", "VERSION = 7\nPATCHLEVEL = 2\n")
        status, _, err = self.run_it()
        self.assertEqual(status, 2)
        self.assertIn("is Linux 7.2; this project is for 7.3", err)
        os.unlink(os.path.join(self.tree, "Makefile"))
        self.assertEqual(self.run_it()[0], 2)

    def test_git_decides_what_is_copied(self):
        self.put("project", ".gitignore", "*.o\n")
        self.put("project", "drivers/x/y.o", "object\n")
        subprocess.run(["git", "init", "-q", self.project], check=True)
        self.good()
        self.assertFalse(os.path.exists(os.path.join(self.tree, "drivers/x/y.o")))
        self.assertTrue(os.path.exists(os.path.join(self.tree, "drivers/x/y.c")))

    def test_bad_hooks(self):
        for text, word in (("+x\n", "needs an anchor"), ("file a\nafter b\n", "has no '+' line"),
                           ("file a\nbehind b\n+x\n", "not understood"), ("file ../a\nend\n+x\n", "not a path"),
                           ("file a\nafter~ (\n+x\n", "bad regular expression")):
            with self.subTest(text=text):
                self.put("project", "scripts/hooks.txt", text)
                status, _, err = self.run_it()
                self.assertEqual(status, 2)
                self.assertIn(word, err)
        self.assertEqual(self.snapshot(), self.before)


if __name__ == "__main__":
    unittest.main()
