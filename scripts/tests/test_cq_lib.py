# SPDX-License-Identifier: GPL-2.0
"""What the kselftests take for a complaint of the kernel, which scripts/vm judges, too."""

import os
import re
import subprocess
import tempfile
import unittest

import test_vm

SELFTESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/testing/selftests/rdma")
# The log comes from here and not from the kernel.
SHELL = """
. ./cq_lib.sh
CQ_NAME=test
log=$(cat)
dmesg()
{
	echo "[    1.0] cq selftest: test $$ begins"
	echo "$log"
}
cq_complaints "$1"
"""
# KCSAN about itself, and the same from another place.
OWN = """\
[   15.1] ------------[ cut here ]------------
[   15.2] WARNING: kernel/kcsan/report.c:370 at sanitize_stack_entries+0x1e/0x30, CPU#1: sh/105
[   15.3] Call Trace:
[   15.3]  <TASK>
[   15.3]  %s+0x20/0x30
[   15.3]  irqentry_exit+0x1/0x2
[   15.3]  </TASK>
[   15.4] ---[ end trace 0000000000000000 ]---
"""


def complaints(which, log):
    # Not who wrote it, which the log of the VM has not.
    log = re.sub(r"(?m)^(\[[^]]*\])\[[^]]*\]", r"\1", log)
    done = subprocess.run(["bash", "-c", SHELL, "test", which], cwd=SELFTESTS, input=log, stdout=subprocess.PIPE,
                          text=True, check=False)
    return done.stdout.splitlines()


class Complaints(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(complaints("new", "[    2.0] rdma_rxe: loaded\n"), [])

    def test_warning(self):
        """One line, and what follows is another one."""
        found = complaints("new", test_vm.WARN + "[   15.5] BUG: another\n" + test_vm.WARN)
        self.assertEqual(len(found), 3)
        self.assertIn("lkdtm_WARNING", found[0])
        self.assertIn("BUG: another", found[1])

    def test_warning_not_whole(self):
        self.assertEqual(len(complaints("new", test_vm.WARN[:test_vm.WARN.index("[   15.4]")])), 1)

    def test_of_kcsan(self):
        """One is known, and only that one."""
        known = OWN % "kcsan_report_known_origin"
        self.assertEqual((len(complaints("known", known)), complaints("new", known)), (1, []))
        other = OWN % "other"
        self.assertEqual((complaints("known", other), len(complaints("new", other))), ([], 1))

    def test_race_of_others(self):
        self.assertEqual(complaints("new", test_vm.race("a", "b")), [])

    def test_race_of_ours(self):
        for case in test_vm.OURS:
            with self.subTest(case=case):
                self.assertEqual(len(complaints("new", test_vm.race(*case))), 1)

    def test_race_in_an_interrupt(self):
        for by, frames, foreign in test_vm.INTERRUPTS:
            with self.subTest(by=by, frames=frames):
                self.assertEqual(len(complaints("new", test_vm.interrupted(by, frames))), 0 if foreign else 1)

    def test_lockdep(self):
        """A report of lockdep is one line, and that of nvmet is known."""
        self.assertEqual(len(complaints("known", test_vm.NVMET)), 1)
        self.assertEqual(complaints("new", test_vm.NVMET), [])


class Patience(unittest.TestCase):
    """How long the kernel waits for netdevs that are removed before it complains."""

    def test_scaled(self):
        with tempfile.NamedTemporaryFile("w+", encoding="ascii") as file:
            for scale, wanted in (1, "10\n"), (5, "50\n"):
                subprocess.run(["bash", "-c", '. ./cq_lib.sh; CQ_SCALE=$1; cq_patience "$2"', "test", str(scale), file.name],
                               cwd=SELFTESTS, check=True)
                file.seek(0)
                self.assertEqual(file.read(), wanted)

    def test_kernel_without_it(self):
        done = subprocess.run(["bash", "-c", ". ./cq_lib.sh; CQ_SCALE=5; cq_patience /nonexistent/file"], cwd=SELFTESTS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
        self.assertEqual(done.stdout, b"")


if __name__ == "__main__":
    unittest.main()
