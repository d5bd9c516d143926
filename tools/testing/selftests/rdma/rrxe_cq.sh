#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Completion queues of the RoCE driver in Rust: another size while completions
# come, full queues, the trace events of its event queues, and what can be
# changed of a queue pair while it works.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

TESTS=/usr/share/doc/rdma-core/tests
STATE=/sys/kernel/debug/rrxe/eq_state
INJECT=/sys/kernel/debug/rrxe/eq_inject
DIRECT=/sys/kernel/debug/rrxe/direct
# How often the test of rdma-core is run.
RESIZES=${RESIZES:-100}
EVENTS="rrxe_eqe_posted rrxe_eqe_dispatched rrxe_eqe_stale rrxe_eq_deferred"

t_up()
{
	cq_debugfs /sys/kernel/debug/rrxe
	cq_t1_up || return "$CQ_FATAL"
	GID=$(cq_gid "$CQ_DEV" "$CQ_IP") || return "$CQ_FATAL"
}

# tool SECONDS ARGUMENTS...
tool()
{
	cq_tool "$1" rrxe_cq.py "$2" "$CQ_DEV" "$GID" "${@:3}"
}

t_resize()		{ tool 120 resize "$(cq_few 6000)"; }
t_resize_events()	{ tool 120 resize "$(cq_few 3000)" events; }
t_overflow()		{ tool 20 overflow; }
t_srq_limit()		{ tool 20 srq; }

# The test of rdma-core, again and again in one process: it starts slowly.
t_resize_pyverbs()
{
	local n f

	[ -d "$TESTS" ] || { cq_skip "no tests of rdma-core"; return; }
	n=$(cq_few "$RESIZES")
	mkdir -p "$CQ_TMP/py/tests"
	cp "$TESTS"/* "$CQ_TMP/py/tests/"
	for f in "$CQ_TMP"/py/tests/*.gz; do
		gunzip "$f" || return
	done
	cat > "$CQ_TMP/py/again.py" <<- 'PY'
	import sys, unittest
	sys.path[:0] = [sys.argv.pop(1), sys.argv[1] + "/tests"]
	times = int(sys.argv.pop(2))
	sys.path.insert(0, sys.argv.pop(1))
	from args_parser import parser
	parser.parse_args()
	from tests.test_cq import CQTest
	result = unittest.TestResult()
	for _ in range(times):
	    CQTest("test_resize_cq").run(result)
	for _, why in result.failures + result.errors + result.skipped:
	    print(why)
	bad = len(result.failures) + len(result.errors) + len(result.skipped)
	print(f"{result.testsRun - bad} of {times} runs of test_resize_cq passed")
	sys.exit(bad != 0 or result.testsRun != times)
	PY
	cq_limit $((3 * n + 30)) python3 -W ignore "$CQ_TMP/py/again.py" "$CQ_TMP/py" \
		"$CQ_TMP/py" "$n" --dev "$CQ_DEV" --gid "$GID" > "$CQ_TMP/tool" 2>&1 || {
		tail -n 20 "$CQ_TMP/tool" >> "$CQ_LOG"
		cq_bad "test_resize_cq failed"
		return
	}
	cq_msg "$(tail -n 1 "$CQ_TMP/tool")"
}

# The device talks to itself, so what is lost is lost on the loop-back interface,
# if it goes there at all.
t_drained()
{
	local rc=0 lost

	cq_has_module sch_netem || { cq_skip "no netem"; return; }
	cq_put 0 "$DIRECT" || return
	cq_do tc qdisc add dev lo root netem limit 10000 loss 3% || return
	tool 60 drained "$(cq_few 100)" || rc=1
	lost=$(tc -s qdisc show dev lo | tee -a "$CQ_LOG" |
		sed -n 's/^ Sent .*dropped \([0-9]*\).*/\1/p')
	cq_do tc qdisc del dev lo root
	cq_put 1 "$DIRECT" || return
	[ "${lost:-0}" -gt 0 ] || cq_bad "nothing was lost" || return
	return "$rc"
}

# The sum of a counter over all event queues.
state()
{
	awk -v name="$1" '{ for (i = 4; i < NF; i++) if ($i == name) n += $(i + 1) }
		END { print n + 0 }' "$STATE"
}

# traced EVENT: how often.
traced()
{
	grep -c ": $1: " "$TRACE/trace"
}

# What happened by the counters and by the trace events is the same: agree EVENT COUNTER
agree()
{
	local counted=$(($(state "$2") - BEFORE[$2])) seen

	seen=$(traced "$1")
	cq_note "$1: $seen in the trace, $counted counted"
	[ "$seen" -eq "$counted" ] || cq_bad "$1: $seen in the trace, $counted counted"
}

# Events of all kinds: those of a tool that sleeps for them, and, where the
# device can be hostile, some for a queue that is not there.
t_trace()
{
	local e n rc=0
	local -A BEFORE

	TRACE=/sys/kernel/tracing/instances/rrxe.$$
	[ -d /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing
	[ -e "$STATE" ] || { cq_bad "no $STATE"; return; }
	mkdir "$TRACE" || return
	cq_defer "rmdir $TRACE"
	echo 16384 > "$TRACE/buffer_size_kb"
	for e in $EVENTS; do
		cq_put 1 "$TRACE/events/rrxe/$e/enable" || return
	done
	for n in dispatched stale deferred injected; do
		BEFORE[$n]=$(state "$n")
	done
	cq_ends t1
	cq_pingpong_once rc 100 4096 check || rc=1
	if [ -e "$INJECT" ]; then
		cq_put "sweep $CQ_DEV 0xfffff 0xfffff 16" "$INJECT" || rc=1
	fi
	echo 0 > "$TRACE/events/rrxe/enable"
	agree rrxe_eqe_dispatched dispatched || rc=1
	agree rrxe_eqe_stale stale || rc=1
	agree rrxe_eq_deferred deferred || rc=1
	n=$(($(traced rrxe_eqe_dispatched) + $(traced rrxe_eqe_stale)))
	[ "$n" -eq "$(traced rrxe_eqe_posted)" ] || { cq_bad "not each event was handled"; rc=1; }
	# Each message of the pingpong has one, of the sender or of the receiver, or both.
	[ "$(traced rrxe_eqe_dispatched)" -gt "$(cq_few 100)" ] ||
		{ cq_bad "too few were seen"; rc=1; }
	grep -q ": rrxe_eqe_dispatched: device=$CQ_DEV vector=[0-9]* cqn=[1-9]" "$TRACE/trace" ||
		{ cq_bad "they do not say what they are about"; rc=1; }
	if [ -e "$INJECT" ]; then
		n=$(grep -c ": rrxe_eqe_stale: device=$CQ_DEV .*cqn=1048575 " \
			"$TRACE/trace")
		[ "$n" -gt 0 ] && [ "$n" -eq $(($(state injected) - BEFORE[injected])) ] ||
			{ cq_bad "$n stale events"; rc=1; }
		[ "$(traced rrxe_eq_deferred)" -gt 0 ] || { cq_bad "none was deferred"; rc=1; }
	fi
	tail -n 5 "$TRACE/trace" >> "$CQ_LOG"
	return "$rc"
}

end_unload()
{
	cq_t1_down
	cq_module_goes
}

cq_init rrxe_cq
cq_need_device
cq_need python3 tc ibv_rc_pingpong
python3 -c "import pyverbs.qp" 2>> "$CQ_LOG" || cq_skip_all "no pyverbs"
cq_main \
	t_up "a device" \
	t_trace "events of event queues are traced" \
	t_resize "another size under traffic, polling" \
	t_resize_events "another size under traffic, events" \
	t_resize_pyverbs "test_resize_cq of rdma-core" \
	t_overflow "a queue that is full" \
	t_srq_limit "the limit of a shared receive queue" \
	t_drained "other limits of READs" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
