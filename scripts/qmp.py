# SPDX-License-Identifier: GPL-2.0
"""QEMU's control socket (QMP, https://www.qemu.org/docs/master/interop/qmp-spec.html)."""

import bisect
import json
import re


class Refused(Exception):
    """QEMU says no; the text is its own."""


class Monitor:
    """One connection. Every call may raise OSError, when QEMU is gone or silent."""

    SECONDS = 20  # A busy machine answers late.

    def __init__(self, socket):
        socket.settimeout(self.SECONDS)
        self.socket, self.rest = socket, b""
        self.read()  # The greeting
        self.command("qmp_capabilities")

    def read(self):
        while b"\n" not in self.rest:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError("QEMU has closed its control socket")
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def command(self, name, **arguments):
        """What it returns."""
        self.socket.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self.read()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise Refused(f"{name}: {answer['error'].get('desc', 'refused')}")
            # Else it is an event, of which nobody here makes use.

    def where(self):
        """[(CPU, instruction address, does it wait for an interrupt?)]"""
        text = self.command("human-monitor-command", **{"command-line": "info registers -a"})
        return cpus(text)


def cpus(text):
    """The same, out of "info registers -a" of an x86-64 or arm64 machine."""
    found = []
    for part in re.split(r"(?m)^(?=CPU#\d+)", text.replace("\r", "")):
        number = re.match(r"CPU#(\d+)", part)
        address = re.search(r"\b(?:[RE]IP|PC)=\s*([0-9a-f]{8,16})\b", part)
        if number and address:
            found.append((int(number[1]), int(address[1], 16), bool(re.search(r"\bHLT=1\b", part))))
    return found


class Symbols:
    """Names of addresses, from a System.map."""

    def __init__(self, lines):
        pairs = []
        for line in lines:
            words = line.split()
            if len(words) == 3 and words[1] in "tTwW":
                pairs.append((int(words[0], 16), words[2]))
        pairs.sort()
        self.addresses, self.names = [a for a, _ in pairs], [n for _, n in pairs]

    def name(self, address):
        """function+offset, or "" for what lies in no function of the kernel itself."""
        n = bisect.bisect_right(self.addresses, address) - 1
        # Behind the last one are modules and user space.
        if n < 0 or n == len(self.names) - 1:
            return ""
        return f"{self.names[n]}+{address - self.addresses[n]:#x}"


def examine(socket, system_map, ask_kernel):
    """Where the CPUs of a machine are that does not go on: lines of text.

    With ask_kernel they then get an NMI, on which the kernel writes to its log what its
    CPUs and its blocked tasks do, and ends (scripts/vm boots it with unknown_nmi_panic).
    """
    lines = []
    try:
        monitor = Monitor(socket)
        try:
            with open(system_map, encoding="ascii") as f:
                symbols = Symbols(f)
        except OSError:
            symbols = Symbols([])
        for number, address, halted in monitor.where():
            name = symbols.name(address)
            lines.append(f"CPU {number}: {address:#x}{name and ' ' + name}{' (waits for an interrupt)' * halted}")
        if ask_kernel:
            monitor.command("inject-nmi")
    except (OSError, ValueError, Refused) as e:
        lines.append(f"QEMU does not say more: {e}")
    return lines
