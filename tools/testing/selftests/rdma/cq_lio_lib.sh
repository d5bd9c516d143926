# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A RAM disk of the kernel's SCSI target, and how to find it again as a disk
# of the initiator.

LIO=/sys/kernel/config/target
LIO_STORE=$LIO/core/rd_mcp_77/cq
LIO_SERIAL=c0ffee00-0077-4c51-9000-00000000cafe
LIO_DEV=

cq_lio_up()
{
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	cq_modprobe target_core_mod || return
	cq_defer cq_lio_down
	cq_do mkdir -p "$LIO_STORE" || return
	# 32 MiB
	cq_put rd_pages=8192 "$LIO_STORE/control" || return
	cq_put 1 "$LIO_STORE/enable" || return
	cq_put "$LIO_SERIAL" "$LIO_STORE/wwn/vpd_unit_serial"
}

cq_lio_down()
{
	[ ! -d "$LIO_STORE" ] || cq_do rmdir "$LIO_STORE"
	[ ! -d "${LIO_STORE%/*}" ] || cq_do rmdir "${LIO_STORE%/*}"
}

# Only the disk with our serial number is ever written to.
cq_lio_find()
{
	local d

	for d in /sys/block/sd*; do
		if grep -qsa "$LIO_SERIAL" "$d/device/vpd_pg80"; then
			LIO_DEV=/dev/${d##*/}
			[ -b "$LIO_DEV" ]
			return
		fi
	done
	return 1
}
