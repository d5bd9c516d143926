#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# SCSI RDMA Protocol: the initiator has a SOFTIRQ queue for receiving and a
# DIRECT one for sending, the target takes WORKQUEUE ones from the pool.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"
# shellcheck source=cq_lio_lib.sh
. "$(dirname "$0")/cq_lio_lib.sh"

PORT=5555
SRPT=$LIO/srpt
TPG=

srp_target_down()
{
	[ -n "$TPG" ] && [ -d "$TPG" ] || return 0
	cq_put 0 "$TPG/enable"
	cq_do rm "$TPG/acls/$CQ_IP/lun_0/cq"
	cq_do rmdir "$TPG/acls/$CQ_IP/lun_0"
	cq_do rmdir "$TPG/acls/$CQ_IP"
	cq_do rm "$TPG/lun/lun_0/cq"
	cq_do rmdir "$TPG/lun/lun_0"
	cq_do rmdir "$TPG"
	cq_do rmdir "${TPG%/*}"
}

t_target()
{
	local guid

	cq_mark srp
	cq_lio_up || return "$CQ_FATAL"
	cq_modprobe ib_srpt || return "$CQ_FATAL"
	cq_defer "[ ! -d $SRPT ] || rmdir $SRPT"
	[ -d "$SRPT" ] || cq_do mkdir "$SRPT" || return "$CQ_FATAL"
	cq_put "$PORT" "$SRPT/discovery_auth/rdma_cm_port" || return "$CQ_FATAL"
	guid=$(cut -d: -f5-8 "/sys/class/infiniband/$CQ_DEV/ports/1/gids/0")
	TPG=$SRPT/$guid/$guid
	cq_defer srp_target_down
	cq_do mkdir -p "$TPG/lun/lun_0" || return "$CQ_FATAL"
	cq_do ln -s "$LIO_STORE" "$TPG/lun/lun_0/cq" || return "$CQ_FATAL"
	# Without a rule for the initiator the log in is refused.
	cq_do mkdir -p "$TPG/acls/$CQ_IP/lun_0" || return "$CQ_FATAL"
	cq_do ln -s "$TPG/lun/lun_0" "$TPG/acls/$CQ_IP/lun_0/cq" || return "$CQ_FATAL"
	cq_put 1 "$TPG/enable" || return "$CQ_FATAL"
}

srp_logout()
{
	local r

	for r in /sys/class/srp_remote_ports/*/delete; do
		[ ! -e "$r" ] || cq_put 1 "$r"
	done
	cq_wait 20 srp_gone
}

srp_gone()
{
	! compgen -G '/sys/class/srp_remote_ports/*' > /dev/null
}

t_login()
{
	local id

	srp_gone || { CQ_DEAD="SRP is in use here"; cq_skip "$CQ_DEAD"; return; }
	cq_modprobe ib_srp || return "$CQ_FATAL"
	cq_modprobe sd_mod || return "$CQ_FATAL"
	id=$(printf %016x "$(cat /sys/module/ib_srpt/parameters/srpt_service_guid)")
	cq_defer srp_logout
	cq_wait 10 test -e "/sys/class/infiniband_srp/srp-$CQ_DEV-1/add_target" ||
		return "$CQ_FATAL"
	cq_put "id_ext=$id,ioc_guid=$id,dest=$CQ_IP:$PORT" \
		"/sys/class/infiniband_srp/srp-$CQ_DEV-1/add_target" || return "$CQ_FATAL"
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

t_contexts()
{
	cq_report srp
	cq_expect DIRECT SOFTIRQ WORKQUEUE
}

end_unload()
{
	srp_logout || return
	srp_target_down
	cq_rmmod ib_srp && {
		[ ! -d "$SRPT" ] || cq_do rmdir "$SRPT"
		cq_rmmod ib_srpt
	}
}

cq_init srp
cq_need_device
cq_need fio mkfs.ext4
cq_need_module ib_srp ib_srpt sd_mod
[ "$DEV_TYPE" = rxe ] || cq_skip_all "the target names its ports by RoCE GIDs"
cq_main \
	t_device "device and MAD layer" \
	t_target "target" \
	t_login "log in over the CM" \
	t_fio_8k "8 KiB random writes verified" \
	t_fio_256k "256 KiB random writes verified" \
	t_mkfs "ext4 with a file and its checksum" \
	srp_logout "log out" \
	t_contexts "DIRECT, SOFTIRQ and WORKQUEUE were used" \
	end_unload "modules unload" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
