#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Let every allocation of the paths that allocate and free completion queues
# fail once, on the fake device of the module ib_cq_kunit. Each time the error
# has to come back, and nothing may be left: no queue that the device knows,
# no entry in the tracker, no memory.
#
# The module runs an operation when it is written to its debugfs file, and the
# allocations of the writer fail as /proc/PID/fail-nth says.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

FAULT=/sys/kernel/debug/ib_cq_kunit/fault
FAILSLAB=/sys/kernel/debug/failslab
KMEMLEAK=/sys/kernel/debug/kmemleak
# More allocations than any operation has.
MAX=200

# fault OPERATION CONTEXT MIN: MIN is how many failures have to be reported at
# least; freeing reports none.
fault()
{
	local op=$1 ctx=$2 min=$3 n ret word failed=0 tolerated=0 elsewhere=0

	for ((n = 1; n <= MAX; n++)); do
		# Builtins only: another process would have a fail-nth of its own.
		# The files stay open, since opening needs memory.
		echo "$n" >&4 || return
		echo "$op $ctx" >&3 || {
			echo 0 >&4
			cq_bad "$op $ctx cannot be run"
			return
		}
		echo 0 >&4
		read -r _ _ ret word < "$FAULT" || return

		case "$word $ret" in
		"failed -12") failed=$((failed + 1)) ;;
		"failed 0") tolerated=$((tolerated + 1)) ;;
		# Redirecting and writing took memory, too.
		"unarmed 0") elsewhere=$((elsewhere + 1)) ;;
		"passed 0")
			cq_msg "$op $ctx: $failed failures reported, $tolerated tolerated"
			[ "$elsewhere" -eq 0 ] ||
				cq_msg "$op $ctx: $elsewhere failed in the shell itself"
			[ "$failed" -ge "$min" ] || {
				cq_bad "$op $ctx: only $failed failures, $min expected"
				return
			}
			return 0
			;;
		*)
			cq_bad "$op $ctx, allocation $n: $word, result $ret"
			return
			;;
		esac
	done
	cq_bad "$op $ctx: no end after $MAX allocations"
}

# all OPERATION MIN CONTEXT...
all()
{
	local op=$1 min=$2 ctx

	shift 2
	exec 3> "$FAULT" 4> /proc/self/fail-nth || return
	for ctx in "$@"; do
		fault "$op" "$ctx" "$min" || return
	done
	exec 3>&- 4>&-
}

POOL="SOFTIRQ WORKQUEUE UNBOUND_WORKQUEUE"

# The object, the array of completions, and what the device needs: three.
# shellcheck disable=SC2086
{
t_alloc()	 { all alloc 3 $POOL DIRECT; }
t_alloc_dim()	 { all alloc_dim 3 SOFTIRQ WORKQUEUE; }
t_alloc_any()	 { all alloc_any 3 SOFTIRQ; }
t_free()	 { all free 0 $POOL DIRECT; }
t_free_dim()	 { all free_dim 0 SOFTIRQ WORKQUEUE; }
t_pool_get()	 { all pool_get 3 $POOL; }
t_pool_cleanup() { all pool_cleanup 0 $POOL; }
}

# A wrong word must not look like success.
t_control()
{
	if { echo "nonsense SOFTIRQ" > "$FAULT"; } 2>> "$CQ_LOG"; then
		cq_bad "an operation that does not exist was accepted"
		return
	fi
	echo "alloc SOFTIRQ" > "$FAULT" || return
	[ "$(cat "$FAULT")" = "alloc SOFTIRQ 0 unarmed" ] || cq_bad "$(cat "$FAULT")"
}

end_leak()
{
	if [ ! -w "$KMEMLEAK" ]; then
		cq_skip "the kernel has no kmemleak"
		return
	fi
	# Young objects are not reported.
	sleep 6
	echo scan > "$KMEMLEAK" || return
	echo scan > "$KMEMLEAK" || return
	# Fails if kmemleak has given up.
	cat "$KMEMLEAK" > "$CQ_TMP/leaks" || return
	cat "$CQ_TMP/leaks" >> "$CQ_LOG"
	# What others leak is not decided here.
	! grep -E '\[ib_core\]|\[ib_cq_kunit\]' "$CQ_TMP/leaks" > /dev/null
}

restore()
{
	echo Y > "$FAILSLAB/ignore-gfp-wait"
	echo 2 > "$FAILSLAB/verbose"
}

cq_init fault_injection
cq_need_module ib_cq_kunit
[ -e /proc/self/fail-nth ] || cq_skip_all "kernel without CONFIG_FAULT_INJECTION"
[ -d "$FAILSLAB" ] || cq_skip_all "kernel without CONFIG_FAILSLAB, or debugfs is not mounted"
cq_modprobe ib_cq_kunit || cq_skip_all "ib_cq_kunit does not load"
[ -e "$FAULT" ] || cq_skip_all "ib_cq_kunit has no debugfs file"

# Otherwise allocations that may sleep do not fail.
cq_defer restore
echo N > "$FAILSLAB/ignore-gfp-wait"
echo 0 > "$FAILSLAB/verbose"

cq_main \
	t_control "the module runs what it is told" \
	t_alloc "every allocation of ib_alloc_cq" \
	t_alloc_dim "the same with interrupt moderation" \
	t_alloc_any "every allocation of ib_alloc_cq_any" \
	t_free "ib_free_cq needs no memory" \
	t_free_dim "the same with interrupt moderation" \
	t_pool_get "every allocation of ib_cq_pool_get" \
	t_pool_cleanup "freeing the pools needs no memory" \
	end_no_warning "no complaint of the kernel" \
	end_leak "no memory leaked"
