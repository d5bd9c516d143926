#!/bin/bash
# Temporary.
mount -t debugfs none /sys/kernel/debug 2>/dev/null
ip netns add b
ip link add v0 type veth peer name v1
ip link set v1 netns b
ip addr add 10.1.0.1/24 dev v0
ip link set v0 up
ip -n b addr add 10.1.0.2/24 dev v1
ip -n b link set v1 up
sleep 1
mac=$(cat /sys/class/net/v0/address)
cat > /tmp/send.py <<'PY'
import socket, struct, sys, zlib
src, dst, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
bth = struct.pack("!BBHII", 4, 0, 0xffff, 0x11, 0x80000005)
pay = b"abcdefgh"
def ip(tos, ttl, ck): return struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20+8+12+8+4, 77, 0x4000, ttl, 17, ck, socket.inet_aton(src), socket.inet_aton(dst))
def udp(ck): return struct.pack("!HHHH", 0xc001, 4791, 8+12+8+4, ck)
masked = b"\xff"*8 + ip(255,255,65535) + udp(65535) + bth[:4] + b"\xff" + bth[5:] + pay
p = ip(0,64,0) + udp(0) + bth + pay + struct.pack("<I", zlib.crc32(masked))
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for i in range(n): s.sendto(p, (dst, 0))
PY
modprobe rust_rrxe_net ifindex=$(cat /sys/class/net/v0/ifindex) || exit 1
b() { nsenter --net=/run/netns/b "$@"; }
b python3 /tmp/send.py 10.1.0.2 10.1.0.1 5
echo "# neighbour queue: in flight"
b ip neigh replace 10.1.0.1 lladdr $mac dev v1 nud permanent
b sysctl -q net.ipv4.conf.v1.arp_ignore=8
ip neigh flush dev v0
b python3 /tmp/send.py 10.1.0.2 10.1.0.1 70
sleep 5
dmesg | tail -12
b sysctl -q net.ipv4.conf.v1.arp_ignore=8
ip neigh flush dev v0
b python3 /tmp/send.py 10.1.0.2 10.1.0.1 70
echo "# unload with packets on their way"
rmmod rust_rrxe_net && echo unloaded
sleep 4
dmesg | tail -3
ss -uln | grep 4791
b sysctl -q net.ipv4.conf.v1.arp_ignore=0
echo "# port in use"
python3 -c '
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(("0.0.0.0",4791)); time.sleep(3)' & sleep 1.5
modprobe rust_rrxe_net ifindex=$(cat /sys/class/net/v0/ifindex) && echo "not ok: loaded"
wait
ss -uln | grep 4791
echo "# unregister"
modprobe rust_rrxe_net ifindex=$(cat /sys/class/net/v0/ifindex) || exit 1
(for i in $(seq 20); do b python3 /tmp/send.py 10.1.0.2 10.1.0.1 300; done) 2>/dev/null &
sleep 1
ip link del v0 && echo deleted
sleep 0.5
ss -uln | grep 4791
rmmod rust_rrxe_net && echo unloaded
echo "# unload under traffic"
ip link add v0 type veth peer name v1 netns b
ip addr add 10.1.0.1/24 dev v0; ip link set v0 up
ip -n b addr add 10.1.0.2/24 dev v1; ip -n b link set v1 up
(for i in $(seq 30); do b python3 /tmp/send.py 10.1.0.2 10.1.0.1 1000; done) 2>/dev/null &
for i in 1 2 3 4 5; do modprobe rust_rrxe_net ifindex=$(cat /sys/class/net/v0/ifindex); sleep 0.7; rmmod rust_rrxe_net; done
dmesg | tail -30
