#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the RoCE driver in Rust sends, read by others: tcpdump captures it, scapy
# takes each packet apart and computes its ICRC, and tshark marks what it finds
# odd. Other drivers can be compared: DEV_TYPE=rxe. CAPTURE=FILE keeps the packets.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

# All that the tools can be told to send.
OPERATIONS="RC_SEND_FIRST RC_SEND_MIDDLE RC_SEND_LAST RC_SEND_ONLY
	RC_RDMA_WRITE_FIRST RC_RDMA_WRITE_MIDDLE RC_RDMA_WRITE_LAST RC_RDMA_WRITE_ONLY
	RC_RDMA_WRITE_LAST_WITH_IMMEDIATE RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE
	RC_RDMA_READ_REQUEST RC_RDMA_READ_RESPONSE_FIRST RC_RDMA_READ_RESPONSE_MIDDLE
	RC_RDMA_READ_RESPONSE_LAST RC_RDMA_READ_RESPONSE_ONLY RC_ACKNOWLEDGE
	RC_COMPARE_SWAP RC_FETCH_ADD RC_ATOMIC_ACKNOWLEDGE
	UC_SEND_FIRST UC_SEND_MIDDLE UC_SEND_LAST UC_SEND_ONLY
	UC_RDMA_WRITE_FIRST UC_RDMA_WRITE_MIDDLE UC_RDMA_WRITE_LAST UC_RDMA_WRITE_ONLY
	UD_SEND_ONLY"

# Trains of packets have to be cut by the stack before they are captured.
single()
{
	local trains=/sys/kernel/debug/rrxe/trains

	[ "$CQ_MODULE" = rrxe ] || return 0
	cq_debugfs "$trains"
	cq_put 2 "$trains" && cq_offload off
}

t_up()
{
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2 || return "$CQ_FATAL"
	single || return "$CQ_FATAL"
	ip netns exec cqa tcpdump -i cqva -s 0 -B 65536 -U -w "$CQ_TMP/pcap" \
		"udp port $CQ_ROCE_PORT" 2> "$CQ_TMP/tcpdump" &
	TCPDUMP=$!
	cq_defer "cq_end_process $TCPDUMP"
	cq_wait 20 grep -q "listening on" "$CQ_TMP/tcpdump" || cq_bad "no capture" ||
		return "$CQ_FATAL"
}

# Sizes with a padding, and some with more than two packets.
t_send()
{
	local kind size

	for kind in rc uc; do
		for size in 1 1023 4001; do
			cq_pingpong "$kind" 4 "$size" check || return
		done
	done
	cq_pingpong ud 8 1021 check && cq_pingpong srq 2 3000 check
}

# With the addresses that IPv6 makes by itself.
t_send6()
{
	local kind rc=0 srv=$SRV_GID cli=$CLI_GID

	SRV_GID=0 CLI_GID=0
	for kind in rc uc ud; do
		cq_pingpong "$kind" 4 1001 check || rc=1
	done
	SRV_GID=$srv CLI_GID=$cli
	return "$rc"
}

t_write()
{
	local size

	for size in 7 16382; do
		cq_perf ib_write_bw 10 "$size" && cq_perf ib_write_bw 10 "$size" -c UC &&
			cq_perf ib_write_bw 10 "$size" --write_with_imm || return
	done
}

t_read()	{ cq_perf ib_read_bw 5 5 && cq_perf ib_read_bw 5 16381; }

t_atomic()
{
	cq_perf ib_atomic_lat 5 8 -A FETCH_AND_ADD && cq_perf ib_atomic_lat 5 8 -A CMP_AND_SWAP
}

t_cm()		{ cq_rping 3 300; }

t_captured()
{
	local seen

	kill -INT "$TCPDUMP"
	cq_wait 20 cq_ended "$TCPDUMP" || cq_bad "tcpdump does not end" || return "$CQ_FATAL"
	cat "$CQ_TMP/tcpdump" >> "$CQ_LOG"
	[ -z "$CAPTURE" ] || cq_do cp "$CQ_TMP/pcap" "$CAPTURE"
	seen=$(awk '/packets captured/ { print $1 }' "$CQ_TMP/tcpdump")
	cq_msg "$seen packets"
	grep -q "^0 packets dropped by kernel" "$CQ_TMP/tcpdump" || cq_bad "packets were missed" ||
		return "$CQ_FATAL"
	[ "$seen" -ge 300 ] || cq_bad "too few packets" || return "$CQ_FATAL"
	# The control.
	[ "$SELFTEST_BREAK" != 1 ] ||
		printf x | dd of="$CQ_TMP/pcap" bs=1 seek=90 conv=notrunc status=none
}

# dissect [OPTION...]
dissect()
{
	local rc=0

	python3 "$CQ_DIR/rrxe_dissect.py" "$@" > "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	cq_msg "$(tail -n 1 "$CQ_TMP/out")"
	return "$rc"
}

t_scapy()
{
	# shellcheck disable=SC2086
	dissect "$CQ_TMP/pcap" $OPERATIONS || cq_bad "scapy finds something wrong"
}

t_spoiled()	{ dissect --spoil "$CQ_TMP/pcap" || cq_bad "changed packets were not noticed"; }

# shark FILTER: how many packets match.
shark()
{
	cq_limit 120 tshark -r "$CQ_TMP/pcap" -Y "$1" -T fields -e frame.number \
		-e infiniband.bth.opcode -e _ws.expert.message \
		> "$CQ_TMP/out" 2>> "$CQ_LOG" || return
	head -n 20 "$CQ_TMP/out" >> "$CQ_LOG"
	wc -l < "$CQ_TMP/out"
}

t_tshark()
{
	local all odd known

	command -v tshark > /dev/null || { cq_skip "tshark is not installed"; return; }
	all=$(awk '/packets captured/ { print $1 }' "$CQ_TMP/tcpdump")
	known=$(shark "infiniband.bth && infiniband.invariant.crc") || return
	odd=$(shark "_ws.malformed || _ws.expert.severity >= 0x400000") || return
	cq_msg "tshark: $known of $all packets are RoCE, $odd are odd"
	[ "$known" -eq "$all" ] || cq_bad "it does not know all" || return
	[ "$odd" -eq 0 ] || cq_bad "it finds something odd"
}

end_unload()
{
	cq_t2_down
	cq_module_goes
}

cq_init rrxe_dissect
cq_need_device
cq_need tcpdump python3 ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong \
	ib_write_bw ib_read_bw ib_atomic_lat rping
python3 -c "import scapy.contrib.roce" 2> /dev/null || cq_skip_all "no scapy"
cq_main \
	t_up "two namespaces, and a capture" \
	t_send "SEND" \
	t_send6 "SEND, IPv6" \
	t_write "WRITE, and with immediate data" \
	t_read "READ" \
	t_atomic "atomic operations" \
	t_cm "connection manager" \
	t_captured "the packets" \
	t_scapy "scapy" \
	t_spoiled "scapy notices other packets" \
	t_tshark "tshark" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
