#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A child that dies of a registration of its parent: the first allocation of a
# thread shares its page with the state of the thread's malloc arena, and a
# part of it is registered in fork-safe mode. Each way to get there is tried
# without a guard, with the kernel's check and with forkguard.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=fork_lib.sh
. "$(dirname "$0")/fork_lib.sh"

CRASHED=10
REFUSED=11

t_device()
{
	cq_load_device_modules || return "$CQ_FATAL"
	fork_build fork_victim || return
	cq_t1_up || return "$CQ_FATAL"
}

# The one with libfabric, which needs its headers.
fabric_build()
{
	local flags=${FABRIC_CFLAGS:-}

	[ ! -x "$CQ_TMP/fork_fabric" ] || return 0
	! cq_compiled fork_fabric || return 0
	# shellcheck disable=SC2086 # they are several
	cc $flags -E -include rdma/fabric.h - < /dev/null > /dev/null 2>&1 ||
		{ cq_skip "no headers of libfabric"; return; }
	# Linked to what is there, with or without the development package.
	# shellcheck disable=SC2086
	cq_do cc $flags -O1 -Wall -Wextra -Werror -pthread -o "$CQ_TMP/fork_fabric" \
		"$CQ_DIR/fork_fabric.c" -l:libfabric.so.1
}

# way NAME: the environment of a way in WAY, what is preloaded, and the program.
way()
{
	PROGRAM=("$CQ_TMP/fork_victim" "$CQ_DEV" field)
	PRELOAD=
	case "$1" in
	old_path)
		PRELOAD=$CQ_TMP/fork_old_path.so
		WAY=(RDMAV_FORK_SAFE=1)
		;;
	verbs44)
		local dir=${RDMA_CORE_44:-/opt/rdma-core-44}

		dir=$(echo "$dir"/usr/lib/*-linux-gnu)
		[ -e "$dir/libibverbs.so.1" ] || { cq_skip "no rdma-core 44"; return; }
		WAY=(RDMAV_FORK_SAFE=1 "LD_LIBRARY_PATH=$dir"
			"IBV_DRIVERS=$dir/libibverbs/lib$DEV_TYPE")
		;;
	direct)
		PROGRAM=("$CQ_TMP/fork_victim" "$CQ_DEV" direct)
		# No variable that matters.
		WAY=(FORK_WAY=direct)
		;;
	fabric)
		fabric_build || return
		PROGRAM=("$CQ_TMP/fork_fabric" "$CQ_DEV")
		PRELOAD=$CQ_TMP/fork_old_path.so
		WAY=(RDMAV_FORK_SAFE=1)
		;;
	esac
}

run_bare()
{
	fork_run env "${WAY[@]}" LD_PRELOAD="$PRELOAD" "${PROGRAM[@]}"
}

# run_guarded POLICY
run_guarded()
{
	local guard

	guard=$(fork_guard) || { cq_skip "no forkguard, see FORKGUARD"; return; }
	rm -f "$CQ_TMP/json"
	fork_run env "${WAY[@]}" LD_PRELOAD="$PRELOAD" "$guard" --policy "$1" \
		--json "$CQ_TMP/json" "${PROGRAM[@]}"
	cat "$CQ_TMP/json" >> "$CQ_LOG" 2>&1
}

# What forkguard found: PATTERN...
guard_says()
{
	local p

	for p; do
		grep -q -- "$p" "$CQ_TMP/json" || { cq_bad "forkguard does not say $p"; return; }
	done
}

crash()
{
	way "$1" || return
	fork_policy off || return
	run_bare
	fork_expect "$CRASHED" 0
}

kernel_warns()
{
	way "$1" || return
	fork_policy warn || return
	run_bare
	fork_expect "$CRASHED" 1 "fork_[a-z]+\[.*registered .* bytes before it and [1-9]"
}

kernel_refuses()
{
	way "$1" || return
	fork_policy reject || return
	run_bare
	fork_expect "$REFUSED" 1 "refused "
}

guard_warns()
{
	way "$1" || return
	fork_policy off || return
	run_guarded warn || return
	fork_expect "$CRASHED" 0 || return
	guard_says '"kind":"registration"' "state of a malloc arena" '"refused":0'
}

guard_refuses()
{
	way "$1" || return
	fork_policy off || return
	run_guarded reject || return
	fork_expect "$REFUSED" 0 || return
	guard_says '"refused":1' '"registrations":0' '"left_over":\[\]'
}

# A library that asks the kernel does not mark anything, so there is nothing to say.
t_new()
{
	way old_path
	PRELOAD=
	fork_policy reject || return
	run_bare
	fork_expect 0 0
}

end_gone()
{
	cq_t1_down
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ]
}

# Steps take no arguments, so each gets a function of its own.
WAYS="old_path verbs44 direct fabric"
STEPS=()
for w in $WAYS; do
	for f in crash kernel_warns kernel_refuses guard_warns guard_refuses; do
		eval "t_${f}_$w() { $f $w; }"
	done
	case "$w" in
	old_path) what="library on its old path" ;;
	verbs44) what="rdma-core 44" ;;
	direct) what="program's own madvise" ;;
	fabric) what="libfabric" ;;
	esac
	STEPS+=("t_crash_$w" "$what: the child dies"
		"t_kernel_warns_$w" "$what: the kernel tells"
		"t_kernel_refuses_$w" "$what: refused by the kernel, the child lives"
		"t_guard_warns_$w" "$what: forkguard tells"
		"t_guard_refuses_$w" "$what: refused by forkguard, the child lives")
done

cq_init fork_crash
fork_need
cq_main \
	t_device "device and programs" \
	"${STEPS[@]}" \
	t_new "a library that asks the kernel: nothing to say, the child lives" \
	end_gone "device gone" \
	end_no_warning "no complaint of the kernel"
