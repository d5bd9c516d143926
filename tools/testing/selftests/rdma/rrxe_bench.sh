#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Measure an RDMA device with perftest. One line per measurement:
#   # rrxe_bench: dev=MODULE topology=T case=CASE bytes=N count=N UNIT=VALUE...
#
# Without arguments this is a test that everything can be measured, in a moment
# and without looking at the figures. For figures use scripts/bench, which
# compares drivers by means of this.
#
#   rrxe_bench.sh [--topology veth|device] [--scale PERCENT] [CASE...]
#
# veth is two devices in two name spaces, device is one that talks to itself.

# The functions are called by name:
# shellcheck disable=SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

usage="usage: ${0##*/} [--topology veth|device] [--scale PERCENT] [CASE...]"
: "${BENCH_TOPOLOGY:=veth}" "${BENCH_SCALE:=5}" "${BENCH_CASES:=}"

while [ $# -gt 0 ]; do
	case $1 in
	--topology)
		BENCH_TOPOLOGY=${2:?$usage}
		shift 2
		;;
	--scale)
		BENCH_SCALE=${2:?$usage}
		shift 2
		;;
	-*)
		echo "$usage" >&2
		exit 2
		;;
	*)
		BENCH_CASES+=" $1"
		shift
		;;
	esac
done
# cq_init may start the script anew.
export BENCH_TOPOLOGY BENCH_SCALE BENCH_CASES

case $BENCH_TOPOLOGY in
veth) ENDS=t2 ;;
device) ENDS=t1 ;;
*)
	echo "$usage" >&2
	exit 2
	;;
esac

# CASE TOOL BYTES COUNT OPTIONS...: the ends sleep until there is an event, but
# for those named poll_.
cases()
{
	cat <<-EOF
	lat_64        ib_send_lat   64      1000 -e
	lat_4k        ib_send_lat   4096    500  -e
	lat_write_64  ib_write_lat  64      1000
	send_64       ib_send_bw    64      8000 -e
	send_4k       ib_send_bw    4096    3000 -e
	send_64k      ib_send_bw    65536   300  -e
	send_1m       ib_send_bw    1048576 40   -e
	write_64      ib_write_bw   64      8000
	write_4k      ib_write_bw   4096    3000
	write_64k     ib_write_bw   65536   300
	write_1m      ib_write_bw   1048576 40
	read_4k       ib_read_bw    4096    3000 -e
	read_64k      ib_read_bw    65536   300  -e
	read_1m       ib_read_bw    1048576 40   -e
	ud_lat_64     ib_send_lat   64      1000 -e -c UD
	ud_64         ib_send_bw    64      8000 -e -c UD
	poll_lat_64   ib_send_lat   64      1000
	poll_send_64  ib_send_bw    64      8000
	poll_send_4k  ib_send_bw    4096    3000
	qps16_64      ib_send_bw    64      8000 -e -q 16
	qps256_64     ib_send_bw    64      8192 -e -q 256
	EOF
}

# Both ends of a busy pair take the CPU from each other if there is only one.
wanted()
{
	if [ -n "$BENCH_CASES" ]; then
		[[ " $BENCH_CASES " = *" $1 "* ]]
	else
		case $1 in
		poll_* | lat_write_* | qps*) [ "$(nproc)" -gt 1 ] ;;
		*) true ;;
		esac
	fi
}

# What perftest has printed: of latency it gives the typical value (the median)
# and the 99th percentile, of bandwidth the average, in MiB/s and millions.
figures()
{
	awk -v s="$1" -v lat="$2" '
		$1 != s || NF < 5 { next }
		lat && NF >= 8 { printf "count=%d us=%s p99=%s\n", $2, $5, $8; exit }
		!lat { printf "count=%d mib=%s mps=%s\n", $2, $4, $5; exit }' "$CQ_TMP/cli"
}

measure()
{
	local name=$1 tool=$2 bytes=$3 count=$4 found options

	shift 4
	options=("$@")
	# siw has no datagrams.
	if [ "$DEV_TYPE" = siw ] && [[ " ${options[*]} " = *" UD "* ]]; then
		echo "ok $nr $CQ_NAME: $name # SKIP iWARP has no datagrams"
		return
	fi
	count=$((count * BENCH_SCALE / 100))
	# Perftest wants a window's worth.
	[ "$count" -ge 5 ] || count=5
	if cq_perf "$tool" "$count" "$bytes" "${options[@]}"; then
		found=$(figures "$bytes" "$([ "${tool%_lat}" = "$tool" ] || echo 1)")
	fi
	if [ -n "$found" ]; then
		echo "# rrxe_bench: dev=$CQ_MODULE topology=$BENCH_TOPOLOGY case=$name" \
			"bytes=$bytes $found"
		echo "ok $nr $CQ_NAME: $name"
	else
		tail -n 30 "$CQ_LOG" | sed 's/^/# /'
		echo "not ok $nr $CQ_NAME: $name"
		bad=1
	fi
}

cq_init rrxe_bench
cq_need_device
cq_need ib_send_bw ib_send_lat
nr=0
bad=0
list=()
while read -r name rest; do
	! wanted "$name" || list+=("$name $rest")
done < <(cases)
[ ${#list[@]} -gt 0 ] || { echo "$CQ_NAME: no such case: $BENCH_CASES" >&2; exit 2; }
echo "1..${#list[@]}"
CQ_MTU=9000
if ! "cq_${ENDS}_up" || ! cq_ends "$ENDS"; then
	tail -n 30 "$CQ_LOG" | sed 's/^/# /'
	echo "Bail out! no device"
	exit "$KSFT_FAIL"
fi
cq_msg "$CQ_MODULE, $(uname -r), cq core $(cq_core), $(nproc) CPUs, MTU $CQ_MTU"
for line in "${list[@]}"; do
	nr=$((nr + 1))
	read -ra words <<< "$line"
	measure "${words[@]}"
done
exit "$bad"
