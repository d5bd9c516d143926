#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Measure the completion queue code of ib_core with the module ib_cq_bench.
# One line per measurement:
#   cq_bench: core=CORE round=N measure=MEASURE ctx=CONTEXT n=COUNT ns=TIME
#
# scripts/bench-cq compares implementations by means of this.

set -u

rounds=3
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
core=c
[ -r /sys/module/ib_core/parameters/cq_core ] &&
	core=$(cat /sys/module/ib_core/parameters/cq_core)

if [ ! -e $run ]; then
	modprobe ib_cq_bench || exit 4
	trap 'modprobe -r ib_cq_bench' EXIT
fi
if [ ! -e $run ]; then
	echo "${0##*/}: no $run: is debugfs mounted?" >&2
	exit 4
fi

# MEASURE CONTEXT COUNT, of about the same duration each.
measures() {
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

# The first round is longer ago than the last for every measure alike.
for ((round = 1; round <= rounds; round++)); do
	while read -r measure ctx count; do
		count=$((count * scale))
		if ! echo "$measure $ctx $count" >$run; then
			echo "${0##*/}: $measure $ctx failed" >&2
			exit 1
		fi
		echo "cq_bench: core=$core round=$round $(cat $run)"
	done < <(measures)
done
