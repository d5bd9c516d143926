#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NFS over RDMA: client and server have two WORKQUEUE queues each.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

NFSD=/proc/fs/nfsd
PIPEFS=/var/lib/nfs/rpc_pipefs

t_server()
{
	cq_mark nfs
	cq_modprobe rpcrdma || return "$CQ_FATAL"
	cq_modprobe nfsd || return "$CQ_FATAL"
	# The daemons' state is private to this mount namespace.
	mkdir -p /var/lib/nfs
	cq_do mount -t tmpfs none /var/lib/nfs || return "$CQ_FATAL"
	mkdir -p "$PIPEFS" /var/lib/nfs/nfsdcld /var/lib/nfs/v4recovery
	: > /var/lib/nfs/etab
	: > /var/lib/nfs/rmtab
	cq_do mount -t rpc_pipefs rpc_pipefs "$PIPEFS" || return "$CQ_FATAL"
	cq_defer "umount $PIPEFS"
	mountpoint -q "$NFSD" || cq_do mount -t nfsd none "$NFSD" || return "$CQ_FATAL"
	cq_defer "umount $NFSD"
	if [ "$(cat "$NFSD/threads")" -ne 0 ]; then
		CQ_DEAD="an NFS server is running here"
		cq_skip "$CQ_DEAD"
		return
	fi
	mkdir -p "$CQ_TMP/export" "$CQ_TMP/mnt"
	cq_do mount -t tmpfs none "$CQ_TMP/export" || return "$CQ_FATAL"
	cq_defer "umount $CQ_TMP/export"
	# The first open waits for the end of the grace period, 90 s by default.
	# With nfsdcld there is none, because no client is known.
	cq_put 10 "$NFSD/nfsv4leasetime"
	cq_put 10 "$NFSD/nfsv4gracetime"
	if command -v nfsdcld > /dev/null; then
		cq_daemon nfsdcld -F -p "$PIPEFS" -s /var/lib/nfs/nfsdcld
	fi
	cq_daemon rpc.mountd -F -N 3 -V 4
	cq_do exportfs -i -o rw,no_root_squash,fsid=0,insecure,no_subtree_check \
		"$CQ_IP:$CQ_TMP/export" || return "$CQ_FATAL"
	cq_defer "exportfs -f"
	cq_defer "cq_limit 20 sh -c 'echo 0 > $NFSD/threads'"
	cq_do cq_limit 20 rpc.nfsd -N 3 -V 4 -V 4.2 2 || return "$CQ_FATAL"
	cq_put "rdma 20049" "$NFSD/portlist" || return "$CQ_FATAL"
	grep -q "rdma 20049" "$NFSD/portlist" || return "$CQ_FATAL"
}

nfs_mount()
{
	cq_do cq_limit 40 mount -t nfs -o "vers=4.2,proto=rdma,port=20049,timeo=100,$1" \
		"$CQ_IP:/" "$CQ_TMP/mnt"
}

nfs_umount()
{
	grep -q " $CQ_TMP/mnt " /proc/self/mounts || return 0
	cq_limit 20 umount -f "$CQ_TMP/mnt" || umount -l "$CQ_TMP/mnt"
}

t_mount()
{
	cq_defer "nfs_umount"
	nfs_mount rw || return "$CQ_FATAL"
	grep -q " $CQ_TMP/mnt nfs4 .*proto=rdma" /proc/self/mounts ||
		cq_bad "the mount does not use RDMA"
}

t_write()
{
	cq_noise "$CQ_TMP/noise" "$(cq_few 4096)" || return "$CQ_FATAL"
	cq_do cq_limit 60 cp "$CQ_TMP/noise" "$CQ_TMP/mnt/file" || return "$CQ_FATAL"
	cq_do cq_limit 60 sync -f "$CQ_TMP/mnt/file" || return "$CQ_FATAL"
	# The server's copy, not read through NFS.
	[ "$(cq_sum "$CQ_TMP/export/file")" = "$(cq_sum "$CQ_TMP/noise")" ] ||
		cq_bad "the server has something else"
}

t_read()
{
	local sum

	[ "$SELFTEST_BREAK" != 1 ] || cq_spoil "$CQ_TMP/export/file"
	# A new mount has an empty cache.
	cq_do cq_limit 40 umount "$CQ_TMP/mnt" || return "$CQ_FATAL"
	nfs_mount ro || return "$CQ_FATAL"
	sum=$(cq_limit 60 sha256sum "$CQ_TMP/mnt/file" | cut -d' ' -f1)
	[ "$sum" = "$(cq_sum "$CQ_TMP/noise")" ] || cq_bad "the checksum changed"
}

t_many()
{
	local i

	cq_do cq_limit 40 mount -o remount,rw "$CQ_TMP/mnt" || return
	for i in $(seq "$(cq_few 50)"); do
		echo "small file $i" > "$CQ_TMP/mnt/f$i" || return
	done
	for i in $(seq "$(cq_few 50)"); do
		[ "$(cat "$CQ_TMP/export/f$i")" = "small file $i" ] ||
			{ cq_bad "file $i differs"; return; }
	done
	cq_do cq_limit 60 rm "$CQ_TMP"/mnt/f*
}

t_umount()
{
	cq_do cq_limit 40 umount "$CQ_TMP/mnt"
}

t_contexts()
{
	cq_report nfs
	cq_expect WORKQUEUE || return
	# Two of the client and two of the server.
	[ "${CQ_USED[WORKQUEUE]}" -ge 4 ] ||
		cq_bad "${CQ_USED[WORKQUEUE]} queues instead of 4 or more were used"
}

t_stop()
{
	cq_put 0 "$NFSD/threads" && [ "$(cat "$NFSD/threads")" -eq 0 ]
}

cq_init nfs
cq_need_device
cq_need mount.nfs rpc.nfsd rpc.mountd exportfs
cq_need_module rpcrdma nfsd nfsv4
cq_main \
	t_device "device and MAD layer" \
	t_server "server" \
	t_mount "mount" \
	t_write "write, server has the checksum" \
	t_read "read back after a new mount" \
	t_many "many small files" \
	t_umount "unmount" \
	t_contexts "WORKQUEUE was used by client and server" \
	t_stop "server stops" \
	end_all_freed "all queues freed" \
	end_no_warning "no complaint of the kernel"
