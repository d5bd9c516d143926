#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What happens when the ground is pulled away: devices deleted under traffic,
# modules unloaded while queues live, queues made and destroyed while their
# list is read.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"

# delete_module(2) itself: rmmod would not even try when there are holders.
# The answer is the errno.
delete_module()
{
	python3 -c '
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
rc = libc.syscall(176, sys.argv[1].encode(), os.O_NONBLOCK)
print(ctypes.get_errno() if rc else 0)' "$1"
}

t_busy()
{
	local e

	[ "$(uname -m)" = x86_64 ] || {
		cq_skip "system call number known for x86-64 only"
		return
	}
	e=$(delete_module ib_core)
	# EWOULDBLOCK or EBUSY
	[ "$e" -eq 11 ] || [ "$e" -eq 16 ] || { cq_bad "errno $e"; return; }
	[ -d "/sys/class/infiniband/$CQ_DEV" ]
}

t_add_del()
{
	local i

	for i in $(seq "$LOOPS"); do
		cq_t1_down || return
		cq_t1_up || { cq_bad "round $i"; return; }
	done
}

# The list of queues is read all the time while devices, with the queues of
# the MAD layer, and queues of user space come and go.
t_res_show()
{
	local pid i rc=0 n
	local -a kind=(cq qp pd mr cm_id)

	cq_ends t1
	(
		n=0
		while [ ! -e "$CQ_TMP/stop" ]; do
			rdma resource show cq -dd > "$CQ_TMP/res" 2>> "$CQ_TMP/res.err" ||
				echo fail >> "$CQ_TMP/res.fail"
			[ ! -s "$CQ_TMP/res" ] || n=$((n + 1))
			rdma resource show "${kind[n % 5]}" > /dev/null 2>&1
		done
		echo "$n" > "$CQ_TMP/res.n"
	) &
	pid=$!
	for i in $(seq "$((LOOPS / 2))"); do
		if ! cq_t1_down || ! cq_t1_up || ! cq_rping 5 1000; then
			rc=1
			break
		fi
	done
	touch "$CQ_TMP/stop"
	wait "$pid"
	n=$(cat "$CQ_TMP/res.n")
	cq_note "$n lists with queues were read"
	[ "$rc" -eq 0 ] || return "$rc"
	[ "$n" -gt 0 ] || [ "$DEV_TYPE" = siw ] || cq_bad "no queue was ever seen"
}

# A user space pair is in the middle of traffic.
t_del_user()
{
	local srv cli del rc=0

	cq_ends t1
	cq_new_port
	cq_limit 60 rping -s -a "$CQ_IP" -p "$CQ_PORT" > "$CQ_TMP/srv" 2>&1 &
	srv=$!
	cq_wait 10 cq_listening "$srv" "$CQ_PORT"
	cq_limit 60 rping -c -a "$CQ_IP" -p "$CQ_PORT" -v > "$CQ_TMP/cli" 2>&1 &
	cli=$!
	cq_wait 10 grep -q 'ping data' "$CQ_TMP/cli" || { cq_bad "no traffic"; rc=1; }
	cq_limit 30 rdma link delete "$CQ_DEV" &
	del=$!
	# siw cannot take a device away from its users, it waits for them.
	sleep 1
	kill "$cli" "$srv" 2>/dev/null
	wait "$cli" "$srv"
	wait "$del" || { cq_bad "the device could not be deleted"; rc=1; }
	cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV" ||
		{ cq_bad "the device is still there"; rc=1; }
	cq_t1_down
	cq_t1_up || rc=$CQ_FATAL
	return "$rc"
}

t_del_nvme()
{
	local pid rc=0

	cq_mark nvme
	cq_nvme_target_up 64 || return
	cq_nvme_connect -i 2 -P 1 --ctrl-loss-tmo=5 --reconnect-delay=1 \
		--fast_io_fail_tmo=1 || return
	cq_limit 60 fio --name=t --filename="$NVME_DEV" --rw=randrw --bs=4k --size=16m \
		--direct=1 --ioengine=libaio --iodepth=8 --time_based --runtime=40 \
		--allow_file_create=0 --eta=never --output=/dev/null >> "$CQ_LOG" 2>&1 &
	pid=$!
	sleep "$((2 * CQ_SCALE))"
	kill -0 "$pid" 2>/dev/null || { cq_bad "no traffic"; rc=1; }
	cq_do cq_limit 40 rdma link delete "$CQ_DEV" || {
		cq_bad "the device could not be deleted"
		rc=1
	}
	cq_wait 20 test ! -d "/sys/class/infiniband/$CQ_DEV" ||
		{ cq_bad "the device is still there"; rc=1; }
	# The requests in flight must end, with an error.
	if wait "$pid"; then
		cq_bad "fio saw no error" || rc=1
	fi
	cq_nvme_disconnect
	cq_wait 20 cq_nvme_gone || { cq_bad "the controller is still there"; rc=1; }
	cq_nvme_target_down
	cq_count all
	for pid in $CQ_CONTEXTS; do
		[ "${CQ_N[$pid]}" -eq "${CQ_FREED[$pid]}" ] ||
			{ cq_bad "$pid: ${CQ_N[$pid]} allocated, ${CQ_FREED[$pid]} freed"; rc=1; }
	done
	cq_t1_down
	cq_t1_up || rc=$CQ_FATAL
	return "$rc"
}

# Unloading the driver of the device, with an NVMe controller on it.
t_unload_driver()
{
	local m=rdma_rxe rc=0

	if [ "$DEV_TYPE" = siw ]; then
		cq_skip "siw then keeps references to its network device, with any core"
		return
	fi
	cq_nvme_target_up 64 || return
	cq_nvme_connect -i 2 --ctrl-loss-tmo=5 --reconnect-delay=1 || return
	cq_fio_verify "$NVME_DEV" 4k 256k "$NULL_DEV" --ioengine=libaio --iodepth=4 || rc=1
	cq_do cq_limit 40 rmmod "$m" || { cq_bad "rmmod failed"; rc=1; }
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ] || { cq_bad "the device is still there"; rc=1; }
	cq_nvme_disconnect
	cq_wait 20 cq_nvme_gone || { cq_bad "the controller is still there"; rc=1; }
	cq_nvme_target_down
	cq_t1_down
	cq_do modprobe "$m" || return "$CQ_FATAL"
	cq_t1_up || rc=$CQ_FATAL
	return "$rc"
}

# Everything unloads when the last queue is gone, and loads again.
t_unload_all()
{
	local m all
	local -a mods=()

	cq_t1_down
	cq_count all
	for m in $CQ_CONTEXTS; do
		[ "${CQ_N[$m]}" -eq "${CQ_FREED[$m]}" ] ||
			{ cq_bad "$m: ${CQ_N[$m]} allocated, ${CQ_FREED[$m]} freed"; return; }
	done
	cq_trace_off
	for all in 1 2 3 4 5 6; do
		mods=()
		for m in /sys/module/ib_core/holders/* /sys/module/*; do
			m=${m##*/}
			case "$m" in
			nvme_rdma|nvmet_rdma|rpcrdma|rdma_rxe|siw|rdma_ucm|rdma_cm|iw_cm|\
			ib_*|rtrs_*)
				[ "$m" = ib_core ] || mods+=("$m") ;;
			esac
		done
		cq_loaded ib_core && mods+=(ib_core)
		[ "${#mods[@]}" -gt 0 ] || break
		for m in "${mods[@]}"; do
			[ "$(cat "/sys/module/$m/refcnt" 2>/dev/null)" != 0 ] || cq_do rmmod "$m"
		done
	done
	! cq_loaded ib_core || { cq_bad "ib_core does not unload, rounds: $all"; return; }
	cq_load_device_modules
}

end_gone()
{
	cq_t1_down
	[ ! -d "/sys/class/infiniband/$CQ_DEV" ]
}

cq_init teardown
LOOPS=${LOOPS:-$(cq_few 12)}
cq_nvme_need
cq_need rping python3
cq_main \
	t_device "device and MAD layer" \
	t_busy "ib_core does not unload under a device" \
	t_add_del "devices made and deleted $LOOPS times" \
	t_res_show "the list of queues read while they come and go" \
	t_del_user "device deleted under user space traffic" \
	t_del_nvme "device deleted under NVMe traffic, all queues freed" \
	t_unload_driver "driver unloaded under an NVMe controller" \
	t_unload_all "ib_core unloads after the last queue, and loads again" \
	end_gone "device gone" \
	end_no_warning "no complaint of the kernel"
