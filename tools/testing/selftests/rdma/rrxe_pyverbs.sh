#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The tests of rdma-core, as they are packaged, on the RoCE driver in Rust: each
# has to do what it does with the one in C, which rrxe_pyverbs.expected says. First
# on one device, then with the two sides on two devices and a network between them.
# What C does is compared in the same way with DEV_TYPE=rxe, and written down with
#
#	DEV_TYPE=rxe PYVERBS_RECORD=FILE ./rrxe_pyverbs.sh

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

# Where the package has them.
TESTS=${PYVERBS_TESTS:-/usr/share/doc/rdma-core/tests}
IP_0=10.97.0.1
IP_1=10.97.0.2

t_up()
{
	cq_do cp -r "$TESTS" "$CQ_TMP/tests" || return "$CQ_FATAL"
	# Debian compresses large files of documentation.
	find "$CQ_TMP/tests" -name "*.gz" -exec gunzip -f {} + || return "$CQ_FATAL"
	cq_put 8 /proc/sys/vm/nr_hugepages
	cq_t1_up || return "$CQ_FATAL"
}

# pyverbs DEVICE ADDRESS [OPTION...]: a result for each of its tests.
pyverbs()
{
	local device=$1 gid

	gid=$(cq_gid "$device" "$2") || { cq_bad "no GID of $device"; return; }
	shift 2
	[ "$CQ_MODULE" != rrxe ] || set -- --gaps "$@"
	CQ_LOG=$CQ_LOG python3 "$CQ_DIR/rrxe_pyverbs.py" --limit $((20 * CQ_SCALE)) "$@" \
		${PYVERBS_RECORD:+--record "$PYVERBS_RECORD"} \
		"$CQ_TMP/tests" "$CQ_DIR/rrxe_pyverbs.expected" "$device" "$gid"
}

t_one()
{
	pyverbs "$CQ_DEV" "$CQ_IP"
}

# Both ends of a network in one name space, which would take a shorter way by
# itself: a route by the device, and who the other one is.
pair_up()
{
	local n

	cq_do ip link add cqp0 mtu "$CQ_MTU" type veth peer name cqp1 mtu "$CQ_MTU" || return
	cq_defer pair_down
	for n in 0 1; do
		cq_put 1 "/proc/sys/net/ipv4/conf/cqp$n/accept_local"
		cq_put 0 "/proc/sys/net/ipv4/conf/cqp$n/rp_filter"
		cq_do ip link set "cqp$n" up
	done
	cq_put 0 /proc/sys/net/ipv4/conf/all/rp_filter
	cq_do ip addr add "$IP_0/32" dev cqp0 && cq_do ip addr add "$IP_1/32" dev cqp1 || return
	cq_do ip route add "$IP_1/32" dev cqp0 && cq_do ip route add "$IP_0/32" dev cqp1 || return
	cq_do ip neigh add "$IP_1" dev cqp0 lladdr "$(cat /sys/class/net/cqp1/address)" || return
	cq_do ip neigh add "$IP_0" dev cqp1 lladdr "$(cat /sys/class/net/cqp0/address)" || return
	cq_link_add cqpa cqp0 "$IP_0" && cq_link_add cqpb cqp1 "$IP_1"
}

pair_down()
{
	local n

	for n in a b; do
		[ ! -d "/sys/class/infiniband/cqp$n" ] || cq_do rdma link delete "cqp$n"
	done
	[ ! -d /sys/class/net/cqp0 ] || cq_do ip link del cqp0
	cq_wait 10 test ! -d /sys/class/infiniband/cqpa
}

# How many packets have gone over the network.
network()
{
	cat /sys/class/net/cqp[01]/statistics/tx_packets | awk '{ n += $1 } END { print n }'
}

t_two()
{
	local rc=0 before after

	cq_t1_down
	pair_up || return
	before=$(network)
	pyverbs cqpa "$IP_0" --peer cqpb || rc=1
	after=$(network)
	cq_msg "$((after - before)) packets on the network"
	[ $((after - before)) -gt 1000 ] || cq_bad "too few packets on the network" || rc=1
	pair_down
	return "$rc"
}

# Nobody has left anything behind.
t_nothing_left()
{
	local left

	# Counted are those that have a process; the rest is the kernel's.
	left=$(rdma resource show qp; rdma resource show mr; rdma resource show cm_id)
	cq_note "$left"
	! grep -q "pid" <<< "$left" || cq_bad "objects are left"
}

end_unload()
{
	cq_t1_down
	cq_module_goes
}

cq_init rrxe_pyverbs
cq_need_device
cq_need python3 gunzip find
python3 -c "import pyverbs.device" 2> /dev/null || cq_skip_all "no pyverbs"
[ -e "$TESTS/run_tests.py" ] || cq_skip_all "no tests of rdma-core in $TESTS"
cq_main \
	t_up "a device and the tests" \
	t_one "one device" \
	t_two "two devices" \
	t_nothing_left "nothing is left" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
