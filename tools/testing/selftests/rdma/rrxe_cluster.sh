#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Several machines on one network, each with an RDMA device on its network card:
# ping-pong between each two of them, and Open MPI over the verbs provider of
# libfabric on all. All look at the data. Other drivers can be compared: DEV_TYPE=rxe.
#
# scripts/vm cluster of the project boots such machines and sets what is needed:
#
#   CLUSTER_HOSTS     their names; this one, which is the first, can reach the others
#   CLUSTER_RSH       what runs a command there, as ssh does
#   CLUSTER_IF        their network interface (default eth0)
#
# The kernel of each has to be the same, and this folder in the same place.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
CLUSTER_IF=${CLUSTER_IF:-eth0}
SELF=$(readlink -f "$0")
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=rrxe_mpi_lib.sh
. "$(dirname "$0")/rrxe_mpi_lib.sh"

DEV=cqd
UP=
MPI_PRE=()
declare -A IPV4 IPV6 COUNT
read -r -a HOSTS <<< "$CLUSTER_HOSTS"

# ---------------------------------------------------------------- what a host does

host_up()
{
	cq_load_device_modules && cq_link_add "$DEV" "$CLUSTER_IF" "$1"
}

host_down()
{
	[ ! -d "/sys/class/infiniband/$DEV" ] || cq_do rdma link delete "$DEV"
	cq_wait 10 test ! -d "/sys/class/infiniband/$DEV"
	cq_rmmod "$CQ_MODULE" && ! cq_loaded "$CQ_MODULE"
}

host_packets()
{
	cat "/sys/class/infiniband/$DEV/ports/1/hw_counters/sent_pkts"
}

# counted COMMAND...: and then say how many packets the device has sent for it.
counted()
{
	local before

	before=$(host_packets) || return
	"$@" || return
	echo "packets: $(($(host_packets) - before))"
}

host_listens()
{
	ss -Htln "sport = :$1" | grep -q . ||
		rdma resource show cm_id | grep -q "LISTEN.*:$1\b"
}

host_waits()
{
	cq_wait 10 host_listens "$1"
}

host_sees()
{
	local out

	out=$(FI_UNIVERSE_SIZE=8 fi_info -p 'verbs;ofi_rxm') || return
	echo "$out" | grep -A 4 '^provider: verbs;ofi_rxm'
	echo "$out" | grep -q "domain: $DEV\$"
}

host_pingpong()
{
	local gid

	gid=$(cq_gid "$DEV" "$1") || return
	shift
	counted cq_limit 20 ibv_rc_pingpong -d "$DEV" -g "$gid" "$@"
}

host_rping()
{
	counted cq_limit 20 rping "$@"
}

# host_agent HOST COMMAND...: start what belongs to MPI there, instead of a login.
host_agent()
{
	local host=$1 name exports=export

	shift
	for name in "${MPI_ENV[@]}"; do
		exports+=$(printf ' %s=%q' "$name" "${!name}")
	done
	exec "$CLUSTER_RSH" "$host" "$exports;" "$@"
}

mpi_find

# Another host, or mpirun, has said what to do, and for which module.
if [ $# -gt 0 ]; then
	CQ_MODULE=$1
	# shellcheck disable=SC2209
	DEV_TYPE=rxe
	CQ_LOG=/dev/stdout
	shift
	"$@"
	exit
fi

# ---------------------------------------------------------------- all hosts

# on HOST COMMAND...: one of these, there; the output is that of the command.
on()
{
	local host=$1

	shift
	if [ "$host" = "${HOSTS[0]}" ]; then
		( "$@" )
	else
		"$CLUSTER_RSH" "$host" "CQ_SCALE=$CQ_SCALE CLUSTER_IF=$CLUSTER_IF" \
			"MPI_PREFIX=$MPI_PREFIX $SELF $CQ_MODULE" "$@"
	fi
}

on_all()
{
	local host rc=0

	for host in "${HOSTS[@]}"; do
		cq_note "$host: $*"
		on "$host" "$@" >> "$CQ_LOG" 2>&1 || cq_bad "$host: $*" || rc=1
	done
	return "$rc"
}

# sent HOST PACKETS BYTES: are these enough? None has more than 4 KiB.
sent()
{
	cq_note "$1: $2 packets, at least $(($3 / 4096))"
	[ "$2" -ge $(($3 / 4096)) ] || cq_bad "$1 sent something by another way"
}

# count [BYTES]: remember how many packets each host has sent; they should have been
# enough for that much since this was done before.
count()
{
	local host now rc=0

	for host in "${HOSTS[@]}"; do
		now=$(on "$host" host_packets) || return
		[ $# -eq 0 ] || sent "$host" $((now - COUNT[$host])) "$1" || rc=1
		COUNT[$host]=$now
	done
	return "$rc"
}

# ---------------------------------------------------------------- the steps

t_up()
{
	local host

	UP=1
	cq_defer all_down
	for host in "${HOSTS[@]}"; do
		IPV4[$host]=$(getent ahostsv4 "$host" | awk '{ print $1; exit }')
		IPV6[$host]=$(getent ahostsv6 "$host" | awk '{ print $1; exit }')
		[ -n "${IPV4[$host]}" ] || cq_bad "$host has no address" || return "$CQ_FATAL"
		on "$host" host_up "${IPV4[$host]}" >> "$CQ_LOG" 2>&1 ||
			cq_bad "$host has no device" || return "$CQ_FATAL"
	done
	# The other hosts want to have it in the same place.
	MPI_AGENT="$SELF $CQ_MODULE host_agent"
}

# pair SERVER CLIENT BYTES: run SRV there and CLI here, which are words for "on".
pair()
{
	local server=$1 client=$2 bytes=$3 pid src=0 crc=0

	cq_note "$server: ${SRV[*]}"
	cq_note "$client: ${CLI[*]}"
	on "$server" "${SRV[@]}" > "$CQ_TMP/srv" 2>&1 &
	pid=$!
	on "$server" host_waits "$CQ_PORT" || cq_note "(not seen to listen)"
	on "$client" "${CLI[@]}" > "$CQ_TMP/cli" 2>&1 || crc=$?
	[ "$crc" -eq 0 ] || kill "$pid" 2> /dev/null
	wait "$pid" || src=$?
	CQ_PAIR=$((src | crc))
	CQ_ENDS="$server exit $src, $client exit $crc"
	tail -n 5 "$CQ_TMP/srv" | cut -c1-100 | sed "s/^/  $server: /" >> "$CQ_LOG"
	tail -n 5 "$CQ_TMP/cli" | cut -c1-100 | sed "s/^/  $client: /" >> "$CQ_LOG"
	[ "$CQ_PAIR" -eq 0 ] || cq_bad "$CQ_ENDS" || return
	sent "$server" "$(sed -n 's/^packets: //p' "$CQ_TMP/srv")" "$bytes" &&
		sent "$client" "$(sed -n 's/^packets: //p' "$CQ_TMP/cli")" "$bytes"
}

pingpong()
{
	local server=$1 client=$2 count size=16384 check=(-c)

	count=$(cq_few 100)
	[ "$SELFTEST_BREAK" != 1 ] || check=()
	cq_new_port
	SRV=(host_pingpong "${IPV4[$server]}" -p "$CQ_PORT" -e -n "$count" -s "$size" -c)
	CLI=(host_pingpong "${IPV4[$client]}" -p "$CQ_PORT" -e -n "$count" -s "$size"
	     "${check[@]}" "${IPV4[$server]}")
	pair "$server" "$client" $((count * size)) || return
	grep -q "^$count iters in" "$CQ_TMP/srv" && grep -q "^$count iters in" "$CQ_TMP/cli" ||
		cq_bad "not $count iterations" || return
	! grep -qi "invalid data" "$CQ_TMP/srv" "$CQ_TMP/cli" || cq_bad "invalid data"
}

# With -V the client compares what comes back; by the addresses of IPv6.
ping_by_cm()
{
	local server=$1 client=$2 count size=16384

	count=$(cq_few 20)
	cq_new_port
	SRV=(host_rping -s -a "${IPV6[$server]}" -p "$CQ_PORT" -C "$count" -S "$size" -V)
	CLI=(host_rping -c -a "${IPV6[$server]}" -p "$CQ_PORT" -C "$count" -S "$size" -V -v)
	pair "$server" "$client" $((count * size)) || return
	[ "$(grep -c '^ping data: ' "$CQ_TMP/cli")" -eq "$count" ] || cq_bad "not $count pings"
}

# each_two FUNCTION: with each two hosts, of which the first one is the server. With
# rdma_rxe they sometimes wait until their time is over, as between name spaces.
each_two()
{
	local i j
	local -a retry=()

	[ "$CQ_MODULE" = rrxe ] || retry=(cq_retry)
	for ((i = 0; i < ${#HOSTS[@]}; i++)); do
		for ((j = i + 1; j < ${#HOSTS[@]}; j++)); do
			"${retry[@]}" "$1" "${HOSTS[i]}" "${HOSTS[j]}" || return
		done
	done
}

# mpi BYTES TEST...: each host has a rank, and sends that much.
mpi()
{
	local least=$1 host hosts

	shift
	printf -v hosts '%s:1,' "${HOSTS[@]}"
	mpi_run "${#HOSTS[@]}" "${hosts%,}" "$@" || return
	for host in "${HOSTS[@]}"; do
		grep -q "^rank [0-9]* of ${#HOSTS[@]} on $host\$" "$CQ_TMP/out" ||
			cq_bad "no rank on $host" || return
	done
	count "$least"
}

t_pingpong()	{ each_two pingpong; }
t_rping()	{ each_two ping_by_cm; }
t_provider()	{ on_all host_sees && count; }
# A round has 1 byte, 64, 4 KiB, 64 KiB and 1 MiB.
t_ring()	{ mpi $(($(cq_few 5) * 1118209)) "ring=$(cq_few 5)"; }
# In whatever way the sums are made, each host sends half of a vector or more.
t_sums()	{ mpi $(($(cq_few 8) * 131072)) "reduced=$(cq_few 20)" "vectors=$(cq_few 8)"; }
t_all()		{ mpi $(((${#HOSTS[@]} - 1) * 1118209)) "everyone=5"; }

all_down()
{
	[ -n "$UP" ] || return 0
	UP=
	on_all host_down
}

end_unload()
{
	all_down
}

cq_init rrxe_cluster
[ "${#HOSTS[@]}" -gt 1 ] && [ -n "$CLUSTER_RSH" ] ||
	cq_skip_all "no other machines, see scripts/vm cluster"
cq_need_device
mpi_need ibv_rc_pingpong rping getent ss
cq_main \
	t_up "a device on each of several machines" \
	t_pingpong "RC between each two" \
	t_rping "RDMA CM and data there and back between each two, by IPv6" \
	t_provider "libfabric sees the device of each" \
	t_ring "a ring of ranks, from 1 byte to 1 MiB" \
	t_sums "sums over all ranks, of numbers and of vectors" \
	t_all "all to all" \
	end_unload "the module goes everywhere" \
	end_no_warning "no complaint of the kernel"
