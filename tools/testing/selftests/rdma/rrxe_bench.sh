#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Measure an RDMA device with perftest, NVMe over it with fio, and MPI. One line per
# measurement:
#   # rrxe_bench: dev=MODULE topology=T case=CASE bytes=N count=N UNIT=VALUE...
#
# Without arguments this is a test that everything can be measured, in a moment
# and without looking at the figures. For figures use scripts/bench, which
# compares drivers by means of this.
#
#   rrxe_bench.sh [--topology veth|device] [--scale PERCENT] [--full] [CASE...]
#
# veth is two devices in two name spaces, device is one that talks to itself.
# --full measures what makes sense here, without it that which matters most.

# The functions are called by name:
# shellcheck disable=SC2034,SC2329
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"
# shellcheck source=rrxe_mpi_lib.sh
. "$(dirname "$0")/rrxe_mpi_lib.sh"

usage="usage: ${0##*/} [--topology veth|device] [--scale PERCENT] [--full] [CASE...]"
: "${BENCH_TOPOLOGY:=veth}" "${BENCH_SCALE:=5}" "${BENCH_FULL:=}" "${BENCH_CASES:=}"

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
	--full)
		BENCH_FULL=1
		shift
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
export BENCH_TOPOLOGY BENCH_SCALE BENCH_FULL BENCH_CASES

case $BENCH_TOPOLOGY in
veth) ENDS=t2 ;;
device) ENDS=t1 ;;
*)
	echo "$usage" >&2
	exit 2
	;;
esac

RANK=$(dirname "$(readlink -f "$0")")/rrxe_mpi_bench.py

# CASE WHEN TOOL BYTES COUNT OPTIONS...: the ends sleep until there is an event, but
# for those named poll_, and WRITE, where perftest polls and rrxe_write sleeps (then
# each has a completion, with perftest one in a hundred). The count is that of each
# queue pair. When: always, cpus (if there are several, else both ends of a busy pair take
# the one from each other), full (with --full), or both.
cases()
{
	cat <<-END
	lat_64        always ib_send_lat   64      1000 -e
	lat_4k        always ib_send_lat   4096    500  -e
	lat_64k       always ib_send_lat   65536   200  -e
	lat_1m        always ib_send_lat   1048576 40   -e
	lat_read_64   always ib_read_lat   64      1000 -e
	lat_read_4k   always ib_read_lat   4096    500  -e
	lat_read_64k  always ib_read_lat   65536   200  -e
	lat_read_1m   full   ib_read_lat   1048576 40   -e
	lat_write_64  cpus   ib_write_lat  64      1000
	lat_write_4k  both   ib_write_lat  4096    500
	lat_write_64k both   ib_write_lat  65536   200
	lat_write_1m  both   ib_write_lat  1048576 40
	send_64       always ib_send_bw    64      32000 -e
	send_4k       always ib_send_bw    4096    8000 -e
	send_64k      always ib_send_bw    65536   300  -e
	send_1m       always ib_send_bw    1048576 40   -e
	write_64      always ib_write_bw   64      32000
	write_4k      always ib_write_bw   4096    8000
	write_64k     always ib_write_bw   65536   300
	write_1m      always ib_write_bw   1048576 40
	event_write_64  always rrxe_write  64      32000
	event_write_4k  always rrxe_write  4096    8000
	event_write_64k always rrxe_write  65536   300
	event_write_1m  always rrxe_write  1048576 40
	read_64       always ib_read_bw    64      32000 -e
	read_4k       always ib_read_bw    4096    8000 -e
	read_64k      always ib_read_bw    65536   300  -e
	read_1m       always ib_read_bw    1048576 40   -e
	ud_lat_64     always ib_send_lat   64      1000 -e -c UD
	ud_lat_4k     always ib_send_lat   4096    500  -e -c UD
	ud_64         always ib_send_bw    64      32000 -e -c UD
	ud_4k         always ib_send_bw    4096    8000 -e -c UD
	poll_lat_64   cpus   ib_send_lat   64      1000
	poll_lat_4k   both   ib_send_lat   4096    500
	poll_lat_64k  both   ib_send_lat   65536   200
	poll_lat_1m   both   ib_send_lat   1048576 40
	poll_send_64  cpus   ib_send_bw    64      32000
	poll_send_4k  cpus   ib_send_bw    4096    8000
	poll_send_64k both   ib_send_bw    65536   300
	poll_send_1m  both   ib_send_bw    1048576 40
	poll_read_64  full   ib_read_bw    64      32000
	poll_read_4k  full   ib_read_bw    4096    8000
	poll_read_64k full   ib_read_bw    65536   300
	poll_read_1m  full   ib_read_bw    1048576 40
	poll_ud_64    both   ib_send_bw    64      32000 -c UD
	poll_ud_4k    both   ib_send_bw    4096    8000 -c UD
	qps16_64      always ib_send_bw    64      2000 -e -q 16
	qps256_64     always ib_send_bw    64      128  -e -q 256
	qps16_64k     full   ib_send_bw    65536   20   -e -q 16
	qps256_64k    full   ib_send_bw    65536   5    -e -q 256
	nvme_rand_4k  always nvme          4096    8000 --rw=randread --iodepth=16
	nvme_seq_128k always nvme          131072  1000 --rw=read --iodepth=8
	mpi_lat_64    always mpi           64      500  ping
	mpi_lat_64k   always mpi           65536   200  ping
	mpi_lat_1m    always mpi           1048576 40   ping
	mpi_reduce_lat_64 always mpi       64      500  reduce
	mpi_reduce_lat_1m always mpi       1048576 40   reduce
	END
}

# Kernel users are in the first name space, where there is one device; and MPI wants
# a device for each of the two.
place_of()
{
	case $1 in
	nvme_*) echo device ;;
	mpi_*) echo veth ;;
	*) echo "$BENCH_TOPOLOGY" ;;
	esac
}

wanted()
{
	if [ -n "$BENCH_CASES" ]; then
		[[ " $BENCH_CASES " = *" $1 "* ]]
		return
	fi
	[ "$(place_of "$1")" = "$BENCH_TOPOLOGY" ] || return
	case $2 in
	always) true ;;
	cpus) [ "$(nproc)" -gt 1 ] ;;
	full) [ -n "$BENCH_FULL" ] ;;
	both) [ -n "$BENCH_FULL" ] && [ "$(nproc)" -gt 1 ] ;;
	esac
}

# So many of something that is done COUNT times; perftest wants a window's worth.
scaled()
{
	local count=$(($1 * BENCH_SCALE / 100))

	echo $((count < 5 ? 5 : count))
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

measure_write()
{
	local bytes=$1 count=$2

	[ -x "$CQ_TMP/rrxe_write" ] || cq_build rrxe_write || return
	cq_retry write_once "$bytes" "$count" && found=$(figures "$bytes")
}

write_once()
{
	cq_new_port
	SRV=("$CQ_TMP/rrxe_write" server "$SRV_IP" "$CQ_PORT" "$1")
	CLI=("$CQ_TMP/rrxe_write" client "$SRV_IP" "$CQ_PORT" "$1" "$2")
	cq_pair "$CQ_LIMIT" "$CQ_PORT"
}

# What fio has printed of the reads: requests a second (also as thousands, and as
# MiB), and their latency, of which it gives percentiles.
nvme_figures()
{
	awk -F ';' -v bytes="$1" -v count="$2" '
		$1 == 3 && $5 == 0 && $8 > 0 {
			for (i = 18; i <= 37; i++) {
				split($i, part, "=")
				percentile[part[1] + 0] = part[2]
			}
			printf "count=%d mib=%.2f mps=%.6f median=%s p99=%s\n", count,
				$8 * bytes / 1048576, $8 / 1000000, percentile[50], percentile[99]
		}' "$CQ_TMP/fio"
}

# The target and the host of NVMe, once.
nvme_up()
{
	[ -z "$NVME_DEV" ] || return 0
	cq_nvme_target_up 64 && cq_nvme_connect -i 1 && cq_do cq_limit 60 dd if=/dev/zero \
		of="$NVME_DEV" bs=1M count=64 oflag=direct
}

measure_nvme()
{
	local bytes=$1 count=$2

	shift 2
	nvme_up && cq_do cq_limit 60 fio --name=b --filename="$NVME_DEV" --bs="$bytes" --size=64m \
		--io_size="$((bytes * count))" --direct=1 --ioengine=libaio --allow_file_create=0 \
		--eta=never --output-format=terse --terse-version=3 --output="$CQ_TMP/fio" \
		"$@" || return
	cat "$CQ_TMP/fio" >> "$CQ_LOG"
	found=$(nvme_figures "$bytes" "$count")
}

# All that MPI measures, in one job: starting one takes longer than most of them. In
# name spaces that share all devices: rdma_rxe loses its connection manager when a
# device is moved to one.
mpi_all()
{
	local line
	local -a words all=()

	for line in "${list[@]}"; do
		read -ra words <<< "$line"
		[ "${words[2]}" != mpi ] ||
			all+=("${words[0]}=${words[5]}=${words[3]}=$(scaled "${words[4]}")")
	done
	mpi_find
	mpi_spaces || return
	# So that each rank takes that of its own name space.
	cat > "$CQ_TMP/rank" <<-'END'
		#!/bin/sh
		host=$(hostname)
		FI_VERBS_DEVICE_NAME=cqd${host#cq} exec python3 -B "$@"
	END
	chmod +x "$CQ_TMP/rank"
	# On one CPU a rank that waits would keep it from the other one.
	MPI_MORE=(--mca mpi_yield_when_idle 1)
	mpi_job 2 cqa:1,cqb:1 "$CQ_TMP/rank" "$RANK" "${all[@]}"
}

measure_mpi()
{
	if [ -z "$mpi_done" ]; then
		mpi_done=1
		mpi_all || cq_note "the job failed"
		cp "$CQ_TMP/out" "$CQ_TMP/mpi" 2>> "$CQ_LOG"
	fi
	found=$(sed -n "s/^mpi: $name [0-9]* \([0-9]*\) /count=\1 /p" "$CQ_TMP/mpi")
}

# Which of these programs are not there.
lacks()
{
	local c

	for c; do
		command -v "$c" > /dev/null || echo "$c is not installed"
	done
}

# Why a case cannot be measured, if so.
unable()
{
	local name=$1 tool=$2 m

	shift 2
	if [ "$(place_of "$name")" != "$BENCH_TOPOLOGY" ]; then
		echo "only with --topology $(place_of "$name")"
	# siw has no datagrams.
	elif [ "$DEV_TYPE" = siw ] && [[ " $* " = *" UD "* ]]; then
		echo "iWARP has no datagrams"
	elif [ "$DEV_TYPE" = siw ] && [[ " $* " = *" -q 256 "* ]]; then
		echo "perftest cannot make 256 queue pairs on siw"
	elif [ "$tool" = nvme ]; then
		for m in nvmet-rdma nvme-rdma null_blk; do
			cq_has_module "$m" || echo "no kernel module $m"
		done
		lacks nvme fio
	elif [ "$tool" = mpi ]; then
		(
			mpi_find
			lacks mpirun.openmpi python3 unshare hostname
			python3 -c "import mpi4py" 2> /dev/null ||
				echo "python3-mpi4py is not installed"
		)
	fi | head -n 1
}

measure()
{
	local name=$1 tool=$3 bytes=$4 count why found=

	count=$(scaled "$5")
	shift 5
	why=$(unable "$name" "$tool" "$@")
	if [ -n "$why" ]; then
		echo "ok $nr $CQ_NAME: $name # SKIP $why"
		return
	fi
	case $tool in
	nvme) measure_nvme "$bytes" "$count" "$@" ;;
	mpi) measure_mpi ;;
	rrxe_write) measure_write "$bytes" "$count" ;;
	*)
		! cq_perf "$tool" "$count" "$bytes" "$@" ||
			found=$(figures "$bytes" "$([ "${tool%_lat}" = "$tool" ] || echo 1)")
		;;
	esac
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
mpi_done=
list=()
while read -r name when rest; do
	! wanted "$name" "$when" || list+=("$name $when $rest")
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
