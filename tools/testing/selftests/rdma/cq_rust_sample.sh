#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The sample client rust_rdma_cq in all four poll contexts: every completion
# must arrive, every byte must be right, and the queue must really have had
# the context that was asked for. Then it has to let go of its device, idle
# and busy.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

MODULE=rust_rdma_cq
COMPLETIONS=1000
BYTES=4096
DEPTH=16
DEEP=1024
SIZES="1 3 4095 65537 1048576"
# In which contexts the device is removed, idle and busy, and the module.
REMOVE="0 1 2 3"
REMOVE_BUSY="0 1 2 3"
UNLOAD_BUSY="0 1 2 3"
# Far more than there is time for.
ENDLESS=4000000000
SPOIL=
[ "$SELFTEST_BREAK" != 1 ] || SPOIL=spoil=1

# sample_begin NAME: mark what follows. A step that failed may have left the
# module there.
sample_begin()
{
	! cq_loaded "$MODULE" || sample_unload
	sample_mark "$1"
}

sample_mark()
{
	SAMPLE_MARK="cq sample: $1 $$ $RANDOM"
	echo "$SAMPLE_MARK" > /dev/kmsg
	cq_mark "$1"
}

# What the sample said about the device since the mark.
sample_said()
{
	dmesg | awk -v mark="$SAMPLE_MARK" '
		index($0, mark) { on = 1; next }
		on' |
	sed -n "s/.*infiniband $CQ_DEV: $MODULE: //p" | grep -E -- "$1"
}

sample_load()
{
	cq_do modprobe "$MODULE" "$@" || cq_bad "the module does not load"
}

# Unloading waits until the sample has let go of all devices, so once is enough.
sample_unload()
{
	cq_do cq_limit 30 rmmod "$MODULE" || cq_bad "the module does not unload"
}

# sample_wait REGEX: until it has said so.
sample_wait()
{
	cq_wait 30 sample_said "$1" && return
	sample_said . >> "$CQ_LOG"
	cq_bad "the sample did not say: $1"
}

# sample_result CONTEXT COMPLETIONS BYTES VERIFIED: is this what it found?
sample_result()
{
	local line="^context $1: $2 completions, $(($2 / 2)) messages, $3 bytes, $4 verified"

	sample_said . >> "$CQ_LOG"
	sample_said "$line, 0 asynchronous events, " > /dev/null
}

# On a device that the sample cannot use it has to say so.
sample_skips()
{
	[ "$DEV_TYPE" = siw ] || return 1
	CQ_WHY="a queue pair of siw connects by the CM only"
}

# sample_context VALUE CONTEXT NAME
sample_context()
{
	local value=$1 ctx=$2 name=$3 c messages=$((COMPLETIONS / 2)) total

	total=$((messages * BYTES))
	sample_begin "$ctx"
	# shellcheck disable=SC2086
	sample_load "poll_ctx=$value" "completions=$COMPLETIONS" "bytes=$BYTES" \
		"depth=$DEPTH" $SPOIL || return
	if sample_skips; then
		sample_wait "^skipped: an iWARP queue pair" || return
		sample_unload || return
		return "$KSFT_SKIP"
	fi
	sample_wait "^context $name: " || return
	sample_unload || return
	cq_msg "$(sample_said "^context")"
	sample_result "$name" "$COMPLETIONS" "$total" "$total" || {
		cq_bad "not all completions, or wrong data"
		return
	}
	sample_said "^removed, $DEPTH requests flushed" > /dev/null || {
		cq_bad "the receive requests did not come back"
		return
	}

	cq_report "$ctx"
	cq_expect "$ctx" || return
	for c in $CQ_CONTEXTS; do
		cq_note "$c: allocated ${CQ_N[$c]}, freed ${CQ_FREED[$c]}"
		if [ "$c" = "$ctx" ]; then
			[ "${CQ_N[$c]} ${CQ_FREED[$c]}" = "1 1" ] || {
				cq_bad "$c: ${CQ_N[$c]} queues allocated, ${CQ_FREED[$c]} freed"
				return
			}
			[ "${CQ_COMP[$c]}" -ge "$COMPLETIONS" ] || {
				cq_bad "in $c there were only ${CQ_COMP[$c]} completions"
				return
			}
		elif [ "${CQ_N[$c]}" -ne 0 ]; then
			cq_bad "a queue in $c"
			return
		fi
	done
}

t_direct()    { sample_context 0 DIRECT direct; }
t_softirq()   { sample_context 1 SOFTIRQ softirq; }
t_workqueue() { sample_context 2 WORKQUEUE workqueue; }
t_unbound()   { sample_context 3 UNBOUND_WORKQUEUE "unbound workqueue"; }

# The check of the data must be able to fail.
t_spoiled()
{
	if sample_skips; then return "$KSFT_SKIP"; fi
	sample_begin spoiled
	sample_load poll_ctx=1 completions=100 spoil=1 || return
	sample_wait "^context" || return
	sample_unload || return
	sample_result softirq 100 204800 0 || cq_bad "wrong data were not noticed"
}

t_sizes()
{
	local size

	if sample_skips; then return "$KSFT_SKIP"; fi
	for size in $SIZES; do
		sample_begin "size $size"
		sample_load poll_ctx=3 completions=8 "bytes=$size" depth=2 || return
		sample_wait "^context" || return
		sample_unload || return
		sample_result "unbound workqueue" 8 $((4 * size)) $((4 * size)) || {
			cq_bad "wrong with messages of $size bytes"
			return
		}
	done
}

t_bad_parameters()
{
	local p

	for p in poll_ctx=4 poll_ctx=4294967295 completions=0 bytes=0 bytes=1048577 \
			depth=0 depth=1025; do
		if modprobe "$MODULE" "$p" 2>> "$CQ_LOG"; then
			sample_unload
			cq_bad "$p was accepted"
			return
		fi
	done
}

# Two entries for each message, and two more: no power of two.
t_deep()
{
	local completions=$((4 * DEEP)) total=$((2 * DEEP * BYTES))

	if sample_skips; then return "$KSFT_SKIP"; fi
	sample_begin deep
	sample_load "depth=$DEEP" "completions=$completions" || return
	sample_wait "^context" || return
	sample_unload || return
	sample_result workqueue "$completions" "$total" "$total" || {
		cq_bad "not all completions, or wrong data"
		return
	}
	sample_said "^removed, $DEEP requests flushed" > /dev/null ||
		cq_bad "the receive requests did not come back"
}

t_rename()
{
	if sample_skips; then return "$KSFT_SKIP"; fi
	sample_begin rename
	sample_load completions=2 || return
	sample_wait "^context" || return
	cq_do rdma dev set "$CQ_DEV" name cqrenamed
	cq_do rdma dev set cqrenamed name "$CQ_DEV"
	sample_wait "^renamed" || return
	sample_unload
}

t_remove()
{
	local ctx

	if sample_skips; then return "$KSFT_SKIP"; fi
	for ctx in $REMOVE; do
		sample_begin "remove $ctx"
		sample_load "poll_ctx=$ctx" "completions=$COMPLETIONS" "depth=$DEPTH" || return
		sample_wait "^context" || return
		cq_do cq_limit 30 rdma link delete "$CQ_DEV" || return
		sample_wait "^removed, $DEPTH requests flushed" || return
		cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV" || {
			sample_unload
			cq_bad "the device is still there"
			return
		}
		# It has to find the new one by itself.
		sample_mark "again $ctx"
		cq_link_add "$CQ_DEV" "$CQ_IF" "$CQ_IP" || return
		sample_wait "^context .* $COMPLETIONS completions" || return
		sample_unload || return
	done
}

t_remove_busy()
{
	local ctx

	if sample_skips; then return "$KSFT_SKIP"; fi
	for ctx in $REMOVE_BUSY; do
		sample_begin "busy $ctx"
		sample_load "poll_ctx=$ctx" "completions=$ENDLESS" || return
		sleep 0.3
		cq_do cq_limit 30 rdma link delete "$CQ_DEV" || return
		sample_wait "^removed while busy" || return
		sample_wait "^removed, " || return
		sample_said . >> "$CQ_LOG"
		sample_unload || return
		cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV"
		cq_link_add "$CQ_DEV" "$CQ_IF" "$CQ_IP" || return
	done
}

t_unload_busy()
{
	local ctx

	if sample_skips; then return "$KSFT_SKIP"; fi
	for ctx in $UNLOAD_BUSY; do
		sample_begin "unload $ctx"
		sample_load "poll_ctx=$ctx" "completions=$ENDLESS" || return
		sleep 0.3
		sample_unload || return
		sample_said . >> "$CQ_LOG"
		sample_said "^removed while busy" > /dev/null || {
			cq_bad "it was not busy"
			return
		}
		sample_said "^removed, " > /dev/null || { cq_bad "it was not removed"; return; }
	done
}

# In all steps up to here.
t_no_error()
{
	local re="$MODULE: (no session|a request failed|stopped|not all requests came back)"

	! dmesg | grep -E "$re" >> "$CQ_LOG" || cq_bad "the sample reported an error"
}

# Under the feet of the traffic: packets are lost for good.
t_link_gone()
{
	local rc=0

	if sample_skips; then return "$KSFT_SKIP"; fi
	sample_begin gone
	sample_load poll_ctx=1 "completions=$ENDLESS" || return
	sleep 0.3
	cq_do ip link del "$CQ_IF"
	cq_wait 30 test ! -d "/sys/class/infiniband/$CQ_DEV" ||
		cq_bad "the device is still there" || rc=1
	sample_wait "^removed, " || rc=1
	sample_unload || rc=1
	sample_said . >> "$CQ_LOG"
	! sample_said "^not all requests" > /dev/null || rc=1
	return "$rc"
}

end_unloaded()
{
	cq_rmmod "$MODULE"
}

cq_init sample
# The same on a kernel that checks everything, only less of it.
if [ "$CQ_SCALE" -gt 1 ]; then
	COMPLETIONS=200
	DEEP=128
	SIZES="1 4095 65537"
	REMOVE="1 3"
	REMOVE_BUSY="0 1"
	UNLOAD_BUSY="2 3"
fi
cq_need_device
cq_need_module "$MODULE"
cq_main \
	t_device "device and MAD layer" \
	t_direct "DIRECT: $COMPLETIONS completions, data verified" \
	t_softirq "SOFTIRQ: $COMPLETIONS completions, data verified" \
	t_workqueue "WORKQUEUE: $COMPLETIONS completions, data verified" \
	t_unbound "UNBOUND_WORKQUEUE: $COMPLETIONS completions, data verified" \
	t_spoiled "wrong data are noticed" \
	t_sizes "odd and large messages" \
	t_bad_parameters "bad parameters are refused" \
	t_deep "$DEEP messages under way" \
	t_rename "device renamed" \
	t_remove "device removed, and added again" \
	t_remove_busy "device removed while busy" \
	t_unload_busy "module unloaded while busy" \
	t_no_error "no error of the sample" \
	t_link_gone "network device gone while busy" \
	end_unloaded "module is gone" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
