# hostile
dmesg -C
ip link add v0 type veth peer name v1
ip addr add 10.98.0.1/24 dev v0
ip link set v0 up; ip link set v1 up
sleep 2
mount -t debugfs none /sys/kernel/debug 2>/dev/null
D=/sys/kernel/debug/rrxe
rdma link add rxe0 type rxe netdev v0 || exit 1
cat /sys/class/infiniband/rxe0/parent
cat $D/eq_state $D/drops
echo "event rxe0 1 256 10" > $D/eq_inject; echo st $?
echo "sweep rxe0 1 300 50" > $D/eq_inject; echo st $?
echo "random rxe0 12345 20000" > $D/eq_inject; echo st $?
echo "cqe rxe0 1 5" > $D/eq_inject; echo st $?
echo "bad rxe0 1 5" > $D/eq_inject; echo bad $?
echo "auto 8" > $D/eq_inject; echo st $?
cat $D/eq_state
modprobe ib_cq_bench 2>&1 | head -2
# storm against user CQs and kernel CQs
( for i in $(seq 1 40); do echo "sweep rxe0 1 400 20" > $D/eq_inject; echo "random rxe0 $i 20000" > $D/eq_inject; done ) &
S=$!
cat > /tmp/cq.py <<'EOP'
import pyverbs.device as d
from pyverbs.pd import PD
from pyverbs.cq import CQ, CompChannel
ctx=d.Context(name='rxe0')
for i in range(1500):
    cc=CompChannel(ctx)
    cq=CQ(ctx, 10, None, cc, i%2)
    cq.req_notify()
    cq.close(); cc.close()
print("cq loop done")
EOP
timeout 100 python3 /tmp/cq.py
for i in 1 2 3 4 5; do timeout 10 ibv_rc_pingpong -d rxe0 -g 1 -n 300 -e -c > /tmp/s.log 2>&1 & sleep 0.7; timeout 10 ibv_rc_pingpong -d rxe0 -g 1 -n 300 -e -c 10.98.0.1 | tail -1; wait $!; done
kill $S; wait $S
cat $D/eq_state
echo "auto 0" > $D/eq_inject
cd /tmp; mkdir -p t; cp -a /usr/share/doc/rdma-core/tests /tmp/t/tests; cd /tmp/t/tests; gunzip -f *.gz
timeout -k 3 200 python3 -W ignore run_tests.py --dev rxe0 --gid 1 -v -k MW -k mw -k srq -k resize -k cq_events > /tmp/out.log 2>&1; echo status $?; grep -E " \.\.\. (ok|ERROR|FAIL)" /tmp/out.log; tail -40 /tmp/out.log | grep -v "\.\.\. "
rdma link del rxe0; sleep 1; cat $D/eq_state
modprobe rdma_rxe; echo refuse $?
rmmod rrxe && echo UNLOADED
modprobe rdma_rxe && echo loaded C; modprobe rrxe; echo refused $?; modprobe rrxe coexist=1; echo coexist $?
ip link add w0 type veth peer name w1; ip link set w0 up; rdma link add q0 type rrxe netdev w0; echo link $?; ip netns add a; ip link set w1 netns a; ip -n a link set w1 up; ip netns exec a rdma link add q1 type rrxe netdev w1; echo link $?; rdma link; ibv_devinfo -d q1 | head -3; rmmod rrxe && echo UNLOADED2
dmesg | tail -12
