# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NVMe over RDMA with both ends on one device: a target on a null_blk device
# that keeps its data, and a host. The host takes SOFTIRQ queues from the
# pool and DIRECT ones for its poll queues, the target WORKQUEUE ones.

NVME_NQN=nqn.2026-01.org.kernel.selftest:cq
NVME_HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:6f1d4a36-1a0c-4d7a-9d0e-c0ffee00c0de
NVME_HOSTID=6f1d4a36-1a0c-4d7a-9d0e-c0ffee00c0de
NVME_CFG=/sys/kernel/config/nvmet
NVME_PORT=4420
NVME_CTRL=
NVME_DEV=
NULL_DEV=

cq_nvme_need()
{
	cq_need_device
	cq_need nvme fio mkfs.ext4
	cq_need_module nvmet-rdma nvme-rdma null_blk
}

# A null_blk device of $1 MiB that keeps what is written, and takes $2 ns for each
# request if that is given; sets NULL_DEV.
cq_null_up()
{
	local d=/sys/kernel/config/nullb/cqnull

	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	cq_modprobe null_blk nr_devices=0 || return
	cq_do mkdir "$d" || return
	cq_defer cq_null_down
	cq_put "$1" "$d/size" && cq_put 1 "$d/memory_backed" && cq_put 512 "$d/blocksize" &&
		cq_put "$((${2:-0} ? 2 : 1))" "$d/irqmode" &&
		cq_put "${2:-10000}" "$d/completion_nsec" && cq_put 1 "$d/power" || return
	NULL_DEV=/dev/cqnull
	[ -b "$NULL_DEV" ] || NULL_DEV=/dev/nullb$(cat "$d/index")
	cq_wait 5 test -b "$NULL_DEV"
}

cq_null_down()
{
	local d=/sys/kernel/config/nullb/cqnull

	[ ! -d "$d" ] || cq_do rmdir "$d"
}

cq_nvme_target_up()
{
	cq_modprobe nvmet || return
	cq_modprobe nvmet-rdma || return
	cq_modprobe nvme-rdma || return
	cq_null_up "${1:-64}" || return
	cq_defer cq_nvme_target_down
	cq_do mkdir "$NVME_CFG/subsystems/$NVME_NQN" || return
	cq_put 1 "$NVME_CFG/subsystems/$NVME_NQN/attr_allow_any_host"
	cq_do mkdir "$NVME_CFG/subsystems/$NVME_NQN/namespaces/1" || return
	cq_put "$NULL_DEV" "$NVME_CFG/subsystems/$NVME_NQN/namespaces/1/device_path" || return
	cq_put 1 "$NVME_CFG/subsystems/$NVME_NQN/namespaces/1/enable" || return
	cq_do mkdir "$NVME_CFG/ports/1" || return
	cq_put rdma "$NVME_CFG/ports/1/addr_trtype"
	cq_put ipv4 "$NVME_CFG/ports/1/addr_adrfam"
	cq_put "$CQ_IP" "$NVME_CFG/ports/1/addr_traddr"
	cq_put "$NVME_PORT" "$NVME_CFG/ports/1/addr_trsvcid"
	cq_do ln -s "$NVME_CFG/subsystems/$NVME_NQN" "$NVME_CFG/ports/1/subsystems/$NVME_NQN"
}

cq_nvme_target_down()
{
	[ ! -e "$NVME_CFG/ports/1/subsystems/$NVME_NQN" ] ||
		cq_do rm "$NVME_CFG/ports/1/subsystems/$NVME_NQN"
	[ ! -d "$NVME_CFG/ports/1" ] || cq_do rmdir "$NVME_CFG/ports/1"
	if [ -d "$NVME_CFG/subsystems/$NVME_NQN" ]; then
		if [ -d "$NVME_CFG/subsystems/$NVME_NQN/namespaces/1" ]; then
			cq_put 0 "$NVME_CFG/subsystems/$NVME_NQN/namespaces/1/enable"
			cq_do rmdir "$NVME_CFG/subsystems/$NVME_NQN/namespaces/1"
		fi
		cq_do rmdir "$NVME_CFG/subsystems/$NVME_NQN"
	fi
	cq_null_down
}

cq_nvme_find()
{
	local d

	for d in /sys/class/nvme/nvme*; do
		if [ "$(cat "$d/subsysnqn" 2>/dev/null)" = "$NVME_NQN" ]; then
			NVME_CTRL=${d##*/}
			NVME_DEV=/dev/${NVME_CTRL}n1
			[ "$(cat "$d/state")" = live ] && [ -b "$NVME_DEV" ]
			return
		fi
	done
	return 1
}

# cq_nvme_connect [OPTIONS...]
cq_nvme_connect()
{
	cq_defer cq_nvme_disconnect
	cq_do cq_limit 30 nvme connect -t rdma -a "$CQ_IP" -s "$NVME_PORT" -n "$NVME_NQN" \
		--hostnqn="$NVME_HOSTNQN" --hostid="$NVME_HOSTID" "$@" || return
	cq_wait 10 cq_nvme_find
	# In this shell, for the variables.
	cq_nvme_find
}

cq_nvme_gone()
{
	[ ! -e "/sys/class/nvme/${NVME_CTRL:-none}" ]
}

cq_nvme_disconnect()
{
	cq_nvme_find || [ -n "$NVME_CTRL" ] || return 0
	cq_nvme_gone && return 0
	cq_do cq_limit 30 nvme disconnect -n "$NVME_NQN"
	cq_wait 10 cq_nvme_gone
}

# Reads through the poll queues: the only user of the DIRECT context here.
cq_nvme_polled()
{
	cq_do cq_limit 60 fio --name=p --filename="$NVME_DEV" --rw=randread --bs=4k \
		--size="$(cq_few "$(numfmt --from=iec "${1^^}")")" \
		--direct=1 --ioengine=io_uring --hipri=1 --iodepth=4 \
		--allow_file_create=0 --eta=never --output=/dev/null
}
