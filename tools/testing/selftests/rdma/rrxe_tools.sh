#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tools that others have written, on the RoCE driver in Rust: those of rdma-core,
# qperf and libfabric, between two name spaces. What each of them printed is looked
# at, not only how it ended. Other drivers can be compared: DEV_TYPE=rxe.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

GROUP=239.7.7.7

t_up()
{
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2 || return "$CQ_FATAL"
	# Where the datagrams of groups go.
	cq_do ip -n cqa route add 224.0.0.0/4 dev cqva
	cq_do ip -n cqb route add 224.0.0.0/4 dev cqvb
	CQ_LIMIT=40
}

# pair MINIMUM: SRV and CLI, who have to send so many packets; nobody says that
# data are wrong.
pair()
{
	local before after

	before=$(cq_t2_packets)
	cq_pair "$CQ_LIMIT" "$CQ_PORT" || cq_bad "${CLI[0]} failed" || return
	after=$(cq_t2_packets)
	cq_note "$((after - before)) packets"
	[ $((after - before)) -ge "$1" ] || cq_bad "fewer than $1 packets" || return
	! grep -qiE "invalid data|verification failed" "$CQ_TMP/srv" "$CQ_TMP/cli" ||
		cq_bad "wrong data"
}

# says TEXT...: both ends have said all of this.
says()
{
	local text end

	for end in srv cli; do
		for text; do
			grep -qF -- "$text" "$CQ_TMP/$end" ||
				cq_bad "$end did not say: $text" || return
		done
	done
}

# try COMMAND...: another attempt when an end failed, as for all such tools.
try()
{
	local limit=$CQ_LIMIT rc=0

	cq_retry "$@" || rc=$?
	CQ_LIMIT=$limit
	return "$rc"
}

# ---------------------------------------------------------------- verbs

# pingpong TOOL ROUNDS BYTES OPTION...: checked by the tool; both ends say how much.
pingpong()
{
	local tool=ibv_${1}_pingpong iter size=$3

	iter=$(cq_few "$2")
	shift 3
	cq_new_port
	SRV=("$tool" -d "$SRV_DEV" -g "$SRV_GID" -p "$CQ_PORT" -n "$iter" -s "$size" -c "$@")
	CLI=("${SRV[@]}" "$SRV_IP")
	CLI[2]=$CLI_DEV CLI[4]=$CLI_GID
	pair $((2 * iter)) || return
	says "$((2 * size * iter)) bytes in" "$iter iters in"
}

t_devices()
{
	local d

	ip netns exec cqa ibv_devices > "$CQ_TMP/out" 2>> "$CQ_LOG" || return
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	# As the kernel says, in other words.
	for d in cqda cqdb; do
		awk -v d="$d" -v guid="$(tr -d : < "/sys/class/infiniband/$d/node_guid")" '
			$1 == d && $2 == guid { found = 1 } END { exit !found }' "$CQ_TMP/out" ||
			cq_bad "$d is not as it is" || return
	done
}

t_srq()		{ try pingpong srq 100 4096 -q 4 -e && try pingpong srq 100 8192 -q 16; }
t_new()		{ try pingpong rc 200 4096 -N && try pingpong rc 50 65536 -N -e; }
t_new_ud()	{ try pingpong ud 200 1024 -e; }

# odp OPTION...: pages are not there until they are used.
odp()
{
	ip netns exec cqa ibv_devinfo -v -d cqda > "$CQ_TMP/info" 2>> "$CQ_LOG"
	grep -q "ODP" "$CQ_TMP/info" || { cq_skip "the device has no on-demand paging"; return; }
	try pingpong rc 100 16384 "$@"
}

t_odp()		{ odp -o -e; }
t_prefetch()	{ odp -o -P -e; }

t_async()
{
	local pid seen

	ip netns exec cqa stdbuf -oL ibv_asyncwatch -d cqda > "$CQ_TMP/out" 2>&1 &
	pid=$!
	cq_wait 10 grep -q "async event FD" "$CQ_TMP/out" || cq_bad "it does not start"
	cq_do ip -n cqb link set cqvb down
	cq_wait 10 grep -q "IBV_EVENT_PORT_ERR (10), port 1" "$CQ_TMP/out"
	cq_do ip -n cqb link set cqvb up
	cq_wait 10 grep -q "IBV_EVENT_PORT_ACTIVE (9), port 1" "$CQ_TMP/out"
	cq_end_process "$pid"
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	# Each once, in this order.
	seen=$(grep -oE "PORT_(ERR|ACTIVE)" "$CQ_TMP/out" | tr '\n' ' ')
	[ "$seen" = "PORT_ERR PORT_ACTIVE " ] ||
		cq_bad "not one event of each" || return
	# The route has gone with the interface.
	cq_do ip -n cqb route replace 224.0.0.0/4 dev cqvb
	cq_wait 10 cq_gid cqdb "$CQ_IP_B" && cq_ends t2
}

# ---------------------------------------------------------------- rdmacm

t_rping()	{ cq_rping 50 4000 && cq_rping 10 60000; }

# cm_data TOOL CONNECTIONS MESSAGES BYTES OPTION...: in both directions.
cm_data()
{
	local tool=$1 conns=$2 messages=$3 size=$4

	shift 4
	SRV=("$tool" -b "$SRV_IP" -c "$conns" -C "$messages" -S "$size" "$@")
	CLI=("$tool" -s "$SRV_IP" -b "$CQ_IP_B" -c "$conns" -C "$messages" -S "$size" "$@")
	pair $((2 * conns * messages)) || return
	says "data transfers complete" "test complete" "return status 0"
}

stream_once()	{ cq_new_port; cm_data ucmatose "$1" "$2" "$3" -p "$CQ_PORT"; }
t_ucmatose()	{ try stream_once 1 100 100 && try stream_once 8 20 8000; }

# Its port is fixed.
datagram_once()	{ CQ_PORT=7174; cm_data udaddy "$1" "$2" "$3"; }

t_udaddy()
{
	local port=$CQ_PORT rc=0

	try datagram_once 1 50 100 && try datagram_once 4 20 1000 || rc=1
	CQ_PORT=$port
	return "$rc"
}

example_once()
{
	local what=$1

	shift
	cq_new_port
	SRV=("rdma_${what}server" -p "$CQ_PORT" "$@")
	CLI=("rdma_${what}client" -p "$CQ_PORT" -s "$SRV_IP" "$@")
	pair 4 || return
	says "end 0"
}

t_examples()	{ try example_once "" && try example_once x -c r; }

# A sender in one name space, a receiver in the other one.
mckey_once()
{
	local size=$1 count=$2 pid rc=0 src=0

	ip netns exec cqa timeout -k 3 $((30 * CQ_SCALE)) stdbuf -oL \
		mckey -m "$GROUP" -b "$CQ_IP_A" -C "$count" -S "$size" > "$CQ_TMP/srv" 2>&1 &
	pid=$!
	CQ_PAIR=1
	if cq_wait 15 grep -q "joined dgid" "$CQ_TMP/srv"; then
		ip netns exec cqb timeout -k 3 $((20 * CQ_SCALE)) \
			mckey -s -m "$GROUP" -b "$CQ_IP_B" -C "$count" -S "$size" \
			> "$CQ_TMP/cli" 2>&1 || src=$?
		cq_wait 15 cq_ended "$pid"
	fi
	cq_end_process "$pid" || rc=1
	cat "$CQ_TMP/srv" "$CQ_TMP/cli" >> "$CQ_LOG"
	[ "$src" -eq 0 ] || cq_bad "the sender: status $src" || return
	says "joined dgid: ::ffff:$GROUP mlid" "data transfers complete" "test complete" \
		"return status 0"
}

t_mckey()	{ try mckey_once 100 10 && try mckey_once 1000 30; }

# ---------------------------------------------------------------- rsockets

# stream TOOL OPTION...: of so many bytes in each direction.
stream()
{
	local tool=$1

	shift
	cq_new_port
	SRV=("$tool" -b "$SRV_IP" -p "$CQ_PORT" -S 65536 -I 5 -C 20 "$@")
	CLI=("$tool" -s "$SRV_IP" -p "$CQ_PORT" -S 65536 -I 5 -C 20 "$@")
	pair 1000 || return
	# Name, bytes, transfers, rounds, and all bytes.
	grep -qE "^custom +64k +20 +5 +12m +[0-9.]+s" "$CQ_TMP/cli" ||
		cq_bad "$tool did not say what it did"
}

t_rstream()
{
	try stream rstream -T v && try stream rstream -T v -T b && try stream rstream -T v -T n
}
t_riostream()	{ try stream riostream -T v; }

# The server goes on; judged is the file.
rcopy_once()
{
	local kib=$1 pid rc=0

	cq_new_port
	cq_noise "$CQ_TMP/noise" "$kib"
	# No multiple of anything.
	printf x >> "$CQ_TMP/noise"
	rm -f "$CQ_TMP/copy"
	ip netns exec cqa rcopy -p "$CQ_PORT" > "$CQ_TMP/srv" 2>&1 &
	pid=$!
	cq_wait 10 cq_listening "$pid" "$CQ_PORT"
	cq_do ip netns exec cqb timeout -k 3 $((30 * CQ_SCALE)) rcopy "$CQ_TMP/noise" \
		"$SRV_IP:$CQ_TMP/copy" -p "$CQ_PORT" || rc=1
	CQ_PAIR=$rc
	[ "$SELFTEST_BREAK" != 1 ] || cq_spoil "$CQ_TMP/copy"
	# It writes the last part when the client has gone.
	[ "$rc" -ne 0 ] || cq_wait 5 cmp -s "$CQ_TMP/noise" "$CQ_TMP/copy" ||
		{ cq_bad "the copy is not the same"; rc=1; }
	cq_end_process "$pid"
	cat "$CQ_TMP/srv" >> "$CQ_LOG"
	return "$rc"
}

t_rcopy()	{ try rcopy_once 3000; }

# Many connections, and how long each of the steps takes.
cmtime_once()
{
	local conns=$1 step rc=0

	cq_new_port
	SRV=(cmtime -L -b "$CQ_IP_A" -C "$CQ_IP_A" -p "$CQ_PORT" -P 2 -c "$conns")
	CLI=(cmtime -b "$CQ_IP_B" -C "$CQ_IP_A" -p "$CQ_PORT" -P 2 -c "$conns")
	pair "$conns" || return
	cat "$CQ_TMP/srv" "$CQ_TMP/cli" >> "$CQ_LOG"
}

t_cmtime()	{ try cmtime_once 20; }

# ---------------------------------------------------------------- qperf

# Its names for what RC has.
QPERF="rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw
	rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap
	ver_rc_fetch_add"

qperf_once()
{
	local test rc=0

	cq_new_port
	SRV=(qperf -lp "$CQ_PORT")
	# shellcheck disable=SC2206
	CLI=(qperf "$SRV_IP" -lp "$CQ_PORT" -cm 1 -t 2 -to 30 $QPERF quit)
	pair 2000 || return
	cat "$CQ_TMP/cli" >> "$CQ_LOG"
	for test in $QPERF; do
		# The test, then what was measured, which is not zero.
		awk -v test="$test:" '
			/^[a-z]/ { on = $1 == test; next }
			on && $1 == "latency" && $3 > 0 && $4 ~ /^([num]s|sec)$/ { found = 1 }
			on && $1 ~ /^(bw|msg_rate)$/ && $3 > 0 && $4 ~ /\/sec$/ { found = 1 }
			END { exit !found }' "$CQ_TMP/cli" ||
			{ cq_bad "$test measured nothing"; rc=1; }
	done
	return "$rc"
}

t_qperf()	{ try qperf_once; }

# ---------------------------------------------------------------- libfabric

t_fi_info()
{
	ip netns exec cqa fi_info -p verbs -v > "$CQ_TMP/out" 2>> "$CQ_LOG" || return
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	awk '
		/^ *type: FI_EP_/ { type = $2 }
		/^ *name: cqda$/ && type == "FI_EP_MSG" { msg = 1 }
		/^ *name: cqda-dgram$/ { dgram = 1 }
		END { exit !(msg && dgram) }' "$CQ_TMP/out" ||
		cq_bad "no message or datagram endpoint of cqda"
}

# fabric PROVIDER TYPE DOMAIN-SUFFIX BYTES: the tool looks at the data.
fabric()
{
	local provider=$1 type=$2 suffix=$3 size=$4 count=20
	local what=(-p "$provider" -e "$type" -I "$count" -S "$size" -c)

	cq_new_port
	SRV=(fi_pingpong "${what[@]}" -d "cqda$suffix" -B "$CQ_PORT")
	CLI=(fi_pingpong "${what[@]}" -d "cqdb$suffix" -P "$CQ_PORT" "$SRV_IP")
	FI_VERBS_GID_IDX=$SRV_GID FI_UNIVERSE_SIZE=8 pair $((2 * count)) || return
	# Sent and answered that often.
	awk -v n="$count" '/^[0-9]/ && $2 == n && $3 == "=" n { found = 1 }
		END { exit !found }' "$CQ_TMP/cli" || cq_bad "not all came back"
}

# sizes PROVIDER TYPE DOMAIN-SUFFIX BYTES...
sizes()
{
	local size

	for size in "${@:4}"; do
		try fabric "${@:1:3}" "$size" || return
	done
}

t_fi_msg()	{ sizes verbs msg "" 64 65536; }
t_fi_dgram()	{ sizes verbs dgram -dgram 64 1024; }
# The larger one is fetched by the receiver.
t_fi_rxm()	{ sizes "verbs;ofi_rxm" rdm "" 64 65536; }

end_unload()
{
	cq_t2_down
	cq_module_goes
}

cq_init rrxe_tools
cq_need_device
cq_need stdbuf ibv_devices ibv_devinfo ibv_asyncwatch ibv_rc_pingpong ibv_ud_pingpong \
	ibv_srq_pingpong rping ucmatose udaddy mckey rdma_client rdma_xclient rstream \
	riostream rcopy cmtime qperf fi_info fi_pingpong
cq_main \
	t_up "two namespaces" \
	t_devices "ibv_devices" \
	t_async "ibv_asyncwatch" \
	t_srq "ibv_srq_pingpong" \
	t_new "ibv_rc_pingpong, the newer calls" \
	t_new_ud "ibv_ud_pingpong, by events" \
	t_odp "ibv_rc_pingpong, on-demand paging" \
	t_prefetch "ibv_rc_pingpong, on-demand paging with prefetch" \
	t_rping "rping" \
	t_ucmatose "ucmatose" \
	t_udaddy "udaddy" \
	t_examples "rdma_client, rdma_xclient" \
	t_mckey "mckey, a group in two namespaces" \
	t_rstream "rstream" \
	t_riostream "riostream" \
	t_rcopy "rcopy" \
	t_cmtime "cmtime" \
	t_qperf "qperf, what RC has" \
	t_fi_info "fi_info" \
	t_fi_msg "fi_pingpong, messages" \
	t_fi_dgram "fi_pingpong, datagrams" \
	t_fi_rxm "fi_pingpong, reliable datagrams over messages" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
