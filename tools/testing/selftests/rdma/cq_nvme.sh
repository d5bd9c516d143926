#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NVMe over RDMA: DIRECT (poll queues), SOFTIRQ (host) and WORKQUEUE (target).

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_nvme_lib.sh
. "$(dirname "$0")/cq_nvme_lib.sh"

t_target()
{
	cq_mark nvme
	cq_nvme_target_up 64 || return "$CQ_FATAL"
}

t_connect()
{
	cq_nvme_connect -i 2 -P 1 || return "$CQ_FATAL"
}

t_fio_4k()
{
	cq_fio_verify "$NVME_DEV" 4k 2m "$NULL_DEV" --ioengine=libaio --iodepth=16
}

t_fio_128k()
{
	cq_fio_verify "$NVME_DEV" 128k 8m "$NULL_DEV" --ioengine=libaio --iodepth=4
}

t_polled()
{
	cq_nvme_polled 512k
}

# What is written by polled requests must be what is read.
t_polled_verify()
{
	cq_fio_verify "$NVME_DEV" 4k 512k "$NULL_DEV" --ioengine=io_uring --hipri=1 --iodepth=4
}

t_mkfs()
{
	cq_mkfs_verify "$NVME_DEV" 4096
}

t_reset()
{
	cq_do cq_limit 30 nvme reset "/dev/$NVME_CTRL" || return
	cq_wait 20 cq_nvme_find || { cq_bad "not live after the reset"; return; }
	cq_fio_verify "$NVME_DEV" 4k 1m "$NULL_DEV" --ioengine=libaio --iodepth=4
}

t_disconnect()
{
	cq_nvme_disconnect && cq_nvme_gone
}

t_contexts()
{
	cq_report nvme
	cq_expect DIRECT SOFTIRQ WORKQUEUE
}

end_unload()
{
	cq_nvme_disconnect
	cq_nvme_target_down
	cq_rmmod nvme-rdma && cq_rmmod nvmet-rdma
}

cq_init nvme
cq_nvme_need
cq_main \
	t_device "device and MAD layer" \
	t_target "target" \
	t_connect "connect with 2 queues and 1 poll queue" \
	t_fio_4k "4 KiB random writes verified" \
	t_fio_128k "128 KiB random writes verified" \
	t_polled "polled reads" \
	t_polled_verify "polled random writes verified" \
	t_mkfs "ext4 with a file and its checksum" \
	t_reset "controller reset" \
	t_disconnect "disconnect" \
	t_contexts "DIRECT, SOFTIRQ and WORKQUEUE were used" \
	end_unload "modules unload" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
