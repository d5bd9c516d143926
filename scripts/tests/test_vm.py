# SPDX-License-Identifier: GPL-2.0
"""Tests of what scripts/vm makes of kernel logs and statistics."""

import importlib.machinery
import importlib.util
import os
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "vm")
loader = importlib.machinery.SourceFileLoader("vm", SCRIPT)
vm = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm", loader))
loader.exec_module(vm)

QUIET = """\
[    0.000000] Linux version 7.3.4
[    1.082539] clocksource: Watchdog remote CPU 1 read timed out
[    2.0] watchdog: Delayed init of the lockup detector failed: -19
[    3.0] ok 1 a test with WARNING: in its name
WARNING: this is not from the kernel
[    4.0] rdma_rxe: loaded
"""
WARN = """\
[   15.1] ------------[ cut here ]------------
[   15.2] WARNING: drivers/misc/lkdtm/bugs.c:112 at lkdtm_WARNING+0x1e/0x30, CPU#1: sh/105
[   15.3] Modules linked in: lkdtm
[   15.4] ---[ end trace 0000000000000000 ]---
"""
KASAN = """\
[   15.0][  T105] ==================================================================
[   15.1][  T105] BUG: KASAN: slab-use-after-free in lkdtm_WRITE_AFTER_FREE+0x1/0x2
[   15.2][  T105] Write of size 4 at addr ffff888 by task sh/105
[   15.3][  T105] ==================================================================
[   15.4][  T105] Disabling lock debugging due to kernel taint
"""
LOCKDEP = """\
[   15.0] ============================================
[   15.0] WARNING: possible recursive locking detected
[   15.0] 7.3.4-rust-rdma #1 Not tainted
[   15.0] --------------------------------------------
[   15.0] sh/105 is trying to acquire lock:
[   15.0] stack backtrace:
"""
STATS = """\
event cq_alloc
# event histogram
{ poll_ctx:          2 } hitcount:          4
{ poll_ctx:          3 } hitcount:          2

Totals:
    Hits: 6
    Entries: 2
    Dropped: 0
event cq_poll
{ cq_id:         10 } hitcount:          7  rc:         70
{ cq_id:         11 } hitcount:          1  rc:          5

Totals:
    Hits: 8
"""


class Reports(unittest.TestCase):
    def test_quiet(self):
        self.assertEqual(vm.find_reports(QUIET), [])

    def test_warn(self):
        reports = vm.find_reports(QUIET + WARN + QUIET)
        self.assertEqual(len(reports), 1)
        self.assertTrue(reports[0].startswith("[   15.1]"))
        self.assertTrue(reports[0].endswith("end trace 0000000000000000 ]---"))

    def test_two(self):
        self.assertEqual(len(vm.find_reports(WARN + QUIET + WARN)), 2)

    def test_kasan(self):
        reports = vm.find_reports(KASAN + QUIET)
        self.assertEqual(len(reports), 1)
        self.assertIn("Write of size 4", reports[0])

    def test_lockdep(self):
        reports = vm.find_reports(QUIET + LOCKDEP)
        self.assertEqual(len(reports), 1)
        self.assertIn("trying to acquire", reports[0])

    def test_single_lines(self):
        for line in ("BUG: sleeping function called from invalid context at a.c:1",
                     "Oops: general protection fault, probably for non-canonical address",
                     "INFO: task sh:105 blocked for more than 120 seconds.",
                     "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
                     "refcount_t: addition on 0; use-after-free.",
                     "ODEBUG: free active (active state 0) object: (____ptrval____)",
                     "Kernel panic - not syncing: sysrq triggered crash",
                     "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
                     "list_del corruption. prev->next should be x",
                     "unregister_netdevice: waiting for cqv0 to become free."):
            with self.subTest(line=line):
                self.assertEqual(len(vm.find_reports(f"[    9.9] {line}\n")), 1)

    def test_kmemleak(self):
        text = "unreferenced object 0x1 (size 8):\n  comm a\nunreferenced object 0x2 (size 8):\n  comm b\n"
        self.assertEqual(len(vm.kmemleak_reports(text)), 2)
        self.assertEqual(vm.kmemleak_reports(""), [])
        boot = 'unreferenced object 0x3 (size 8):\n  comm "swapper/0", pid 0, jiffies 42\n'
        self.assertEqual(len(vm.kmemleak_reports(boot + text)), 2)

    def test_stats(self):
        stats = dict(vm.parse_stats(STATS))
        self.assertEqual(stats["CQs allocated"], 6)
        self.assertEqual(stats["  UNBOUND_WORKQUEUE"], 4)
        self.assertEqual(stats["  DIRECT"], 2)
        self.assertEqual(stats["polls with completions"], 8)
        self.assertEqual(stats["completions"], 75)


if __name__ == "__main__":
    unittest.main()
