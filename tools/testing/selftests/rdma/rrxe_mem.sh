#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Memory of the RoCE driver in Rust: regions that are changed while they are
# registered, and those that are paged on demand, while their memory comes late,
# goes, moves, or is not there at all.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"

DIRECT=/sys/kernel/debug/rrxe/direct
# What the slow block device takes for each request.
SLOW_NS=400000000

t_up()
{
	cq_build rrxe_rereg rrxe_odp rrxe_paging || return
	cq_debugfs "$DIRECT"
	cq_t1_up || return "$CQ_FATAL"
	GID=$(cq_gid "$CQ_DEV" "$CQ_IP") || return "$CQ_FATAL"
}

# mem PROGRAM CASE [DEVICE]: what it prints is told.
mem()
{
	local program=$1 rc=0

	shift
	cq_limit 120 "$CQ_TMP/$program" "$CQ_DEV" "$GID" "$@" > "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	[ ! -s "$CQ_TMP/out" ] || [ "$rc" -ne 0 ] || cq_msg "$1: $(tail -n 1 "$CQ_TMP/out")"
	[ "$rc" -eq 0 ] || cq_bad "$1: status $rc"
}

# The same with packets that go from one queue pair to the other directly, and by
# the network.
both()
{
	local rc=0

	mem "$@" || rc=1
	[ -e "$DIRECT" ] || return "$rc"
	cq_put 0 "$DIRECT" || return
	mem "$@" || rc=1
	cq_put 1 "$DIRECT" || return
	return "$rc"
}

# slow CASE: with a file whose pages take their time.
slow()
{
	cq_need_module null_blk
	[ -n "${NULL_DEV:-}" ] || cq_null_up 4 "$SLOW_NS" || return
	both rrxe_paging "$1" "$NULL_DEV"
}

t_rights()	{ mem rrxe_rereg rights; }
t_domains()	{ mem rrxe_rereg domains; }
t_translation()	{ mem rrxe_rereg translation; }
t_failures()	{ mem rrxe_rereg failures; }
t_bound()	{ mem rrxe_rereg bound; }
t_unnoticed()	{ both rrxe_rereg unnoticed; }
t_in_flight()	{ both rrxe_rereg in-flight; }

t_access()	{ both rrxe_odp access; }
t_all()		{ both rrxe_odp all; }
t_shared()	{ both rrxe_odp shared; }
t_datagrams()	{ both rrxe_odp datagrams; }
t_large()	{ mem rrxe_odp large; }
t_advice()	{ mem rrxe_odp advice; }
t_no_memory()	{ both rrxe_odp no-memory; }
t_moves()	{ both rrxe_paging moves; }
t_late()	{ slow late; }
t_late_alone()	{ slow late-alone; }
t_written()	{ slow written-back; }

# Nothing that a process has asked for keeps it from ending.
t_killed()
{
	local i pid

	for ((i = 0; i < 10; i++)); do
		"$CQ_TMP/rrxe_paging" "$CQ_DEV" "$GID" busy > "$CQ_TMP/out" 2>> "$CQ_LOG" &
		pid=$!
		cq_wait 20 grep -q ready "$CQ_TMP/out" || cq_bad "it does not start" || return
		sleep "0.$i"
		kill -KILL "$pid"
		cq_wait 10 test ! -d "/proc/$pid" || cq_bad "it does not end" || return
		wait "$pid" 2>> "$CQ_LOG"
		[ $? -eq 137 ] || cq_bad "it had ended before" || return
	done
	! rdma resource show mr dev "$CQ_DEV" 2>> "$CQ_LOG" | grep -q rrxe_paging ||
		cq_bad "regions are left"
}

end_unload()
{
	cq_t1_down
	cq_module_goes
}

cq_init rrxe_mem
cq_need_device
cq_need cc rdma
cq_main \
	t_up "a device" \
	t_rights "rereg: other rights" \
	t_domains "rereg: another protection domain" \
	t_translation "rereg: other memory" \
	t_failures "rereg: what fails changes nothing" \
	t_bound "rereg: refused below windows" \
	t_unnoticed "rereg: rights below traffic that does not need them" \
	t_in_flight "rereg: what was there before is not accessed afterwards" \
	t_access "on demand: all operations at any place" \
	t_all "on demand: all memory" \
	t_shared "on demand: shared receive queue" \
	t_datagrams "on demand: datagrams" \
	t_large "on demand: more than 4 GiB" \
	t_advice "on demand: advice" \
	t_no_memory "on demand: no memory, B56, B58" \
	t_moves "on demand: memory goes and moves below traffic" \
	t_late "on demand: memory that comes late" \
	t_late_alone "on demand: others do not wait for it" \
	t_written "on demand: files are written back" \
	t_killed "on demand: processes are killed" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
