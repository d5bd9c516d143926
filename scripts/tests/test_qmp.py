# SPDX-License-Identifier: GPL-2.0
"""Tests of what is asked of QEMU about a machine that does not go on."""

import json
import os
import socket
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import qmp

X86 = """\
\r
CPU#0\r
RAX=0000000000000000 RBX=ffffffff81c0a9c0 RCX=4000000000000000 RDX=0000000000000000
R12=0000000000000001 R13=0000000000000000 R14=0000000000000000 R15=0000000000000000
RIP=ffffffff81000013 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1
\r
CPU#1\r
RIP=00007f4260ce0000 RFL=00000246 [---Z-P-] CPL=3 II=0 A20=1 SMM=0 HLT=0
"""
ARM64 = """\

CPU#0
 PC=ffff800080001a2c X00=0000000000000000 X01=0000000000000000
X02=0000000000000000 X03=0000000000000000 X04=0000000000000000
"""
SYSTEM_MAP = """\
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000010 t halt
ffffffff81000020 D data
ffffffff81000100 T _etext
"""


class Fake(threading.Thread):
    """A QEMU that answers what it is told to."""

    def __init__(self, answers, greeting={"QMP": {}}):
        super().__init__(daemon=True)
        self.socket, self.theirs = socket.socketpair()
        self.answers, self.greeting, self.asked = answers, greeting, []
        self.start()

    def say(self, *objects):
        self.theirs.sendall(b"".join(json.dumps(o).encode() + b"\r\n" for o in objects))

    def run(self):
        with self.theirs, self.theirs.makefile("r") as lines:
            self.say(self.greeting)
            for line in lines:
                request = json.loads(line)
                self.asked.append(request["execute"])
                answer = self.answers.get(request["execute"])
                if answer is None:
                    return
                self.say({"event": "NIC_RX_FILTER_CHANGED"}, answer)

    def close(self):
        self.socket.close()
        self.join(10)


class Examine(unittest.TestCase):
    OK = {"return": {}}

    def examine(self, answers, ask_kernel=True):
        fake = Fake({"qmp_capabilities": self.OK, **answers})
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as f:
            f.write(SYSTEM_MAP)
            f.flush()
            lines = qmp.examine(fake.socket, f.name, ask_kernel)
        fake.close()
        return lines, fake.asked

    def test_cpus(self):
        self.assertEqual(qmp.cpus(X86), [(0, 0xffffffff81000013, True), (1, 0x7f4260ce0000, False)])
        self.assertEqual(qmp.cpus(ARM64), [(0, 0xffff800080001a2c, False)])
        self.assertEqual(qmp.cpus("CPU#0\r\nEAX=00000000\r\nEIP=0000fff0 EFL=00000002 CPL=0 SMM=0 HLT=0\r\n"),
                         [(0, 0xfff0, False)])
        self.assertEqual(qmp.cpus("unknown command: 'info registers'"), [])

    def test_symbols(self):
        symbols = qmp.Symbols(SYSTEM_MAP.splitlines())
        for address, name in ((0xffffffff81000013, "halt+0x3"), (0xffffffff81000020, "halt+0x10"),
                              (0xffffffff81000100, ""), (0x7f4260ce0000, "")):
            self.assertEqual(symbols.name(address), name)

    def test_whole(self):
        lines, asked = self.examine({"human-monitor-command": {"return": X86}, "inject-nmi": self.OK})
        self.assertEqual(lines, ["CPU 0: 0xffffffff81000013 halt+0x3 (waits for an interrupt)", "CPU 1: 0x7f4260ce0000"])
        self.assertEqual(asked, ["qmp_capabilities", "human-monitor-command", "inject-nmi"])
        self.assertNotIn("inject-nmi", self.examine({"human-monitor-command": {"return": X86}}, False)[1])

    def test_without_map(self):
        fake = Fake({"qmp_capabilities": self.OK, "human-monitor-command": {"return": X86}})
        self.assertEqual(qmp.examine(fake.socket, "/nonexistent", False)[0],
                         "CPU 0: 0xffffffff81000013 (waits for an interrupt)")
        fake.close()

    def test_refused(self):
        """What is known by then is said nevertheless."""
        lines, _ = self.examine({"human-monitor-command": {"return": X86},
                                 "inject-nmi": {"error": {"class": "GenericError", "desc": "no NMI here"}}})
        self.assertEqual(len(lines), 3)
        self.assertEqual(lines[2], "QEMU does not say more: inject-nmi: no NMI here")

    def test_gone(self):
        """It closes its end in the middle, or says what is no JSON."""
        lines, _ = self.examine({})
        self.assertEqual(lines, ["QEMU does not say more: QEMU has closed its control socket"])
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(b"hello\n")
            self.assertRegex(qmp.examine(ours, "/nonexistent", True)[0], "^QEMU does not say more: ")


if __name__ == "__main__":
    unittest.main()
