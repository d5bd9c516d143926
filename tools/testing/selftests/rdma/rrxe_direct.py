#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Queue pairs of one device that talk to each other: for rrxe_direct.sh.

rrxe_direct.py work DEVICE GID-INDEX ROUNDS [rc|self|reliable|all|datagrams]
    All operations with lengths around the borders of packets and large ones, in
    both directions, with their data compared: of reliable connections, of a
    queue pair that is connected to itself, of both, or of all services. Of
    datagrams alone all have to arrive, in any order.
rrxe_direct.py errors DEVICE GID-INDEX
    What must fail does, in the right way on both sides.
rrxe_direct.py destroy DEVICE GID-INDEX ROUNDS
    Queue pairs and regions go while another process uses them.
"""

import os
import random
import signal
import socket
import struct
import sys
import time

from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.libibverbs_enums import (
    ibv_access_flags, ibv_mtu, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_send_flags,
    ibv_wc_flags, ibv_wc_status, ibv_wr_opcode)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LOCAL = ibv_access_flags.IBV_ACCESS_LOCAL_WRITE
READ = ibv_access_flags.IBV_ACCESS_REMOTE_READ
WRITE = ibv_access_flags.IBV_ACCESS_REMOTE_WRITE
ATOMIC = ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC
ALL = LOCAL | READ | WRITE | ATOMIC
TYPES = {"rc": ibv_qp_type.IBV_QPT_RC, "uc": ibv_qp_type.IBV_QPT_UC, "ud": ibv_qp_type.IBV_QPT_UD}
OP = {name[len("IBV_WR_"):]: getattr(ibv_wr_opcode, name) for name in dir(ibv_wr_opcode)
      if name.startswith("IBV_WR_")}
WC = {name[len("IBV_WC_"):]: getattr(ibv_wc_status, name) for name in dir(ibv_wc_status)
      if name.startswith("IBV_WC_")}
STATE = {name[len("IBV_QPS_"):]: getattr(ibv_qp_state, name) for name in dir(ibv_qp_state)
         if name.startswith("IBV_QPS_")}
SIZE = 4 << 20
HALF = SIZE // 2
# The end of the lower half has words for atomic operations, which nothing else uses.
WORDS = 4096
MTU = 1024
GRH = 40
QKEY = 0x1234
DEPTH = 64
DROPS = "/sys/kernel/debug/rrxe/drops"
# Slow machines have more time.
SCALE = int(os.environ.get("CQ_SCALE", "1"))


class End:
    """A queue pair and a region: the lower half is read, the upper one written."""

    def __init__(self, ctx, gid, kind="rc", access=ALL, size=SIZE):
        self.ctx, self.gid, self.kind = ctx, gid, kind
        self.pd = PD(ctx)
        self.mr = MR(self.pd, size, ALL)
        self.cq = CQ(ctx, 4 * DEPTH, None, None, 0)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=4, max_recv_sge=4)
        init = QPInitAttr(qp_type=TYPES[kind], scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr)
        self.psn = random.getrandbits(24)
        self.ah = None
        self.pending = {}

    def route(self):
        route = GlobalRoute(dgid=self.ctx.query_gid(1, self.gid), sgid_index=self.gid)
        return AHAttr(port_num=1, is_global=1, gr=route)

    def connect(self, qpn, psn, **more):
        attr = QPAttr(port_num=1)
        attr.path_mtu = ibv_mtu.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer = 1
        attr.timeout = 8
        attr.retry_cnt = attr.rnr_retry = 7
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qpn, psn, self.psn
        attr.ah_attr = self.route()
        attr.qkey = QKEY
        for name, value in more.items():
            setattr(attr, name, value)
        if self.kind == "ud":
            # It was made ready when it was made.
            self.ah = AH(self.pd, attr=self.route())
        else:
            self.qp.to_rts(attr)

    def sges(self, at, length, pieces=1):
        """Elements that make up a range: at random cuts."""
        cuts = sorted(random.randint(0, length) for _ in range(pieces - 1))
        ends = cuts + [length]
        return [SGE(self.mr.buf + at + a, b - a, self.mr.lkey) for a, b in zip([0] + cuts, ends)]

    def post(self, op, number, sges, remote=None, peer=None, qkey=QKEY, **atomic):
        wr = SendWR(wr_id=number, num_sge=len(sges), sg=sges, opcode=OP[op],
                    send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        if op.endswith("WITH_IMM"):
            wr.imm_data = socket.htonl(number & 0xffffffff)
        if op.startswith("ATOMIC"):
            wr.set_wr_atomic(remote[0], remote[1], atomic.get("compare", 0), atomic.get("swap", 0))
        elif remote:
            wr.set_wr_rdma(*remote)
        if self.kind == "ud":
            wr.set_wr_ud(self.ah, peer.qp.qp_num, qkey)
        self.qp.post_send(wr)

    def post_recv(self, number, sges):
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=len(sges), sg=sges))

    def state(self):
        return self.qp.query(ibv_qp_attr_mask.IBV_QP_STATE)[0].qp_state

    def set_state(self, state):
        self.qp.modify(QPAttr(qp_state=STATE[state]), ibv_qp_attr_mask.IBV_QP_STATE)

    def evidence(self):
        """What may say where something was lost, in one line."""
        words = [f"state {self.state()}"]
        for path in (f"/sys/class/infiniband/{sys.argv[2]}/ports/1/hw_counters", DROPS):
            try:
                words += nonzero(path)
            except OSError as e:
                words.append(f"{path}: {e.strerror}")
        return " ".join(words)

    def wait(self, count=1, seconds=20):
        """Takes so many completions."""
        wcs, end = [], time.monotonic() + seconds * SCALE
        while len(wcs) < count:
            wcs += self.cq.poll(count - len(wcs))[1] or []
            if time.monotonic() > end:
                raise AssertionError(f"{len(wcs)} completions instead of {count}; {self.evidence()}")
        return wcs


def nonzero(path):
    """The counters that a file or a directory of files has, but for those that are 0."""
    if os.path.isdir(path):
        words = []
        for name in sorted(os.listdir(path)):
            with open(os.path.join(path, name), encoding="ascii") as file:
                words.append(f"{name}={file.read().strip()}")
    else:
        with open(path, encoding="ascii") as file:
            words = file.read().split()
    return [word for word in words if not word.endswith("=0")]


def dropped(reason):
    """How many packets were dropped for a reason, by all devices."""
    with open(DROPS, encoding="ascii") as file:
        return sum(int(word.split("=")[1]) for word in file.read().split() if word.startswith(reason + "="))


def pair(ctx, gid, kind="rc", access=ALL, size=SIZE, **more):
    a, b = End(ctx, gid, kind, size=size), End(ctx, gid, kind, access=access, size=size)
    a.connect(b.qp.qp_num, b.psn, **more)
    b.connect(a.qp.qp_num, a.psn)
    return a, b


def length_of(kind):
    if kind == "ud":
        return random.choice([0, 1, 3, MTU, random.randint(0, MTU)])
    return random.choice([
        0, 1, 7, 8, MTU - 1, MTU, MTU + 1, 3 * MTU, 16 * MTU, 64 * MTU, 64 * MTU + 5, 128 * MTU,
        150 * MTU + 1, random.randint(0, 300 * MTU)])


def one(kind, a, b, number, place, room=0):
    """Posts something random of a for b, to a place that is free; returns what is to be compared.

    A buffer is for so many bytes at least, in case that another message comes first."""
    ops = ["SEND", "SEND_WITH_IMM"]
    if kind != "ud":
        ops += ["RDMA_WRITE", "RDMA_WRITE_WITH_IMM"]
    if kind == "rc":
        ops += ["RDMA_READ", "RDMA_READ", "ATOMIC_FETCH_AND_ADD", "ATOMIC_CMP_AND_SWP"]
    op = random.choice(ops)
    length = 8 if op.startswith("ATOMIC") else length_of(kind)
    at = random.randint(0, HALF - WORDS - length)
    to = HALF + place
    extra = GRH if kind == "ud" else 0
    if op.startswith("ATOMIC"):
        # Not one that another operation on the way may change, or read: when either does is not
        # said, and of a read whose answer is lost it is said that it reads again.
        at = HALF - WORDS + number * 8 % WORDS
        old = a_read(b, at, 8)
        swap = random.getrandbits(63)
        a.post(op, number, a.sges(to, 8), (b.mr.rkey, b.mr.buf + at),
               compare=struct.unpack("=Q", old)[0], swap=swap)
        return 8, (a, to, old), None
    if op == "RDMA_READ":
        a.post(op, number, a.sges(to, length, random.randint(1, 4)), (b.mr.rkey, b.mr.buf + at))
        return length, (a, to, a_read(b, at, length)), None
    data = a_read(a, at, length)
    arrives = None
    if op.startswith("SEND"):
        b.post_recv(number, b.sges(to, max(length, room) + extra, random.randint(1, 4)))
        arrives = (length + extra, op)
    elif op.endswith("IMM"):
        b.post_recv(number, [])
        arrives = (length, op)
    remote = (b.mr.rkey, b.mr.buf + to) if op.startswith("RDMA") else None
    a.post(op, number, a.sges(at, length, random.randint(1, 4)), remote, b)
    return length + extra, (b, to + extra, data), arrives


def a_read(end, at, length):
    return end.mr.read(length, at) if length else b""


def check_header(end, to):
    """In front of a datagram there is an IP header with a good checksum, or one of IPv6."""
    grh = end.mr.read(GRH, to)
    if grh[20] == 0x45:
        assert grh[:20] == bytes(20), "rubbish in front of the header"
        total = sum(struct.unpack("!10H", grh[20:]))
        assert (total & 0xffff) + (total >> 16) == 0xffff, "checksum of the header"
        assert grh[29] == 17 and grh[32:36] == grh[36:40], "not UDP of one to the same"
    else:
        assert grh[0] >> 4 == 6 and grh[6] == 17 and grh[8:24] == grh[24:40], "no header"


def in_order(kind, got, arrivals):
    """Each message is in the buffer that was posted for it."""
    for wc, (nr, length, op, _) in zip(got, arrivals, strict=True):
        assert (wc.wr_id, wc.byte_len) == (nr, length), f"{kind}: {wc} for message {nr}"
        if op.endswith("IMM"):
            assert socket.ntohl(wc.imm_data) == nr & 0xffffffff, "immediate data"


def in_any_order(kind, got, arrivals):
    """Each message is in some buffer; returns how many were overtaken."""
    wanted = [(length, nr if op.endswith("IMM") else None, check[2]) for nr, length, op, check in arrivals]
    found = []
    for wc, (nr, _, _, (end, to, _)) in zip(got, arrivals, strict=True):
        assert wc.wr_id == nr, f"{kind}: buffer {wc.wr_id} instead of {nr}"
        imm = socket.ntohl(wc.imm_data) if wc.wc_flags & ibv_wc_flags.IBV_WC_WITH_IMM else None
        message = wc.byte_len, imm, a_read(end, to, wc.byte_len - GRH)
        # Of those that are the same the first one that has not been there.
        place = next((i for i, w in enumerate(wanted) if w == message and i not in found), None)
        assert place is not None, f"{kind}: {wc} is no message that was sent"
        found.append(place)
        check_header(end, to - GRH)
    return sum(place > min(found[i:]) for i, place in enumerate(found))


def work(ctx, gid, rounds, kind, ordered=True):
    if kind == "self":
        a = End(ctx, gid)
        a.connect(a.qp.qp_num, a.psn)
        a, b, kind = a, a, "rc"
    else:
        a, b = pair(ctx, gid, kind)
    for end in {a, b}:
        end.mr.write(os.urandom(HALF), HALF, 0)
    number, moved, overtaken = 0, 0, 0
    room = 0 if ordered else MTU
    for _ in range(rounds):
        place, checks, sent, arrivals = 0, [], {a: 0, b: 0}, {a: [], b: []}
        for _ in range(random.randint(1, 6)):
            x, y = random.choice([(a, b), (b, a)])
            size, check, arrives = one(kind, x, y, number, place, room)
            place += (max(size, room + GRH) + 15) & ~7
            sent[x] += 1
            if arrives:
                arrivals[y].append((number, *arrives, check))
            if ordered:
                checks.append(check)
            number, moved = number + 1, moved + size
        for end in {a, b}:
            wcs = end.wait(sent[end] + len(arrivals[end]))
            for wc in wcs:
                assert wc.status == WC["SUCCESS"], f"{kind} {wc.wr_id}: status {wc.status}"
            got = [wc for wc in wcs if wc.opcode & 128]
            if ordered:
                in_order(kind, got, arrivals[end])
            else:
                overtaken += in_any_order(kind, got, arrivals[end])
        for end, to, data in checks:
            assert a_read(end, to, len(data)) == data, f"{kind}: wrong data"
            if kind == "ud":
                check_header(end, to - GRH)
    return f"{kind}: {number} messages, {moved >> 10} KiB" + (f", {overtaken} overtaken" if overtaken else "")


def ends(a, b, wanted_a, wanted_b=None):
    """Both have come to this end: a list of statuses."""
    for end, wanted in (a, wanted_a), (b, wanted_b or []):
        got = [wc.status for wc in end.wait(len(wanted))]
        assert got == [WC[name] for name in wanted], f"{got} instead of {wanted}"


def error_cases(ctx, gid):
    """Pairs of a name and what is to be done."""
    def new(**more):
        return pair(ctx, gid, size=1 << 18, **more)

    def remote(op, offset=0, key=None, length=5000, access=ALL, wanted="REM_ACCESS_ERR"):
        a, b = new(access=access)
        target = ((b.mr.rkey if key is None else key), b.mr.buf + offset)
        a.post(op, 0, a.sges(0, length), target)
        a.post("RDMA_WRITE", 1, a.sges(0, 8), (b.mr.rkey, b.mr.buf))
        ends(a, b, [wanted, "WR_FLUSH_ERR"])
        assert (a.state(), b.state()) == (STATE["ERR"], STATE["ERR"])

    def half_a_key(op, ready=True):
        # The second element is of no region; the other side is not to blame, and not asked.
        a, b = new()
        if ready:
            b.post_recv(0, b.sges(0, 8000))
        bad = a.sges(0, 3000) + [SGE(a.mr.buf, 3000, a.mr.lkey ^ 0x5500)]
        a.post(op, 0, bad, (b.mr.rkey, b.mr.buf) if op != "SEND" else None)
        ends(a, b, ["LOC_PROT_ERR"])
        assert b.state() == STATE["RTS"]

    def not_ready(late):
        a, b = new(rnr_retry=7 if late else 0)
        a.post("SEND", 0, a.sges(0, 5000))
        if late:
            time.sleep(0.02)
            b.post_recv(0, b.sges(0, 5000))
            ends(a, b, ["SUCCESS"], ["SUCCESS"])
        else:
            ends(a, b, ["RNR_RETRY_EXC_ERR"])

    def bad_buffer(too_small):
        a, b = new()
        b.post_recv(0, b.sges(0, 4999) if too_small
                    else [SGE(b.mr.buf, 5000, b.mr.lkey ^ 0x5500)])
        b.post_recv(1, b.sges(0, 5000))
        a.post("SEND", 0, a.sges(0, 5000))
        ends(a, b, ["REM_INV_REQ_ERR" if too_small else "REM_OP_ERR"],
             ["LOC_LEN_ERR" if too_small else "LOC_PROT_ERR", "WR_FLUSH_ERR"])

    def away(how):
        a, b = new(retry_cnt=1)
        if how == "closed":
            b.qp.close()
        else:
            b.set_state(how)
        a.post("RDMA_WRITE", 0, a.sges(0, 5000), (b.mr.rkey, b.mr.buf))
        ends(a, b, ["RETRY_EXC_ERR"])

    def deregistered():
        a, b = new()
        target = (b.mr.rkey, b.mr.buf)
        b.mr.close()
        a.post("RDMA_WRITE", 0, a.sges(0, 5000), target)
        ends(a, b, ["REM_ACCESS_ERR"])

    def queue_key():
        a, b = pair(ctx, gid, "ud", size=1 << 18)
        b.post_recv(0, b.sges(0, 200))
        for key in QKEY + 1, QKEY:
            a.post("SEND", key, a.sges(0, key - QKEY + 100), None, b, qkey=key)
        ends(a, b, ["SUCCESS", "SUCCESS"], [])
        wc, = b.wait(1)
        assert wc.byte_len == GRH + 100, "the one with the wrong key has come"

    def too_long():
        # The buffer stays for the next one, and it is said why the first one has not come.
        a, b = pair(ctx, gid, "ud", size=1 << 18)
        before = dropped("refused")
        b.post_recv(0, b.sges(0, GRH + 99))
        for length in 100, 99:
            a.post("SEND", length, a.sges(0, length), None, b)
        ends(a, b, ["SUCCESS", "SUCCESS"], [])
        wc, = b.wait(1)
        assert wc.byte_len == GRH + 99, "the one that is too long has come"
        assert dropped("refused") == before + 1, "the one that is too long was not counted"

    size = 1 << 18
    return [
        ("WRITE beyond the end", lambda: remote("RDMA_WRITE", size - 4999)),
        ("WRITE in front", lambda: remote("RDMA_WRITE", -1)),
        ("WRITE with a wrong key", lambda: remote("RDMA_WRITE", key=0xffff00)),
        ("READ with a wrong key", lambda: remote("RDMA_READ", key=0xffff00)),
        ("READ beyond the end", lambda: remote("RDMA_READ", size - 1)),
        ("WRITE without the right", lambda: remote("RDMA_WRITE", access=LOCAL | READ, wanted="REM_INV_REQ_ERR")),
        ("READ without the right", lambda: remote("RDMA_READ", access=LOCAL | WRITE, wanted="REM_INV_REQ_ERR")),
        ("SEND of memory that is not there", lambda: half_a_key("SEND")),
        ("the same without a buffer", lambda: half_a_key("SEND", False)),
        ("WRITE of memory that is not there", lambda: half_a_key("RDMA_WRITE")),
        ("READ to memory that is not there", lambda: half_a_key("RDMA_READ")),
        ("no buffer", lambda: not_ready(False)),
        ("a late buffer", lambda: not_ready(True)),
        ("a buffer that is too small", lambda: bad_buffer(True)),
        ("a buffer that is not there", lambda: bad_buffer(False)),
        ("reset", lambda: away("RESET")),
        ("closed", lambda: away("closed")),
        ("in error", lambda: away("ERR")),
        ("deregistered", deregistered),
        ("a wrong queue key", queue_key),
        ("a datagram that is too long", too_long),
    ]


def errors(ctx, gid):
    cases = error_cases(ctx, gid)
    for name, case in cases:
        try:
            case()
        except (AssertionError, PyverbsError) as e:
            raise AssertionError(f"{name}: {e}") from e
    return f"{len(cases)} cases"


def hammer(device, gid, pipe, rounds):
    """The other process: sends until that ends in an error, again and again."""
    ctx = Context(name=device)
    for number in range(rounds):
        end = End(ctx, gid, size=1 << 18)
        pipe.sendall(struct.pack("!II", end.qp.qp_num, end.psn))
        qpn, psn, rkey, buf = struct.unpack("!IIIQ", pipe.recv(20, socket.MSG_WAITALL))
        end.connect(qpn, psn, retry_cnt=1, rnr_retry=7, timeout=6)
        pipe.sendall(b"r")
        outstanding, bad, done = 0, False, 0
        stop = random.randint(1, 200) if number % 3 == 0 else None
        while not bad and done != stop:
            op = random.choice(["SEND", "RDMA_WRITE", "RDMA_READ"])
            length = random.choice([8, 1500, 70000])
            if outstanding < DEPTH // 2:
                end.post(op, done, end.sges(0, length), (rkey, buf) if op != "SEND" else None)
                outstanding, done = outstanding + 1, done + 1
            for wc in end.cq.poll(16)[1] or []:
                outstanding -= 1
                bad = bad or wc.status != WC["SUCCESS"]
        # With work that is on its way, if it was not the other side that has gone.
        end.qp.close()
        pipe.sendall(b"d")
        end.cq.close()
        end.mr.close()
        end.pd.close()


def destroy(device, gid, rounds):
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            hammer(device, gid, theirs, rounds)
            os._exit(0)
        except BaseException as e:
            print(f"sender: {e!r}", file=sys.stderr)
            os._exit(1)
    theirs.close()
    signal.alarm(20 + 4 * rounds)
    ctx = Context(name=device)
    ways = {}
    for number in range(rounds):
        end = End(ctx, gid, size=1 << 18)
        for slot in range(DEPTH):
            end.post_recv(slot, end.sges(0, 80000))
        qpn, psn = struct.unpack("!II", mine.recv(8, socket.MSG_WAITALL))
        end.connect(qpn, psn)
        mine.sendall(struct.pack("!IIIQ", end.qp.qp_num, end.psn, end.mr.rkey, end.mr.buf))
        assert mine.recv(1) == b"r"
        way = random.choice(["close", "RESET", "ERR", "mr"]) if number % 3 else "wait"
        ways[way] = ways.get(way, 0) + 1
        until = time.monotonic() + random.random() / 50
        while way == "wait" or time.monotonic() < until:
            for wc in end.cq.poll(DEPTH)[1] or []:
                if wc.status == WC["SUCCESS"]:
                    end.post_recv(wc.wr_id, end.sges(0, 80000))
            if way == "wait":
                mine.setblocking(False)
                try:
                    if mine.recv(1, socket.MSG_PEEK):
                        break
                except BlockingIOError:
                    pass
                finally:
                    mine.setblocking(True)
        if way == "close":
            end.qp.close()
        elif way == "mr":
            end.mr.close()
        elif way != "wait":
            end.set_state(way)
        assert mine.recv(1) == b"d"
        for what in end.qp, end.cq, end.mr, end.pd:
            what.close()
    assert os.waitpid(child, 0)[1] == 0, "the sender failed"
    return ", ".join(f"{n} {way}" for way, n in sorted(ways.items()))


def main():
    what, device, gid, *more = sys.argv[1:]
    gid = int(gid)
    random.seed(int(os.environ.get("SEED", "1")))
    if what == "destroy":
        print(destroy(device, gid, int(more[0])))
        return
    ctx = Context(name=device)
    if what == "work":
        kinds = {"all": ["rc", "self", "uc", "ud"], "reliable": ["rc", "self"]}.get(more[1], [more[1]])
        for kind in kinds:
            ordered = kind != "datagrams"
            print(work(ctx, gid, int(more[0]), kind if ordered else "ud", ordered), flush=True)
    elif what == "errors":
        print(errors(ctx, gid))
    else:
        sys.exit(__doc__)


try:
    main()
except (AssertionError, PyverbsError) as e:
    sys.exit(f"{e}")
