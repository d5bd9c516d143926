#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RoCE driver in Rust and the one in C talk to each other: each is in a
# network namespace of its own, rrxe with the parameter coexist. All services in
# both directions with their data checked, without and with lost packets. And
# the two keep each other out when they would take each other's devices.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=rrxe
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

# Libraries find it by its name only.
RUST_DEV=rxeqb
C_DEV=cqda
LOSS=2%

# logged SINCE TEXT: is the text in the kernel's log behind a mark?
logged()
{
	dmesg | awk -v mark="$1" -v text="$2" '
		index($0, mark) { on = 1 }
		on && index($0, text) { found = 1 }
		END { exit !found }' || cq_bad "the kernel's log does not say \"$2\""
}

# refused MODULE TEXT [PARAMETER...]: it is not loaded, and the log says why.
refused()
{
	local module=$1 text=$2 mark="interop $$ $RANDOM$RANDOM"

	shift 2
	echo "$mark" > /dev/kmsg
	! cq_do modprobe "$module" "$@" || cq_bad "$module was loaded" || return
	! cq_loaded "$module" || cq_bad "$module is there" || return
	logged "$mark" "$text"
}

# rdma_rxe is there, with a device.
t_refuse_rust()
{
	local rc=0

	# Who opens devices has to be there before them.
	cq_modprobe rdma_ucm || return
	cq_wait 5 test -e /dev/infiniband/rdma_cm || return
	cq_do modprobe rdma_rxe || return
	cq_defer cq_rmmod rdma_rxe
	cq_t2_net || return
	cq_link_add "$C_DEV" cqva "$CQ_IP_A" ip netns exec cqa || return
	refused rrxe "rdma_rxe is loaded" || rc=1
	[ -d "/sys/class/infiniband/$C_DEV" ] || { cq_bad "the device of C is gone"; rc=1; }
	cq_t2_down
	cq_rmmod rdma_rxe || rc=1
	return "$rc"
}

# rrxe takes the place of rdma_rxe, with a device and without.
t_refuse_c()
{
	local rc=0

	cq_do modprobe rrxe || return
	refused rdma_rxe "cannot be loaded" || rc=1
	cq_t2_net || return
	cq_link_add "$C_DEV" cqva "$CQ_IP_A" ip netns exec cqa || return
	refused rdma_rxe "cannot be loaded" || rc=1
	[ -d "/sys/class/infiniband/$C_DEV" ] || { cq_bad "the device of Rust is gone"; rc=1; }
	cq_t2_down
	cq_rmmod rrxe || rc=1
	# It was not broken by that.
	cq_do modprobe rdma_rxe || { cq_bad "rdma_rxe does not load"; rc=1; }
	cq_rmmod rdma_rxe || rc=1
	return "$rc"
}

t_up()
{
	cq_modprobe rdma_rxe || return "$CQ_FATAL"
	cq_modprobe rrxe coexist=1 || return "$CQ_FATAL"
	cq_t2_net || return "$CQ_FATAL"
	cq_link_add "$C_DEV" cqva "$CQ_IP_A" ip netns exec cqa || return "$CQ_FATAL"
	cq_defer down
	DEV_TYPE=rrxe cq_link_add "$RUST_DEV" cqvb "$CQ_IP_B" ip netns exec cqb ||
		return "$CQ_FATAL"
	GID_A=$(cq_gid "$C_DEV" "$CQ_IP_A") || return "$CQ_FATAL"
	GID_B=$(cq_gid "$RUST_DEV" "$CQ_IP_B") || return "$CQ_FATAL"
	cq_do rdma link show
}

down()
{
	[ ! -d "/sys/class/infiniband/$RUST_DEV" ] || cq_do rdma link delete "$RUST_DEV"
	cq_wait 10 test ! -d "/sys/class/infiniband/$RUST_DEV"
	cq_t2_down
}

# Neither makes a device where the other one has the UDP port.
t_port()
{
	cq_do ip -n cqa link add cqother type dummy || return
	cq_do ip -n cqb link add cqother type dummy || return
	! cq_do ip netns exec cqa rdma link add rxeqo type rrxe netdev cqother ||
		cq_bad "a device of Rust beside one of C" || return
	! cq_do ip netns exec cqb rdma link add cqdo type rxe netdev cqother ||
		cq_bad "a device of C beside one of Rust" || return
	cq_do ip -n cqa link del cqother
	cq_do ip -n cqb link del cqother
}

# Who waits for the other one.
serves()
{
	case "$1" in
	c)
		SRV_NS=cqa SRV_DEV=$C_DEV SRV_IP=$CQ_IP_A SRV_GID=$GID_A
		CLI_NS=cqb CLI_DEV=$RUST_DEV CLI_GID=$GID_B
		;;
	rust)
		SRV_NS=cqb SRV_DEV=$RUST_DEV SRV_IP=$CQ_IP_B SRV_GID=$GID_B
		CLI_NS=cqa CLI_DEV=$C_DEV CLI_GID=$GID_A
		;;
	esac
	CQ_LIMIT=40
}

# both COMMAND...: with each of them as server. Nothing is tried again.
both()
{
	local who rc=0

	for who in c rust; do
		serves "$who"
		"$@" || { cq_bad "$who serves"; rc=1; }
	done
	return "$rc"
}

# with_loss COMMAND...
with_loss()
{
	local rc=0 seen

	cq_has_module sch_netem || { cq_skip "no netem"; return; }
	cq_netem loss "$LOSS" || return
	"$@" || rc=1
	seen=$(cq_netem_seen)
	cq_netem
	[ "${seen#* }" -gt 0 ] || { cq_bad "nothing was lost"; rc=1; }
	return "$rc"
}

# The sizes lie around those of packets.
rc_sizes()
{
	local size

	for size in 1 1023 4096 4097 65536; do
		cq_pingpong_once rc 60 "$size" check || return
	done
}

send_sizes()
{
	local size

	for size in 64 4096 65536; do
		cq_perf_once ib_send_bw 200 "$size" -e || return
	done
	cq_perf_once ib_send_lat 100 64 -e && cq_perf_once ib_send_lat 100 64 -e -c UD
}

write_sizes()
{
	local size

	for size in 8 4096 65536; do
		cq_perf_once ib_write_bw 100 "$size" || return
	done
}

read_sizes()
{
	local size

	for size in 8 4096 65536; do
		cq_perf_once ib_read_bw 100 "$size" -e || return
	done
	cq_perf_once ib_read_lat 50 4096 -e
}

atomics()
{
	cq_perf_once ib_atomic_lat 100 8 -e -A FETCH_AND_ADD &&
		cq_perf_once ib_atomic_lat 100 8 -e -A CMP_AND_SWAP &&
		cq_perf_once ib_atomic_bw 100 8 -e
}

# It reads and writes as well, and looks at what comes back.
pings()
{
	local size

	for size in 100 4000 60000; do
		cq_rping_once 10 "$size" || return
	done
}

# Wrong data are noticed on both sides.
spoiled()
{
	if cq_pingpong_once rc 10 65536 spoil; then
		cq_bad "wrong data were not noticed"
		return
	fi
	grep -qi "invalid data" "$CQ_TMP/srv"
}

t_rc()		{ both rc_sizes; }
t_spoiled()	{ both spoiled; }
t_uc()		{ both cq_pingpong_once uc 200 4096 check; }
t_ud()		{ both cq_pingpong_once ud 200 2048 check; }
t_srq()		{ both cq_pingpong_once srq 200 4096 check; }
t_send()	{ both send_sizes; }
t_write()	{ both write_sizes; }
t_read()	{ both read_sizes; }
t_atomic()	{ both atomics; }
t_rping()	{ both pings; }
t_cm()		{ both cq_perf_once ib_send_bw 200 4096 -e -R; }

# rdma_rxe of 7.3.4 stops to send for good now and then when packets are lost, with
# another rdma_rxe as well: this hung in 4 of 12 runs between two devices of C, and
# in none of 12 between two of Rust. Between one of each it hung in 8 of 10 runs of
# 100 messages, and why it does so more often there is not known. Wrong data are
# never tried again.
again()
{
	local try

	for try in {1..20}; do
		CQ_LIMIT=4
		"$@" && return
		! grep -qi "invalid data" "$CQ_TMP/srv" "$CQ_TMP/cli" || return
		cq_msg "$2, $SRV_DEV serves: attempt $try has no end"
	done
	return 1
}

t_rc_loss()	{ with_loss both again cq_pingpong_lossy rc 30 16384; }
t_srq_loss()	{ with_loss both again cq_pingpong_lossy srq 100 4096; }
t_send_loss()	{ with_loss both again cq_perf_once ib_send_bw 200 16384 -e; }
t_write_loss()	{ with_loss both again cq_perf_once ib_write_bw 100 16384; }
t_read_loss()	{ with_loss both again cq_perf_once ib_read_bw 100 16384 -e; }
t_atomic_loss()	{ with_loss both again cq_perf_once ib_atomic_lat 100 8 -e; }
t_rping_loss()	{ with_loss both again cq_rping_once 20 20000; }

end_unload()
{
	local m

	down
	for m in rrxe rdma_rxe; do
		cq_rmmod "$m" || { cq_bad "$m does not go"; return; }
	done
}

cq_init rrxe_interop
cq_need_device
cq_need_module rdma_rxe
cq_need dmesg tc ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong rping \
	ib_send_bw ib_send_lat ib_write_bw ib_read_bw ib_read_lat ib_atomic_lat ib_atomic_bw
cq_loaded rrxe && cq_skip_all "rrxe is loaded already"
cq_loaded rdma_rxe && cq_skip_all "rdma_rxe is loaded already"
cq_main \
	t_refuse_rust "rrxe is refused beside rdma_rxe" \
	t_refuse_c "rdma_rxe is refused beside rrxe" \
	t_up "both, in two namespaces" \
	t_port "one of them in a namespace" \
	t_rc "rc_pingpong" \
	t_spoiled "rc_pingpong notices wrong data" \
	t_uc "uc_pingpong" \
	t_ud "ud_pingpong" \
	t_srq "srq_pingpong" \
	t_send "SEND" \
	t_write "WRITE" \
	t_read "READ" \
	t_atomic "atomic operations" \
	t_rping "rping" \
	t_cm "ib_send_bw over the CM" \
	t_rc_loss "rc_pingpong, $LOSS lost" \
	t_srq_loss "srq_pingpong, $LOSS lost" \
	t_send_loss "SEND, $LOSS lost" \
	t_write_loss "WRITE, $LOSS lost" \
	t_read_loss "READ, $LOSS lost" \
	t_atomic_loss "atomic operations, $LOSS lost" \
	t_rping_loss "rping, $LOSS lost" \
	end_unload "the modules go" \
	end_no_warning "no complaint of the kernel"
