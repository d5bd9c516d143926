#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What a rank of an MPI job measures; see rrxe_bench.sh. One line for each measurement."""

import array
import sys
import time

from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.Get_rank(), COMM.Get_size()


def ping(send, got):
    """There and back."""
    if RANK == 0:
        COMM.Send(send, dest=1)
        COMM.Recv(got, source=1)
    elif RANK == 1:
        COMM.Recv(got, source=0)
        COMM.Send(got, dest=0)


def reduce(send, got):
    """The sum over all ranks, which all of them get."""
    COMM.Allreduce(send, got, op=MPI.SUM)


# What it is, how many messages one behind the other that is, and what a word becomes.
KINDS = {"ping": (ping, 2, lambda word: word), "reduce": (reduce, 1, lambda word: SIZE * word)}


def measure(name, kind, size, count):
    """One case: the time of each, in us."""
    what, part, result = KINDS[kind]
    words = size // 4
    send, got = array.array("i", (i & 0xffff for i in range(words))), array.array("i", bytes(4 * words))
    times = []
    # The first ones make connections.
    first = count // 10 + 2
    for number in range(first + count):
        if kind == "reduce":
            COMM.Barrier()
        start = time.perf_counter_ns()
        what(send, got)
        if number >= first:
            times.append((time.perf_counter_ns() - start) / 1000 / part)
    if got != array.array("i", map(result, send)):
        print(f"wrong data: {name}, rank {RANK}", flush=True)
        COMM.Abort(3)
    if RANK == 0:
        times.sort()
        print(f"mpi: {name} {size} {count} us={times[count // 2]:.2f} p99={times[min(count - 1, count * 99 // 100)]:.2f}",
              flush=True)


def main():
    for word in sys.argv[1:]:
        name, kind, size, count = word.split("=")
        measure(name, kind, int(size), int(count))


if __name__ == "__main__":
    main()
