#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Send RoCEv2 packets, good and malformed, and see what becomes of them.

	rrxe_packets.py [--echo] NETNS IF MAC SRC DST [FOREIGN]

The packets leave through IF in the network name space NETNS, for a device with
the hardware address MAC and the address DST.  For each of them one counter in
debugfs must have gone up: that of the reason why it was dropped.  FOREIGN is an
address of the same host that is not one of the device.  With --echo something
on the other side sends back what it receives; that must have the right ICRC.
"""

import argparse
import logging
import os
import socket
import sys
import time

logging.getLogger("scapy").setLevel(logging.ERROR)
# pylint: disable=wrong-import-position
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP, IPOption
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Ether
from scapy.packet import Raw

DROPS = "/sys/kernel/debug/rrxe/drops"
RC_SEND_ONLY, RC_ACK, UD_SEND_ONLY = 0x04, 0x11, 0x64
# Queue pair that is not there.
NO_QP = 0xbad


class Tester:
    """A raw socket in a name space, the counters, and the results."""

    def __init__(self, args):
        self.args = args
        self.v6 = ":" in args.dst
        self.count = self.failed = 0
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{args.netns}", os.O_RDONLY)
        os.setns(there)
        # All protocols.
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.sock.bind((args.interface, 0))
        os.setns(here)
        self.sock.settimeout(1)
        self.mac = self.sock.getsockname()[4]

    def frame(self, bth, payload=b"", dst=None, ext=b"", pad=None, fill=None, options=False, trim=0, flip=None,
              after_ip=None):
        """One frame; flip is the place of a byte, from the end, that is changed at last."""
        dst = dst or self.args.dst
        right = -len(payload) & 3
        bth = BTH(padcount=right if pad is None else pad, **bth)
        payload = ext + payload + bytes(right if fill is None else fill)
        if self.v6:
            ip = IPv6(src=self.args.src, dst=dst, hlim=9)
        else:
            ip = IP(src=self.args.src, dst=dst, id=4711, ttl=9, flags="DF")
            if options:
                ip.options = [IPOption(b"\x01\x01\x01\x00")]
        if after_ip:
            ip = ip / after_ip
        packet = ip / UDP(sport=0xc123, dport=4791, chksum=0) / bth / Raw(payload)
        if after_ip or options:
            # The library cannot compute the ICRC of these, and they are dropped before it counts.
            packet[BTH].icrc = 0
        data = bytes(packet)
        if trim:
            data = self.trim(ip, data, trim)
        if flip is not None:
            data = bytearray(data)
            data[-flip] ^= 0x40
            data = bytes(data)
        ether = Ether(src=bytes(self.mac).hex(":"), dst=self.args.mac, type=0x86dd if self.v6 else 0x0800)
        return bytes(ether) + data

    def trim(self, ip, data, left):
        """The datagram shortened to that many bytes behind the UDP header."""
        header = 40 if self.v6 else 20
        udp = UDP(sport=0xc123, dport=4791, chksum=0) / Raw(data[header + 8:header + 8 + left])
        return bytes(ip / udp)

    def counters(self):
        """All counters of all devices."""
        with open(DROPS, encoding="ascii") as file:
            fields = [field for line in file for field in line.split()[1:]]
        result = {}
        for field in fields:
            name, value = field.split("=")
            result[name] = result.get(name, 0) + int(value)
        return result

    def report(self, name, good, why=""):
        """One result in KTAP."""
        self.count += 1
        self.failed += not good
        family = "IPv6" if self.v6 else "IPv4"
        print(f"{'ok' if good else 'not ok'} {self.count} {family} {name}{why and ' # ' + why}", flush=True)

    def expect_drop(self, name, reason, frame):
        """Send a frame that is to be dropped."""
        before = self.counters()
        self.sock.send(frame)
        deadline = time.monotonic() + 2
        while True:
            after = self.counters()
            changed = {k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)}
            if changed or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self.report(name, changed == {reason: 1}, f"expected {reason}, got {changed}" if changed != {reason: 1} else "")

    def drain(self):
        """Forget what has come in."""
        self.sock.settimeout(0)
        try:
            while True:
                self.sock.recv(65536)
        except BlockingIOError:
            pass
        self.sock.settimeout(1)

    def expect_echo(self, name, bth, payload, ext=b""):
        """Send a frame that comes back."""
        self.drain()
        before = self.counters()
        self.sock.send(self.frame(dict(bth, ackreq=1), payload, ext=ext))
        deadline = time.monotonic() + 2
        why = "nothing came back"
        while time.monotonic() < deadline:
            try:
                data = self.sock.recv(65536)
            except TimeoutError:
                break
            packet = Ether(data)
            if BTH in packet and packet[UDP].dport == 4791 and packet.dst == bytes(self.mac).hex(":"):
                why = self.look(packet, bth, ext + payload)
                break
        if self.counters() != before:
            why = f"counters {before} {self.counters()}"
        self.report(name, not why, why)

    def look(self, packet, bth, payload):
        """What is wrong with a packet that came back."""
        ip = packet[IPv6 if self.v6 else IP]
        if (ip.src, ip.dst) != (self.args.dst, self.args.src):
            return f"addresses {ip.src} {ip.dst}"
        if (ip.tc if self.v6 else ip.tos) != 8 or (ip.hlim if self.v6 else ip.ttl) != 64:
            return "traffic class or hop limit"
        length = 12 + len(payload) + (-len(payload) & 3) + 4 + 8
        if packet[UDP].len != length or (ip.plen if self.v6 else ip.len - 20) != length:
            return f"length {packet[UDP].len} instead of {length}"
        if packet[UDP].sport < 0xc000 or packet[UDP].chksum != 0:
            return "port or checksum"
        if not self.v6:
            again = ip.copy()
            del again.chksum
            if IP(bytes(again)).chksum != ip.chksum:
                return "checksum of the IP header"
        got = packet[BTH]
        if got.dqpn != bth["dqpn"] or got.psn != bth["psn"] or bytes(got.payload)[:len(payload)] != payload:
            return "header or payload"
        icrc = got.icrc
        again = ip.copy()
        again[BTH].icrc = None
        again = (IPv6 if self.v6 else IP)(bytes(again))
        if again[BTH].icrc != icrc:
            return f"ICRC {icrc:08x} instead of {again[BTH].icrc:08x}"
        return ""

    def run(self):
        """All cases."""
        def send(**more):
            return dict({"opcode": RC_SEND_ONLY, "dqpn": NO_QP, "psn": 0x123456}, **more)

        some = bytes(range(100))
        deth = bytes.fromhex("8001000000000011")
        drop, frame = self.expect_drop, self.frame
        drop("no such queue pair", "no_qp", frame(send(), some))
        drop("large and for no queue pair", "no_qp", frame(send(), some * 41))
        drop("BTH cut off", "short", frame(send(), some, trim=11))
        drop("nothing but a BTH", "short", frame(send(), trim=12))
        drop("a single byte", "short", frame(send(), trim=1))
        drop("header version", "version", frame(send(version=1), some))
        drop("unknown operation", "opcode", frame(send(opcode=0x1f), some))
        drop("reliable datagram", "opcode", frame(send(opcode=0x44), some))
        drop("padding without payload", "length", frame(send(), b"", pad=3))
        drop("no padding where it is needed", "length", frame(send(), some + b"x", pad=0, fill=0))
        drop("headers cut off", "length", frame(send(opcode=RC_ACK), b"", trim=16))
        drop("acknowledgment with payload", "payload", frame(send(opcode=RC_ACK), some))
        drop("queue pair 0", "dest_qp", frame(send(dqpn=0), some))
        drop("multicast queue pair and no datagram", "dest_qp", frame(send(dqpn=0xffffff), some))
        drop("datagram, no such queue pair", "no_qp", frame(send(opcode=UD_SEND_ONLY), some, ext=deth))
        if self.args.foreign:
            drop("datagram to another address", "dest_address",
                 frame(send(opcode=UD_SEND_ONLY), some, dst=self.args.foreign, ext=deth))
        bth = 4 + len(some) + 12
        for place, name in ((1, "ICRC"), (5, "last byte"), (bth - 12, "first byte"), (bth - 11, "sequence number"),
                            (bth - 3, "partition key"), (bth + 8, "source port")):
            drop(f"changed {name}", "icrc", frame(send(), some, flip=place))
        if self.v6:
            drop("extension header", "ip_options", frame(send(), some, after_ip=IPv6ExtHdrDestOpt()))
        else:
            drop("IP options", "ip_options", frame(send(), some, options=True))

        if self.args.echo:
            for size in (0, 1, 2, 3, 4, 5, 100, 1023, 1024, 2048, 4095, 4096):
                self.expect_echo(f"echo of {size} bytes", send(dqpn=0x11), os.urandom(size))
            self.expect_echo("echo of a datagram", send(opcode=UD_SEND_ONLY, dqpn=0x12), some, ext=deth)
        return self.count, self.failed


def main():
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--echo", action="store_true")
    parser.add_argument("netns")
    parser.add_argument("interface")
    parser.add_argument("mac")
    parser.add_argument("src")
    parser.add_argument("dst")
    parser.add_argument("foreign", nargs="?")
    count, failed = Tester(parser.parse_args()).run()
    print(f"1..{count}")
    sys.exit(1 if failed else 0)


main()
