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
# Far more than there is time for.
ENDLESS=4000000000
SPOIL=
[ "$SELFTEST_BREAK" != 1 ] || SPOIL=spoil=1

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
	sample_mark "$ctx"
	# shellcheck disable=SC2086
	sample_load "poll_ctx=$value" "completions=$COMPLETIONS" "bytes=$BYTES" "depth=$DEPTH" $SPOIL || return
	if sample_skips; then
		sample_wait "^skipped: an iWARP queue pair" || return
		sample_unload || return
		return "$KSFT_SKIP"
	fi
	sample_wait "^context $name: " || { sample_unload; return "$KSFT_FAIL"; }
	sample_unload || return
	cq_msg "$(sample_said "^context")"
	sample_said . >> "$CQ_LOG"
	sample_said "^context $name: $COMPLETIONS completions, $messages messages, $total bytes, $total verified, 0 async" \
		> /dev/null || { cq_bad "not all completions, or wrong data"; return; }
	sample_said "^removed, $DEPTH requests flushed" > /dev/null || {
		cq_bad "the receive requests did not come back"
		return
	}

	cq_report "$ctx"
	cq_expect "$ctx" || return
	for c in $CQ_CONTEXTS; do
		cq_note "$c: allocated ${CQ_N[$c]}, freed ${CQ_FREED[$c]}"
		if [ "$c" = "$ctx" ]; then
			[ "${CQ_N[$c]}" -eq 1 ] || { cq_bad "${CQ_N[$c]} queues in $c"; return; }
			[ "${CQ_FREED[$c]}" -eq 1 ] || { cq_bad "the queue in $c was not freed"; return; }
			[ "${CQ_COMP[$c]}" -ge "$COMPLETIONS" ] || { cq_bad "too few completions in $c"; return; }
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
	sample_mark spoiled
	sample_load poll_ctx=1 completions=100 spoil=1 || return
	sample_wait "^context" || { sample_unload; return "$KSFT_FAIL"; }
	sample_unload || return
	sample_said "^context softirq: 100 completions, 50 messages, 204800 bytes, 0 verified" \
		>> "$CQ_LOG" || cq_bad "wrong data were not noticed"
}

t_sizes()
{
	local size

	if sample_skips; then return "$KSFT_SKIP"; fi
	for size in 1 3 4095 65537 1048576; do
		sample_mark "size $size"
		sample_load poll_ctx=3 completions=20 "bytes=$size" depth=2 || return
		sample_wait "^context" || { sample_unload; return "$KSFT_FAIL"; }
		sample_unload || return
		sample_said "^context unbound workqueue: 20 completions, 10 messages, $((10 * size)) bytes, $((10 * size)) verified" \
			>> "$CQ_LOG" || { cq_bad "$size bytes: wrong"; return; }
	done
}

t_bad_parameters()
{
	local p

	for p in poll_ctx=4 poll_ctx=4294967295 completions=0 bytes=0 bytes=1048577 depth=0 depth=1025; do
		if modprobe "$MODULE" "$p" 2>> "$CQ_LOG"; then
			sample_unload
			cq_bad "$p was accepted"
			return
		fi
	done
}

# More than the device can do: an error for this device, and nothing else.
t_too_deep()
{
	local max

	if sample_skips; then return "$KSFT_SKIP"; fi
	max=$(ibv_devinfo -v -d "$CQ_DEV" 2>/dev/null | awk '$1 == "max_cqe:" { print $2 }')
	cq_note "max_cqe: ${max:-unknown}"
	sample_mark deep
	sample_load depth=1024 completions=4 || return
	sample_wait "^context .* 4 completions, .* 8192 verified|^no session: " ||
		{ sample_unload; return "$KSFT_FAIL"; }
	sample_said . >> "$CQ_LOG"
	sample_unload
}

t_rename()
{
	if sample_skips; then return "$KSFT_SKIP"; fi
	sample_mark rename
	sample_load completions=2 || return
	sample_wait "^context" || { sample_unload; return "$KSFT_FAIL"; }
	cq_do rdma dev set "$CQ_DEV" name cqrenamed
	cq_do rdma dev set cqrenamed name "$CQ_DEV"
	sample_wait "^renamed" || { sample_unload; return "$KSFT_FAIL"; }
	sample_unload
}

t_remove()
{
	local ctx

	if sample_skips; then return "$KSFT_SKIP"; fi
	for ctx in 0 1 2 3; do
		sample_mark "remove $ctx"
		sample_load "poll_ctx=$ctx" "depth=$DEPTH" || return
		sample_wait "^context" || { sample_unload; return "$KSFT_FAIL"; }
		cq_do cq_limit 30 rdma link delete "$CQ_DEV" || { sample_unload; return "$KSFT_FAIL"; }
		sample_wait "^removed, $DEPTH requests flushed" || { sample_unload; return "$KSFT_FAIL"; }
		cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV" || {
			sample_unload
			cq_bad "the device is still there"
			return
		}
		# It has to find the new one by itself.
		sample_mark "again $ctx"
		cq_link_add "$CQ_DEV" "$CQ_IF" "$CQ_IP" || { sample_unload; return "$KSFT_FAIL"; }
		sample_wait "^context .* $COMPLETIONS completions" || { sample_unload; return "$KSFT_FAIL"; }
		sample_unload || return
	done
}

t_remove_busy()
{
	local ctx

	if sample_skips; then return "$KSFT_SKIP"; fi
	for ctx in 0 1 2 3; do
		sample_mark "busy $ctx"
		sample_load "poll_ctx=$ctx" "completions=$ENDLESS" || return
		sleep 0.3
		cq_do cq_limit 30 rdma link delete "$CQ_DEV" || { sample_unload; return "$KSFT_FAIL"; }
		sample_wait "^removed while busy" || { sample_unload; return "$KSFT_FAIL"; }
		sample_wait "^removed, " || { sample_unload; return "$KSFT_FAIL"; }
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
	for ctx in 0 1 2 3; do
		sample_mark "unload $ctx"
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

# Under the feet of the traffic: packets are lost for good.
t_link_gone()
{
	local rc=0

	if sample_skips; then return "$KSFT_SKIP"; fi
	sample_mark gone
	sample_load poll_ctx=1 "completions=$ENDLESS" || return
	sleep 0.3
	cq_do ip link del "$CQ_IF"
	cq_wait 30 test ! -d "/sys/class/infiniband/$CQ_DEV" ||
		cq_bad "the device is still there" || rc=1
	sample_wait "^removed, " || rc=1
	sample_said . >> "$CQ_LOG"
	sample_unload || rc=1
	return "$rc"
}

end_unloaded()
{
	cq_rmmod "$MODULE"
}

cq_init sample
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
	t_too_deep "the deepest queue" \
	t_rename "device renamed" \
	t_remove "device removed, and added again" \
	t_remove_busy "device removed while busy" \
	t_unload_busy "module unloaded while busy" \
	t_link_gone "network device gone while busy" \
	end_unloaded "module is gone" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
