#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# RNBD over RTRS: the client has SOFTIRQ queues and DIRECT ones for its poll
# queues, the server WORKQUEUE ones.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"

RNBD_DEV=

t_server()
{
	cq_mark rnbd
	cq_null_up 64 || return "$CQ_FATAL"
	cq_modprobe rnbd-server dev_search_path=/dev || return "$CQ_FATAL"
}

rnbd_find()
{
	local d

	for d in /sys/block/rnbd*; do
		if [ "$(cat "$d/rnbd/session" 2>/dev/null)" = cq ]; then
			RNBD_DEV=/dev/${d##*/}
			[ "$(cat "$d/rnbd/state")" = open ] && [ -b "$RNBD_DEV" ]
			return
		fi
	done
	return 1
}

rnbd_unmap()
{
	rnbd_find || return 0
	cq_put normal "/sys/block/${RNBD_DEV#/dev/}/rnbd/unmap_device" ||
		cq_put force "/sys/block/${RNBD_DEV#/dev/}/rnbd/unmap_device"
	cq_wait 10 test ! -b "$RNBD_DEV"
}

t_map()
{
	cq_modprobe rnbd-client || return "$CQ_FATAL"
	cq_defer rnbd_unmap
	cq_put "sessname=cq path=ip:$CQ_IP device_path=${NULL_DEV#/dev/} nr_poll_queues=1" \
		/sys/class/rnbd-client/ctl/map_device || return "$CQ_FATAL"
	cq_wait 20 rnbd_find || return "$CQ_FATAL"
	rnbd_find
}

t_fio_4k()
{
	cq_fio_verify "$RNBD_DEV" 4k 2m "$NULL_DEV" --ioengine=libaio --iodepth=16
}

t_fio_128k()
{
	cq_fio_verify "$RNBD_DEV" 128k 8m "$NULL_DEV" --ioengine=libaio --iodepth=4
}

t_polled()
{
	cq_fio_verify "$RNBD_DEV" 4k 512k "$NULL_DEV" --ioengine=io_uring --hipri=1 --iodepth=4
}

t_mkfs()
{
	cq_mkfs_verify "$RNBD_DEV" 2048
}

t_contexts()
{
	cq_report rnbd
	cq_expect DIRECT SOFTIRQ WORKQUEUE
}

end_unload()
{
	rnbd_unmap
	cq_rmmod rnbd-client && cq_rmmod rnbd-server && cq_null_down
}

cq_init rnbd
cq_need_device
cq_need fio mkfs.ext4
cq_need_module rnbd-client rnbd-server null_blk
[ "$DEV_TYPE" = rxe ] || cq_skip_all "RTRS needs writes with immediate data, which iWARP has not"
cq_main \
	t_device "device and MAD layer" \
	t_server "server" \
	t_map "map with a poll queue" \
	t_fio_4k "4 KiB random writes verified" \
	t_fio_128k "128 KiB random writes verified" \
	t_polled "polled random writes verified" \
	t_mkfs "ext4 with a file and its checksum" \
	rnbd_unmap "unmap" \
	t_contexts "DIRECT, SOFTIRQ and WORKQUEUE were used" \
	end_unload "modules unload" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
