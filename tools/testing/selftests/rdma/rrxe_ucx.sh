#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# UCX over verbs, between two name spaces: its transports by themselves (UCT) and
# what is made of them (UCP). Other drivers can be compared: DEV_TYPE=rxe.
#
# UCX is looked for in UCX_PREFIX (/opt/ucx/usr), where scripts/setup-mpi of the
# project puts one that has these transports, or among the programs that are
# installed.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

UCX_PREFIX=${UCX_PREFIX:-/opt/ucx/usr}
MPI_PREFIX=${MPI_PREFIX:-/opt/mpi/usr}

# Debian's ucx_perftest is linked with MPI, of which it uses nothing here.
find_ucx()
{
	local dir libs

	[ -d "$UCX_PREFIX" ] || return 0
	export PATH=$PATH:$UCX_PREFIX/bin
	libs=lib/$(uname -m)-linux-gnu
	for dir in "$UCX_PREFIX/$libs" "$MPI_PREFIX/$libs"; do
		LD_LIBRARY_PATH+=:$dir:$dir/openmpi/lib
	done
	export LD_LIBRARY_PATH=${LD_LIBRARY_PATH#:} OPAL_PREFIX=$MPI_PREFIX
}

t_up()
{
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2 || return "$CQ_FATAL"
}

t_info()
{
	local transport

	ip netns exec cqa ucx_info -d > "$CQ_TMP/out" 2>> "$CQ_LOG" || return
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	for transport in rc_verbs ud_verbs; do
		awk -v t="$transport" '
			$2 == "Transport:" { on = $3 == t }
			on && $3 == "cqda:1" { found = 1 }
			END { exit !found }' "$CQ_TMP/out" ||
			cq_bad "no $transport on cqda" || return
	done
}

# perf_once GID-INDEX TRANSPORTS ROUNDS ARGUMENT...: ROUNDS messages have come back.
perf_once()
{
	local rounds before server client

	rounds=$(cq_few "$3")
	local -a with=(env "UCX_IB_GID_INDEX=$1" "UCX_TLS=$2")
	shift 3
	cq_new_port
	server="ucx_perftest $* -n $rounds -w 10 -p $CQ_PORT"
	client="$server $SRV_IP"
	# A transport by itself is told its device.
	if [ "$1" = -x ]; then
		server+=" -d $SRV_DEV:1" client+=" -d $CLI_DEV:1"
	fi
	# It wants a terminal, else it takes itself for a part of an MPI job.
	SRV=("${with[@]}" "UCX_NET_DEVICES=$SRV_DEV:1" script -qefc "$server" /dev/null)
	CLI=("${with[@]}" "UCX_NET_DEVICES=$CLI_DEV:1" script -qefc "$client" /dev/null)
	before=$(cq_t2_packets)
	cq_pair 30 "$CQ_PORT" < /dev/null || cq_bad "$CQ_ENDS" || return
	grep -qE "^Final: +$rounds " "$CQ_TMP/cli" || cq_bad "not all rounds were done" || return
	[ $(($(cq_t2_packets) - before)) -ge $((2 * rounds)) ] || cq_bad "too few packets"
}

perf()		{ cq_retry perf_once "$@"; }

t_rc()		{ perf "$SRV_GID" rc_verbs 100 -x rc_verbs -t am_lat -D short; }
t_rc_zcopy()	{ perf "$SRV_GID" rc_verbs 50 -x rc_verbs -t put_lat -D zcopy -s 4096; }
t_ud()		{ perf "$SRV_GID" ud_verbs 100 -x ud_verbs -t am_lat -D short; }
t_ud_v6()	{ perf 0 ud_verbs 100 -x ud_verbs -t am_lat -D short; }
t_tag_ud()	{ perf "$SRV_GID" ud_verbs,self 100 -t tag_lat -s 64; }
t_tag_rc()
{
	perf "$SRV_GID" rc_verbs,ud_verbs,self 100 -t tag_lat -s 64 &&
		perf "$SRV_GID" rc_verbs,ud_verbs,self 20 -t tag_lat -s 100000
}
t_stream()	{ perf "$SRV_GID" rc_verbs,ud_verbs,self 50 -t stream_lat -s 4096; }
t_atomic()	{ perf "$SRV_GID" rc_verbs,ud_verbs,self 50 -t ucp_fadd -s 8; }

end_unload()
{
	cq_t2_down
	cq_module_goes
}

find_ucx
cq_init rrxe_ucx
cq_need_device
cq_need ucx_info ucx_perftest script
ucx_info -d 2> /dev/null | grep -q Transport || cq_skip_all "ucx_info does not run"
cq_main \
	t_up "two namespaces" \
	t_info "UCX finds RC and UD" \
	t_rc "RC by itself, short messages" \
	t_rc_zcopy "RC by itself, RDMA WRITE without a copy" \
	t_ud "UD by itself, IPv4" \
	t_ud_v6 "UD by itself, IPv6" \
	t_tag_ud "messages with tags over UD" \
	t_tag_rc "messages with tags over RC, which is set up by UD" \
	t_stream "a stream over RC" \
	t_atomic "atomic operations over RC" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
