#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The short form of cq_user.sh, for the traffic matrix on slow kernels.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

t_rc()
{
	local mode=check

	if [ "$DEV_TYPE" = siw ]; then
		cq_skip "iWARP connects by the CM only"
		return
	fi
	[ "$SELFTEST_BREAK" != 1 ] || mode=spoil
	cq_pingpong rc 50 16384 "$mode"
}

t_t1()
{
	local rc=0

	t_device || rc=$?
	cq_ends t1
	return "$rc"
}

t_rping()    { cq_rping 10 4000; }
t_send_bw()  { cq_perf ib_send_bw 100 4096 -e; }
t_read_bw()  { cq_perf ib_read_bw 50 4096 -e; }
t_write_bw() { cq_perf ib_write_bw 50 4096; }

t_count()
{
	cq_report mad
	if [ "$DEV_TYPE" = siw ]; then
		cq_skip "iWARP has no MAD layer, and these tools use no kernel queue"
		return
	fi
	cq_expect UNBOUND_WORKQUEUE
}

cq_init traffic
cq_need_device
cq_need ibv_rc_pingpong rping ib_send_bw ib_read_bw ib_write_bw
cq_main \
	t_t1 "device and MAD layer" \
	t_rc "rc_pingpong, data checked" \
	t_rping "rping, data checked" \
	t_send_bw "ib_send_bw" \
	t_read_bw "ib_read_bw" \
	t_write_bw "ib_write_bw" \
	t_count "UNBOUND_WORKQUEUE was used by the MAD layer" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
