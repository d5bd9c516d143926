#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What no tool of rdma-core does: for rrxe_cq.sh.

rrxe_cq.py resize DEVICE GID-INDEX MESSAGES [events]
    Another process sends numbered messages while the completion queue that
    they come to gets another size again and again, and the queue pair is
    queried and modified. Each message has to be there once, in its turn.
rrxe_cq.py overflow DEVICE GID-INDEX
    More completions than there is room for: the event says so, once.
rrxe_cq.py srq DEVICE GID-INDEX
    The limit of a shared receive queue: the event comes, once.
rrxe_cq.py drained DEVICE GID-INDEX ROUNDS
    Where the send queue is drained the limits of READs are changed, and then
    so many are on their way at a time. The network should lose some packets.
"""

import os
import random
import signal
import socket
import struct
import sys
import time

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.libibverbs_enums import (
    ibv_access_flags, ibv_event_type, ibv_mtu, ibv_qp_attr_mask, ibv_qp_state,
    ibv_qp_type, ibv_send_flags, ibv_srq_attr_mask, ibv_wc_status, ibv_wr_opcode)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SLOT = 256
ACCESS = (ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | ibv_access_flags.IBV_ACCESS_REMOTE_READ
          | ibv_access_flags.IBV_ACCESS_REMOTE_WRITE)


class End:
    """A connected queue pair and what it needs."""

    def __init__(self, device, gid, depth=64, cqe=None, events=False, srq=False):
        self.ctx = Context(name=device)
        self.gid = gid
        self.pd = PD(self.ctx)
        self.mr = MR(self.pd, SLOT * depth, ACCESS)
        self.channel = CompChannel(self.ctx) if events else None
        self.cq = CQ(self.ctx, cqe or depth, None, self.channel, 0)
        self.send_cq = CQ(self.ctx, 2 * depth, None, None, 0)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=depth))) if srq else None
        init = QPInitAttr(qp_type=ibv_qp_type.IBV_QPT_RC, scq=self.send_cq, rcq=self.cq, cap=cap,
                          srq=self.srq)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        self.qp = QP(self.pd, init, attr)
        self.psn = random.getrandbits(24)

    def name(self):
        """What the other side has to know."""
        return self.qp.qp_num, self.psn

    def connect(self, other, reads=1):
        qpn, psn = other
        attr = QPAttr(port_num=1)
        attr.path_mtu = ibv_mtu.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = reads
        attr.min_rnr_timer = 1
        attr.timeout = 12
        attr.retry_cnt = attr.rnr_retry = 7
        attr.dest_qp_num = qpn
        attr.rq_psn = psn
        attr.sq_psn = self.psn
        route = GlobalRoute(dgid=self.ctx.query_gid(1, self.gid), sgid_index=self.gid)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attr)

    def sge(self, slot, length=SLOT):
        return SGE(self.mr.buf + slot * SLOT, length, self.mr.lkey)

    def post_recv(self, slot):
        wr = RecvWR(wr_id=slot, num_sge=1, sg=[self.sge(slot)])
        (self.srq or self.qp).post_recv(wr)

    def post_send(self, number, slot):
        self.mr.write(struct.pack("!I", number) * (SLOT // 4), SLOT, slot * SLOT)
        wr = SendWR(wr_id=number, num_sge=1, sg=[self.sge(slot)],
                    opcode=ibv_wr_opcode.IBV_WR_SEND_WITH_IMM,
                    send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        wr.imm_data = socket.htonl(number)
        self.qp.post_send(wr)

    def post_read(self, number, slot, other, there):
        wr = SendWR(wr_id=number, num_sge=1, sg=[self.sge(slot)],
                    opcode=ibv_wr_opcode.IBV_WR_RDMA_READ,
                    send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(other.mr.rkey, other.mr.buf + there * SLOT)
        self.qp.post_send(wr)

    def state(self, state):
        self.qp.modify(QPAttr(qp_state=state), ibv_qp_attr_mask.IBV_QP_STATE)


def good(wc, what):
    assert wc.status == ibv_wc_status.IBV_WC_SUCCESS, f"{what} ended with status {wc.status}"


def poll(cq, count=1):
    """Waits for completions."""
    wcs = []
    while len(wcs) < count:
        wcs += cq.poll(count - len(wcs))[1] or []
    return wcs


def sender(device, gid, depth, messages, pipe):
    end = End(device, gid, depth)
    pipe.sendall(struct.pack("!II", *end.name()))
    end.connect(struct.unpack("!II", pipe.recv(8)))
    pipe.sendall(b"r")
    # The other side is ready, too.
    assert pipe.recv(1) == b"r"
    window, done = depth // 2, 0
    for number in range(messages):
        while number - done >= window:
            for wc in end.send_cq.poll(window)[1] or []:
                good(wc, f"SEND {wc.wr_id}")
                done += 1
        end.post_send(number, number % depth)
    for wc in poll(end.send_cq, messages - done):
        good(wc, f"SEND {wc.wr_id}")
    # Not to go before all is received.
    pipe.recv(1)


class Changes:
    """Changes the size of the queue, and looks at the queue pair."""

    def __init__(self, end, depth):
        self.end = end
        self.depth = depth
        self.resized = 0
        self.looked = 0
        self.slowest = 0.0

    def make(self):
        # There is always room for what may come.
        self.end.cq.resize(random.randint(self.depth, 8 * self.depth))
        self.resized += 1
        if self.resized % 4 == 0:
            start = time.monotonic()
            attr, _ = self.end.qp.query(ibv_qp_attr_mask.IBV_QP_STATE)
            assert attr.qp_state == ibv_qp_state.IBV_QPS_RTS, f"state {attr.qp_state}"
            timer = QPAttr()
            timer.min_rnr_timer = 1 + self.resized % 3
            self.end.qp.modify(timer, ibv_qp_attr_mask.IBV_QP_MIN_RNR_TIMER)
            self.slowest = max(self.slowest, time.monotonic() - start)
            self.looked += 1


def resize(device, gid, messages, events=False):
    depth = 64
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            sender(device, gid, depth, messages, theirs)
            os._exit(0)
        except BaseException as e:
            print(f"sender: {e}", file=sys.stderr)
            os._exit(1)
    end = End(device, gid, depth, events=events)
    mine.sendall(struct.pack("!II", *end.name()))
    end.connect(struct.unpack("!II", mine.recv(8)))
    for slot in range(depth):
        end.post_recv(slot)
    if events:
        end.cq.req_notify(0)
    assert mine.recv(1) == b"r"
    mine.sendall(b"r")
    changes, number, waits = Changes(end, depth), 0, 0
    while number < messages:
        wcs = end.cq.poll(random.randint(1, depth))[1] or []
        if not wcs and events:
            # A queue that has got another size still tells.
            end.channel.get_cq_event(end.cq)
            end.cq.ack_events(1)
            end.cq.req_notify(0)
            waits += 1
            wcs = end.cq.poll(depth)[1] or []
        for wc in wcs:
            good(wc, "RECV")
            got = socket.ntohl(wc.imm_data)
            data = end.mr.read(SLOT, wc.wr_id * SLOT)
            assert got == number, f"message {got} instead of {number}"
            assert data == struct.pack("!I", number) * (SLOT // 4), f"data of message {number}"
            assert wc.wr_id == number % depth, f"receive {wc.wr_id} for message {number}"
            number += 1
            end.post_recv(wc.wr_id)
        if random.random() < 0.5:
            changes.make()
    assert not end.cq.poll(1)[1], "a message too many"
    mine.sendall(b"x")
    assert os.waitpid(child, 0)[1] == 0, "the sender failed"
    assert changes.looked > 0
    print(f"{number} messages, {changes.resized} sizes, {waits} events, {changes.looked} changes "
          f"of the queue pair, the slowest took {changes.slowest * 1e6:.0f} us")


def no_event(ctx):
    """No asynchronous event comes within a second."""
    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        event = ctx.get_async_event()
    except Exception:
        return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    raise AssertionError(f"another event {event.event_type}")


def overflow(device, gid):
    a, b = End(device, gid), End(device, gid, cqe=3)
    a.connect(b.name())
    b.connect(a.name())
    room = b.cq.cqe
    for slot in range(min(2 * room + 2, 64)):
        b.post_recv(slot)
    for number in range(min(2 * room + 2, 64)):
        a.post_send(number, number)
    event = b.ctx.get_async_event()
    event.ack()
    assert event.event_type == ibv_event_type.IBV_EVENT_CQ_ERR, f"event {event.event_type}"
    # What was there before is not lost, and is in order.
    for number, wc in enumerate(poll(b.cq, room)):
        good(wc, "RECV")
        assert socket.ntohl(wc.imm_data) == number
    print(f"room for {room}, and an event")
    return b


def srq(device, gid):
    a, b = End(device, gid), End(device, gid, srq=True)
    a.connect(b.name())
    b.connect(a.name())
    for slot in range(16):
        b.post_recv(slot)
    b.srq.modify(SrqAttr(srq_limit=8), ibv_srq_attr_mask.IBV_SRQ_LIMIT)
    for number in range(12):
        a.post_send(number, number)
    for wc in poll(b.cq, 12):
        good(wc, "RECV")
    event = b.ctx.get_async_event()
    event.ack()
    assert event.event_type == ibv_event_type.IBV_EVENT_SRQ_LIMIT_REACHED, \
        f"event {event.event_type}"
    no_event(b.ctx)
    print("an event")


def drained(device, gid, rounds):
    many = 16
    a, b = End(device, gid), End(device, gid)
    a.connect(b.name())
    b.connect(a.name())
    for slot in range(many):
        b.mr.write(bytes([slot + 1]) * SLOT, SLOT, slot * SLOT)
    # One before, so that something was answered.
    a.post_read(0, 0, b, 0)
    good(poll(a.send_cq)[0], "READ")
    attr = QPAttr(qp_state=ibv_qp_state.IBV_QPS_SQD)
    attr.max_rd_atomic = attr.max_dest_rd_atomic = many
    for end in a, b:
        end.state(ibv_qp_state.IBV_QPS_SQD)
        event = end.ctx.get_async_event()
        event.ack()
        assert event.event_type == ibv_event_type.IBV_EVENT_SQ_DRAINED, \
            f"event {event.event_type}"
        end.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE
                      | ibv_qp_attr_mask.IBV_QP_MAX_QP_RD_ATOMIC
                      | ibv_qp_attr_mask.IBV_QP_MAX_DEST_RD_ATOMIC)
        now, _ = end.qp.query(ibv_qp_attr_mask.IBV_QP_MAX_DEST_RD_ATOMIC)
        assert (now.max_rd_atomic, now.max_dest_rd_atomic) == (many, many), "not taken over"
        end.state(ibv_qp_state.IBV_QPS_RTS)
    for number in range(rounds):
        a.mr.write(bytes(many * SLOT), many * SLOT, 0)
        for slot in range(many):
            a.post_read(number, slot, b, slot)
        for wc in poll(a.send_cq, many):
            good(wc, f"READ of round {number}")
        for slot in range(many):
            assert a.mr.read(SLOT, slot * SLOT) == bytes([slot + 1]) * SLOT, "wrong data"
    print(f"{rounds * many} READs")


def main():
    what, device, gid, *more = sys.argv[1:]
    gid = int(gid)
    if what == "resize":
        resize(device, gid, int(more[0]), "events" in more)
    elif what == "overflow":
        no_event(overflow(device, gid).ctx)
    elif what == "srq":
        srq(device, gid)
    elif what == "drained":
        drained(device, gid, int(more[0]))
    else:
        sys.exit(__doc__)


main()
