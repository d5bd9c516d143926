# SPDX-License-Identifier: GPL-2.0
"""Tests of what scripts/vm makes of kernel logs and statistics."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import sys
import tempfile
import types
import unittest
import unittest.mock

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "vm")
sys.path.insert(0, os.path.dirname(SCRIPT))  # What it imports
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
# Both stacks, as far as they say whose race it is.
KCSAN = """\
[   21.4][  T123] ==================================================================
[   21.4][  T123] BUG: KCSAN: data-race in %s / %s
[   21.4][  T123]
[   21.4][  T123] write (reordered) to 0xffff8880043a1c40 of 8 bytes by task 124 on cpu 1:
[   21.4][  T123]  %s+0x4b/0x90%s
[   21.4][  T123]  process_scheduled_works+0x2a1/0x5d0
[   21.4][  T123]  worker_thread+0x3f1/0x510
[   21.4][  T123]   |
[   21.4][  T123]   +-> reordered to: process_scheduled_works+0x2d1/0x5d0
[   21.4][  T123]
[   21.4][  T123] read to 0xffff8880043a1c40 of 8 bytes by task 123 on cpu 0:
[   21.4][  T123]  %s+0x17/0x30
[   21.4][  T123]  kthread+0x21c/0x250
[   21.4][  T123]  ret_from_fork+0x10e/0x190
[   21.4][  T123]
[   21.4][  T123] value changed: 0x0000000000000001 -> 0x0000000000000002
[   21.4][  T123]
[   21.4][  T123] Reported by Kernel Concurrency Sanitizer on:
[   21.4][  T123] CPU: 0 UID: 0 PID: 123 Comm: kworker/0:1 Not tainted 7.3.4-rust-rdma #1 PREEMPT(lazy)
[   21.4][  T123] ==================================================================
"""


def race(one, other, module=""):
    return KCSAN % (one, other, one, module, other)


# What is in one of the stacks of a race that is ours.
OURS = (
    ("a", "_RNvMs_NtCs2kKcq_4rrxe2qpNtB4_2Qp4post", ""),
    ("_RNvCs4fqI_7cq_rust15ib_free_cq", "b", " [ib_core]"),
    ("ib_free_cq", "b", " [ib_core]"),
    ("a", "rust_helper_atomic_read", ""),
    ("seed_race_write", "b", " [ib_seed]"),
    ("cq_kunit_event", "b", " [ib_cq_kunit]"),
)
FRAME_OURS = "[   21.4]  ib_free_cq+0x1/0x2 [ib_core]\n"
ENTRY = "[   21.4]  asm_sysvec_apic_timer_interrupt+0x1f/0x30\n"
SOFTIRQ = "[   21.4]  handle_softirqs+0xc6/0x290\n[   21.4]  __do_softirq+0xf/0x11\n"
ENABLE = ("[   21.4]  do_softirq+0x43/0x60\n[   21.4]  __local_bh_enable_ip+0x73/0x80\n"
          "[   21.4]  rust_helper_local_bh_enable+0x22/0x30\n")
# Who did it, the end of the stack, and whether it is the race of others.
INTERRUPTS = (
    ("interrupt", SOFTIRQ + ENABLE + FRAME_OURS, True),
    ("interrupt", FRAME_OURS + SOFTIRQ + ENABLE, False),
    ("interrupt", SOFTIRQ + FRAME_OURS, False),
    ("task 123", SOFTIRQ + ENABLE + FRAME_OURS, False),
    ("interrupt", ENTRY + FRAME_OURS, True),
    ("interrupt", FRAME_OURS + ENTRY, False),
    ("interrupt", FRAME_OURS, False),
    ("task 123", ENTRY + FRAME_OURS, False),
)


def interrupted(by, frames):
    report = race("a", "b").replace("[   21.4][  T123]  kthread+0x21c/0x250\n", frames)
    return re.sub(r"by (?:task \d+|interrupt) on cpu", f"by {by} on cpu", report)


# A second one queues what the first one has just marked as queued.
QUEUED = """\
[   47.1] ==================================================================
[   47.1] BUG: KCSAN: data-race in queue_work_on / queue_work_on
[   47.1]
[   47.1] read-write (marked) to 0xff11000002990450 of 8 bytes by task 409 on cpu 0:
[   47.1]  queue_work_on+0x41/0xc0
[   47.1]  ib_cq_completion_workqueue+0x36/0x50 [ib_core]
[   47.1]  kthread+0x1e5/0x210
[   47.1]
[   47.1] read to 0xff11000002990450 of 8 bytes by task 408 on cpu 1:
[   47.1]  queue_work_on+0x6d/0xc0
[   47.1]  __ib_alloc_cq+0x58/0x120 [ib_core]
[   47.1]  kthread+0x1e5/0x210
[   47.1]
[   47.1] Reported by Kernel Concurrency Sanitizer on:
[   47.1] CPU: 1 UID: 0 PID: 408 Comm: kunit_try_catch Tainted: G                 N  7.3.4-rust-rdma #4 PREEMPTLAZY
[   47.1] ==================================================================
"""
# A number is looked up while the last one beside it goes.
ERASED = """\
[  585.5] ==================================================================
[  585.5] BUG: KCSAN: data-race in xas_load / xas_store
[  585.5]
[  585.5] read (marked) to 0xff11000000600bb0 of 8 bytes by interrupt on cpu 1:
[  585.5]  xas_load+0x241/0x300
[  585.5]  xa_load+0x5a/0xb0
[  585.5]  _RNvMs_NtCs86QlFM8cnGg_9rrxe_main5eventNtB4_10EventQueue5drain+0x19a/0x410 [rrxe]
[  585.5]
[  585.5] write to 0xff11000000600bb0 of 8 bytes by task 1151 on cpu 0:
[  585.5]  xas_store+0x8f0/0x990
[  585.5]  __xa_erase+0x54/0xa0
[  585.5]  ib_free_cq+0x19d/0x1b0 [ib_core]
[  585.5]
[  585.5] Reported by Kernel Concurrency Sanitizer on:
[  585.5] CPU: 0 UID: 0 PID: 1151 Comm: bash Not tainted 7.3.4-rust-rdma #4 PREEMPTLAZY
[  585.5] ==================================================================
"""
# A group is left while the timer goes through those that there are.
LEFT = """\
[ 1059.1] ==================================================================
[ 1059.1] BUG: KCSAN: data-race in __ip_mc_dec_group / igmp_ifc_timer_expire
[ 1059.1]
[ 1059.1] read (marked) to 0xff11000002a14a18 of 8 bytes by interrupt on cpu 0:
[ 1059.1]  igmp_ifc_timer_expire+0x39b/0x720
[ 1059.1]  call_timer_fn+0x32/0x1d0
[ 1059.1]
[ 1059.1] write to 0xff11000002a14a18 of 8 bytes by task 1612 on cpu 0:
[ 1059.1]  __ip_mc_dec_group+0x108/0x280
[ 1059.1]  rust_helper_ip_mc_dec_group+0x28/0x40
[ 1059.1]
[ 1059.1] Reported by Kernel Concurrency Sanitizer on:
[ 1059.1] CPU: 0 UID: 0 PID: 1612 Comm: rrxe_bugs Not tainted 7.3.4-rust-rdma #4 PREEMPTLAZY
[ 1059.1] ==================================================================
"""
# The tick looks at the flags of whom it has interrupted.
TICK = """\
[  881.4] ==================================================================
[  881.4] BUG: KCSAN: data-race in __blk_mq_end_request / kthread_data
[  881.4]
[  881.4] read to 0xff11000003de162c of 4 bytes by interrupt on cpu 1:
[  881.4]  kthread_data+0x1e/0x60
[  881.4]  wq_worker_tick+0x29/0x200
[  881.4]  asm_sysvec_apic_timer_interrupt+0x1f/0x30
[  881.4]
[  881.4] read-write to 0xff11000003de162c of 4 bytes by task 1015 on cpu 1:
[  881.4]  __blk_mq_end_request+0x1e5/0x200
[  881.4]  nvmet_rdma_recv_done+0x1c5/0x240 [nvmet_rdma]
[  881.4]  _RNvXsa_NtNtNtCsdJ13ReMSUMg_6kernel4rdma2cq6pollerINtB5_7WorkPtr3run+0x1/0x2 [ib_core]
[  881.4]
[  881.4] Reported by Kernel Concurrency Sanitizer on:
[  881.4] CPU: 1 UID: 0 PID: 1015 Comm: kworker/1:2H Not tainted 7.3.4-rust-rdma #4 PREEMPTLAZY
[  881.4] ==================================================================
"""
# Both are asynchronous I/O.
AIO = """\
[  460.1] ==================================================================
[  460.1] BUG: KCSAN: data-race in aio_read_events / iocb_put
[  460.1]
[  460.1] write to 0xff1100000642700c of 4 bytes by interrupt on cpu 0:
[  460.1]  iocb_put+0x1ba/0x560
[  460.1]  aio_complete_rw+0x197/0x1c0
[  460.1]  nvme_rdma_recv_done+0x418/0x830 [nvme_rdma]
[  460.1]  _RNvXsa_NtNtNtCsdJ13ReMSUMg_6kernel4rdma2cq6pollerINtB5_7WorkPtr3run+0x1/0x2 [ib_core]
[  460.1]  asm_sysvec_apic_timer_interrupt+0x1f/0x30
[  460.1]
[  460.1] read to 0xff1100000642700c of 4 bytes by task 1021 on cpu 1:
[  460.1]  aio_read_events+0xb3/0x3e0
[  460.1]  do_io_getevents+0xe2/0x370
[  460.1]
[  460.1] Reported by Kernel Concurrency Sanitizer on:
[  460.1] CPU: 1 UID: 0 PID: 1021 Comm: fio Not tainted 7.3.4-rust-rdma #1 PREEMPTLAZY
[  460.1] ==================================================================
"""
# One side only: the other is an interrupt that had gone when it was noticed.
PLUGGED = """\
[  460.8] ==================================================================
[  460.8] BUG: KCSAN: data-race in __blk_flush_plug+0x1e6/0x230
[  460.8]
[  460.8] race at unknown origin, with write to 0xffa00000006ebbe0 of 8 bytes by task 1022 on cpu 0:
[  460.8]  __blk_flush_plug+0x1e6/0x230
[  460.8]  blk_finish_plug+0x43/0x60
[  460.8]  nvmet_rdma_recv_done+0x1c5/0x240 [nvmet_rdma]
[  460.8]  _RNvXsa_NtNtNtCsdJ13ReMSUMg_6kernel4rdma2cq6pollerINtB5_7WorkPtr3run+0x1/0x2 [ib_core]
[  460.8]
[  460.8] value changed: 0x0000006b4f180d64 -> 0x0000000000000000
[  460.8]
[  460.8] Reported by Kernel Concurrency Sanitizer on:
[  460.8] CPU: 0 UID: 0 PID: 1022 Comm: kworker/0:2H Not tainted 7.3.4-rust-rdma #1 PREEMPTLAZY
[  460.8] ==================================================================
"""
# Both trace something.
TRACED = """\
[  881.5] ==================================================================
[  881.5] BUG: KCSAN: data-race in ring_buffer_lock_reserve / ring_buffer_write
[  881.5]
[  881.5] read to 0xff11000002acf438 of 4 bytes by interrupt on cpu 0:
[  881.5]  ring_buffer_lock_reserve+0x107/0x780
[  881.5]  rust_do_trace_cq_process+0x8b/0xa0 [ib_core]
[  881.5]  asm_sysvec_apic_timer_interrupt+0x1f/0x30
[  881.5]
[  881.5] read-write to 0xff11000002acf438 of 4 bytes by task 998 on cpu 0:
[  881.5]  ring_buffer_write+0x9b2/0xa10
[  881.5]  rust_do_trace_cq_poll+0x9a/0xb0 [ib_core]
[  881.5]
[  881.5] Reported by Kernel Concurrency Sanitizer on:
[  881.5] CPU: 0 UID: 0 PID: 998 Comm: kworker/0:1H Not tainted 7.3.4-rust-rdma #4 PREEMPTLAZY
[  881.5] ==================================================================
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

    def test_sleeping(self):
        """The report behind it is one of its own."""
        text = NVMET.replace("WARNING: possible circular locking dependency detected",
                               "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:623")
        self.assertNotEqual(text, NVMET)
        self.assertEqual(len(vm.find_reports(QUIET + text + WARN)), 2)

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

    def test_known_race(self):
        """What is known of a function is one of its accesses, and no other."""
        known = vm.known_reports()
        for text, changes in (
                (QUEUED, (("read-write (marked)", "write"), ("read to", "write to"),
                          ("of 8 bytes by task 408", "of 4 bytes by task 408"),
                          ("]  queue_work_on+0x6d", "]  ib_free_cq+0x6d"))),
                (ERASED, (("read (marked)", "read"), ("xa_load+", "other+"), ("__xa_erase", "__xa_alloc"),
                          ("of 8 bytes by task 1151", "of 1 bytes by task 1151"))),
                (LEFT, (("read (marked)", "read"), ("of 8 bytes by task 1612", "of 4 bytes by task 1612"),
                        ("]  __ip_mc_dec_group", "]  ip_mc_hash_remove"))),
                (TICK, (("by interrupt", "by task 9"), ("wq_worker_tick", "wq_worker_running"),
                        ("read to 0xff11000003de162c of 4", "read to 0xff11000003de162c of 8"))),
                (TRACED, (("by interrupt", "by task 9"), ("]  ring_buffer_lock_reserve", "]  ring_buffer_resize"),
                          ("/ ring_buffer_write", "/ ring_buffer_resize"))),
                (AIO, (("of 4 bytes by task", "of 8 bytes by task"), ("]  iocb_put", "]  rrxe_put"),
                       ("]  aio_read_events", "]  rrxe_poll"), ("write to", "write (marked) to"))),
                (PLUGGED, (("with write", "with read"), ("of 8 bytes", "of 4 bytes"),
                           ("]  __blk_flush_plug", "]  rrxe_run")))):
            report, = vm.find_reports(QUIET + text)
            self.assertFalse(vm.is_foreign_race(report))
            self.assertTrue(vm.is_known(report, known))
            for old, new in changes:
                other = report.replace(old, new)
                self.assertNotEqual(other, report)
                self.assertFalse(vm.is_known(other, known), new)

    def test_race(self):
        log = QUIET + race("a", "b") + QUIET + race("c", "d") + WARN
        reports = vm.find_reports(log)
        self.assertEqual(len(reports), 3)
        self.assertIn("data-race in a / b", reports[0])
        self.assertTrue(reports[0].endswith("==="))
        self.assertEqual(vm.headline(reports[1]), "BUG: KCSAN: data-race in c / d")
        self.assertEqual([vm.is_foreign_race(r) for r in reports], [True, True, False])

    def test_race_of_ours(self):
        """One function of ours in one of the stacks is enough."""
        for one, other, module in OURS:
            with self.subTest(one=one, other=other):
                reports = vm.find_reports(QUIET + race(one, other, module))
                self.assertEqual(len(reports), 1)
                self.assertFalse(vm.is_foreign_race(reports[0]))

    def test_race_in_an_interrupt(self):
        """What was interrupted is not what did it, and what calls the interrupt's function is."""
        for by, frames, foreign in INTERRUPTS:
            with self.subTest(by=by, frames=frames):
                report = interrupted(by, frames)
                self.assertIn(f"by {by} on cpu", report)
                self.assertIs(vm.is_foreign_race(report.rstrip("\n")), foreign)

    def test_race_not_whole(self):
        """What cannot be read to its end may be about anything."""
        whole = race("a", "b").split("\n")
        for text in (whole[:12], whole[:2] + whole[-2:]):
            reports = vm.find_reports("\n".join(text))
            self.assertEqual(len(reports), 1)
            self.assertFalse(vm.is_foreign_race(reports[0]))

    def test_race_long(self):
        """Two deep stacks are longer than other reports."""
        deep = "".join(f"[   21.4]  frame_{n}+0x1/0x2\n" for n in range(60))
        mark = "[   21.4][  T123]  kthread+0x21c/0x250\n"
        report = race("a", "b").replace(mark, deep + deep + "[   21.4]  ib_free_cq+0x1/0x2 [ib_core]\n")
        reports = vm.find_reports(report + QUIET)
        self.assertEqual(len(reports), 1)
        self.assertFalse(vm.is_foreign_race(reports[0]))

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

    def command(self, *options, action=("run",), net=()):
        args = vm.parse([*action, *options, "--", "true"])
        one = vm.Vm.__new__(vm.Vm)
        one.net = net
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

    def test_cluster(self):
        """The first has the hub, and a cable to each other one."""
        for size in (2, 3, 8):
            commands = []
            for node in range(size):
                fds = [40 + node] if node else [20 + n for n in range(1, size)]
                with unittest.mock.patch.dict(os.environ, RUST_RDMA_ACCEL="tcg"):
                    commands.append(self.command(action=("cluster", str(size)), net=vm.cluster_net(node, fds)))
            netdevs = [self.every(command, "-netdev") for command in commands]
            hub = [f"hubport,id=port{n},hubid=0,netdev=cable{n}" for n in range(1, size)]
            cables = [f"stream,id=cable{n},server=off,addr.type=fd,addr.str={20 + n}" for n in range(1, size)]
            self.assertEqual(sorted(netdevs[0]), sorted(["hubport,id=net,hubid=0", *hub, *cables]))
            for node in range(1, size):
                self.assertEqual(netdevs[node], [f"stream,id=net,server=off,addr.type=fd,addr.str={40 + node}"])
            cards = [card for command in commands for card in self.every(command, "-device")
                     if card.startswith("virtio-net")]
            self.assertEqual(len(set(cards)), size)
            for card in cards:
                self.assertRegex(card, r"^virtio-net-pci,netdev=net,mac=52(:[0-9a-f]{2}){5},host_mtu=9000,")

    def every(self, command, word):
        return [command[n + 1] for n, w in enumerate(command) if w == word]

    def test_cluster_names(self):
        self.assertEqual(vm.cluster_hosts(2).splitlines(), [
            "10.97.0.1 node0", "10.97.0.2 node1", "fd97::1 node0", "fd97::2 node1"])
        env = dict(word.split("=", 1) for word in vm.cluster_env(3, 1))
        self.assertEqual(env["CLUSTER_HOSTS"], "node0 node1 node2")
        self.assertEqual((env["CLUSTER_SIZE"], env["CLUSTER_NODE"]), ("3", "1"))
        self.assertTrue(os.access(env["CLUSTER_RSH"].replace("/project/scripts", os.path.dirname(SCRIPT)), os.X_OK))

    def test_cluster_options(self):
        args = vm.parse(["cluster", "3", "--cpus", "1", "--", "prog", "-x", "--", "y"])
        self.assertEqual((args.nodes, args.cpus, args.command[:2]), (3, 1, ["prog", "-x"]))
        self.assertEqual(vm.parse(["cluster", "--cpus", "1", "8", "--", "prog"]).nodes, 8)

    def test_cluster_bad_input(self):
        """One line, which says what."""
        for argv, says in ((["1", "--", "true"], "cluster 1: from 2 to 8"), (["9", "--", "true"], "cluster 9: from 2 to 8"),
                           (["two", "--", "true"], "'two'"), (["3"], "COMMAND"), (["3", "--"], "COMMAND"),
                           (["--", "true"], "'true'"), ([], "N, COMMAND"),
                           (["2", "--kernel", "arm64", "--", "true"], "no network card"),
                           (["2", "--icount", "--", "true"], "--icount")):
            with self.subTest(argv=argv), contextlib.redirect_stderr(io.StringIO()) as err:
                with self.assertRaises(SystemExit) as stop:
                    vm.parse(["cluster", *argv])
                self.assertEqual(stop.exception.code, 2)
                self.assertRegex(err.getvalue(), r"\Avm[a-z ]*: error: [^\n]*\n\Z")
                self.assertIn(says, err.getvalue())


class Still(unittest.TestCase):
    """A boot that does not go on."""

    def machine(self, log, running=True):
        one = vm.Vm.__new__(vm.Vm)
        one.args, one.who, one.machine = vm.parse(["run", "--", "true"]), "", vm.X86
        one.timed_out = one.still = False
        one.console_read, one.end_of_log = log, None
        one.process = unittest.mock.Mock()
        one.process.poll.side_effect = lambda: 0 if one.process.kill.called else None
        one.get = {"init-runs": "" if running else None}.get
        one.monitor = None
        return one

    def watch(self, grows=0, **options):
        """With a clock that runs fast, and a log that grows so many times."""
        with tempfile.TemporaryFile() as log, contextlib.redirect_stderr(io.StringIO()) as err:
            log.write(b"[    0.1] first\n")
            log.flush()
            one, now = self.machine(log, **options), [0]

            def sleep(seconds):
                now[0] += 100
                if now[0] <= 100 * grows:
                    log.write(b"[    0.2] more\n")
                    log.flush()

            examine = lambda monitor, system_map, ask: log.write(b"[    9.0] Kernel panic\n") and log.flush() or ["CPU 0: x"]
            with unittest.mock.patch.object(vm.time, "sleep", sleep), \
                    unittest.mock.patch.object(vm.time, "monotonic", lambda: now[0]), \
                    unittest.mock.patch.object(vm.qmp, "examine", examine):
                one.watch_boot()
            one.tail()
            return one, one.log(), err.getvalue(), now[0]

    def test_boots(self):
        one, log, err, seconds = self.watch()
        self.assertEqual((one.still, seconds, one.process.kill.called), (False, 0, False))
        self.assertNotIn("what it did then", err)

    def test_stands_still(self):
        for grows in (0, 7):
            one, log, err, seconds = self.watch(grows, running=False)
            self.assertTrue(one.still and one.process.kill.called)
            self.assertTrue(vm.STILL < seconds - 100 * grows <= vm.STILL + 200)
            # What it was made to say is no report of its own.
            self.assertNotIn("panic", log)
            self.assertIn("CPU 0: x\n", err)
            self.assertTrue(err.endswith("what it did then, if it says so:\n  [    9.0] Kernel panic\n"))

    def test_registers(self):
        for line in ("[   34.8] RAX: ff110000fab8d000 RBX: ffffffff81c0a9c0", "[   34.8][  T105] Code: 48 8b",
                     "[   34.8]  ? pv_native_safe_halt+0x13/0x20", "[   34.8] R10: 00"):
            self.assertRegex(line, vm.REGISTERS)
        for line in ("[   34.8] RIP: 0010:pv_native_safe_halt+0x13/0x20", "[   34.8]  do_idle+0xd9/0x260",
                     "[   34.8] CPU: 0 UID: 0 PID: 0 Comm: swapper/0"):
            self.assertNotRegex(line, vm.REGISTERS)

    def test_verdict(self):
        one = self.machine(None)
        one.still, one.shell, one.node, one.tail = True, False, None, lambda: None
        one.log = lambda: QUIET
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(vm.verdict(one.args, [one], False), vm.BROKEN)
        self.assertEqual(err.getvalue(), f"vm: error: the boot stood still for {vm.STILL} s\n")

    def test_once_more(self):
        """Once, and only then."""
        for still, statuses in ((0, [7]), (1, [vm.BROKEN, 7]), (2, [vm.BROKEN, vm.BROKEN])):
            made = []

            def make(args, accel):
                made.append(unittest.mock.Mock(still=len(made) < still, accel=accel))
                made[-1].run.return_value = statuses[len(made) - 1]
                return made[-1]

            with unittest.mock.patch.object(vm, "Vm", make), unittest.mock.patch.object(vm, "accelerator", lambda a: "tcg"), \
                    unittest.mock.patch.object(vm.os, "geteuid", lambda: 0), \
                    unittest.mock.patch.object(vm.signal, "signal"), \
                    unittest.mock.patch.object(vm.sys, "argv", ["vm", "run", "--", "true"]), \
                    contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(vm.main(), statuses[-1])
            self.assertEqual(len(made), len(statuses))
            self.assertTrue(all(one.close.called for one in made))


class Verdicts(unittest.TestCase):
    """What is said of several VMs, and the exit status."""

    def machine(self, node, status=None, log=QUIET, fault=None):
        one = vm.Vm.__new__(vm.Vm)
        one.args, one.node, one.shell, one.errors = self.args, node, False, ""
        one.who, one.still, one.end_of_log = f"node{node}: ", False, None
        one.log = lambda: log
        one.get = {"status": status, "fault": fault}.get
        return one

    def verdict(self, *vms, timed_out=False, fault=None):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            return vm.verdict(self.args, vms, timed_out, fault), err.getvalue()

    def setUp(self):
        self.args = vm.parse(["cluster", "2", "--timeout", "9", "--", "true"])

    def test_status(self):
        """That of the command, which is not that of who serves."""
        self.assertEqual(self.verdict(self.machine(0, "3"), self.machine(1, "0")), (3, ""))

    def test_report(self):
        """Of any of them."""
        for logs, name in (((WARN, QUIET), "node0"), ((QUIET, WARN), "node1")):
            status, err = self.verdict(self.machine(0, "0", logs[0]), self.machine(1, "0", logs[1]))
            self.assertEqual(status, vm.REPORT)
            self.assertIn(f"vm: {name}: the kernel reported:\n[   15.1]", err)
            self.assertIn("1 kernel report; the command's status was 0", err)
        self.args.expect_report = ["lkdtm_WARNING"]
        self.assertEqual(self.verdict(self.machine(0, "7"), self.machine(1, "0", WARN)), (7, ""))
        self.assertEqual(self.verdict(self.machine(0, "7"), self.machine(1, "0"))[0], vm.MISSING)

    def test_broken(self):
        """The last line names the VM."""
        good, bad = self.machine(0, "0"), self.machine(1, fault="cannot load module x:\nno such file\n")
        for status, err in (self.verdict(good, bad), self.verdict(good, bad, fault=(bad, "went away"))):
            self.assertEqual(status, vm.BROKEN)
            self.assertEqual(err, "vm: error: node1: cannot load module x: no such file\n")
        bad = self.machine(1)
        status, err = self.verdict(good, bad, fault=(bad, "went away"))
        self.assertEqual((status, err.splitlines()[-1]), (vm.BROKEN, "vm: error: node1 went away"))
        status, err = self.verdict(self.machine(0), bad)
        self.assertEqual((status, err.splitlines()[-1]),
                         (vm.BROKEN, "vm: error: node0 ended without a status of the command"))
        status, err = self.verdict(good, bad)
        self.assertEqual((status, err.splitlines()[-1]),
                         (vm.BROKEN, "vm: error: node1 ended without a status of the command"))
        status, err = self.verdict(self.machine(0), bad, timed_out=True, fault=(bad, "was not up"))
        self.assertEqual((status, err.splitlines()[-1]),
                         (vm.TIMEOUT, "vm: error: killed after 9 s (--timeout); node1 was not up"))


if __name__ == "__main__":
    unittest.main()
