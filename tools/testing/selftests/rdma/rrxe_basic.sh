#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RoCE driver in Rust with unmodified user space: what the device says
# about itself, all services with their data checked, with events and by
# polling, the connection manager, and an end without leftovers. Other drivers
# pass as well: DEV_TYPE=rxe.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

# By polling, which -e does not do: few rounds, for two pollers leave little of
# a small machine to others.
poll_pingpong()
{
	local tool=ibv_${1}_pingpong iter size=$3

	iter=$(cq_few "$2")
	cq_new_port
	SRV=("$tool" -d "$SRV_DEV" -g "$SRV_GID" -p "$CQ_PORT" -n "$iter" -s "$size" -c)
	CLI=("$tool" -d "$CLI_DEV" -g "$CLI_GID" -p "$CQ_PORT" -n "$iter" -s "$size" -c "$SRV_IP")
	cq_pair "$CQ_LIMIT" "$CQ_PORT" || { cq_bad "$tool failed"; return; }
	! grep -qi "invalid data" "$CQ_TMP/srv" "$CQ_TMP/cli" || cq_bad "invalid data"
}

t_up()
{
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2 || return "$CQ_FATAL"
}

t_info()
{
	ip netns exec "$SRV_NS" ibv_devinfo -v -d "$SRV_DEV" > "$CQ_TMP/info" 2>> "$CQ_LOG" ||
		{ cq_bad "ibv_devinfo failed"; return; }
	cat "$CQ_TMP/info" >> "$CQ_LOG"
	# What applications look at.
	awk -v pairs="max_qp=1048560 max_qp_wr=1048576 max_cqe=32767 max_sge=32
			max_qp_rd_atom=128 max_mr=524287 state=PORT_ACTIVE
			link_layer=Ethernet max_mtu=4096 active_mtu=4096" '
		{ line = $1; sub(/:$/, "", line); got[line] = $2 }
		END {
			n = split(pairs, p)
			for (i = 1; i <= n; i++) {
				split(p[i], kv, "=")
				if (got[kv[1]] != kv[2]) {
					print kv[1] " is " got[kv[1]] ", not " kv[2]
					bad = 1
				}
			}
			exit bad
		}' "$CQ_TMP/info" >> "$CQ_LOG" || cq_bad "attributes"
}

t_rc()		{ cq_pingpong rc 200 65536 check; }
t_uc()		{ cq_pingpong uc 200 4096 check; }
t_ud()		{ cq_pingpong ud 200 2048 check; }
t_rc_poll()	{ poll_pingpong rc 100 65536; }
t_uc_poll()	{ poll_pingpong uc 100 4096; }
t_ud_poll()	{ poll_pingpong ud 100 2048; }

t_sizes()
{
	local size

	# Around the borders of packets.
	for size in 1 3 4095 4096 4097 8192 8193; do
		cq_pingpong rc 20 "$size" check || return
	done
}

t_spoiled()
{
	if cq_pingpong rc 10 65536 spoil; then
		cq_bad "wrong data were not noticed"
		return
	fi
	grep -qi "invalid data" "$CQ_TMP/srv"
}

t_rping()	{ cq_rping 50 4000; }
t_send_bw()	{ cq_perf ib_send_bw 300 4096 -e; }
t_send_big()	{ cq_perf ib_send_bw 20 1048576 -e; }
t_send_lat()	{ cq_perf ib_send_lat 100 64 -e; }
t_send_ud()	{ cq_perf ib_send_lat 100 64 -e -c UD; }
t_write_bw()	{ cq_perf ib_write_bw 300 4096; }
t_read_bw()	{ cq_perf ib_read_bw 300 4096 -e; }
t_read_big()	{ cq_perf ib_read_bw 20 1048576 -e; }
t_atomic()	{ cq_perf ib_atomic_lat 100 8 -e; }
t_cm()		{ cq_perf ib_send_bw 300 4096 -e -R; }

t_loss()
{
	local rc=0

	cq_has_module sch_netem || { cq_skip "no netem"; return; }
	cq_do ip netns exec cqa tc qdisc add dev cqva root netem loss 2% || return
	cq_pingpong rc 100 16384 check || rc=1
	cq_rping 20 4000 || rc=1
	cq_do ip netns exec cqa tc qdisc del dev cqva root
	return "$rc"
}

# Device and namespaces go while an application has objects.
t_pull()
{
	local pid

	cq_new_port
	ip netns exec cqa ib_send_bw -d cqda -F -D 30 -s 4096 -p "$CQ_PORT" -x "$SRV_GID" -e \
		> /dev/null 2>&1 &
	pid=$!
	cq_wait 10 cq_listening "$pid" "$CQ_PORT"
	ip netns exec cqb timeout -k 3 20 ib_send_bw -d cqdb -F -D 30 -s 4096 -p "$CQ_PORT" \
		-x "$CLI_GID" -e "$SRV_IP" > /dev/null 2>&1 &
	sleep 2
	cq_t2_down
	kill "$pid" 2>/dev/null
	wait
	[ ! -d /sys/class/infiniband/cqda ] || cq_bad "the device is still there"
}

end_unload()
{
	cq_t2_down
	cq_module_goes
}

cq_init rrxe_basic
cq_need_device
cq_need ibv_devinfo ibv_rc_pingpong rping ib_send_bw ib_send_lat ib_write_bw ib_read_bw
cq_main \
	t_up "two namespaces" \
	t_info "attributes" \
	t_rc "rc_pingpong" \
	t_rc_poll "rc_pingpong, polling" \
	t_spoiled "rc_pingpong notices wrong data" \
	t_sizes "rc_pingpong, sizes around the MTU" \
	t_uc "uc_pingpong" \
	t_uc_poll "uc_pingpong, polling" \
	t_ud "ud_pingpong" \
	t_ud_poll "ud_pingpong, polling" \
	t_send_bw "ib_send_bw 4 KiB" \
	t_send_big "ib_send_bw 1 MiB" \
	t_send_lat "ib_send_lat" \
	t_send_ud "ib_send_lat, datagrams" \
	t_write_bw "ib_write_bw" \
	t_read_bw "ib_read_bw 4 KiB" \
	t_read_big "ib_read_bw 1 MiB" \
	t_atomic "ib_atomic_lat" \
	t_rping "rping" \
	t_cm "ib_send_bw over the CM" \
	t_loss "lost packets" \
	t_pull "device removed under traffic" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
