#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Make packet/vectors.rs of rrxe: RoCEv2 packets with the ICRC of scapy.

scapy's implementation owes nothing to ours, so agreement says something.
"""

import struct
import sys

from scapy.all import IP, UDP, IPv6, Raw, raw
from scapy.contrib.roce import BTH

RETH = struct.pack(">QII", 0x7F0012345678, 0xCAFE01, 0x1001)
AETH = bytes([0x1F, 0, 0, 7])
ATOMIC = struct.pack(">QIQQ", 0x7F0012345678, 0xCAFE02, 0x1122334455667788, 0x99AABBCCDDEEFF00)


def data(n):
    return bytes((i * 37 + 11) & 0xFF for i in range(n))


# name, code, headers after the BTH, payload
PACKETS = [
    ("RC SEND only, padded", 0x04, b"", data(13)),
    ("RC SEND last with immediate", 0x03, bytes([0xDE, 0xAD, 0xBE, 0xEF]), data(4)),
    ("RC SEND only with invalidate", 0x17, bytes([0, 0, 0x12, 0x34]), data(1)),
    ("RC WRITE first", 0x06, RETH, data(64)),
    ("RC WRITE middle", 0x07, b"", data(64)),
    ("RC WRITE only with immediate, empty", 0x0B, RETH + bytes([1, 2, 3, 4]), b""),
    ("RC READ request", 0x0C, RETH, b""),
    ("RC READ response only", 0x10, AETH, data(33)),
    ("RC READ response middle", 0x0E, b"", data(64)),
    ("RC acknowledge", 0x11, AETH, b""),
    ("RC acknowledge, sequence error", 0x11, bytes([0x60, 0, 0, 9]), b""),
    ("RC atomic acknowledge", 0x12, AETH + data(8), b""),
    ("RC compare and swap", 0x13, ATOMIC, b""),
    ("RC fetch and add", 0x14, ATOMIC, b""),
    ("RC flush", 0x1C, bytes([0, 0, 0, 0x02]) + RETH, b""),
    ("RC atomic write", 0x1D, RETH, data(8)),
    ("UC SEND middle", 0x21, b"", data(64)),
    ("UC WRITE last, padded", 0x28, b"", data(2)),
    ("UD SEND only", 0x64, struct.pack(">II", 0x80010000, 0x1), data(28)),
    ("UD SEND only with immediate", 0x65, struct.pack(">III", 0x11111111, 0x21, 0x5), data(3)),
]


def build(i, v6, code, headers, payload):
    pad = -len(payload) % 4
    if v6:
        net = IPv6(src="fe80::1:2ff:fe03:405", dst="2001:db8::9", hlim=64 - i, tc=i, fl=0x12345 + i)
    else:
        net = IP(src="192.0.2.1", dst="198.51.100.7", id=0x1000 + i, ttl=64 - i, tos=i << 2, flags="DF")
    bth = BTH(opcode=code, solicited=i & 1, padcount=pad, dqpn=0x11 + i, psn=0xFFFFF0 + i, ackreq=i >> 1 & 1,
              fecn=i >> 2 & 1)
    packet = net / UDP(sport=0xC000 + i, dport=4791, chksum=0) / bth / Raw(headers + payload + bytes(pad))
    return raw(packet)


def main():
    out = [
        "// SPDX-License-Identifier: GPL-2.0", "",
        "//! RoCEv2 packets as scapy makes them, with its ICRC.", "//!",
        "//! Made by tools/rdma/rrxe-host/vectors.py; do not edit.", "",
        "/// A packet from the IP header on, and what must be found in it.",
        "pub(super) struct Vector {",
        "    /// All bytes.", "    pub(super) bytes: &'static [u8],",
        "    /// Operation code.", "    pub(super) opcode: u8,",
        "    /// Destination queue pair.", "    pub(super) dest_qp: u32,",
        "    /// Packet sequence number.", "    pub(super) psn: u32,",
        "    /// Size of the payload.", "    pub(super) payload: u32,",
        "}", "", "/// Packets over IPv4 and IPv6 in turn.", "pub(super) const VECTORS: &[Vector] = &["]
    for i, (name, code, headers, payload) in enumerate(PACKETS):
        for v6 in (False, True):
            packet = build(i, v6, code, headers, payload)
            out += [f"    // {name}, {'IPv6' if v6 else 'IPv4'}.", "    Vector {", "        bytes: &["]
            for at in range(0, len(packet), 14):
                out.append("            " + " ".join(f"0x{b:02x}," for b in packet[at:at + 14]))
            out += ["        ],", f"        opcode: 0x{code:02x},", f"        dest_qp: 0x{0x11 + i:x},",
                    f"        psn: 0x{(0xFFFFF0 + i) & 0xFFFFFF:x},", f"        payload: {len(payload)},", "    },"]
    out.append("];")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
