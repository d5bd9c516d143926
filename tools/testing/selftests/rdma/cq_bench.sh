#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Measure the completion queue code of ib_core with the module ib_cq_bench.
# One line per measurement:
#   # cq_bench: core=CORE round=N measure=MEASURE ctx=CONTEXT n=COUNT ns=TIME
#
# Without arguments this is a test that everything can be measured, in a moment
# and without looking at the figures. For figures use scripts/bench-cq, which
# compares implementations by means of this.

set -u

rounds=1
scale=1
usage="usage: ${0##*/} [--rounds N] [--scale N]"

while [ $# -gt 0 ]; do
	case $1 in
	--rounds)
		rounds=${2:?$usage}
		shift 2
		;;
	--scale)
		scale=${2:?$usage}
		shift 2
		;;
	*)
		echo "$usage" >&2
		exit 2
		;;
	esac
done

run=/sys/kernel/debug/ib_cq_bench/run

skip()
{
	echo "1..0 # SKIP $*"
	exit 4
}

# MEASURE CONTEXT COUNT, of about the same duration each.
measures()
{
	echo alloc DIRECT 200
	echo alloc SOFTIRQ 200
	echo alloc WORKQUEUE 200
	echo alloc UNBOUND_WORKQUEUE 200
	echo poll DIRECT 20000
	echo poll SOFTIRQ 20000
	echo poll WORKQUEUE 20000
	echo poll UNBOUND_WORKQUEUE 20000
	echo event SOFTIRQ 2000
	echo event WORKQUEUE 2000
	echo event UNBOUND_WORKQUEUE 2000
	echo pool SOFTIRQ 5000
}

echo "TAP version 13"
if [ ! -e $run ]; then
	modprobe -q ib_cq_bench || skip "no kernel module ib_cq_bench"
	trap 'modprobe -r ib_cq_bench' EXIT
fi
[ -e $run ] || skip "no $run: is debugfs mounted?"

core=c
[ ! -r /sys/module/ib_core/parameters/cq_core ] ||
	core=$(cat /sys/module/ib_core/parameters/cq_core)

echo "1..$(measures | wc -l)"
status=0
nr=0
declare -A bad

for ((round = 1; round <= rounds; round++)); do
	while read -r measure ctx count; do
		count=$((count * scale))
		if echo "$measure $ctx $count" > $run; then
			echo "# cq_bench: core=$core round=$round $(cat $run)"
		else
			bad[$measure $ctx]=1
		fi
	done < <(measures)
done

while read -r measure ctx _; do
	nr=$((nr + 1))
	if [ -n "${bad[$measure $ctx]:-}" ]; then
		echo "not ok $nr bench: $measure $ctx"
		status=1
	else
		echo "ok $nr bench: $measure $ctx"
	fi
done < <(measures)
exit $status
