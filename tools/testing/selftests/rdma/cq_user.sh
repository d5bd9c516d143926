#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# User space traffic: ping-pong with data check, rping, perftest; on one
# device and between two network namespaces. The connection manager of rxe
# works through the MAD layer's UNBOUND_WORKQUEUE queue.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

no_iwarp()
{
	[ "$DEV_TYPE" != siw ] || cq_skip "iWARP connects by the CM only and has no datagrams"
}

t_t2()
{
	cq_trace_on || return "$CQ_FATAL"
	cq_mark user
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2
}

t_t1()
{
	cq_t2_down
	cq_t1_up || return "$CQ_FATAL"
	cq_ends t1
}

t_rc()
{
	local mode=check

	no_iwarp || return
	[ "$SELFTEST_BREAK" != 1 ] || mode=spoil
	cq_pingpong rc 200 65536 "$mode"
}

# The check must be able to fail.
t_rc_spoiled()
{
	no_iwarp || return
	if cq_pingpong rc 10 65536 spoil; then
		cq_bad "wrong data were not noticed"
		return
	fi
	grep -qi "invalid data" "$CQ_TMP/srv"
}

t_uc()  { no_iwarp && cq_pingpong uc 200 4096; }
t_ud()  { no_iwarp && cq_pingpong ud 200 2048; }
t_srq() { no_iwarp && cq_pingpong srq 200 4096; }

t_rping() { cq_rping 50 4000; }

# With -e the tools sleep for events; two busy pollers would leave no CPU for
# the kernel's workers on a small machine.
t_send_bw()  { cq_perf ib_send_bw 300 4096 -e; }
t_send_lat() { cq_perf ib_send_lat 100 64 -e; }
t_write_bw() { cq_perf ib_write_bw 300 4096; }
t_read_bw()  { cq_perf ib_read_bw 300 4096 -e; }
t_send_big() { cq_perf ib_send_bw 20 1048576 -e; }

t_cm_perf()
{
	[ "$DEV_TYPE" = rxe ] || { cq_skip "siw uses the CM in all cases"; return; }
	cq_perf ib_send_bw 300 4096 -e -R
}

t_mad()
{
	cq_report user
	if [ "$DEV_TYPE" = siw ]; then
		cq_skip "iWARP has no MAD layer, and these tools use no kernel queue"
		return
	fi
	cq_expect UNBOUND_WORKQUEUE
}

cq_init user
cq_need_device
cq_need ibv_rc_pingpong rping ib_send_bw ib_send_lat ib_write_bw ib_read_bw
cq_main \
	t_t2 "two namespaces" \
	t_rc "T2 rc_pingpong, data checked" \
	t_rc_spoiled "T2 rc_pingpong notices wrong data" \
	t_uc "T2 uc_pingpong" \
	t_ud "T2 ud_pingpong" \
	t_srq "T2 srq_pingpong" \
	t_rping "T2 rping, data checked" \
	t_send_bw "T2 ib_send_bw 4 KiB" \
	t_send_big "T2 ib_send_bw 1 MiB" \
	t_send_lat "T2 ib_send_lat" \
	t_write_bw "T2 ib_write_bw" \
	t_read_bw "T2 ib_read_bw" \
	t_cm_perf "T2 ib_send_bw over the CM" \
	t_t1 "one device" \
	t_rc "T1 rc_pingpong, data checked" \
	t_srq "T1 srq_pingpong" \
	t_rping "T1 rping, data checked" \
	t_send_bw "T1 ib_send_bw 4 KiB" \
	t_send_lat "T1 ib_send_lat" \
	t_write_bw "T1 ib_write_bw" \
	t_read_bw "T1 ib_read_bw" \
	t_mad "UNBOUND_WORKQUEUE was used by the MAD layer" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
