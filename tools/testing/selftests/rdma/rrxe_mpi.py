#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What a rank of an MPI job does; see rrxe_mpi.sh. Ends with a line for each test."""

import array
import os
import sys
import time

from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()
# Below and above what goes at once, and what the receiver fetches.
SIZES = (1, 64, 4096, 65536, 1 << 20)


def pattern(size, seed):
    """Bytes that differ by place and sender, so that what is moved or mixed up is seen."""
    base = bytes((i * 7 + seed * 31) & 0xff for i in range(251))
    return bytearray((base * (size // 251 + 1))[:size])


def check(what, good):
    if not good:
        print(f"wrong data: {what}, rank {RANK}", flush=True)
        COMM.Abort(3)


def ring(rounds):
    """Each passes on what it got, until rank 0 has it back."""
    for size in SIZES:
        for number in range(rounds):
            want = pattern(size, number)
            if RANK == 0:
                COMM.Send(want, dest=1 % SIZE)
            got = bytearray(size)
            COMM.Recv(got, source=(RANK - 1) % SIZE)
            check(f"ring, {size} bytes", got == want)
            if RANK:
                # To see that this test can fail.
                got[-1] ^= os.environ.get("SELFTEST_BREAK") == "1"
                COMM.Send(got, dest=(RANK + 1) % SIZE)
    return len(SIZES) * rounds


def everyone(rounds):
    """Each has something for each, all at the same time."""
    for number in range(rounds):
        size = SIZES[number % len(SIZES)]
        send = bytearray().join(pattern(size, RANK * SIZE + to + number) for to in range(SIZE))
        got = bytearray(size * SIZE)
        COMM.Alltoall([send, size, MPI.BYTE], [got, size, MPI.BYTE])
        for sender in range(SIZE):
            check(f"all to all, {size} bytes",
                  got[sender * size:][:size] == pattern(size, sender * SIZE + RANK + number))
    return rounds


def reduced(rounds):
    """Sums over all ranks."""
    for number in range(rounds):
        total = COMM.allreduce(RANK + number)
        check("sum", total == sum(range(SIZE)) + SIZE * number)
    return rounds


def vectors(rounds):
    """Sums over all ranks of vectors, 256 KiB each, with other elements everywhere."""
    base, factors = range(1 << 16), SIZE * (SIZE + 1) // 2
    for number in range(rounds):
        send = array.array("i", [(RANK + 1) * i + number for i in base])
        if RANK == SIZE - 1:
            send[-1] ^= os.environ.get("SELFTEST_BREAK") == "1"
        total = array.array("i", [0]) * len(send)
        COMM.Allreduce([send, MPI.INT], [total, MPI.INT])
        check("sum of vectors", total == array.array("i", [factors * i + SIZE * number for i in base]))
    return rounds


def unexpected(rounds):
    """Messages that nobody asked for yet, taken in the other order."""
    if RANK == 0:
        for peer in range(1, SIZE):
            for tag in range(rounds):
                COMM.Send(pattern(1000, tag), dest=peer, tag=tag)
    COMM.Barrier()
    if RANK:
        for tag in reversed(range(rounds)):
            got = bytearray(1000)
            COMM.Recv(got, source=0, tag=tag)
            check(f"tag {tag}", got == pattern(1000, tag))
    return rounds


TESTS = {"ring": ring, "everyone": everyone, "reduced": reduced, "vectors": vectors, "unexpected": unexpected}


def main():
    print(f"rank {RANK} of {SIZE} on {MPI.Get_processor_name()}", flush=True)
    for word in sys.argv[1:]:
        name, _, rounds = word.partition("=")
        COMM.Barrier()
        start = time.monotonic()
        done = TESTS[name](int(rounds or 1))
        COMM.Barrier()
        if RANK == 0:
            print(f"{name}: {done} rounds of {SIZE} ranks in {time.monotonic() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main()
