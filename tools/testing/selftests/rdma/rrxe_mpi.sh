#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Open MPI over the verbs provider of libfabric, between two name spaces, each of
# which has an RDMA device to itself. The ranks look at the data. Other drivers can
# be compared: DEV_TYPE=rxe.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

# shellcheck source=rrxe_mpi_lib.sh
. "$(dirname "$0")/rrxe_mpi_lib.sh"

t_up()
{
	# Else each rank would see the devices of both. Only possible while there is
	# no other name space.
	cq_load_device_modules || return "$CQ_FATAL"
	cq_do rdma system set netns exclusive || return "$CQ_FATAL"
	cq_defer "cq_do rdma system set netns shared"
	cq_t2_up || return "$CQ_FATAL"
	cq_do rdma dev set cqda netns cqa || return "$CQ_FATAL"
	cq_do rdma dev set cqdb netns cqb || return "$CQ_FATAL"
	mpi_spaces || return "$CQ_FATAL"
}

t_provider()
{
	local ns

	for ns in cqa cqb; do
		ip netns exec "$ns" env FI_UNIVERSE_SIZE=8 fi_info -p 'verbs;ofi_rxm' \
			> "$CQ_TMP/out" 2>> "$CQ_LOG" || return
		cat "$CQ_TMP/out" >> "$CQ_LOG"
		[ "$(grep -o 'cqd[ab]' "$CQ_TMP/out" | sort -u)" = "cqd${ns#cq}" ] ||
			cq_bad "$ns sees another device than its own" || return
	done
}

# mpi PACKETS RANKS TEST...: so many packets are sent at least.
mpi()
{
	local least=$1 ranks=$2 before sent

	shift 2
	before=$(cq_t2_packets)
	mpi_run "$ranks" "cqa:$((ranks / 2)),cqb:$((ranks / 2))" "$@" || return
	sent=$(($(cq_t2_packets) - before))
	cq_note "$sent packets"
	[ "$sent" -ge "$least" ] || cq_bad "fewer than $least packets"
}

t_ring()	{ mpi 1000 2 "ring=$(cq_few 5)"; }
t_all()		{ mpi 1000 4 "everyone=5" "reduced=$(cq_few 20)"; }
t_tags()	{ mpi "$(cq_few 50)" 2 "unexpected=$(cq_few 50)"; }

end_unload()
{
	cq_t2_down
	cq_module_goes
}

mpi_find
cq_init rrxe_mpi
cq_need_device
mpi_need unshare
cq_main \
	t_up "two namespaces with a device each" \
	t_provider "libfabric sees one device in each" \
	t_ring "a ring of two ranks, from 1 byte to 1 MiB" \
	t_all "four ranks, all to all and sums" \
	t_tags "messages before somebody wants them" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
