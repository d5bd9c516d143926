#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Look at the RoCEv2 packets on a wire, and check what they are made of.

	rrxe_icrc.py NETNS IF SECONDS [COUNT]

Looks for SECONDS, or until there were COUNT packets.  Lengths, checksums and the
ICRC (IBA vol. 1, annex A17.3) of each have to be right.  Prints how many packets
there were by operation code; the exit status is 1 if there was none, or a wrong
one.  It does not use code of the driver, nor of the tool that sends packets.
"""

import os
import socket
import sys
import time
import zlib

ROCE_PORT = 4791


def words(data):
    """The sum of 16 bit words that checksums of the Internet are made of."""
    total = sum(int.from_bytes(data[at:at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def masked4(header):
    """What the ICRC sees of an IPv4 header, its length, and what is wrong with it."""
    wrong = ""
    if header[0] != 0x45:
        wrong = "options"
    elif words(header) != 0xffff:
        wrong = "checksum of the IP header"
    elif not header[6] & 0x40:
        wrong = "may be fragmented"
    out = bytearray(header)
    out[1] = out[8] = out[10] = out[11] = 0xff
    return bytes(out), int.from_bytes(header[2:4], "big") - 20, wrong


def masked6(header):
    """The same of an IPv6 header."""
    out = bytearray(header)
    out[0] |= 0x0f
    out[1] = out[2] = out[3] = out[7] = 0xff
    return bytes(out), int.from_bytes(header[4:6], "big"), ""


def check(frame):
    """The operation code of a packet and what is wrong with it; None if it is another one."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23] == 17:
        size, mask = 20, masked4
    elif kind == b"\x86\xdd" and frame[20] == 17:
        size, mask = 40, masked6
    else:
        return None
    header, udp = frame[14:14 + size], frame[14 + size:22 + size]
    if int.from_bytes(udp[2:4], "big") != ROCE_PORT:
        return None
    header, length, wrong = mask(header)
    # The device may have filled the frame up.
    packet = frame[22 + size:14 + size + length]
    opcode = packet[0]
    bth = packet[:4] + b"\xff" + packet[5:12]
    crc = zlib.crc32(b"\xff" * 8 + header + udp[:6] + b"\xff\xff" + bth + packet[12:-4])
    if int.from_bytes(udp[4:6], "big") != length or len(packet) != length - 8:
        wrong = "length"
    elif length % 4:
        wrong = "not padded"
    elif int.from_bytes(udp[:2], "big") < 0xc000:
        wrong = "source port"
    elif crc != int.from_bytes(packet[-4:], "little"):
        wrong = "ICRC"
    return opcode, wrong


def main():
    """Look at packets."""
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    netns, interface, seconds = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else None
    os.setns(os.open(f"/run/netns/{netns}", os.O_RDONLY))
    # All protocols.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    sock.bind((interface, 0))
    print("ready", flush=True)
    deadline = time.monotonic() + float(seconds)
    seen, bad = {}, 0
    while count is None or sum(seen.values()) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        sock.settimeout(left)
        try:
            result = check(sock.recv(65536))
        except TimeoutError:
            break
        if result:
            seen[result[0]] = seen.get(result[0], 0) + 1
            if result[1]:
                bad += 1
                print(f"operation {result[0]:#04x}: wrong {result[1]}")
    print(" ".join(f"{opcode:#04x}:{number}" for opcode, number in sorted(seen.items())), f"wrong:{bad}")
    sys.exit(bad != 0 or not seen)


main()
