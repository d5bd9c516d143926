#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Open MPI over the verbs provider of libfabric, between two name spaces, each of
# which has an RDMA device to itself. The ranks look at the data. Other drivers can
# be compared: DEV_TYPE=rxe.
#
# Open MPI is looked for in MPI_PREFIX (/opt/mpi/usr), where scripts/setup-mpi of
# the project puts it, or among the programs that are installed.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

RANK=$(dirname "$(readlink -f "$0")")/rrxe_mpi.py
MPI_PREFIX=${MPI_PREFIX:-/opt/mpi/usr}

# Where an MPI is that was only unpacked.
find_mpi()
{
	local lib

	# It says at length that it does not compress its own messages.
	export PMIX_MCA_pcompress_base_silence_warning=1
	[ -d "$MPI_PREFIX" ] || return 0
	lib=$MPI_PREFIX/lib/$(uname -m)-linux-gnu
	export LD_LIBRARY_PATH=$lib:$lib/openmpi/lib
	export OPAL_PREFIX=$MPI_PREFIX PRTE_PREFIX=$MPI_PREFIX PMIX_PREFIX=$MPI_PREFIX
	export PYTHONPATH=$MPI_PREFIX/lib/python3/dist-packages PATH=$PATH:$MPI_PREFIX/bin
}

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
	# Instead of a login on another machine: HOST COMMAND...
	cat > "$CQ_TMP/agent" <<-'EOF'
		#!/bin/sh
		host=$1
		shift
		exec ip netns exec "$host" unshare -u sh -c 'hostname "$0"; eval "$@"' "$host" "$@"
	EOF
	chmod +x "$CQ_TMP/agent"
	printf '%s cqa\n%s cqb\n' "$CQ_IP_A" "$CQ_IP_B" > "$CQ_TMP/hosts"
	cat /etc/hosts >> "$CQ_TMP/hosts"
	cq_do mount --bind "$CQ_TMP/hosts" /etc/hosts || return "$CQ_FATAL"
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
	local least=$1 ranks=$2 before sent word rc=0
	local -a command

	shift 2
	# With the size of a job that libfabric takes for granted, it wants larger
	# completion queues than rdma_rxe has.
	command=(mpirun.openmpi --allow-run-as-root --oversubscribe -n "$ranks"
		-H "cqa:$((ranks / 2)),cqb:$((ranks / 2))" --map-by node
		--prtemca plm_ssh_agent "$CQ_TMP/agent"
		--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'
		-x FI_UNIVERSE_SIZE=8 -x LD_LIBRARY_PATH -x PYTHONPATH
		-x SELFTEST_BREAK="$SELFTEST_BREAK" python3 -B "$RANK" "$@")
	before=$(cq_t2_packets)
	cq_note "\$ ${command[*]}"
	ip netns exec cqa unshare -u sh -c 'hostname cqa; exec "$@"' sh \
		timeout -k 3 $((60 * CQ_SCALE)) "${command[@]}" > "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	[ "$rc" -eq 0 ] || cq_bad "mpirun: status $rc" || return
	sent=$(($(cq_t2_packets) - before))
	cq_note "$sent packets"
	[ "$sent" -ge "$least" ] || cq_bad "fewer than $least packets" || return
	for word; do
		grep -q "^${word%%=*}: [0-9]* rounds of $ranks ranks" "$CQ_TMP/out" ||
			cq_bad "${word%%=*} was not done" || return
	done
	! grep -q "wrong data" "$CQ_TMP/out" || cq_bad "wrong data"
}

t_ring()	{ mpi 1000 2 "ring=$(cq_few 5)"; }
t_all()		{ mpi 1000 4 "everyone=5" "reduced=$(cq_few 20)"; }
t_tags()	{ mpi "$(cq_few 50)" 2 "unexpected=$(cq_few 50)"; }

end_unload()
{
	cq_t2_down
	cq_module_goes
}

find_mpi
cq_init rrxe_mpi
cq_need_device
cq_need mpirun.openmpi python3 fi_info unshare
python3 -c "import mpi4py" 2> /dev/null || cq_skip_all "python3-mpi4py is not installed"
cq_main \
	t_up "two namespaces with a device each" \
	t_provider "libfabric sees one device in each" \
	t_ring "a ring of two ranks, from 1 byte to 1 MiB" \
	t_all "four ranks, all to all and sums" \
	t_tags "messages before somebody wants them" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
