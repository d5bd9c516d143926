#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel copies registered memory at fork: the parent keeps the pages that
# the device has, the child gets what was on them, for all kinds of memory and
# for registrations of parts of pages.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=fork_lib.sh
. "$(dirname "$0")/fork_lib.sh"

t_device()
{
	cq_load_device_modules || return "$CQ_FATAL"
	fork_build fork_copy || return
	cq_t1_up || return "$CQ_FATAL"
	fork_policy reject
}

# copy STATUS KIND [child-first]
copy()
{
	local status=$1

	shift
	fork_run "$CQ_TMP/fork_copy" "$CQ_IP" "$@"
	[ "$FORK_RC" -ne 4 ] || { cq_skip "there is no such memory"; return; }
	fork_expect "$status" 0
}

both_orders()
{
	copy 0 "$1" && copy 0 "$1" child-first
}

t_anonymous()
{
	both_orders anonymous
}

t_piece()
{
	both_orders piece
}

t_file()
{
	both_orders file
}

t_transparent()
{
	both_orders transparent
}

t_huge()
{
	fork_huge_pages || return
	both_orders huge
}

t_stack()
{
	both_orders stack
}

t_read_only()
{
	both_orders read-only
}

t_on_demand()
{
	if ! fork_on_demand; then
		# Then it has to say so.
		fork_run "$CQ_TMP/fork_copy" "$CQ_IP" on-demand
		grep -q "ibv_reg_mr: Operation not supported" "$CQ_TMP/out" ||
			{ cq_bad "such a registration does not fail as it should"; return; }
		return "$KSFT_SKIP"
	fi
	both_orders on-demand
}

t_mode()
{
	fork_run env RDMAV_FORK_SAFE=1 IBV_FORK_SAFE=1 "$CQ_TMP/fork_copy" "$CQ_IP" anonymous
	fork_expect 0 0
}

# The controls: what is not copied, and what the device does not have.
t_shared()
{
	copy 10 shared && copy 13 shared child-first
}

t_moved()
{
	copy 11 moved && copy 12 moved-read-only
}

end_gone()
{
	cq_t1_down
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ]
}

cq_init fork_copy
fork_need
cq_main \
	t_device "device and programs" \
	t_anonymous "private memory" \
	t_piece "a piece of a page" \
	t_file "a private mapping of a file" \
	t_transparent "transparent huge pages" \
	t_huge "huge pages" \
	t_stack "a stack" \
	t_read_only "memory that the device only reads" \
	t_on_demand "on-demand paging" \
	t_mode "private memory, in fork-safe mode" \
	t_shared "shared memory is not copied" \
	t_moved "other memory than what is registered is told from it" \
	end_gone "device gone" \
	end_no_warning "no complaint of the kernel"
