#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the check of registrations costs: 10^5 small registrations of ordinary
# memory with the check off and as many with it on. To be run where nothing else
# runs, or in a VM whose clock counts instructions.
#
#   FORK_BENCH=N    registrations of each kind (default 100000)
#   FORK_TARGET=R   the largest ratio of on to off (default 1.01)

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=fork_lib.sh
. "$(dirname "$0")/fork_lib.sh"

t_device()
{
	cq_load_device_modules || return "$CQ_FATAL"
	fork_build fork_victim || return
	cq_t1_up || return "$CQ_FATAL"
}

# measure CASE: an unaligned piece of a page, or one at its beginning.
measure()
{
	local off on ratio

	read -r off on < <(FORK_PARAM=$FORK_PARAM cq_limit 600 "$CQ_TMP/fork_victim" \
		"$CQ_DEV" "$1" "${FORK_BENCH:-100000}")
	[ -n "$on" ] || { cq_bad "no result"; return; }
	ratio=$(awk "BEGIN { printf \"%.4f\", $on / $off }")
	cq_msg "$1: $off ns off, $on ns on, ratio $ratio"
	awk "BEGIN { exit !($ratio <= ${FORK_TARGET:-1.01}) }" ||
		cq_bad "more than ${FORK_TARGET:-1.01}"
}

t_unaligned()
{
	measure bench
}

t_aligned()
{
	measure bench-aligned
}

cq_init fork_bench
fork_need
cq_main \
	t_device "device and programs" \
	t_unaligned "registrations inside a page" \
	t_aligned "registrations at the beginning of a page"
