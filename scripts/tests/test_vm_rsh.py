# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/vm-rsh, with this machine as the other one."""

import importlib.machinery
import importlib.util
import io
import os
import signal
import socket
import tempfile
import threading
import time
import unittest
import unittest.mock

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "vm-rsh")
loader = importlib.machinery.SourceFileLoader("vm_rsh", SCRIPT)
rsh = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm_rsh", loader))
loader.exec_module(rsh)


@unittest.skipUnless(socket.has_dualstack_ipv6(), "there is no IPv6")
class Commands(unittest.TestCase):
    def setUp(self):
        before = signal.getsignal(signal.SIGPIPE)
        self.addCleanup(signal.signal, signal.SIGPIPE, before)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            rsh.PORT = free.getsockname()[1]
        self.ctl = tempfile.TemporaryDirectory()
        self.addCleanup(self.ctl.cleanup)
        self.server = threading.Thread(target=rsh.serve, args=(self.ctl.name,))
        self.server.start()
        self.addCleanup(self.stop)
        self.until(lambda: os.path.exists(self.path("up")))

    def path(self, name):
        return os.path.join(self.ctl.name, name)

    def stop(self):
        with open(self.path("stop"), "wb"):
            pass
        self.server.join()

    def until(self, true):
        end = time.monotonic() + 20
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def ask(self, command):
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with unittest.mock.patch("sys.stdout", out), unittest.mock.patch("sys.stderr", err):
            status = rsh.ask("127.0.0.1", command)
        return status, out.buffer.getvalue(), err.getvalue()

    def test_status_and_output(self):
        self.assertEqual(self.ask("echo a; echo b >&2; exit 42"), (42, b"a\nb\n", ""))
        self.assertEqual(self.ask("true"), (0, b"", ""))
        self.assertEqual(self.ask("kill -KILL $$"), (137, b"", ""))
        # What looks like the end is none.
        self.assertEqual(self.ask(r"printf '\0status 000\n'; exit 3"), (3, rsh.END % 0, ""))
        status, out, _ = self.ask("head -c 1000000 /dev/zero; echo b >/dev/stderr; cat")
        self.assertEqual((status, out), (0, b"\0" * 1000000 + b"b\n"))

    def test_left_behind(self):
        """It does not wait for what the command started and did not wait for."""
        start = time.monotonic()
        self.assertEqual(self.ask(f"sleep 15 & echo $! >{self.path('pid')}; echo x"), (0, b"x\n", ""))
        self.assertLess(time.monotonic() - start, 10)
        with open(self.path("pid"), encoding="ascii") as f:
            os.kill(int(f.read()), signal.SIGKILL)

    def test_asker_gone(self):
        """The command ends, with all that it started."""
        with socket.create_connection(("127.0.0.1", rsh.PORT)) as peer:
            peer.sendall(f"sleep 60 & echo $! >{self.path('pid.part')}; mv {self.path('pid.part')} {self.path('pid')}; "
                         "wait\0".encode())
            self.until(lambda: os.path.exists(self.path("pid")))
        with open(self.path("pid"), encoding="ascii") as f:
            pid = int(f.read())
        self.until(lambda: self.ended(pid))

    @staticmethod
    def ended(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                return f.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    def test_server_gone(self):
        """No status is no success; neither is no answer."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            rsh.PORT = server.getsockname()[1]

            def answer():
                with server.accept()[0] as peer:
                    peer.recv(100)
                    peer.sendall(b"some output of some length\n")

            threading.Thread(target=answer).start()
            status, out, err = self.ask("x")
        self.assertEqual((status, err), (255, "vm-rsh: error: 127.0.0.1 went away\n"))
        self.assertTrue(b"some output of some length\n".startswith(out))
        status, _, err = self.ask("x")
        self.assertEqual(status, 255)
        self.assertRegex(err, r"\Avm-rsh: error: 127\.0\.0\.1: .*refused\n\Z")


if __name__ == "__main__":
    unittest.main()
