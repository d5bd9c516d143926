#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# iSCSI over RDMA: the initiator takes SOFTIRQ queues from the pool, the
# target WORKQUEUE ones.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_lio_lib.sh
. "$(dirname "$0")/cq_lio_lib.sh"

IQN=iqn.2026-01.org.kernel.selftest:cq
TPG=$LIO/iscsi/$IQN/tpgt_1
NP=$CQ_IP:3260

iser_target_down()
{
	[ -d "$TPG" ] || return 0
	cq_put 0 "$TPG/enable"
	cq_do rmdir "$TPG/np/$NP"
	cq_do rm "$TPG/lun/lun_0/cq"
	cq_do rmdir "$TPG/lun/lun_0"
	cq_do rmdir "$TPG"
	cq_do rmdir "$LIO/iscsi/$IQN"
}

t_target()
{
	cq_mark iser
	cq_lio_up || return "$CQ_FATAL"
	cq_modprobe iscsi_target_mod || return "$CQ_FATAL"
	cq_modprobe ib_isert || return "$CQ_FATAL"
	cq_defer iser_target_down
	cq_do mkdir -p "$TPG/lun/lun_0" "$TPG/np/$NP" || return "$CQ_FATAL"
	cq_do ln -s "$LIO_STORE" "$TPG/lun/lun_0/cq" || return "$CQ_FATAL"
	cq_put 0 "$TPG/attrib/authentication"
	cq_put 1 "$TPG/attrib/generate_node_acls"
	cq_put 0 "$TPG/attrib/demo_mode_write_protect"
	cq_put 1 "$TPG/attrib/cache_dynamic_acls"
	cq_put 1 "$TPG/np/$NP/iser" || return "$CQ_FATAL"
	cq_put 1 "$TPG/enable" || return "$CQ_FATAL"
}

node()
{
	cq_limit 40 iscsiadm -m node -T "$IQN" -p "$NP" "$@"
}

t_login()
{
	local d

	cq_modprobe ib_iser || return "$CQ_FATAL"
	cq_modprobe sd_mod || return "$CQ_FATAL"
	# Settings and records of our own; nobody else sees these mounts.
	mkdir -p /etc/iscsi /var/lib/iscsi /run/lock
	for d in /etc/iscsi /var/lib/iscsi /run/lock; do
		cq_do mount -t tmpfs none "$d" || return "$CQ_FATAL"
	done
	echo "InitiatorName=$IQN-host" > /etc/iscsi/initiatorname.iscsi
	echo "node.startup = manual" > /etc/iscsi/iscsid.conf
	cq_daemon iscsid -f
	cq_do cq_wait 10 iscsiadm -m iface || return "$CQ_FATAL"
	cq_do node -o new || return "$CQ_FATAL"
	cq_do node -o update -n iface.transport_name -v iser || return "$CQ_FATAL"
	cq_defer "node -u"
	cq_do node -l || return "$CQ_FATAL"
	cq_wait 20 cq_lio_find || return "$CQ_FATAL"
	cq_lio_find
	cq_note "disk $LIO_DEV"
}

t_fio_8k()
{
	cq_fio_verify "$LIO_DEV" 8k 2m "$LIO_DEV" --ioengine=libaio --iodepth=8
}

t_fio_256k()
{
	cq_fio_verify "$LIO_DEV" 256k 8m "$LIO_DEV" --ioengine=libaio --iodepth=4
}

t_mkfs()
{
	cq_mkfs_verify "$LIO_DEV" 2048
}

t_logout()
{
	cq_do node -u
}

t_contexts()
{
	cq_report iser
	cq_expect SOFTIRQ WORKQUEUE
}

end_unload()
{
	iser_target_down
	cq_rmmod ib_iser && cq_rmmod ib_isert
}

cq_init iser
cq_need_device
cq_need iscsid iscsiadm fio mkfs.ext4
cq_need_module ib_iser ib_isert iscsi_target_mod sd_mod
[ "$DEV_TYPE" = rxe ] ||
	cq_skip_all "the target first listens by TCP, and siw needs the same port"
cq_main \
	t_device "device and MAD layer" \
	t_target "target" \
	t_login "log in" \
	t_fio_8k "8 KiB random writes verified" \
	t_fio_256k "256 KiB random writes verified" \
	t_mkfs "ext4 with a file and its checksum" \
	t_logout "log out" \
	t_contexts "SOFTIRQ and WORKQUEUE were used" \
	end_unload "modules unload" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
