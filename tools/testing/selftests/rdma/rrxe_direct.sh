#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Queue pairs of one device of the RoCE driver in Rust, which give packets to
# each other directly: all operations with their data, all that must fail, queue
# pairs that go meanwhile; and the same by packets, which rrxe/direct in debugfs
# asks for, so that both come to the same. Loss is only there for packets.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

DIRECT=/sys/kernel/debug/rrxe/direct
SEED=${SEED:-$RANDOM}
export SEED

t_up()
{
	cq_debugfs "$DIRECT"
	cq_t1_up || return "$CQ_FATAL"
	cq_ends t1 || return "$CQ_FATAL"
	GID=$SRV_GID
	cq_msg "the seed is $SEED"
}

# tool SECONDS ARGUMENTS...
tool()
{
	cq_tool "$1" rrxe_direct.py "$2" "$CQ_DEV" "$GID" "${@:3}"
}

# How many packets have gone through the loop-back interface.
looped()
{
	cat /sys/class/net/lo/statistics/tx_packets
}

counter()
{
	cat "/sys/class/infiniband/$CQ_DEV/ports/1/hw_counters/$1"
}

# Nothing goes through the stack, and it is counted all the same.
t_work()
{
	local packets sent

	packets=$(looped)
	sent=$(counter sent_pkts)
	tool 120 work "$(cq_few 300)" all || return
	packets=$(($(looped) - packets))
	sent=$(($(counter sent_pkts) - sent))
	cq_note "$sent packets, $packets of them through the stack"
	[ "$packets" -eq 0 ] || cq_bad "$packets packets went through the stack" || return
	[ "$sent" -gt "$(cq_few 300)" ] || cq_bad "$sent packets were counted"
}

t_errors()	{ tool 120 errors; }
t_destroy()	{ tool 300 destroy "$(cq_few 90)"; }

# Many at a time, in both directions, of two processes.
t_both_ways()
{
	local size

	for size in 64 4096 65536 1048576; do
		cq_perf ib_send_bw 100 "$size" -e -b || return
	done
	cq_perf ib_write_bw 100 65536 -b || return
	cq_perf ib_read_bw 100 65536 -e -b
}

t_pingpong()
{
	cq_pingpong rc 200 65536 check || return
	cq_pingpong uc 200 4096 check || return
	cq_pingpong ud 200 2048 check || return
	cq_pingpong srq 200 4096 check
}

t_cm()
{
	cq_rping 50 40000
}

# packets STEP...: by packets, whatever happens.
packets()
{
	local rc=0

	cq_put 0 "$DIRECT" || return
	"$@" || rc=1
	cq_put 1 "$DIRECT" || return
	return "$rc"
}

# With two CPUs packets may overtake each other: one of a process that has just
# come from another CPU, where those before still wait for the softirq. So this
# is not done with unreliable connections, and datagrams may come in any order.
work_by_packets()
{
	local packets

	packets=$(looped)
	tool 120 work "$(cq_few 300)" reliable || return
	tool 120 work "$(cq_few 100)" datagrams || return
	[ "$(looped)" -gt "$packets" ] || cq_bad "no packet went through the stack"
}

t_packets()
{
	packets work_by_packets || return
	packets t_errors || return
	packets t_destroy
}

# Whether it is direct changes all the time: what is on its way is overtaken.
t_change()
{
	local pid rc=0

	while :; do
		echo 0 > "$DIRECT"
		sleep 0.03
		echo 1 > "$DIRECT"
		sleep 0.03
	done &
	pid=$!
	tool 120 work "$(cq_few 600)" rc || rc=1
	tool 120 work "$(cq_few 300)" self || rc=1
	kill "$pid"
	wait "$pid" 2>/dev/null
	cq_put 1 "$DIRECT" || return
	return "$rc"
}

lossy_packets()
{
	local before

	before=$(counter completer_retry_err)
	tool 120 work "$(cq_few 200)" rc || return
	[ "$(counter completer_retry_err)" -gt "$before" ] || cq_bad "nothing was sent again"
}

# Where packets are lost they are sent again. What goes directly is not lost.
t_loss()
{
	local rc=0

	cq_has_module sch_netem || { cq_skip "no netem"; return; }
	cq_do tc qdisc add dev lo root netem limit 10000 loss 2% || return
	packets lossy_packets || rc=1
	cq_do tc qdisc change dev lo root netem limit 10000 loss 100% || rc=1
	tool 120 work "$(cq_few 100)" all || rc=1
	cq_do tc qdisc del dev lo root
	return "$rc"
}

# They do overtake each other, and none is lost.
t_overtake()
{
	local rc=0

	cq_has_module sch_netem || { cq_skip "no netem"; return; }
	cq_do tc qdisc add dev lo root netem limit 10000 delay 2ms reorder 50% || return
	packets tool 120 work "$(cq_few 100)" datagrams || rc=1
	cq_do tc qdisc del dev lo root
	[ "$rc" -ne 0 ] || grep -q overtaken "$CQ_TMP/tool" || cq_bad "none was overtaken" || rc=1
	return "$rc"
}

end_unload()
{
	cq_t1_down
	cq_rmmod "$CQ_MODULE" || { cq_bad "$CQ_MODULE does not go"; return; }
	! cq_loaded "$CQ_MODULE" || cq_bad "$CQ_MODULE is still there"
}

cq_init rrxe_direct
cq_need_device
cq_need python3 tc ibv_rc_pingpong ib_send_bw rping
python3 -c "import pyverbs.qp" 2>> "$CQ_LOG" || cq_skip_all "no pyverbs"
cq_main \
	t_up "a device" \
	t_work "all operations" \
	t_errors "what must fail" \
	t_pingpong "two processes, data checked" \
	t_both_ways "two processes, both ways at once" \
	t_cm "rping" \
	t_destroy "queue pairs go under traffic" \
	t_packets "the same by packets" \
	t_change "now so, now so" \
	t_loss "lost packets" \
	t_overtake "datagrams that overtake each other" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
