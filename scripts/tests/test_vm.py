# SPDX-License-Identifier: GPL-2.0
"""Tests of what scripts/vm makes of kernel logs and statistics."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import types
import unittest
import unittest.mock

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
NVMET = """\
[   15.0] ======================================================
[   15.0] WARNING: possible circular locking dependency detected
[   15.0] ------------------------------------------------------
[   15.0] rm/275 is trying to acquire lock:
[   15.0] ffff8880065a6420 (&id_priv->handler_mutex){+.+.}-{4:4}, at: rdma_destroy_id+0x1a/0x30 [rdma_cm]
[   15.0]
[   15.0] but task is already holding lock:
[   15.0] ffffffffa031e968 (nvmet_config_sem){++++}-{4:4}, at: nvmet_port_subsys_drop_link+0x5d/0x220 [nvmet]
[   15.0]
[   15.0] which lock already depends on the new lock.
[   15.0]
[   15.0]
[   15.0] the existing dependency chain (in reverse order) is:
[   15.0]
[   15.0] -> #1 (nvmet_config_sem){++++}-{4:4}:
[   15.0]        down_read+0x47/0x310
[   15.0]        nvmet_find_get_subsys+0x4a/0x440 [nvmet]
[   15.0]        nvmet_ctrl_find_get+0x55/0x300 [nvmet]
[   15.0]        nvmet_execute_io_connect+0x1a3/0x5d0 [nvmet]
[   15.0]        nvmet_rdma_execute_command+0x209/0x470 [nvmet_rdma]
[   15.0]        nvmet_rdma_handle_command+0xa9e/0xe90 [nvmet_rdma]
[   15.0]        nvmet_rdma_cm_handler+0x488/0x2c80 [nvmet_rdma]
[   15.0]        cma_cm_event_handler+0x80/0x1e0 [rdma_cm]
[   15.0]        cma_ib_handler+0x3a4/0x7a0 [rdma_cm]
[   15.0]        cm_process_work+0x46/0x320 [ib_cm]
[   15.0]        cm_queue_work_unlock+0x41/0x180 [ib_cm]
[   15.0]        cm_work_handler+0x5082/0xd820 [ib_cm]
[   15.0]        process_scheduled_works+0x95f/0x10d0
[   15.0]        worker_thread+0x89d/0xd00
[   15.0]        kthread+0x308/0x3d0
[   15.0]        ret_from_fork+0x212/0x490
[   15.0]        ret_from_fork_asm+0x11/0x20
[   15.0]
[   15.0] -> #0 (&id_priv->handler_mutex){+.+.}-{4:4}:
[   15.0]        __lock_acquire+0x158d/0x2930
[   15.0]        lock_acquire+0xdd/0x240
[   15.0]        __mutex_lock+0xf2/0x14a0
[   15.0]        mutex_lock_nested+0x1a/0x20
[   15.0]        rdma_destroy_id+0x1a/0x30 [rdma_cm]
[   15.0]        nvmet_rdma_disable_port+0x35/0x1c0 [nvmet_rdma]
[   15.0]        nvmet_rdma_remove_port+0x49/0x60 [nvmet_rdma]
[   15.0]        nvmet_disable_port+0xf6/0x180 [nvmet]
[   15.0]        nvmet_port_subsys_drop_link+0x1f3/0x220 [nvmet]
[   15.0]        configfs_unlink+0x3bf/0x5b0
[   15.0]        vfs_unlink+0x1e3/0x780
[   15.0]        filename_unlinkat+0x23e/0x4c0
[   15.0]        __x64_sys_unlinkat+0x168/0x2b0
[   15.0]        x64_sys_call+0x1c64/0x1ec0
[   15.0]        do_syscall_64+0x93/0x2f0
[   15.0]        entry_SYSCALL_64_after_hwframe+0x4b/0x53
[   15.0]
[   15.0] other info that might help us debug this:
[   15.0]
[   15.0]  Possible unsafe locking scenario:
[   15.0]
[   15.0]        CPU0                    CPU1
[   15.0]        ----                    ----
[   15.0]   lock(nvmet_config_sem);
[   15.0]                                lock(&id_priv->handler_mutex);
[   15.0]                                lock(nvmet_config_sem);
[   15.0]   lock(&id_priv->handler_mutex);
[   15.0]
[   15.0]  *** DEADLOCK ***
[   15.0]
[   15.0] locks held by rm/275: 4, last CPU#1:
[   15.0]  #0: ffff88800bfb0430 (sb_writers#10){.+.+}-{0:0}, at: mnt_want_write+0x3f/0x80
[   15.0]  #1: ffff8880005ce1d0 (&default_group_class[depth - 1]#2/1){+.+.}-{4:4}, at: filename_unlinkat+0x164/0x4c0
[   15.0]  #2: ffff88800ddbeb20 (&sb->s_type->i_mutex_key#16){+.+.}-{4:4}, at: vfs_unlink+0xdb/0x780
[   15.0]  #3: ffffffffa031e968 (nvmet_config_sem){++++}-{4:4}, at: nvmet_port_subsys_drop_link+0x5d/0x220 [nvmet]
[   15.0]
[   15.0] stack backtrace:
[   15.0] Call Trace:
[   15.0]  <TASK>
[   15.0]  __dump_stack+0x19/0x20
[   15.0]  dump_stack_lvl+0x5a/0x80
[   15.0]  dump_stack+0x14/0x16
[   15.0]  print_circular_bug+0x2ef/0x300
[   15.0]  check_noncircular+0x116/0x130
[   15.0]  __lock_acquire+0x158d/0x2930
[   15.0]  lock_acquire+0xdd/0x240
[   15.0]  __mutex_lock+0xf2/0x14a0
[   15.0]  mutex_lock_nested+0x1a/0x20
[   15.0]  rdma_destroy_id+0x1a/0x30 [rdma_cm]
[   15.0]  nvmet_rdma_disable_port+0x35/0x1c0 [nvmet_rdma]
[   15.0]  nvmet_rdma_remove_port+0x49/0x60 [nvmet_rdma]
[   15.0]  nvmet_disable_port+0xf6/0x180 [nvmet]
[   15.0]  nvmet_port_subsys_drop_link+0x1f3/0x220 [nvmet]
[   15.0]  configfs_unlink+0x3bf/0x5b0
[   15.0]  vfs_unlink+0x1e3/0x780
[   15.0]  filename_unlinkat+0x23e/0x4c0
[   15.0]  __x64_sys_unlinkat+0x168/0x2b0
[   15.0]  x64_sys_call+0x1c64/0x1ec0
[   15.0]  do_syscall_64+0x93/0x2f0
[   15.0]  entry_SYSCALL_64_after_hwframe+0x4b/0x53
[   15.0]  </TASK>
"""
ARM64_WARN = """\
[   20.101] ------------[ cut here ]------------
[   20.102] WARNING: drivers/misc/lkdtm/bugs.c:112 at lkdtm_WARNING+0x20/0x40 [lkdtm], CPU#0: sh/77
[   20.103] Modules linked in: lkdtm
[   20.104] Call trace:
[   20.105]  lkdtm_WARNING+0x20/0x40 [lkdtm] (P)
[   20.106] ---[ end trace 0000000000000000 ]---
"""
ARM64_OOPS = """\
[   20.201] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000
[   20.202] Mem abort info:
[   20.203]   ESR = 0x0000000096000044
[   20.204] Internal error: Oops: 0000000096000044 [#1]  SMP
[   20.205] Call trace:
[   20.206]  lkdtm_ACCESS_NULL+0x2c/0x60 [lkdtm] (P)
[   20.207] Code: d2800000 91000000 (f9000001)
[   20.208] ---[ end trace 0000000000000000 ]---
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

    def test_arm64(self):
        """Its reports have other headlines, and are one report each."""
        for text in (ARM64_WARN, ARM64_OOPS):
            reports = vm.find_reports(QUIET + text + QUIET)
            self.assertEqual(len(reports), 1)
            self.assertIn("Call trace:", reports[0])
            self.assertTrue(reports[0].endswith("end trace 0000000000000000 ]---"))

    def test_known(self):
        """A report is known by its locks and functions, not by its headline."""
        known = vm.known_reports()
        reports = vm.find_reports(QUIET + NVMET + QUIET + WARN)
        self.assertEqual(len(reports), 2)
        self.assertTrue(reports[0].endswith("</TASK>"))
        self.assertTrue(vm.is_known(reports[0], known))
        self.assertFalse(vm.is_known(reports[1], known))
        self.assertFalse(vm.is_known(LOCKDEP, known))
        for function in ("nvmet_config_sem", "nvmet_rdma_cm_handler", "nvmet_rdma_disable_port"):
            other = reports[0].replace(function, "other")
            self.assertFalse(vm.is_known(other, known), function)

    def test_single_lines(self):
        for line in ("BUG: sleeping function called from invalid context at a.c:1",
                     "Oops: general protection fault, probably for non-canonical address",
                     "INFO: task sh:105 blocked for more than 120 seconds.",
                     "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
                     "refcount_t: addition on 0; use-after-free.",
                     "ODEBUG: free active (active state 0) object: (____ptrval____)",
                     "Kernel panic - not syncing: sysrq triggered crash",
                     "Internal error: Oops - Undefined instruction: 0000000002000000 [#1]  SMP",
                     "SError Interrupt on CPU1, code 0x00000000bf000000 -- SError",
                     "Insufficient stack space to handle exception!",
                     "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
                     "list_del corruption. prev->next should be x",
                     "unregister_netdevice: waiting for cqv0 to become free."):
            with self.subTest(line=line):
                self.assertEqual(len(vm.find_reports(f"[    9.9] {line}\n")), 1)

    def test_harmless_lines(self):
        for line, reports in (("ref_tracker: memory allocation failure, unreliable refcount tracker.", 0),
                              ("ref_tracker: eth%d@00000000 has 1/1 users at", 1)):
            with self.subTest(line=line):
                self.assertEqual(len(vm.find_reports(f"[    9.9] {line}\n")), reports)

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


class Machines(unittest.TestCase):
    """What is started for which kernel; nothing runs here."""

    def command(self, *options):
        args = vm.parse(["run", *options, "--", "true"])
        one = vm.Vm.__new__(vm.Vm)
        one.args, one.accel, one.machine = args, vm.accelerator(args), vm.MACHINES[args.kernel]
        one.root, one.ctl, one.shell = "/root-of-it", "/ctl", False
        one.kernel = types.SimpleNamespace(dir="/files", modules="/files/modules")
        with open(os.devnull, "wb") as one.console:
            return one.qemu()

    def after(self, command, word):
        return command[command.index(word) + 1]

    def test_kernels(self):
        for kernel, qemu, image, console, memory in (
                ("release", "qemu-system-x86_64", "bzImage", "ttyS0", "2048"),
                ("debug", "qemu-system-x86_64", "bzImage", "ttyS0", "3072"),
                ("arm64", "qemu-system-aarch64", "Image", "ttyAMA0", "1024")):
            with self.subTest(kernel=kernel), unittest.mock.patch.dict(os.environ, RUST_RDMA_ACCEL="tcg"):
                command = self.command("--kernel", kernel)
                self.assertIn(qemu, command)
                self.assertEqual(self.after(command, "-kernel"), "/k/vm-kernel/" + image)
                self.assertEqual(self.after(command, "-m"), memory)
                self.assertIn("console=" + console, self.after(command, "-append").split())
                self.assertIn("/root-of-it:/k/vm-root", command)
                self.assertEqual("panic_on_warn=1" in self.after(command, "-append"), kernel == "debug")

    def test_kvm(self):
        """Another machine than this one is always emulated."""
        with unittest.mock.patch.dict(os.environ, RUST_RDMA_ACCEL="kvm"):
            self.assertEqual(self.after(self.command("--kernel", "release"), "-cpu"), "host")
            command = self.command("--kernel", "arm64")
            self.assertEqual(self.after(command, "-accel"), "tcg,thread=multi")
            self.assertTrue(self.after(command, "-cpu").startswith("max,"))

    def test_icount(self):
        """One CPU, without what makes a virtual clock run differently."""
        with unittest.mock.patch.dict(os.environ, RUST_RDMA_ACCEL="tcg"):
            for kernel, cpu in (("release", "max,-erms,-fsrm"), ("debug", "max,la57=off,-erms,-fsrm"),
                                ("arm64", vm.ARM64.cpu)):
                command = self.command("--kernel", kernel, "--icount")
                self.assertEqual(self.after(command, "-cpu"), cpu)
                self.assertEqual(self.after(command, "-smp"), "1")

    def test_defaults(self):
        """What is loaded first, and what is given instead."""
        self.assertIn("rdma_rxe", vm.parse(["run", "--", "true"]).modules)
        self.assertIn("rrxe", vm.parse(["run", "--kernel", "arm64", "--", "true"]).modules.split())
        self.assertEqual(vm.parse(["run", "--kernel", "arm64", "--modules", "", "--", "true"]).modules, "")
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as err:
            vm.parse(["run", "--kernel", "arm64", "--core", "c", "--", "true"])
        self.assertIn("no such modules", err.getvalue())
        self.assertEqual(vm.parse(["run", "--kernel", "arm64", "--mem", "512", "--", "true"]).mem, "512")


if __name__ == "__main__":
    unittest.main()
