#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Faults that RoCE drivers have had, and what the one in Rust does instead. The
# names are those of Documentation/infiniband/rrxe-bugs.rst, which says where
# the others are tested.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

FAILSLAB=/sys/kernel/debug/failslab
# How often what belongs together is taken away at the same time.
TEARDOWNS=${TEARDOWNS:-20}

t_up()
{
	cq_build rrxe_bugs || return
	cq_t1_up || return "$CQ_FATAL"
	GID=$(cq_gid "$CQ_DEV" "$CQ_IP") || return "$CQ_FATAL"
}

# bug CASE: what it prints is told.
bug()
{
	local rc=0

	cq_limit 60 "$CQ_TMP/rrxe_bugs" "$CQ_DEV" "$GID" "$1" > "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	[ ! -s "$CQ_TMP/out" ] || [ "$rc" -ne 0 ] || cq_msg "$1: $(tail -n 1 "$CQ_TMP/out")"
	[ "$rc" -eq 0 ] || cq_bad "$1: status $rc"
}

t_b04()	{ bug ranges; }
t_b06()	{ bug windows; }
t_b12()	{ bug window-races; }
t_b13()	{ bug read-limits; }
t_b15()	{ bug map-races; }
t_b20()	{ bug destroy-busy; }
t_b21()	{ bug destroy-in-time; }
t_b24()	{ bug srq-stays; }
t_b45()	{ bug window-rights; }
t_b46()	{ bug long-datagram; }
t_b48()	{ bug dead-peer; }
t_b49()	{ bug last-wqe; }
t_r01()	{ bug prefetch; }

t_b22()
{
	local file

	cq_debugfs "$FAILSLAB"
	[ -e "$FAILSLAB" ] || { cq_skip "no allocations that fail in this kernel"; return; }
	# Also those that could wait, and without a word in the log.
	for file in ignore-gfp-wait:N verbose:0; do
		cq_defer "cq_put $(cat "$FAILSLAB/${file%:*}") $FAILSLAB/${file%:*}"
		cq_put "${file#*:}" "$FAILSLAB/${file%:*}" || return
	done
	CQ_INJECTED=1
	bug allocations
}

t_r12()
{
	bug group-left || return
	! ip maddr show dev "$CQ_IF" | grep -q "239\.7\." ||
		cq_bad "the interface is still in the group"
}

# Another name space with an interface.
other_up()
{
	cq_do ip netns add cqc || return
	cq_do ip -n cqc link add cqvc type dummy || return
	cq_do ip -n cqc link set cqvc up
}

other_down()
{
	cq_do ip netns del cqc
}

t_b36()
{
	local rc=0

	other_up || return
	! cq_do ip netns exec cqc rdma link add "$CQ_DEV" type "$DEV_TYPE" netdev cqvc ||
		{ cq_bad "two devices with a name"; rc=1; }
	[ "$(cq_roce_sockets cqc)" -eq 0 ] || { cq_bad "sockets are left"; rc=1; }
	other_down
	return "$rc"
}

t_r14()
{
	local rc=0 before

	before=$(cq_roce_sockets)
	other_up || return
	cq_do ip netns exec cqc rdma link add cqdc type "$DEV_TYPE" netdev cqvc || return
	[ "$(cq_roce_sockets cqc)" -gt 0 ] || { cq_bad "no sockets"; rc=1; }
	[ "$(cq_roce_sockets)" -eq "$before" ] || { cq_bad "sockets in another name space"; rc=1; }
	cq_do rdma link delete cqdc
	[ "$(cq_roce_sockets cqc)" -eq 0 ] || { cq_bad "sockets are left"; rc=1; }
	other_down
	return "$rc"
}

# The device, its interface and its name space go at the same time, and the module
# is told to.
t_b33()
{
	local i

	for ((i = 0; i < TEARDOWNS; i++)); do
		other_up && cq_do ip -n cqc link add cqvd type dummy || return
		cq_do ip netns exec cqc rdma link add cqdc type "$DEV_TYPE" netdev cqvc || return
		cq_do ip netns exec cqc rdma link add cqdd type "$DEV_TYPE" netdev cqvd || return
		rdma link delete cqdc 2>> "$CQ_LOG" &
		ip -n cqc link del cqvc 2>> "$CQ_LOG" &
		ip -n cqc link del cqvd 2>> "$CQ_LOG" &
		rmmod "$CQ_MODULE" 2>> "$CQ_LOG" &
		ip netns del cqc 2>> "$CQ_LOG"
		# Not the daemons, if there are any.
		wait %?rdma %?cqvc %?cqvd %?rmmod 2>> "$CQ_LOG"
		cq_wait 20 test ! -d /sys/class/infiniband/cqdc ||
			cq_bad "the device stays" || return
		cq_wait 20 test ! -d /sys/class/infiniband/cqdd ||
			cq_bad "the other device stays" || return
		cq_do modprobe "$CQ_MODULE" || return
		[ -d "/sys/class/infiniband/$CQ_DEV" ] ||
			cq_link_add "$CQ_DEV" "$CQ_IF" "$CQ_IP" || return
	done
	GID=$(cq_gid "$CQ_DEV" "$CQ_IP")
}

# holds CASE: a program that holds objects of the device, in the background.
holds()
{
	rm -f "$CQ_TMP/fifo"
	mkfifo "$CQ_TMP/fifo" || return
	timeout -k 3 $((60 * CQ_SCALE)) "$CQ_TMP/rrxe_bugs" "$CQ_DEV" "$GID" "$1" \
		< "$CQ_TMP/fifo" > "$CQ_TMP/out" 2>&1 &
	HOLDER=$!
	exec 9> "$CQ_TMP/fifo"
	cq_wait 20 grep -q ready "$CQ_TMP/out" || cq_bad "it does not start"
}

holds_no_more()
{
	local rc=0

	# It may have ended.
	(echo go >&9) 2>> "$CQ_LOG"
	exec 9>&-
	wait "$HOLDER" || rc=1
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	[ "$rc" -eq 0 ] || cq_bad "what the program did then failed"
}

t_b37()
{
	local rc=0

	holds holder || return
	cq_do timeout $((10 * CQ_SCALE)) rdma link delete "$CQ_DEV" ||
		{ cq_bad "the device does not go"; rc=1; }
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ] || { cq_bad "the device is still there"; rc=1; }
	holds_no_more || rc=1
	cq_link_add "$CQ_DEV" "$CQ_IF" "$CQ_IP" || rc=1
	GID=$(cq_gid "$CQ_DEV" "$CQ_IP")
	return "$rc"
}

t_b43()
{
	local rc=0

	holds join-much || return
	sleep 0.2
	cq_do timeout $((20 * CQ_SCALE)) ip link del "$CQ_IF" ||
		{ cq_bad "the interface does not go"; rc=1; }
	holds_no_more || rc=1
	cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV" || { cq_bad "the device stays"; rc=1; }
	return "$rc"
}

end_unload()
{
	cq_t1_down
	cq_module_goes
}

cq_init rrxe_bugs
cq_need_device
cq_need cc ss ip mkfifo
cq_main \
	t_up "a device" \
	t_b04 "B04: ranges that wrap" \
	t_b06 "B06: windows that wrap" \
	t_b12 "B12: windows that go under those that write" \
	t_b13 "B13: other limits while READs are answered" \
	t_b15 "B15: queues that are mapped while they go" \
	t_b20 "B20: queue pairs that go with their work" \
	t_b21 "B21: queue pairs that go when their timers fire" \
	t_b22 "B22: allocations that fail" \
	t_b24 "B24: another size that cannot be told" \
	t_b45 "B45: rights that a window cannot have" \
	t_b46 "B46: a datagram that is too long" \
	t_b48 "B48: a peer that is dead" \
	t_b49 "B49: the last receive request" \
	t_r01 "R01: prefetch of what is there" \
	t_r12 "R12: a group whose last member goes" \
	t_b36 "B36: a name that is taken" \
	t_r14 "R14: sockets where the device is" \
	t_b33 "B33, B34: all goes at the same time" \
	t_b37 "B37: a device that is in use goes" \
	t_b43 "B43: groups are joined while the interface goes" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
