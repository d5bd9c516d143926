#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A hostile device: completion queues come and go on one CPU, those of the
# kernel in all poll contexts with events and those of user space, while another CPU makes
# events for all queue numbers, live, recycled and never used, of right and
# wrong generations, and completions that nobody has asked for. Nothing may
# happen but that work is done. Needs CONFIG_RDMA_RRXE_HOSTILE.
#
# Environment:
#   STORM_SECONDS=N    how long each storm lasts (default 15)
#   STORM_CYCLES=N     how many queues of the kernel are allocated and freed
#                      behind each other in one of them (default 3000)

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=rrxe
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

BENCH=ib_cq_bench
RUN=/sys/kernel/debug/ib_cq_bench/run
INJECT=/sys/kernel/debug/rrxe/eq_inject
STATE=/sys/kernel/debug/rrxe/eq_state
STORM_SECONDS=${STORM_SECONDS:-15}
STORM_CYCLES=${STORM_CYCLES:-3000}
STORM_CPU=1
WORK_CPU=0
# Queues are numbered from 1 on and cyclically.
LAST_CQN=400

# The sum of a counter over all event queues.
state()
{
	awk -v name="$1" '{ for (i = 4; i < NF; i++) if ($i == name) n += $(i + 1) }
		END { print n + 0 }' "$STATE"
}

t_up()
{
	cq_debugfs "$INJECT"
	cq_t1_up || return "$CQ_FATAL"
	cq_modprobe "$BENCH" || return "$CQ_FATAL"
	[ -e "$INJECT" ] || { cq_bad "no $INJECT"; return "$CQ_FATAL"; }
	[ "$(nproc)" -gt 1 ] || { STORM_CPU=0; cq_msg "only one CPU"; }
}

# storm COMMAND...: write these commands again and again until the file is gone.
storm()
{
	: > "$CQ_TMP/storm"
	# shellcheck disable=SC2016
	taskset -c "$STORM_CPU" bash -c '
		file=$1 inject=$2 n=0
		shift 2
		while [ -e "$file" ]; do
			for command in "$@"; do
				# The seed of "random" changes from round to round.
				echo "${command//SEED/$n}" > "$inject" && n=$((n + 1))
			done
		done 2>/dev/null
		echo "$n" > "$file.n"' storm "$CQ_TMP/storm" "$INJECT" "$@" &
	STORM=$!
}

storm_ends()
{
	local n

	rm -f "$CQ_TMP/storm"
	cq_wait 30 cq_ended "$STORM" || cq_bad "the storm does not end" || return
	wait "$STORM"
	n=$(cat "$CQ_TMP/storm.n")
	cq_msg "$n commands were written, $WORK cycles of work done"
	[ "$n" -gt 0 ] || cq_bad "nothing was injected"
}

# Queues of the kernel: one cycle is a queue in a poll context, and its traffic.
kernel_cycle()
{
	cq_sample_cycle "$1" taskset -c "$WORK_CPU"
}

kernel_work()
{
	local end=$((SECONDS + STORM_SECONDS * CQ_SCALE))

	while [ "$SECONDS" -lt "$end" ]; do
		# Not direct ones: the core warns of an event for such a queue.
		kernel_cycle $((1 + WORK % 3)) || return
		WORK=$((WORK + 1))
	done
}

# Queues of the kernel without traffic, which is a lot faster.
many_work()
{
	local n ctx start=$SECONDS

	n=$((($(cq_few "$STORM_CYCLES") + 2) / 3))
	for ctx in SOFTIRQ WORKQUEUE UNBOUND_WORKQUEUE; do
		cq_note "$n times $ctx"
		# shellcheck disable=SC2016
		taskset -c "$WORK_CPU" bash -c 'echo "$1" > "$2"' many \
			"alloc $ctx $n $CQ_IF" "$RUN" 2>> "$CQ_LOG" ||
			cq_bad "no queue in context $ctx" || return
		WORK=$((WORK + n))
	done
	cq_msg "$WORK queues in $((SECONDS - start)) s"
}

# Queues of user space: one cycle is a queue with a channel for events. Events
# that nobody armed for are allowed, what counts is that nothing breaks.
user_work()
{
	WORK=$(taskset -c "$WORK_CPU" timeout -k 3 $((STORM_SECONDS * CQ_SCALE + 60)) \
		python3 - "$CQ_DEV" $((STORM_SECONDS * CQ_SCALE)) 2>> "$CQ_LOG" <<- 'PY'
	import sys, time
	from pyverbs.cq import CQ, CompChannel
	from pyverbs.device import Context
	ctx = Context(name=sys.argv[1])
	end = time.monotonic() + float(sys.argv[2])
	cycles = 0
	kept = []
	while time.monotonic() < end:
	    channel = CompChannel(ctx) if cycles % 2 else None
	    cq = CQ(ctx, 8 << cycles % 5, None, channel, cycles % ctx.num_comp_vectors)
	    if channel:
	        cq.req_notify(0)
	    assert cq.poll()[0] == 0, "a completion that nobody asked for"
	    kept.append((cq, channel))
	    # Some live longer than others.
	    if len(kept) > cycles % 7:
	        for cq, channel in kept:
	            cq.close()
	            if channel:
	                channel.close()
	        kept = []
	    cycles += 1
	for cq, channel in kept:
	    cq.close()
	    if channel:
	        channel.close()
	ctx.close()
	print(cycles)
	PY
	) || cq_bad "user space failed"
}

# weather WORK COMMAND...
weather()
{
	local work=$1 rc=0 before stale

	shift
	before=$(state injected)
	WORK=0
	storm "$@"
	"$work" || rc=1
	storm_ends || rc=1
	cq_note "injected $(state injected) before $before stale $(state stale)"
	cq_do cat "$STATE"
	[ "${WORK:-0}" -gt 0 ] || { cq_bad "no work was done"; rc=1; }
	# Event queues go with their last user, and their counters with them.
	return "$rc"
}

EVENTS="sweep $CQ_DEV 1 $LAST_CQN 5"
RANDOM_EVENTS="random $CQ_DEV SEED 2000"
RECENT_EVENTS="recent $CQ_DEV 4 200"

t_kernel_sweep()	{ weather kernel_work "$EVENTS"; }
t_kernel_random()	{ weather kernel_work "$RANDOM_EVENTS"; }
t_kernel_all()		{ weather kernel_work "$EVENTS" "$RANDOM_EVENTS"; }
t_kernel_many()		{ weather many_work "$RECENT_EVENTS" "$RANDOM_EVENTS"; }
t_user_sweep()		{ weather user_work "$EVENTS"; }
t_user_random()		{ weather user_work "$RANDOM_EVENTS"; }

# Events from inside of creation, around destruction, and after it.
with_auto()
{
	local rc=0

	cq_put "auto 8" "$INJECT" || return
	"$@" || rc=1
	cq_put "auto 0" "$INJECT" || rc=1
	return "$rc"
}

t_kernel_auto()	{ with_auto weather kernel_work "$RANDOM_EVENTS"; }
t_many_auto()	{ with_auto weather many_work "$RECENT_EVENTS"; }
t_user_auto()	{ with_auto weather user_work "$RANDOM_EVENTS"; }

# After all that it works as before.
t_after()
{
	local i

	WORK=0
	for i in 0 1 2 3; do
		kernel_cycle "$i" || return
	done
}

end_unload()
{
	! cq_loaded "$CQ_SAMPLE" || cq_do rmmod "$CQ_SAMPLE"
	cq_rmmod "$BENCH"
	cq_t1_down
	cq_module_goes
}

cq_init rrxe_storm
cq_need_device
cq_need python3 taskset dmesg
cq_need_module "$CQ_SAMPLE" "$BENCH"
cq_main \
	t_up "a device that can be hostile" \
	t_kernel_sweep "kernel queues, events for all numbers" \
	t_kernel_random "kernel queues, random events" \
	t_kernel_all "kernel queues, both" \
	t_kernel_many "many kernel queues, both" \
	t_many_auto "many kernel queues, events from within" \
	t_kernel_auto "kernel queues, events from within" \
	t_user_sweep "user queues, events for all numbers" \
	t_user_random "user queues, random events" \
	t_user_auto "user queues, events from within" \
	t_after "all is as before" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
