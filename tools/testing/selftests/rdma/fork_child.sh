#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What children and their parents may do with RDMA after a fork: the child
# opens the device for itself, or abuses what it inherited; the parent goes on,
# and its mappings come back.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=fork_lib.sh
. "$(dirname "$0")/fork_lib.sh"

# rdma-core's own tests, as the package of Debian has them.
TESTS=${RDMA_CORE_TESTS:-/usr/share/doc/rdma-core}
ROUNDS=8

t_device()
{
	cq_load_device_modules || return "$CQ_FATAL"
	fork_build fork_victim fork_inherit || return
	cq_t1_up || return "$CQ_FATAL"
	GID=$(cq_gid "$CQ_DEV" "$CQ_IP")
	fork_policy warn
}

t_child_opens()
{
	fork_run env RDMAV_FORK_SAFE=1 IBV_FORK_SAFE=1 \
		"$CQ_TMP/fork_inherit" "$CQ_DEV" "$CQ_IP" opens
	fork_expect 0 0
}

# The control: with a library that marks, the child dies of what it has not got.
t_child_opens_old()
{
	fork_run env RDMAV_FORK_SAFE=1 LD_PRELOAD="$CQ_TMP/fork_old_path.so" \
		"$CQ_TMP/fork_inherit" "$CQ_DEV" "$CQ_IP" opens
	fork_expect 10 0
}

t_maps_new()
{
	fork_run "$CQ_TMP/fork_victim" "$CQ_DEV" maps "$ROUNDS"
	fork_expect 0 0 || return
	# A library that asks the kernel divides nothing.
	awk '/^mappings:/ { n++; if ($5 + 0 > $2 + 8) exit 1 } END { if (!n) exit 1 }' \
		"$CQ_TMP/out" || cq_bad "mappings are divided"
}

# With a library that marks, they are divided, but come back.
t_maps_old()
{
	fork_run env LD_PRELOAD="$CQ_TMP/fork_old_path.so" \
		"$CQ_TMP/fork_victim" "$CQ_DEV" maps "$ROUNDS"
	[ "$FORK_RC" -eq 0 ] || { cq_bad "exit status $FORK_RC"; return; }
	[ "$FORK_COUNTED" -eq $((ROUNDS * 256)) ] ||
		{ cq_bad "counted $FORK_COUNTED"; return; }
	awk '/^mappings:/ { n++; if ($5 + 0 < $2 + 256) exit 1 } END { if (!n) exit 1 }' \
		"$CQ_TMP/out" || cq_bad "nothing was divided, so nothing was tested"
}

# inherit CASE: a child and what its parent made, some times.
inherit()
{
	local i

	for ((i = 0; i < $(cq_few 4); i++)); do
		fork_run "$CQ_TMP/fork_inherit" "$CQ_DEV" "$CQ_IP" "$1"
		fork_expect 0 0 || return
	done
}

t_child_abuses()
{
	inherit abuses
}

t_child_destroys()
{
	inherit destroys
}

t_child_outlives()
{
	inherit outlives
}

t_test_fork()
{
	local dir

	[ -e "$TESTS/tests/test_fork.py" ] || { cq_skip "no test_fork.py"; return; }
	# Queue pairs of iWARP are connected by the connection manager only.
	[ -n "$GID" ] || { cq_skip "$DEV_TYPE cannot connect queue pairs by hand"; return; }
	dir=$CQ_TMP/tests
	mkdir -p "$dir"
	cp -r "$TESTS/tests" "$dir" || return
	# Debian compresses long documents, and to it these are documents.
	gunzip -f "$dir"/tests/*.py.gz 2>> "$CQ_LOG"
	cq_limit 120 python3 "$dir/tests/run_tests.py" --dev "$CQ_DEV" --gid "$GID" -v \
		tests.test_fork > "$CQ_TMP/unittest" 2>&1
	FORK_RC=$?
	cut -c1-150 "$CQ_TMP/unittest" | tail -n 25 >> "$CQ_LOG"
	[ "$SELFTEST_BREAK" != 1 ] || FORK_RC=1
	[ "$FORK_RC" -eq 0 ] || { cq_bad "a test of rdma-core fails"; return; }
	grep -q '\.\.\. ok$' "$CQ_TMP/unittest" ||
		cq_skip "$(grep -om 1 'skipped .*' "$CQ_TMP/unittest")"
}

end_gone()
{
	cq_t1_down
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ]
}

cq_init fork_child
fork_need
cq_need python3
cq_main \
	t_device "device and programs" \
	t_child_opens "B76: a child opens the device for itself, in fork-safe mode" \
	t_child_opens_old "B76: a child dies of what an old library took from it" \
	t_maps_new "B77: no mapping is divided where nothing has to be marked" \
	t_maps_old "B77: divided mappings come back" \
	t_child_abuses "B79: a child goes on with queues and files of its parent" \
	t_child_destroys "B79: a child destroys what it inherited" \
	t_child_outlives "B79: a child goes on with what its parent destroys" \
	t_test_fork "the tests of rdma-core" \
	end_gone "device gone" \
	end_no_warning "no complaint of the kernel"
