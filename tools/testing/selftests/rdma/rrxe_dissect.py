#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Let scapy read RoCEv2 packets that were captured, and compute their ICRC.

	rrxe_dissect.py [--spoil] FILE [OPERATION...]

Each packet has to be one that scapy knows, whole, with the lengths that its layers
say, and with the ICRC that scapy computes for it.  Each OPERATION, by scapy's name
for it, has to be there.  With --spoil a byte of each packet is changed first, and
all have to be found wrong.
"""

import argparse
import logging
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)
# pylint: disable=wrong-import-position
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader, checksum

# Extended headers, by what is in the name (IBA vol. 1, 9.2.1), and what a datagram has.
HEADERS = (("RDMA_WRITE_FIRST", 16), ("RDMA_WRITE_ONLY", 16), ("READ_REQUEST", 16), ("COMPARE_SWAP", 28),
           ("FETCH_ADD", 28), ("RESPONSE_FIRST", 4), ("RESPONSE_LAST", 4), ("RESPONSE_ONLY", 4), ("ACKNOWLEDGE", 4),
           ("ATOMIC_ACKNOWLEDGE", 8), ("IMMEDIATE", 4), ("UD_", 8))
# Those have nothing else.
BARE = ("READ_REQUEST", "COMPARE_SWAP", "FETCH_ADD", "ACKNOWLEDGE")
NAMES = BTH.fields_desc[0].i2s


def wrong(packet, captured):
    """What is wrong with a packet; its operation."""
    if BTH not in packet:
        return None, "no BTH"
    bth, udp = packet[BTH], packet[UDP]
    ip = packet[IP] if IP in packet else packet[IPv6]
    name = NAMES.get(bth.opcode)
    if not name:
        return None, f"operation {bth.opcode:#04x}"
    header, length = (20, ip.len - 20) if IP in packet else (40, ip.plen)
    # BTH and ICRC.
    payload = len(bytes(bth.payload))
    headers = sum(size for part, size in HEADERS if part in name)
    problem = ""
    if len(captured) != 14 + header + length or udp.len != length or payload != udp.len - 8 - 12 - 4:
        problem = f"lengths: {len(captured)} captured, IP {length}, UDP {udp.len}, payload {payload}"
    elif payload < headers + bth.padcount or (any(part in name for part in BARE) and payload != headers):
        problem = f"{payload} bytes behind the BTH, {headers} of headers, padding {bth.padcount}"
    elif bth.version or bth.resv6 or bth.resv7 or payload % 4:
        problem = "version, reserved bits or padding"
    elif name == "RC_ACKNOWLEDGE" and (AETH not in packet or packet[AETH].syndrome >> 5 not in (0, 1, 3)):
        problem = "no AETH, or a syndrome that is none"
    elif IP in packet and checksum(captured[14:34]):
        problem = "checksum"
    else:
        # Built again without it: scapy fills it in.
        again = packet.copy()
        again[BTH].icrc = None
        icrc = bytes(again)[-4:]
        if icrc != captured[-4:]:
            problem = f"ICRC {captured[-4:].hex()}, and scapy has {icrc.hex()}"
    return name, problem


def main():
    """Look at all packets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spoil", action="store_true")
    parser.add_argument("file")
    parser.add_argument("operation", nargs="*")
    args = parser.parse_args()
    seen, bad, number = {}, 0, 0
    for number, (captured, _) in enumerate(RawPcapReader(args.file), 1):
        if args.spoil:
            # The last byte in front of the ICRC.
            captured = captured[:-5] + bytes([captured[-5] ^ 0x10]) + captured[-4:]
        packet = Ether(captured)
        name, problem = wrong(packet, captured)
        seen[name] = seen.get(name, 0) + 1
        if problem:
            bad += 1
            if bad <= 10 and not args.spoil:
                print(f"packet {number}: {name}: {problem}")
    missing = [name for name in args.operation if not seen.get(name)]
    for name in missing:
        print(f"none: {name}")
    for name, count in sorted(seen.items(), key=str):
        print(f"{name} {count}")
    print(f"{number} packets, {bad} wrong")
    if args.spoil:
        sys.exit(not number or bad != number)
    sys.exit(bad != 0 or not number or bool(missing))


main()
