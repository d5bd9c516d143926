mount -t debugfs none /sys/kernel/debug 2>/dev/null
ip link add v0 type veth peer name v1
ip addr add 10.98.0.1/24 dev v0
ip link set v0 up; ip link set v1 up
sleep 2
rdma link add rxe0 type rxe netdev v0 || exit 1
D=/sys/kernel/debug/rrxe
echo 8 > /proc/sys/vm/nr_hugepages
( while :; do echo "sweep rxe0 1 400 20" > $D/eq_inject || break; echo "random rxe0 7 20000" > $D/eq_inject; done ) &
S=$!
for i in 1 2 3; do timeout 20 ibv_rc_pingpong -d rxe0 -g 1 -n 300 -e -c > /tmp/s.log 2>&1 & P=$!; sleep 1; timeout 20 ibv_rc_pingpong -d rxe0 -g 1 -n 300 -e -c 10.98.0.1 | tail -1; wait $P; echo pp $?; done
kill $S; wait $S
cat $D/eq_state
cp -a /usr/share/doc/rdma-core/tests /tmp/tests; mkdir /tmp/t; mv /tmp/tests /tmp/t/; cd /tmp/t/tests; gunzip -f *.gz
timeout -k 3 300 python3 -W ignore run_tests.py --dev rxe0 --gid 1 -v > /tmp/out.log 2>&1; echo status $?; grep -E "^ERROR|^FAIL|^Ran|^OK|^FAILED|Error:" /tmp/out.log
grep -A1 -E "^test_" /tmp/out.log > /dev/null
cat /tmp/out.log | grep -vi "mlx5\|efa\|cuda" > /tmp/o2; cat /tmp/o2
ibsrpdm -h >/dev/null 2>&1; 
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do timeout 30 python3 -W ignore run_tests.py --dev rxe0 --gid 1 -k resize_cq > /tmp/r.log 2>&1 && echo -n R || cat /tmp/r.log; done; echo
rdma link del rxe0; sleep 1; rmmod rrxe && echo UNLOADED
# coexist
modprobe rdma_rxe; modprobe rrxe coexist=1; echo coexist $?
for n in a b; do ip netns add $n; ip -n $n link set lo up; done
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 10.99.0.1/24 dev va; ip -n b addr add 10.99.0.2/24 dev vb; ip -n a link set va up; ip -n b link set vb up; sleep 2
ip netns exec a rdma link add rxea type rrxe netdev va; ip netns exec b rdma link add rxb type rxe netdev vb
ip netns exec a timeout 20 ibv_rc_pingpong -d rxea -g 1 -n 200 -c > /tmp/s.log 2>&1 & P=$!; sleep 1; ip netns exec b timeout 20 ibv_rc_pingpong -d rxb -g 1 -n 200 -c 10.99.0.1 | tail -2; wait $P; echo pp $?; tail -1 /tmp/s.log
ip -n a link set va mtu 1400; ip -n b link set vb mtu 1400; sleep 1; ibv_devinfo -d rxea | grep active_mtu
rmmod rdma_rxe && echo UNLOADED C; rdma link; rmmod rrxe && echo UNLOADED
dmesg | tail -5
