#!/bin/bash
# Temporary.
set -x
mount -t debugfs none /sys/kernel/debug 2>/dev/null
ip netns add b
ip link add v0 type veth peer name v1
ip link set v1 netns b
ip link set v0 mtu 9000; ip -n b link set v1 mtu 9000
ip addr add 10.1.0.1/24 dev v0
ip addr add fd00:1::1/64 dev v0 nodad
ip link set v0 up
ip -n b addr add 10.1.0.2/24 dev v1
ip -n b addr add fd00:1::2/64 dev v1 nodad
ip -n b link set v1 up
ip link add d0 type dummy; ip link set d0 up; ip addr add 10.9.0.1/24 dev d0; ip addr add fd00:9::1/64 dev d0 nodad
sleep 1
mac=$(cat /sys/class/net/v0/address)
modprobe rust_rrxe_net ifindex=$(cat /sys/class/net/v0/ifindex) || exit 1
ss -ulnp | cat
cat /sys/kernel/debug/rrxe/drops
set +x
python3 tools/testing/selftests/rdma/rrxe_packets.py --echo b v1 $mac 10.1.0.2 10.1.0.1 10.9.0.1
python3 tools/testing/selftests/rdma/rrxe_packets.py --echo b v1 $mac fd00:1::2 fd00:1::1 fd00:9::1
cat /sys/kernel/debug/rrxe/drops
echo "# own host, through lo"
cat > /tmp/self.py <<'PY'
import socket, sys, logging
logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw
p = IP(src=sys.argv[1], dst=sys.argv[2], id=77, flags="DF")/UDP(sport=0xc001, dport=4791, chksum=0)/BTH(opcode=4, dqpn=0x11, psn=5, ackreq=1)/Raw(b"abcdefgh")
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for i in range(int(sys.argv[3])):
    s.sendto(bytes(p), (sys.argv[2], 0))
PY
python3 /tmp/self.py 10.1.0.1 10.1.0.1 3
cat /sys/kernel/debug/rrxe/drops
echo "# vlan"
ip link add link v0 name v0.7 type vlan id 7; ip addr add 10.7.0.1/24 dev v0.7; ip link set v0.7 up
ip -n b link add link v1 name v1.7 type vlan id 7; ip -n b addr add 10.7.0.2/24 dev v1.7; ip -n b link set v1.7 up
nsenter --net=/run/netns/b python3 /tmp/self.py 10.7.0.2 10.7.0.1 1
sleep 0.3
echo "# mtu, carrier"
ip link set v0 mtu 4300
ip -n b link set v1 down; sleep 0.2; ip -n b link set v1 up; sleep 0.2
echo "# netem: in flight"
modprobe sch_netem
tc qdisc add dev v0 root netem delay 2000ms
nsenter --net=/run/netns/b python3 /tmp/self.py 10.1.0.2 10.1.0.1 70
sleep 3
nsenter --net=/run/netns/b python3 /tmp/self.py 10.1.0.2 10.1.0.1 70
echo "# unload with packets on their way"
rmmod rust_rrxe_net && echo unloaded
sleep 3
ss -uln | grep 4791
tc qdisc del dev v0 root
echo "# unregister"
modprobe rust_rrxe_net ifindex=$(cat /sys/class/net/v0/ifindex) || exit 1
nsenter --net=/run/netns/b python3 /tmp/self.py 10.1.0.2 10.1.0.1 10
ip link del v0 && echo deleted
sleep 0.5
ss -uln | grep 4791
rmmod rust_rrxe_net && echo unloaded
dmesg | grep -v "vda\|virtio" | tail -60
