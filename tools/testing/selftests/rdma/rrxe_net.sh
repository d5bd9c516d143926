#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The network side of the RoCE driver in Rust: malformed packets are dropped
# and counted by reason, packets that are sent have the right ICRC, sockets
# come and go with devices and name spaces, and network devices, name spaces
# and the module can go while packets come in.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=rrxe
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

IP6_A=fd00:4791::1
IP6_B=fd00:4791::2
# On another interface of the same name space as the first one.
OTHER_IP=10.97.0.1
OTHER_IP6=fd00:4792::1
DROPS=/sys/kernel/debug/rrxe/drops
# When packets are sent as trains: 0 never, 1 where the device takes them, 2 always.
TRAINS=/sys/kernel/debug/rrxe/trains

# has_sockets NAMESPACE NUMBER
has_sockets()
{
	local n

	n=$(cq_roce_sockets "$1")
	[ "$n" = "$2" ] || cq_bad "$1 has $n sockets, not $2"
}

# The sum of a counter over all devices.
drops()
{
	tr ' ' '\n' < "$DROPS" | awk -F= -v name="$1" '$1 == name { n += $2 } END { print n + 0 }'
}

# The index of the GID of an IPv6 address, whose groups are written in full.
gid6()
{
	local i gid

	for i in {0..15}; do
		{ read -r gid < "/sys/class/infiniband/$1/ports/1/gids/$i"; } 2>/dev/null ||
			continue
		if [ "$gid" = "$2" ]; then
			echo "$i"
			return 0
		fi
	done
	return 1
}

t_up()
{
	cq_t2_up || return "$CQ_FATAL"
	cq_do ip -n cqa addr add "$IP6_A/64" dev cqva nodad || return "$CQ_FATAL"
	cq_do ip -n cqb addr add "$IP6_B/64" dev cqvb nodad || return "$CQ_FATAL"
	cq_do ip -n cqa link add cqother type dummy || return "$CQ_FATAL"
	cq_do ip -n cqa addr add "$OTHER_IP/24" dev cqother
	cq_do ip -n cqa addr add "$OTHER_IP6/64" dev cqother nodad
	cq_do ip -n cqa link set cqother up
	cq_ends t2 || return "$CQ_FATAL"
	cq_debugfs "$DROPS"
	[ -e "$DROPS" ] || return "$CQ_FATAL"
	# What goes along as a train has no ICRC that could be looked at.
	echo 0 > "$TRAINS" || return "$CQ_FATAL"
}

malformed()
{
	local mac

	python3 -c "import scapy.contrib.roce" 2>> "$CQ_LOG" || { cq_skip "no scapy"; return; }
	mac=$(ip netns exec cqa cat /sys/class/net/cqva/address)
	cq_do timeout -k 3 "$((60 * CQ_SCALE))" "$CQ_DIR/rrxe_packets.py" cqb cqvb "$mac" "$@"
}

t_malformed4()	{ malformed "$CQ_IP_B" "$CQ_IP_A" "$OTHER_IP"; }
t_malformed6()	{ malformed "$IP6_B" "$IP6_A" "$OTHER_IP6"; }

# Look at all that a tool sends: icrc COMMAND...
icrc()
{
	local pid rc=0

	"$CQ_DIR/rrxe_icrc.py" cqa cqva "$((CQ_LIMIT * CQ_SCALE))" 100 > "$CQ_TMP/icrc" 2>&1 &
	pid=$!
	cq_wait 10 grep -q ready "$CQ_TMP/icrc"
	"$@" || rc=1
	wait "$pid" || rc=1
	cat "$CQ_TMP/icrc" >> "$CQ_LOG"
	return "$rc"
}

t_icrc_rc()	{ icrc cq_pingpong rc 100 5000 check; }
t_icrc_ud()	{ icrc cq_pingpong ud 100 1000 check; }
t_icrc6()
{
	local rc=0

	cq_wait 5 gid6 cqda fd00:4791:0000:0000:0000:0000:0000:0001
	cq_wait 5 gid6 cqdb fd00:4791:0000:0000:0000:0000:0000:0002
	SRV_GID=$(gid6 cqda fd00:4791:0000:0000:0000:0000:0000:0001)
	CLI_GID=$(gid6 cqdb fd00:4791:0000:0000:0000:0000:0000:0002)
	[ -n "$SRV_GID" ] && [ -n "$CLI_GID" ] || { cq_bad "no GID"; return; }
	icrc cq_pingpong rc 100 5000 check || rc=1
	icrc cq_pingpong ud 100 1000 check || rc=1
	cq_ends t2
	return "$rc"
}

# Packets whose ICRC was made when the stack had to cut a train, as it has to
# where a device does not take it.
t_icrc_cut()
{
	local before rc=0

	command -v ethtool > /dev/null || { cq_skip "no ethtool"; return; }
	cq_offload off || return
	echo 2 > "$TRAINS"
	before=$(drops icrc)
	icrc cq_pingpong rc 100 5000 check || rc=1
	t_icrc6 || rc=1
	[ "$(drops icrc)" = "$before" ] || { cq_note "the receiver drops them"; rc=1; }
	echo 1 > "$TRAINS"
	cq_offload on
	return "$rc"
}

# Trains as a whole, which have no ICRC: that shows that they were sent at all.
t_trains()
{
	local seen

	echo 1 > "$TRAINS"
	cq_pingpong rc 100 5000 check || return
	"$CQ_DIR/rrxe_icrc.py" cqa cqva 10 20 > "$CQ_TMP/trains" 2>&1 &
	cq_wait 10 grep -q ready "$CQ_TMP/trains"
	cq_pingpong rc 100 5000 check || cq_bad "pingpong failed"
	wait $!
	seen=$(grep -c "wrong ICRC" "$CQ_TMP/trains")
	[ "$seen" -gt 0 ] || cq_bad "no trains"
}

# Datagrams to a group: multicast GROUP ADDRESS-A ADDRESS-B. It counts, and does
# not look at the data.
multicast()
{
	local group=$1 rc=0 pid

	command -v mckey > /dev/null || { cq_skip "no mckey"; return; }
	ip netns exec cqa timeout -k 3 "$((40 * CQ_SCALE))" \
		stdbuf -oL mckey -m "$group" -b "$2" > "$CQ_TMP/mcast" 2>&1 &
	pid=$!
	cq_wait 20 grep -q "receiving data" "$CQ_TMP/mcast" || rc=1
	ip -n cqa maddr show dev cqva > "$CQ_TMP/maddr"
	cq_do ip netns exec cqb timeout -k 3 "$((40 * CQ_SCALE))" \
		mckey -m "$group" -b "$3" -s || rc=1
	wait "$pid" || { cq_note "the receiver failed"; rc=1; }
	grep -q "data transfers complete" "$CQ_TMP/mcast" || rc=1
	grep -q "$group" "$CQ_TMP/maddr" || { cq_note "the interface did not join"; rc=1; }
	! ip -n cqa maddr show dev cqva | grep -q "$group" || { cq_note "still joined"; rc=1; }
	cat "$CQ_TMP/mcast" "$CQ_TMP/maddr" >> "$CQ_LOG"
	return "$rc"
}

# The connection manager has no IPv6 groups for RoCE version 2. The sender posts
# its messages and goes, without a look at its completions: some times, since
# they must be sent all the same.
t_multicast()
{
	local i

	for i in {1..3}; do
		multicast "239.1.2.$i" "$CQ_IP_A" "$CQ_IP_B" || return
	done
}

t_mtu()
{
	local mtu rc=0

	# Network MTU and what is left of it.
	for mtu in 1500:1024 9000:4096 1104:1024 1103:512 4176:4096 4175:2048 4200:4096; do
		cq_do ip -n cqa link set cqva mtu "${mtu%:*}" || return
		ibv_devinfo -d cqda 2>> "$CQ_LOG" | grep -q "active_mtu:.*${mtu#*:} " ||
			{ cq_bad "MTU $mtu"; rc=1; }
	done
	return "$rc"
}

t_carrier()
{
	local port=/sys/class/infiniband/cqda/ports/1
	local file=$port/hw_counters/link_downed state=$port/state before

	before=$(cat "$file")
	cq_do ip -n cqb link set cqvb down
	cq_wait 5 grep -q DOWN "$state" || cq_bad "still active" || return
	cq_do ip -n cqb link set cqvb up
	cq_wait 5 grep -q ACTIVE "$state" || cq_bad "not active" || return
	[ "$(cat "$file")" -gt "$before" ] || cq_bad "not counted"
}

# Devices of a name space share its sockets.
t_sockets()
{
	has_sockets cqa 2 || return
	cq_do ip netns exec cqa rdma link add cqdo type rxe netdev cqother || return
	! cq_do ip netns exec cqa rdma link add cqdp type rxe netdev cqother ||
		cq_bad "two devices on an interface" || return
	has_sockets cqa 2 || return
	cq_do rdma link delete cqdo || return
	has_sockets cqa 2 || return
	cq_do rdma link delete cqda || return
	has_sockets cqa 0 || return
	has_sockets cqb 2 || return
	cq_link_add cqda cqva "$CQ_IP_A" ip netns exec cqa
}

t_port_in_use()
{
	local pid

	cq_do rdma link delete cqda || return
	ip netns exec cqa python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', $CQ_ROCE_PORT))
time.sleep(60)" &
	pid=$!
	cq_wait 10 has_sockets cqa 1
	! cq_do ip netns exec cqa rdma link add cqda type rxe netdev cqva ||
		cq_bad "added" || return
	has_sockets cqa 1 || return
	kill "$pid"
	wait "$pid" 2>> "$CQ_LOG"
	cq_link_add cqda cqva "$CQ_IP_A" ip netns exec cqa
}

t_vlan()
{
	cq_has_module 8021q || { cq_skip "no VLANs"; return; }
	cq_do ip -n cqa link add link cqva name cqvlan type vlan id 7 || return
	! cq_do ip netns exec cqa rdma link add cqdv type rxe netdev cqvlan ||
		cq_bad "added" || return
	cq_do ip -n cqa link del cqvlan
}

# Packets for a queue pair that is not there, until the file $CQ_TMP/flood is gone.
flood()
{
	: > "$CQ_TMP/flood"
	python3 - "$CQ_IP_B" "$CQ_IP_A" "$CQ_TMP/flood" <<- 'PY' 2>> "$CQ_LOG" &
	import os, socket, struct, sys, zlib
	src, dst = (socket.inet_aton(a) for a in sys.argv[1:3])
	os.setns(os.open("/run/netns/cqb", os.O_RDONLY))
	bth = struct.pack("!BBHII", 4, 0, 0xffff, 0xbad, 0x80000005)
	def ip(tos, ttl, check):
	    return struct.pack("!BBHHHBBH4s4s", 0x45, tos, 52, 77, 0x4000, ttl, 17, check, src, dst)
	def udp(check):
	    return struct.pack("!HHHH", 0xc001, 4791, 32, check)
	seen = b"\xff" * 8 + ip(255, 255, 65535) + udp(65535)
	seen += bth[:4] + b"\xff" + bth[5:] + b"payload."
	packet = ip(0, 64, 0) + udp(0) + bth + b"payload."
	packet += struct.pack("<I", zlib.crc32(seen))
	sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
	while os.path.exists(sys.argv[3]):
	    for _ in range(100):
	        try:
	            sock.sendto(packet, (sys.argv[2], 0))
	        except OSError:
	            pass
	PY
	FLOOD=$!
}

flood_comes_in()
{
	local before

	before=$(drops no_qp)
	cq_wait 10 eval "[ \"\$(drops no_qp)\" -gt $before ]" || cq_bad "no packets come in"
}

flood_ends()
{
	rm -f "$CQ_TMP/flood"
	cq_wait 10 cq_ended "$FLOOD"
	wait "$FLOOD"
}

t_link_del()
{
	local i rc=0

	flood
	for i in 1 2 3 4 5; do
		flood_comes_in || { rc=1; break; }
		cq_do rdma link delete cqda || { rc=1; break; }
		cq_link_add cqda cqva "$CQ_IP_A" ip netns exec cqa || { rc=1; break; }
	done
	flood_ends
	return "$rc"
}

t_unload()
{
	local i rc=0

	flood
	for i in 1 2 3; do
		flood_comes_in || { rc=1; break; }
		cq_do rmmod rrxe || { cq_bad "the module does not go"; rc=1; break; }
		[ ! -d /sys/class/infiniband/cqda ] || { cq_bad "device left"; rc=1; break; }
		cq_do modprobe rrxe || { rc=1; break; }
		cq_link_add cqda cqva "$CQ_IP_A" ip netns exec cqa || { rc=1; break; }
		cq_link_add cqdb cqvb "$CQ_IP_B" ip netns exec cqb || { rc=1; break; }
	done
	flood_ends
	return "$rc"
}

t_netdev_goes()
{
	flood
	flood_comes_in
	cq_do timeout 20 ip -n cqa link del cqva ||
		cq_bad "the interface does not go"
	flood_ends
	cq_wait 10 test ! -d /sys/class/infiniband/cqda ||
		cq_bad "the device is still there" || return
	cq_wait 10 test ! -d /sys/class/infiniband/cqdb ||
		cq_bad "the other device is still there" || return
	has_sockets cqa 0
}

t_netns_goes()
{
	cq_do ip netns exec cqa rdma link add cqdo type rxe netdev cqother || return
	has_sockets cqa 2 || return
	cq_do ip netns del cqa || return
	cq_wait 20 test ! -d /sys/class/infiniband/cqdo || cq_bad "the device is still there"
}

# An interface that moves to another name space takes its device along into
# nothing, and can get another one there.
t_netns_moves()
{
	cq_do ip -n cqb link add cqmove type dummy || return
	cq_do ip netns exec cqb rdma link add cqdm type rxe netdev cqmove || return
	has_sockets cqb 2 || return
	cq_do ip netns add cqc || return
	cq_defer "ip netns del cqc"
	cq_do ip -n cqb link set cqmove netns cqc || return
	cq_wait 10 test ! -d /sys/class/infiniband/cqdm ||
		cq_bad "the device is still there" || return
	cq_wait 5 has_sockets cqb 0 || return
	cq_do ip netns exec cqc rdma link add cqdm type rxe netdev cqmove || return
	has_sockets cqc 2 || return
	cq_do rdma link delete cqdm
}

end_unload()
{
	cq_t2_down
	cq_module_goes
}

cq_init rrxe_net
cq_need_device
cq_need python3 ss ibv_devinfo ibv_rc_pingpong ibv_ud_pingpong
cq_main \
	t_up "two namespaces" \
	t_malformed4 "malformed packets, IPv4" \
	t_malformed6 "malformed packets, IPv6" \
	t_icrc_rc "ICRC of what is sent, connected" \
	t_icrc_ud "ICRC of what is sent, datagrams" \
	t_icrc6 "ICRC of what is sent, IPv6" \
	t_icrc_cut "ICRC of what is cut off a train" \
	t_trains "trains that are not cut" \
	t_multicast "multicast" \
	t_mtu "the MTU follows the interface" \
	t_carrier "the port follows the carrier" \
	t_sockets "devices share sockets" \
	t_port_in_use "somebody else has the port" \
	t_vlan "no device on a VLAN" \
	t_link_del "the device goes under traffic" \
	t_unload "the module goes under traffic" \
	t_netdev_goes "the interface goes under traffic" \
	t_netns_goes "the name space goes" \
	t_netns_moves "the interface moves" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
