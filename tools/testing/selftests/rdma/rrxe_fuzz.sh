#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Nonsense for the RoCE driver in Rust, from all that it does not trust: the
# queues that it shares with user space, the network, and the verbs. It may
# refuse and report errors, and has to work as before when that is over.
#
# Environment:
#   FUZZ_RINGS=N      work requests that are spoiled (default 20000)
#   FUZZ_PACKETS=N    packets (default 100000)
#   FUZZ_CALLS=N      calls (default 20000)
#   FUZZ_SEED=N       where the random numbers begin (default: another one each time)
#   FUZZ_SECONDS=N    for how long each may run (default 120)

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

FUZZ_RINGS=${FUZZ_RINGS:-20000}
FUZZ_PACKETS=${FUZZ_PACKETS:-100000}
FUZZ_CALLS=${FUZZ_CALLS:-20000}
FUZZ_SECONDS=${FUZZ_SECONDS:-120}
FUZZ_SEED=${FUZZ_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

t_up()
{
	cq_build rrxe_rings rrxe_wire rrxe_verbs || return
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2 || return "$CQ_FATAL"
	MAC=$(ip netns exec cqa cat /sys/class/net/cqva/address)
	# The address of the other end is known without a question.
	cq_do ip -n cqa neigh replace "$CQ_IP_B" dev cqva nud permanent \
		lladdr "$(ip netns exec cqb cat /sys/class/net/cqvb/address)" || return "$CQ_FATAL"
	OBJECTS=$(objects)
	cq_msg "FUZZ_SEED=$FUZZ_SEED"
}

# How many objects of each kind the device has: the line of the device.
objects()
{
	rdma resource show "$SRV_DEV"
}

# fuzz HOW-MANY PROGRAM ARGUMENTS...: the last line says what was done.
fuzz()
{
	local what=$2

	[ "$1" -gt 0 ] || { cq_skip "not asked for"; return; }
	shift 2
	cq_note "$what $*"
	cq_limit "$FUZZ_SECONDS" "$CQ_TMP/$what" "$@" > "$CQ_TMP/fuzz" 2>&1 || {
		tail -n 5 "$CQ_TMP/fuzz" >> "$CQ_LOG"
		cq_bad "$what failed, with FUZZ_SEED=$FUZZ_SEED"
		return
	}
	cq_msg "$what: $(tail -n 1 "$CQ_TMP/fuzz")"
}

t_rings()
{
	fuzz "$FUZZ_RINGS" rrxe_rings "$SRV_DEV" "$SRV_GID" "$(cq_few "$FUZZ_RINGS")" "$FUZZ_SEED"
}

t_verbs()
{
	fuzz "$FUZZ_CALLS" rrxe_verbs "$SRV_DEV" "$SRV_GID" "$(cq_few "$FUZZ_CALLS")" "$FUZZ_SEED"
}

t_wire()
{
	fuzz "$FUZZ_PACKETS" rrxe_wire "$SRV_DEV" "$SRV_GID" cqb cqvb "$MAC" "$CQ_IP_B" "$CQ_IP_A" \
		"$(cq_few "$FUZZ_PACKETS")" "$FUZZ_SEED"
}

t_nothing_left()
{
	local now

	now=$(objects)
	cq_note "before: $OBJECTS"
	cq_note "now:    $now"
	[ "$now" = "$OBJECTS" ] || cq_bad "not all objects are gone"
}

t_after()
{
	cq_pingpong rc 100 5000 check && cq_pingpong ud 100 1000 check
}

end_unload()
{
	cq_t2_down
	cq_module_goes
}

cq_init rrxe_fuzz
cq_need_device
cq_need cc od ibv_rc_pingpong ibv_ud_pingpong
cq_main \
	t_up "two namespaces" \
	t_rings "nonsense in the queues" \
	t_wire "nonsense on the wire" \
	t_verbs "nonsense in the verbs" \
	t_nothing_left "nothing is left of it" \
	t_after "all is as before" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
