# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the tests with Open MPI over the verbs provider of libfabric share. It is
# looked for in MPI_PREFIX (/opt/mpi/usr), where scripts/setup-mpi of the project
# puts it, or among the programs that are installed.

MPI_RANK=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/rrxe_mpi.py
MPI_PREFIX=${MPI_PREFIX:-/opt/mpi/usr}
MPI_ENV=(PMIX_MCA_pcompress_base_silence_warning)
# More options of mpirun, and what its command line begins with.
MPI_MORE=()
MPI_PRE=()

# Where an MPI is that was only unpacked. MPI_ENV are the variables that say so.
# shellcheck disable=SC2034
mpi_find()
{
	local lib

	# It says at length that it does not compress its own messages.
	export PMIX_MCA_pcompress_base_silence_warning=1
	[ -d "$MPI_PREFIX" ] || return 0
	lib=$MPI_PREFIX/lib/$(uname -m)-linux-gnu
	export LD_LIBRARY_PATH=$lib:$lib/openmpi/lib
	export OPAL_PREFIX=$MPI_PREFIX PRTE_PREFIX=$MPI_PREFIX PMIX_PREFIX=$MPI_PREFIX
	export PYTHONPATH=$MPI_PREFIX/lib/python3/dist-packages PATH=$PATH:$MPI_PREFIX/bin
	MPI_ENV+=(LD_LIBRARY_PATH OPAL_PREFIX PRTE_PREFIX PMIX_PREFIX PYTHONPATH PATH)
}

mpi_need()
{
	cq_need mpirun.openmpi python3 fi_info "$@"
	python3 -c "import mpi4py" 2> /dev/null ||
		cq_skip_all "python3-mpi4py is not installed"
}

# The name spaces of cq_t2_net are hosts: how their ranks are started, and found.
# shellcheck disable=SC2016
mpi_spaces()
{
	MPI_PRE=(ip netns exec cqa unshare -u sh -c 'hostname cqa; exec "$@"' sh)
	# Instead of a login on another machine: HOST COMMAND...
	MPI_AGENT=$CQ_TMP/agent
	cat > "$MPI_AGENT" <<-'END'
		#!/bin/sh
		host=$1
		shift
		exec ip netns exec "$host" unshare -u sh -c 'hostname "$0"; eval "$@"' "$host" "$@"
	END
	chmod +x "$MPI_AGENT"
	printf '%s cqa\n%s cqb\n' "$CQ_IP_A" "$CQ_IP_B" > "$CQ_TMP/hosts"
	cat /etc/hosts >> "$CQ_TMP/hosts"
	cq_do mount --bind "$CQ_TMP/hosts" /etc/hosts
}

# mpi_job RANKS HOSTS COMMAND...: ranks take turns on the hosts, where MPI_AGENT
# starts them: HOST COMMAND.... Output in $CQ_TMP/out.
mpi_job()
{
	local ranks=$1 hosts=$2 rc=0
	local -a command

	shift 2
	# With the size of a job that libfabric takes for granted, it wants larger
	# completion queues than rdma_rxe has.
	command=(mpirun.openmpi --allow-run-as-root --oversubscribe -n "$ranks"
		-H "$hosts" --map-by node --prtemca plm_ssh_agent "$MPI_AGENT"
		--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'
		-x FI_UNIVERSE_SIZE=8 -x LD_LIBRARY_PATH -x PYTHONPATH
		-x SELFTEST_BREAK="$SELFTEST_BREAK" "${MPI_MORE[@]}" "$@")
	cq_note "\$ ${command[*]}"
	"${MPI_PRE[@]}" timeout -k 3 $((60 * CQ_SCALE)) "${command[@]}" \
		> "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	! grep -q "wrong data" "$CQ_TMP/out" || cq_bad "wrong data" || return
	[ "$rc" -eq 0 ] || cq_bad "mpirun: status $rc"
}

# mpi_run RANKS HOSTS TEST...: tests are those of rrxe_mpi.py.
mpi_run()
{
	local ranks=$1 hosts=$2 word

	shift 2
	mpi_job "$ranks" "$hosts" python3 -B "$MPI_RANK" "$@" || return
	for word; do
		grep -q "^${word%%=*}: [0-9]* rounds of $ranks ranks" "$CQ_TMP/out" ||
			cq_bad "${word%%=*} was not done" || return
	done
}
