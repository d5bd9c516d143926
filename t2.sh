ip link add v0 type veth peer name v1
ip addr add 10.98.0.1/24 dev v0
ip link set v0 up; ip link set v1 up
sleep 2
rdma link add rxe0 type rxe netdev v0 || exit 1
cat /sys/class/infiniband/rxe0/parent
mkdir -p /tmp/t; cp -a /usr/share/doc/rdma-core/tests /tmp/t/tests; cd /tmp/t/tests; gunzip -f *.gz
echo 8 > /proc/sys/vm/nr_hugepages
ulimit -l unlimited
cd /tmp/t/tests
timeout -k 3 ${LIMIT:-400} python3 -W ignore run_tests.py --dev rxe0 --gid 1 -v $KARGS > /tmp/out.log 2>&1
echo status $?
grep -E " \.\.\. " /tmp/out.log | grep -v "mlx5\|efa\|cuda\|Mlx5" 
tail -200 /tmp/out.log | grep -v " \.\.\. " | head -250
rdma res; rdma statistic
rdma link del rxe0; sleep 1; rmmod rrxe && echo UNLOADED
