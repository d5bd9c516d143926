# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the tests of fork safety share: the programs that fork with registered
# memory, and what the kernel and forkguard say about them.
#
# Environment, beside that of cq_lib.sh:
#   FORKGUARD=FILE      the command, if it is not in PATH or where cargo puts it
#   FABRIC_CFLAGS=...   where the headers of libfabric are, if not among the others
#   RDMA_CORE_44=DIR    an unpacked rdma-core 44, for example of Debian 12

FORK_PARAM=/sys/module/ib_core/parameters/dontfork_partial
FORK_RC=0
FORK_SAID=
FORK_COUNTED=0
FORK_SPENT=0
# The kernel prints ten messages in five seconds.
FORK_BURST=10

fork_need()
{
	cq_need_device
	cq_need cc
}

# fork_build PROGRAM...: compile them, and what can be preloaded.
fork_build()
{
	cq_build "$@" || return
	cq_compiled fork_old_path.so ||
		cq_do cc -O1 -Wall -Wextra -Werror -shared -fPIC -o "$CQ_TMP/fork_old_path.so" \
			"$CQ_DIR/fork_old_path.c" || return "$CQ_FATAL"
	[ -e "$FORK_PARAM" ] || {
		cq_skip "the kernel does not look at registrations"
		# Of cq_lib.sh: no step behind this one makes sense.
		# shellcheck disable=SC2034
		CQ_DEAD=$CQ_WHY
		return "$KSFT_SKIP"
	}
	cq_defer "cq_put $(cat "$FORK_PARAM") $FORK_PARAM"
}

fork_policy()
{
	cq_put "$1" "$FORK_PARAM"
}

fork_count()
{
	cat "/sys/class/infiniband/$CQ_DEV/dontfork_partial"
}

# fork_run COMMAND...: the exit status is in FORK_RC, what the kernel said in
# FORK_SAID, and how often it found something in FORK_COUNTED. What others have
# done to the environment stays with the command: call it with env.
fork_run()
{
	local before mark

	if [ "$FORK_SPENT" -gt $((FORK_BURST / 2)) ]; then
		sleep 6
		FORK_SPENT=0
	fi
	before=$(fork_count)
	mark="fork selftest: $RANDOM$RANDOM"
	echo "$mark" > /dev/kmsg
	cq_note "\$ $*"
	FORK_RC=0
	cq_limit 60 "$@" > "$CQ_TMP/out" 2>&1 || FORK_RC=$?
	FORK_COUNTED=$(($(fork_count) - before))
	FORK_SPENT=$((FORK_SPENT + FORK_COUNTED))
	FORK_SAID=$(dmesg | awk -v mark="$mark" 'index($0, mark) { on = 1; next } on' |
		grep "infiniband $CQ_DEV: .*MADV_DONTFORK")
	cut -c1-150 "$CQ_TMP/out" >> "$CQ_LOG"
	cq_note "-> exit status $FORK_RC, counted $FORK_COUNTED, said: $FORK_SAID"
	# The control: everything must notice when nothing is.
	if [ "$SELFTEST_BREAK" = 1 ]; then
		FORK_SAID=
		FORK_RC=99
	fi
}

# Skips if huge pages of 2 MB are not to be had.
fork_huge_pages()
{
	local f=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages

	[ -e "$f" ] || { cq_skip "no huge pages of 2 MB"; return; }
	cq_defer "cq_put $(cat "$f") $f"
	cq_put 4 "$f"
	[ "$(cat "$f")" -ge 2 ] || cq_skip "huge pages are not to be had"
}

# Skips if the device has no on-demand paging.
fork_on_demand()
{
	ibv_devinfo -v -d "$CQ_DEV" 2>> "$CQ_LOG" | grep -qw ODP_SUPPORT ||
		cq_skip "$CQ_MODULE has no on-demand paging"
}

# fork_victim CASE [NUMBER]
fork_victim()
{
	fork_run "$CQ_TMP/fork_victim" "$CQ_DEV" "$@"
}

# fork_expect STATUS COUNT TEXT: what the last run must have led to; with a
# count of zero nothing may be said.
fork_expect()
{
	[ "$FORK_RC" -eq "$1" ] || { cq_bad "exit status $FORK_RC, not $1"; return; }
	[ "$FORK_COUNTED" -eq "$2" ] || { cq_bad "counted $FORK_COUNTED, not $2"; return; }
	if [ "$2" -eq 0 ]; then
		[ -z "$FORK_SAID" ] || cq_bad "a message without a reason"
	else
		grep -qE -- "$3" <<< "$FORK_SAID" || cq_bad "no message that says: $3"
	fi
}

# Prints where the command is.
fork_guard()
{
	local f

	for f in "${FORKGUARD:-}" "$(command -v forkguard)" \
		"$CQ_DIR/../../../rdma/forkguard/target/release/forkguard"; do
		if [ -x "$f" ]; then
			readlink -f "$f"
			return 0
		fi
	done
	return 1
}
