#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A bad network between two devices of the RoCE driver in Rust: packets are
# lost, come late, twice or spoiled, in both directions. What applications get
# has to be right all the same: SEND, WRITE and READ with their data checked.
# Other drivers can be compared: DEV_TYPE=rxe.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

DROPS=/sys/kernel/debug/rrxe/drops

# The sum of a counter of dropped packets over all devices.
drops()
{
	tr ' ' '\n' < "$DROPS" |
		awk -F= -v name="$1" '$1 == name { n += $2 } END { print n + 0 }'
}

# The sum of a counter of the ports.
hw_counter()
{
	awk '{ n += $1 } END { print n }' \
		"/sys/class/infiniband/cqd"[ab]"/ports/1/hw_counters/$1"
}

t_up()
{
	cq_t2_up || return "$CQ_FATAL"
	cq_ends t2 || return "$CQ_FATAL"
	CQ_LIMIT=60
	cq_debugfs "$DROPS"
	# The control: with nothing wrong nothing is sent again.
	traffic || return "$CQ_FATAL"
	cq_note "sent again: $(hw_counter completer_retry_err)" \
		"duplicates: $(hw_counter duplicate_request)"
}

# One packet, some, and more than fit into a window; SEND, then READ and WRITE
# of both sides, and all that over the connection manager as well.
traffic()
{
	local size

	for size in 1000 20000; do
		cq_pingpong_lossy rc 50 "$size" || return
	done
	cq_pingpong_lossy rc 6 500000 || return
	cq_rping_once 5 4000 || return
	cq_rping_once 5 60000
}

# Of these the data are not looked at, but they end, and have many messages on
# their way at a time.
streams()
{
	cq_perf_once ib_send_bw 50 16384 -e || return
	cq_perf_once ib_write_bw 50 16384 || return
	cq_perf_once ib_read_bw 50 16384 -e || return
	cq_perf_once ib_atomic_bw 50 8 -e
}

# weather MODEL...: all of that, with packets that netem does something to.
weather()
{
	local rc=0 seen

	cq_netem "$@" || { cq_netem; return 1; }
	if traffic && streams; then
		seen=$(cq_netem_seen)
	else
		cq_netem_seen > /dev/null
		rc=1
	fi
	cq_netem
	WEATHER=${seen:-0 0}
	cq_note "sent again: $(hw_counter completer_retry_err)" \
		"out of sequence: $(hw_counter out_of_seq_request)" \
		"duplicates: $(hw_counter duplicate_request)"
	return "$rc"
}

# lossy SHARE: that many are lost.
lossy()
{
	local before

	before=$(hw_counter out_of_seq_request)
	weather loss "$1" || return
	[ "${WEATHER#* }" -gt 0 ] || cq_bad "nothing was lost" || return
	[ "$(hw_counter out_of_seq_request)" -gt "$before" ] || cq_bad "no gap was seen"
}

t_loss()	{ lossy 1%; }
t_much_loss()	{ lossy 10%; }

t_reorder()
{
	local before

	before=$(hw_counter out_of_seq_request)
	weather delay 1ms reorder 50% 25% || return
	[ "$(hw_counter out_of_seq_request)" -gt "$before" ] || cq_bad "all came in order"
}

t_jitter()	{ weather delay 2ms 1ms; }

t_duplicate()
{
	local before

	before=$(hw_counter duplicate_request)
	weather duplicate 10% || return
	[ "$(hw_counter duplicate_request)" -gt "$before" ] || cq_bad "none came twice"
}

# A bit of a packet is turned over, anywhere in it: what is not found by others
# is found by the ICRC.
t_corrupt()
{
	local before=0

	[ "$CQ_MODULE" != rrxe ] || before=$(drops icrc)
	weather corrupt 3% || return
	[ "$CQ_MODULE" != rrxe ] || [ "$(drops icrc)" -gt "$before" ] ||
		cq_bad "no packet had a wrong ICRC"
}

t_all()		{ weather loss 2% duplicate 2% corrupt 1% delay 1ms reorder 50% 25%; }

# The connections of unreliable services lose messages, but none comes wrong, and
# none twice.
t_unreliable()
{
	local rc=0 got

	cq_netem duplicate 10% corrupt 3% || { cq_netem; return 1; }
	cq_new_port
	SRV=(ibv_ud_pingpong -d "$SRV_DEV" -g "$SRV_GID" -p "$CQ_PORT" -e -n 100 -s 2000 -c)
	CLI=(ibv_ud_pingpong -d "$CLI_DEV" -g "$CLI_GID" -p "$CQ_PORT" -e -n 100 -s 2000 -c
	     "$SRV_IP")
	# They stop when something is lost.
	cq_pair 5 "$CQ_PORT" || cq_note "they lost a message"
	! grep -qi "invalid data" "$CQ_TMP/srv" "$CQ_TMP/cli" || { cq_bad "invalid data"; rc=1; }
	cq_netem
	return "$rc"
}

# After all that it works as before.
t_after()
{
	traffic && streams
}

end_unload()
{
	cq_t2_down
	cq_module_goes
}

cq_init rrxe_netem
cq_need_device
cq_need_module sch_netem
cq_need tc ibv_rc_pingpong ibv_ud_pingpong rping ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw
cq_main \
	t_up "two namespaces" \
	t_loss "1 % of the packets lost" \
	t_much_loss "10 % of the packets lost" \
	t_reorder "packets out of order" \
	t_jitter "packets late" \
	t_duplicate "packets twice" \
	t_corrupt "spoiled packets" \
	t_all "all of that" \
	t_unreliable "datagrams, twice and spoiled" \
	t_after "all is as before" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
