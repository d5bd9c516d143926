#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Completion events that nobody asked for, for the queues of a real driver: another
# CPU raises them for all queues of the device by ib_cq_completion(), from before
# they are created until they are destroyed, and so does the thread that creates
# and destroys them. Nothing may happen but that work is done. Needs
# CONFIG_INFINIBAND_CQ_STORM. What the event queues of rrxe do with wrong events is
# for rrxe_storm.sh.
#
# Environment:
#   STORM_CYCLES=N     how many queues come and go in a step (default 600)
#   DRIVERS=1          the kernel's drivers and core are converted to
#                      ib_cq_completion(): no fault is known then

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"

STORM=ib_cq_storm
BENCH=ib_cq_bench
RUN=/sys/kernel/debug/ib_cq_bench/run
STATE=/sys/kernel/debug/ib_cq_storm/state
STORM_CYCLES=${STORM_CYCLES:-600}
# Set if events for user space do not say for which queue they are.
NO_HANDLES=

# count WHO WHAT: WHO is kernel, user or thread.
count()
{
	awk -v who="$1" -v what="$2" '
		$1 == who { for (i = 2; i < NF; i++) if ($i == what) n = $(i + 1) }
		END { print n + 0 }' "$STATE"
}

# storm WHO COMMAND...: there were queues of WHO, and events for them, meanwhile.
storm()
{
	local who=$1 rc=0 queues live early

	shift
	if [ "$who" = user ] && [ -n "$NO_HANDLES" ]; then
		cq_skip "programs crash on events without a handle, see queues of user space"
		return
	fi
	queues=$(count "$who" queues) live=$(count "$who" live) early=$(count "$who" early)
	"$@" || rc=$?
	queues=$(($(count "$who" queues) - queues))
	live=$(($(count "$who" live) - live)) early=$(($(count "$who" early) - early))
	cq_msg "$queues queues, $early events before they were created, $live after"
	[ "$rc" -eq 0 ] || return "$rc"
	[ "$queues" -gt 0 ] && [ "$live" -gt 0 ] || cq_bad "there was no storm" || return
	[ "$early" -gt 0 ] || [ "$who" = user ] || cq_bad "no event came early"
}

# The storm before the device, and before those who have queues.
t_up()
{
	cq_modprobe ib_core || return "$CQ_FATAL"
	cq_modprobe "$STORM" "cpu=$(($(nproc) - 1))" || return "$CQ_FATAL"
	cq_debugfs "$STATE"
	[ -e "$STATE" ] || { cq_bad "no $STATE"; return "$CQ_FATAL"; }
	cq_modprobe "$BENCH" || return "$CQ_FATAL"
	cq_t1_up || return "$CQ_FATAL"
	cq_ends t1
	[ "$(nproc)" -gt 1 ] || cq_msg "only one CPU"
}

# Kernel queues without traffic.
alloc()
{
	local ctx n

	n=$(cq_few "$STORM_CYCLES")
	for ctx in SOFTIRQ WORKQUEUE UNBOUND_WORKQUEUE; do
		cq_put "alloc $ctx $n $CQ_IF" "$RUN" || cq_bad "no queue in context $ctx" || return
	done
}

t_alloc()	{ storm kernel alloc; }

# The handle by which user space knows a queue is in an event that comes while the
# queue is created, too. In Linux 7.3 it is stored later.
early()
{
	local rc=0

	cq_build cq_early || return
	cq_limit 60 "$CQ_TMP/cq_early" "$CQ_DEV" "$(cq_few "$STORM_CYCLES")" \
		> "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	cq_msg "$(tail -n 1 "$CQ_TMP/out")"
	# Other programs take the handle for a pointer.
	if [ "$rc" -eq 2 ]; then
		NO_HANDLES=1
		cq_put 0 "/sys/module/$STORM/parameters/user_events" || return
	fi
	if [ "$rc" -eq 2 ] && [ "${DRIVERS:-}" != 1 ]; then
		CQ_WHY="uverbs stores the handle when the queue is known; converted, it does not"
		return "$KSFT_XFAIL"
	fi
	[ "$rc" -eq 0 ] || cq_bad "exit status $rc"
}

t_early()	{ storm user early; }

sample()
{
	local ctx

	for ctx in 1 2 3; do
		cq_sample_cycle "$ctx" || return
	done
}

t_sample()
{
	if [ "$DEV_TYPE" = siw ]; then
		cq_skip "the sample connects without the CM, which iWARP does not"
		return
	fi
	storm kernel sample
}

pings()
{
	local i

	for i in 1 2 3; do
		cq_rping 100 4096 || return
	done
}

t_rping()	{ storm user pings; }

t_pingpong()
{
	if [ "$DEV_TYPE" = siw ]; then
		cq_skip "ibv_rc_pingpong connects without the CM, which iWARP does not"
		return
	fi
	storm user cq_pingpong rc 200 4096 check
}

# Those of the host and of the target come with each connection.
nvme()
{
	local i rc=0

	cq_nvme_target_up 64 || return
	for i in 1 2 3; do
		cq_nvme_connect -i 2 || { rc=1; break; }
		cq_fio_verify "$NVME_DEV" 4k 1m "$NULL_DEV" --ioengine=libaio --iodepth=8 || rc=1
		cq_nvme_disconnect || rc=1
	done
	cq_nvme_target_down
	return "$rc"
}

t_nvme()	{ storm kernel nvme; }

# A pair that moves data until it is told to end, PAIR; if need be at another
# attempt, see cq_retry.
pinging()
{
	local try

	for try in 1 2 3; do
		[ "$try" -eq 1 ] || cq_msg "$DEV_TYPE: rping: no data: attempt $try"
		cq_new_port
		cq_limit 60 rping -s -a "$CQ_IP" -p "$CQ_PORT" > "$CQ_TMP/srv" 2>&1 &
		PAIR=$!
		cq_wait 10 cq_listening "$PAIR" "$CQ_PORT"
		cq_limit 60 rping -c -a "$CQ_IP" -p "$CQ_PORT" -v > "$CQ_TMP/cli" 2>&1 &
		PAIR="$PAIR $!"
		cq_wait 10 grep -q 'ping data' "$CQ_TMP/cli" && return
		end_pair
	done
	cq_bad "no traffic"
}

end_pair()
{
	# shellcheck disable=SC2086
	kill $PAIR 2> /dev/null
	# shellcheck disable=SC2086
	wait $PAIR
}

# The device goes while user space has queues, which are then destroyed for it.
gone()
{
	local i pid rc=0

	for i in 1 2 3; do
		pinging || rc=1
		cq_limit 30 rdma link delete "$CQ_DEV" &
		pid=$!
		# siw waits for its users.
		sleep 1
		end_pair
		wait "$pid" || { cq_bad "the device could not be deleted"; rc=1; }
		cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV" ||
			{ cq_bad "the device is still there"; rc=1; }
		cq_t1_down
		cq_t1_up || return "$CQ_FATAL"
		cq_ends t1
	done
	return "$rc"
}

t_gone()	{ storm user gone; }

# After all that it works as before, without a storm.
t_after()
{
	cq_do cat "$STATE"
	[ "$(count thread missed)" -eq 0 ] || cq_msg "$(count thread missed) queues had no storm"
	cq_msg "$(count thread raced) events came from the other CPU before the queue was created"
	cq_rmmod "$STORM" || { cq_bad "$STORM does not go"; return; }
	cq_rping 100 4096
}

end_unload()
{
	cq_rmmod "$BENCH"
	cq_t1_down
	cq_module_goes
}

cq_init cq_storm
cq_nvme_need
cq_need rping dmesg
cq_need_module "$STORM" "$BENCH"
[ "$DEV_TYPE" = siw ] || cq_need_module "$CQ_SAMPLE"
cq_main \
	t_up "a device, and a storm" \
	t_alloc "kernel queues come and go" \
	t_early "queues of user space come and go" \
	t_sample "kernel queues with traffic" \
	t_rping "rping" \
	t_pingpong "ibv_rc_pingpong" \
	t_nvme "NVMe connects, writes, disconnects" \
	t_gone "the device goes under traffic" \
	t_after "all is as before" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
