#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel's check of registrations: what it says, counts and refuses, and
# above all what it leaves alone.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=fork_lib.sh
. "$(dirname "$0")/fork_lib.sh"

EVENT=/sys/kernel/tracing/events/rdma_umem/dontfork_partial

t_device()
{
	cq_load_device_modules || return "$CQ_FATAL"
	fork_build fork_victim || return
	cq_t1_up || return "$CQ_FATAL"
	[ "$(fork_count)" = 0 ] || cq_bad "the count does not begin with 0"
}

t_parameter()
{
	local p

	[ "$(cat "$FORK_PARAM")" = warn ] || { cq_bad "the default is not warn"; return; }
	for p in off reject warn; do
		fork_policy "$p" || return
		[ "$(cat "$FORK_PARAM")" = "$p" ] || { cq_bad "$p is not kept"; return; }
	done
	for p in "" 1 y rejects WARN; do
		! fork_policy "$p" || { cq_bad "'$p' is taken"; return; }
	done
	[ "$(cat "$FORK_PARAM")" = warn ] || cq_bad "a wrong value changes it"
}

# fork_fine POLICY CASE...: accepted without a word.
fork_fine()
{
	local c

	fork_policy "$1" || return
	shift
	for c; do
		fork_victim "$c"
		fork_expect 0 0 || { cq_bad "$c"; return; }
	done
}

t_fine_warn()
{
	fork_fine warn ordinary ordinary-shared whole part-dofork part-shared
}

t_fine_reject()
{
	fork_fine reject ordinary ordinary-shared whole part-dofork part-shared
}

t_warn()
{
	local who="fork_victim\[[0-9]+\]: registered 0x[0-9a-f]+-0x[0-9a-f]+ of \[anon\]"

	fork_policy warn || return
	fork_victim part
	fork_expect 0 1 "$who.* lose 100 bytes before it and 28 behind" || return
	fork_victim part-begin
	fork_expect 0 1 "$who.* lose 100 bytes before it and 0 behind" || return
	fork_victim part-into-ordinary
	fork_expect 0 1 "$who.* lose 100 bytes before it and 0 behind"
}

t_reject()
{
	fork_policy reject || return
	fork_victim part
	fork_expect 11 1 "refused .* lose 100 bytes before it and 28 behind"
}

t_off()
{
	fork_fine off part part-begin part-into-ordinary
}

t_odp()
{
	fork_on_demand || return
	fork_policy warn || return
	fork_victim part-odp
	fork_expect 0 1 "registered .* lose 100 bytes before it and 28 behind" || return
	fork_policy reject || return
	fork_victim part-odp
	fork_expect 11 1 "refused"
}

t_huge()
{
	fork_huge_pages || return
	fork_policy warn || return
	fork_victim huge-whole
	fork_expect 0 0 || return
	# 4 KiB before it, and the rest of 2 MiB behind.
	fork_victim huge-part
	fork_expect 0 1 "of .*hugepage.* lose 4096 bytes before it and 2088960 behind" || return
	fork_policy reject || return
	fork_victim huge-part
	fork_expect 11 1 refused
}

t_trace()
{
	local line

	[ -d "$EVENT" ] || { cq_bad "no trace event"; return; }
	fork_policy warn || return
	echo 1 > "$EVENT/enable"
	cq_defer "echo 0 > $EVENT/enable"
	echo > /sys/kernel/tracing/trace
	fork_victim part
	echo 0 > "$EVENT/enable"
	line=$(grep 'dontfork_partial:' /sys/kernel/tracing/trace)
	cq_note "$line"
	fork_expect 0 1 registered || return
	[ "$(grep -c . <<< "$line")" -eq 1 ] || { cq_bad "not one event"; return; }
	grep -q "device=$CQ_DEV comm=fork_victim .*before=100 behind=28 rejected=0 name=\[anon\]" \
		<<< "$line" || cq_bad "the event says something else"
}

t_statistic()
{
	local shown

	[ "$DEV_TYPE" = rxe ] || { cq_skip "$DEV_TYPE has no statistics to add to"; return; }
	shown=$(rdma statistic show link "$CQ_DEV/1" | grep -o 'dontfork_partial [0-9]*')
	cq_note "shown: $shown"
	[ "$(fork_count)" -gt 0 ] || { cq_bad "nothing was counted"; return; }
	[ "$shown" = "dontfork_partial $(fork_count)" ] || cq_bad "rdma statistic says '$shown'"
}

# Everything is counted, but there are only so many messages.
t_limit()
{
	local said

	fork_policy warn || return
	fork_victim part-many 200
	fork_expect 0 200 registered || return
	said=$(grep -c . <<< "$FORK_SAID")
	[ "$said" -lt 100 ] || cq_bad "$said messages"
}

end_gone()
{
	cq_t1_down
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ]
}

cq_init fork_check
fork_need
cq_main \
	t_device "device and programs" \
	t_parameter "the parameter takes its three values and no others" \
	t_fine_warn "what takes nothing from children is accepted (warn)" \
	t_fine_reject "what takes nothing from children is accepted (reject)" \
	t_warn "parts of pages are reported" \
	t_reject "parts of pages are refused" \
	t_off "nothing is looked at (off)" \
	t_odp "parts of pages, on-demand paging" \
	t_huge "parts of huge pages" \
	t_trace "the trace event" \
	t_statistic "the count in rdma statistic" \
	t_limit "the number of messages is limited" \
	end_gone "device gone" \
	end_no_warning "no complaint of the kernel"
