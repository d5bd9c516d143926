#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A tour for people: real RDMA traffic over the completion queues of ib_core,
# and what they did. Not in KTAP; the exit status says whether all went well.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"

BAD=0
MOVED=0
VERIFIED=0
BYTES=0
CHECKED=0

# Microseconds since the start of the shell's clock.
now()
{
	echo "${EPOCHREALTIME/./}"
}

core_name()
{
	case "$(cq_core)" in
	rust) echo Rust ;;
	c)    echo C ;;
	*)    cq_core ;;
	esac
}

# What tells two builds of a module apart.
module_id()
{
	local f

	for f in srcversion version; do
		[ ! -r "/sys/module/$1/$f" ] || { cat "/sys/module/$1/$f"; return; }
	done
	f=/sys/module/$1/notes/.note.gnu.build-id
	if [ -r "$f" ]; then
		tail -c 20 "$f" | od -An -tx1 | tr -d ' \n'
	else
		sha256sum "$(modinfo -F filename "$1")" | cut -c1-16
	fi
}

# Bytes for people.
human()
{
	numfmt --to=iec-i --suffix=B --format=%.1f "$1" | sed 's/[A-Z]/ &/'
}

# step DESCRIPTION FUNCTION: the function sets BYTES (moved) and CHECKED.
step()
{
	local what=$1 from start rc=0 us

	shift
	from=$(($(wc -l < "$CQ_LOG") + 1))
	start=$(now)
	BYTES=0
	CHECKED=0
	"$@" || rc=$?
	us=$(($(now) - start))
	if [ "$rc" -eq 0 ]; then
		MOVED=$((MOVED + BYTES))
		VERIFIED=$((VERIFIED + CHECKED))
		printf '  %-44s %4d.%d s  %10s  %10s   ok\n' "$what" $((us / 1000000)) \
			$((us / 100000 % 10)) "$([ "$BYTES" -eq 0 ] || human "$BYTES")" \
			"$([ "$CHECKED" -eq 0 ] || human "$CHECKED")"
	else
		BAD=$((BAD + 1))
		printf '  %-44s %4d.%d s  %10s  %10s   FAILED\n' "$what" $((us / 1000000)) \
			$((us / 100000 % 10)) "" ""
		tail -n "+$from" "$CQ_LOG" | tail -n 20 | sed 's/^/      /'
	fi
	return "$rc"
}

t_rping()
{
	cq_rping 50 4000 || return
	# There by RDMA read, back by RDMA write, then compared.
	BYTES=$(($(cq_few 50) * 4000 * 2))
	CHECKED=$BYTES
}

t_pingpong()
{
	local mode=check

	[ "$SELFTEST_BREAK" != 1 ] || mode=spoil
	cq_pingpong rc 200 16384 "$mode" || return
	BYTES=$(($(cq_few 200) * 16384 * 2))
	# The tool looks at one byte of each page of what arrived last.
	CHECKED=16384
}

t_bw()
{
	cq_perf ib_send_bw 300 4096 -e || return
	BYTES=$(($(cq_few 300) * 4096))
}

t_nvme_up()
{
	cq_mark nvme
	cq_nvme_target_up 32 && cq_nvme_connect -i 2 -P 1
}

# Each byte is written, and read back for the check.
verified()
{
	CHECKED=$(cq_few "$1")
	BYTES=$((CHECKED * 2))
}

t_nvme_4k()
{
	cq_fio_verify "$NVME_DEV" 4k 1m "$NULL_DEV" --ioengine=libaio --iodepth=8 &&
		verified $((1024 * 1024))
}

t_nvme_128k()
{
	cq_fio_verify "$NVME_DEV" 128k 4m "$NULL_DEV" --ioengine=libaio --iodepth=4 &&
		verified $((4 * 1024 * 1024))
}

t_nvme_polled()
{
	cq_fio_verify "$NVME_DEV" 4k 256k "$NULL_DEV" --ioengine=io_uring --hipri=1 --iodepth=4 &&
		verified $((256 * 1024))
}

t_nvme_mkfs()
{
	cq_mkfs_verify "$NVME_DEV" 1024 && verified $((1024 * 1024))
}

t_nvme_down()
{
	cq_nvme_disconnect && cq_nvme_target_down
}

t_freed()
{
	local ctx rc=0

	cq_t1_down
	cq_count all || return
	for ctx in $CQ_CONTEXTS; do
		[ "${CQ_N[$ctx]}" -eq "${CQ_FREED[$ctx]}" ] || {
			cq_bad "$ctx: ${CQ_N[$ctx]} allocated, ${CQ_FREED[$ctx]} freed"
			rc=1
		}
	done
	return "$rc"
}

expected()
{
	# iWARP has no management datagrams.
	if [ "$DEV_TYPE" = siw ]; then
		cq_expect DIRECT SOFTIRQ WORKQUEUE
	else
		cq_expect DIRECT SOFTIRQ WORKQUEUE UNBOUND_WORKQUEUE
	fi
}

user_of()
{
	case "$1" in
	DIRECT)            echo "NVMe host, poll queues" ;;
	SOFTIRQ)           echo "NVMe host" ;;
	WORKQUEUE)         echo "NVMe target" ;;
	UNBOUND_WORKQUEUE) echo "MAD layer (connections)" ;;
	esac
}

table()
{
	local ctx

	printf '  %-18s %6s %7s %8s %12s   %s\n' \
		"poll context" queues freed events completions "used by"
	for ctx in $CQ_CONTEXTS; do
		[ "${CQ_N[$ctx]}" -gt 0 ] || continue
		printf '  %-18s %6d %7d %8d %12d   %s\n' "$ctx" "${CQ_N[$ctx]}" \
			"${CQ_FREED[$ctx]}" "${CQ_EVENTS[$ctx]}" "${CQ_COMP[$ctx]}" \
			"$(user_of "$ctx")"
	done
}

summary()
{
	local core n

	core=$(core_name)
	echo
	table
	echo
	# All that cq_complaints knows, but the trace belongs to a report.
	n=$(cq_complaints new | grep -cv 'Call Trace')
	printf '  %-18s %s\n' "bytes moved" "$(human $MOVED)" \
		"bytes verified" "$(human $VERIFIED)" \
		"kernel warnings" "$n"
	[ "$n" -eq 0 ] || { cq_complaints new | head -n 20; BAD=$((BAD + 1)); }
	echo
	if [ "$BAD" -eq 0 ]; then
		echo "  All well: the $core completion queues of ib_core carried the traffic above."
	else
		echo "  $BAD of the steps FAILED."
	fi
}

CQ_NO_TAP=1
cq_init demo
cq_nvme_need
cq_need ibv_rc_pingpong rping ib_send_bw
cq_modprobe ib_core
RUST_SYMBOLS=$(grep -c ' _R.*\[ib_core\]$' /proc/kallsyms)

echo
echo "Completion queues under real RDMA traffic"
echo
printf '  %-18s %s\n' kernel "$(uname -srm)" \
	ib_core "completion queues in $(core_name), $RUST_SYMBOLS Rust symbols" \
	"ib_core from" "$(modinfo -F filename ib_core)" \
	"ib_core build" "$(module_id ib_core)" \
	"device" "$CQ_DEV, driver $CQ_MODULE, on $CQ_IF ($CQ_IP)"
echo
printf '  %-44s %8s  %10s  %10s\n' step time moved verified

cq_trace_on || exit "$KSFT_FAIL"
if step "RDMA device added" cq_t1_up; then
	cq_ends t1
	step "rping: read, write, compare" t_rping
	if [ "$DEV_TYPE" != siw ]; then
		step "ibv_rc_pingpong: data checked" t_pingpong
	fi
	step "ib_send_bw: messages of 4 KiB" t_bw
	if step "NVMe over RDMA: target and host connected" t_nvme_up; then
		step "NVMe: 4 KiB random writes, CRC verified" t_nvme_4k
		step "NVMe: 128 KiB random writes, CRC verified" t_nvme_128k
		step "NVMe: polled random writes, CRC verified" t_nvme_polled
		step "NVMe: ext4, a file and its SHA-256" t_nvme_mkfs
		step "NVMe: disconnected" t_nvme_down
	fi
	step "device deleted, all queues freed" t_freed
	expected || { BAD=$((BAD + 1)); echo "  a poll context was not used"; }
fi
summary
[ "$BAD" -eq 0 ]
