# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the completion queue tests share: KTAP output, RDMA devices over veth,
# client and server pairs with bounded time, and the count of completion
# queues, events and completions by poll context, taken from the trace events
# of ib_core (so that a test says which contexts were really used).
#
# Environment:
#   DEV_TYPE=rxe|rrxe|siw
#                      which software RDMA device (default rxe); rrxe is the
#                      driver in Rust, which is the same in all but its module
#   SELFTEST_BREAK=1   spoil the data on purpose: the tests must then fail
#   CQ_SCALE=N         multiply all time limits (default: 1, debug kernel 5);
#                      a debug kernel also gets a fourth of the data
#   CQ_KEEP_LOG=FILE   append the log of all commands to FILE
#   CQ_PROGRAMS=DIR    the programs of the tests that are written in C, compiled, if
#                      they are not in PATH; if they are in neither, this is done here

KSFT_FAIL=1
KSFT_SKIP=4
# A step that returns this failed as it is known to; not an exit status.
KSFT_XFAIL=5
# A step that returns this failed, and the steps behind it make no sense.
CQ_FATAL=2

DEV_TYPE=${DEV_TYPE:-rxe}
SELFTEST_BREAK=${SELFTEST_BREAK:-0}

CQ_CONTEXTS="DIRECT SOFTIRQ WORKQUEUE UNBOUND_WORKQUEUE"
# One device, both ends on it (what kernel users in init_net can have).
CQ_IF=cqv0
CQ_DEV=cq0
CQ_IP=10.98.0.1
# Two namespaces, so that packets cross the network stack.
CQ_IP_A=10.99.0.1
CQ_IP_B=10.99.0.2
CQ_ROCE_PORT=4791
# Of the interfaces: enough for the largest MTU that RoCE has.
CQ_MTU=4200

CQ_SAMPLE=rust_rdma_cq

CQ_DIR=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
CQ_NAME=
CQ_MODULE=
CQ_TMP=
CQ_PAIR=0
CQ_ENDS=
CQ_WEATHER=
CQ_INJECTED=
CQ_LIMIT=20
CQ_FEWER=1
CQ_LOG=/dev/null
CQ_WHY=
CQ_DEAD=
CQ_DEFER=()
CQ_PORT=20100
CQ_TRACE=
CQ_PASS=0
CQ_FAIL=0
CQ_SKIP=0
CQ_XFAIL=0
declare -A CQ_N CQ_USED CQ_EVENTS CQ_RESCHED CQ_CALLS CQ_COMP CQ_FREED

# ---------------------------------------------------------------- messages

cq_msg()
{
	echo "# $*"
}

# Note a line in the log of commands, which is shown when a step fails.
cq_note()
{
	echo "$*" >> "$CQ_LOG"
}

# Say why a step fails.
cq_bad()
{
	cq_note "FAIL: $*"
	return "$KSFT_FAIL"
}

# Say why a step is skipped: cq_skip "reason"; return.
cq_skip()
{
	CQ_WHY="$*"
	return "$KSFT_SKIP"
}

cq_do()
{
	local rc=0

	cq_note "\$ $*"
	"$@" >> "$CQ_LOG" 2>&1 || rc=$?
	[ "$rc" -eq 0 ] || cq_note "-> exit status $rc"
	return "$rc"
}

# cq_limit SECONDS COMMAND...: some of the tools ignore SIGTERM when they are
# stuck, hence -k.
cq_limit()
{
	local limit=$1

	shift
	timeout -k 3 "$((limit * CQ_SCALE))" "$@"
}

# cq_wait SECONDS COMMAND...: until the command succeeds.
cq_wait()
{
	local end=$((SECONDS + $1 * CQ_SCALE))

	shift
	until "$@" > /dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep "0.$CQ_FEWER"
	done
}

# cq_few N: fewer rounds on a kernel that looks at everything.
cq_few()
{
	echo $((($1 + CQ_FEWER - 1) / CQ_FEWER))
}

# cq_compiled PROGRAM: take it if somebody has compiled it.
cq_compiled()
{
	local found

	found=$(PATH="${CQ_PROGRAMS:+$CQ_PROGRAMS:}$PATH" command -v "$1") &&
		cq_do cp "$found" "$CQ_TMP/"
}

# cq_build PROGRAM...: compile them, unless somebody has; they are in $CQ_TMP.
cq_build()
{
	local p

	# Only what they need: with another libibverbs not all of them have to run.
	for p; do
		! cq_compiled "$p" || continue
		cq_do cc -O1 -Wall -Wextra -Werror -pthread -o "$CQ_TMP/$p" \
			"$CQ_DIR/$p.c" -Wl,--as-needed -lrdmacm -libverbs || return "$CQ_FATAL"
	done
}

# Write a value to a file of sysfs or configfs.
cq_put()
{
	cq_note "\$ echo $1 > $2"
	{ printf '%s\n' "$1" > "$2"; } 2>> "$CQ_LOG"
}

# cq_debugfs FILE: have debugfs, which FILE belongs to.
cq_debugfs()
{
	[ -e "$1" ] || mount -t debugfs none /sys/kernel/debug 2>> "$CQ_LOG"
}

# cq_tool SECONDS PROGRAM WHAT ARGUMENT...: one of ours; its last line is told.
cq_tool()
{
	local limit=$1 program=$2 what=$3

	shift 2
	cq_limit "$limit" "$CQ_DIR/$program" "$@" > "$CQ_TMP/tool" 2>&1 || {
		tail -n 5 "$CQ_TMP/tool" >> "$CQ_LOG"
		cq_bad "$what failed: $(tail -n 1 "$CQ_TMP/tool")"
		return
	}
	cat "$CQ_TMP/tool" >> "$CQ_LOG"
	cq_msg "$(tail -n 1 "$CQ_TMP/tool")"
}

# ---------------------------------------------------------------- start, end

# Remember a command for the end; the last one is run first.
cq_defer()
{
	CQ_DEFER+=("$*")
}

cq_cleanup()
{
	local i

	trap '' INT TERM
	for ((i = ${#CQ_DEFER[@]} - 1; i >= 0; i--)); do
		cq_note "cleanup: ${CQ_DEFER[i]}"
		eval "${CQ_DEFER[i]}" >> "$CQ_LOG" 2>&1
	done
	CQ_DEFER=()
	if [ -n "$CQ_TMP" ]; then
		[ -z "${CQ_KEEP_LOG:-}" ] || cat "$CQ_LOG" >> "$CQ_KEEP_LOG"
		CQ_LOG=/dev/null
		rm -rf "$CQ_TMP"
		CQ_TMP=
	fi
}

cq_skip_all()
{
	if [ -n "${CQ_NO_TAP:-}" ]; then
		echo "$CQ_NAME: skipped: $*" >&2
	else
		echo "1..0 # SKIP $*"
	fi
	exit "$KSFT_SKIP"
}

# cq_init NAME: what every script calls first.
cq_init()
{
	CQ_NAME=$1
	[ "$(id -u)" -eq 0 ] || cq_skip_all "needs root"
	# A mount namespace of our own: the daemons of NFS and iSCSI see private
	# state folders, and whatever we mount is gone when we are.
	if [ -z "${CQ_UNSHARED:-}" ] && command -v unshare > /dev/null; then
		CQ_UNSHARED=1 exec unshare --mount --propagation private "$0"
	fi
	[ -n "${CQ_NO_TAP:-}" ] || echo "TAP version 13"
	case "$DEV_TYPE" in
	rxe) CQ_MODULE=rdma_rxe ;;
	rrxe) CQ_MODULE=rrxe DEV_TYPE=rxe ;;
	siw) CQ_MODULE=siw ;;
	*) cq_skip_all "unknown DEV_TYPE=$DEV_TYPE" ;;
	esac
	if [ -z "${CQ_SCALE:-}" ]; then
		CQ_SCALE=1
		# KASAN and lockdep make everything slow.
		[ ! -e /proc/lockdep ] || CQ_SCALE=5
	fi
	[ ! -e /proc/lockdep ] || CQ_FEWER=4
	cq_patience /proc/sys/net/core/netdev_unregister_timeout_secs
	CQ_TMP=$(mktemp -d /tmp/cq.XXXXXX) || exit "$KSFT_FAIL"
	CQ_LOG=$CQ_TMP/log
	: > "$CQ_LOG"
	trap cq_cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	[ -e /dev/shm ] || mkdir /dev/shm
	if ! mountpoint -q /dev/shm; then
		mount -t tmpfs none /dev/shm
	fi
	ulimit -l unlimited 2>> "$CQ_LOG"
	ip link set lo up 2>> "$CQ_LOG"
	echo "cq selftest: $CQ_NAME $$ begins" > /dev/kmsg
}

# cq_patience FILE: have the kernel wait for netdevs that are removed, which it does
# for 10 s before it complains, as many times longer as we do.
cq_patience()
{
	[ ! -w "$1" ] || echo "$((10 * CQ_SCALE))" > "$1"
}

# cq_need COMMAND...: skip the script when a tool is missing.
cq_need()
{
	local c

	for c in "$@"; do
		command -v "$c" > /dev/null || cq_skip_all "$c is not installed"
	done
}

# cq_need_module MODULE...: skip the script when a module is missing.
cq_need_module()
{
	local m

	for m in "$@"; do
		cq_has_module "$m" || cq_skip_all "no kernel module $m"
	done
}

cq_has_module()
{
	[ -d "/sys/module/${1//-/_}" ] || modprobe -nq "$1"
}

cq_loaded()
{
	[ -d "/sys/module/${1//-/_}" ]
}

# Load a module, and unload it at the end if it was not there before.
cq_modprobe()
{
	local m=$1

	shift
	cq_loaded "$m" && return 0
	cq_do modprobe "$m" "$@" || return
	cq_defer "cq_rmmod $m"
}

# A daemon that stays in the foreground; ended at the end. In a session of its
# own, because iscsid signals its whole process group when it stops.
cq_daemon()
{
	setsid "$@" >> "$CQ_LOG" 2>&1 &
	cq_defer "cq_end_process $!"
}

cq_ended()
{
	local state=Z

	# The state is behind the name, which is in parentheses.
	[ ! -r "/proc/$1/stat" ] || state=$(sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null)
	[ "${state:-Z}" = Z ]
}

# End a child, by force if it does not listen.
cq_end_process()
{
	kill "$1" 2>/dev/null
	cq_wait 5 cq_ended "$1" || kill -9 "$1" 2>/dev/null
	cq_wait 5 cq_ended "$1" && wait "$1" 2>/dev/null
	return 0
}

# A module goes only when its last user has gone, which some users do from
# a work item: try for some seconds.
cq_rmmod()
{
	cq_loaded "$1" || return 0
	cq_wait 10 modprobe -r "$1" && return 0
	cq_do modprobe -r "$1"
}

# The module of the device goes, when the devices have gone.
cq_module_goes()
{
	cq_rmmod "$CQ_MODULE" || { cq_bad "$CQ_MODULE does not go"; return; }
	! cq_loaded "$CQ_MODULE" || cq_bad "$CQ_MODULE is still there"
}

# cq_main FUNCTION DESCRIPTION ...: run the steps in order. A function whose
# name starts with end_ also runs when an earlier step was fatal.
cq_main()
{
	local fn what rc nr=0 from start

	cq_modprobe ib_core
	echo "1..$(($# / 2))"
	cq_msg "$CQ_NAME on $CQ_MODULE, $(uname -r), cq core: $(cq_core)"
	while [ $# -gt 0 ]; do
		fn=$1
		what=$2
		shift 2
		nr=$((nr + 1))
		from=$(($(wc -l < "$CQ_LOG") + 1))
		CQ_WHY=
		rc=0
		start=$SECONDS
		cq_note "== $what"
		if [ -n "$CQ_DEAD" ] && [ "${fn#end_}" = "$fn" ]; then
			CQ_WHY=$CQ_DEAD
			rc=$KSFT_SKIP
		else
			"$fn" || rc=$?
		fi
		cq_note "== status $rc after $((SECONDS - start)) s"
		[ $((SECONDS - start)) -lt 3 ] || cq_msg "took $((SECONDS - start)) s"
		case "$rc" in
		0)
			CQ_PASS=$((CQ_PASS + 1))
			echo "ok $nr $CQ_NAME: $what"
			;;
		"$KSFT_SKIP")
			CQ_SKIP=$((CQ_SKIP + 1))
			echo "ok $nr $CQ_NAME: $what # SKIP $CQ_WHY"
			;;
		"$KSFT_XFAIL")
			CQ_XFAIL=$((CQ_XFAIL + 1))
			echo "ok $nr $CQ_NAME: $what # XFAIL $CQ_WHY"
			;;
		*)
			CQ_FAIL=$((CQ_FAIL + 1))
			tail -n "+$from" "$CQ_LOG" | tail -n 30 | sed 's/^/# /'
			echo "not ok $nr $CQ_NAME: $what"
			[ "$rc" -ne "$CQ_FATAL" ] || CQ_DEAD="step $nr failed"
			;;
		esac
	done
	cq_msg "Totals: pass:$CQ_PASS fail:$CQ_FAIL xfail:$CQ_XFAIL xpass:0 skip:$CQ_SKIP error:0"
	if [ "$CQ_FAIL" -gt 0 ]; then
		exit "$KSFT_FAIL"
	elif [ "$CQ_PASS" -eq 0 ]; then
		exit "$KSFT_SKIP"
	fi
	exit 0
}

# Which completion queue core is in this ib_core.
cq_core()
{
	local f=/sys/module/ib_core/parameters/cq_core

	if [ -r "$f" ]; then
		cat "$f"
	elif cq_loaded ib_core; then
		echo c
	else
		echo "unknown, ib_core is not loaded"
	fi
}

# ---------------------------------------------------------------- kernel log

# The kernel's log since cq_init, warnings and reports of lockdep and KCSAN joined to
# one line each. With CQ_INJECTED, not what vmalloc() says of an allocation that fails. Of
# the data races only those with Rust code or a module of ours in either stack.
cq_kernel_log()
{
	dmesg | awk -v mark="cq selftest: $CQ_NAME $$ begins" -v injected="$CQ_INJECTED" '
		BEGIN {
			ours = "[ |]_R[A-Z][A-Za-z0-9_]*[+]0x|[ |]rust_[a-z0-9_]*[+]0x"
			ours = ours "|\\[(ib_core|rrxe|rust_rdma[a-z_]*|ib_cq_[a-z]*|ib_seed)[] ]"
		}
		index($0, mark) { on = 1; next }
		injected && /vmalloc error: .* allocation failed/ { failed = 1 }
		failed && /<\/TASK>/ { failed = 0; next }
		failed { next }
		# A tool that crashes is not the kernel; its own test sees it.
		!on || /traps: / { next }
		{ text = $0; sub(/^\[[^]]*\] ?/, "", text) }
		text ~ /^-+\[ cut here \]-+$/ { warning = text; next }
		warning {
			warning = warning " | " text
			if (text ~ /^---\[ end trace/) {
				print warning
				warning = ""
			}
			next
		}
		race && text ~ /^=+$/ {
			if (race ~ ours || race !~ /\+0x/)
				print race
			race = ""
			next
		}
		# What an interrupt interrupted has no part in what the interrupt did,
		# nor has who lets the softirqs run in what they do.
		race && text !~ /^ .*[+]0x[0-9a-f]+\/0x/ {
			irq = text ~ / by interrupt on cpu [0-9]+:$/
			below = 0
		}
		race && below { next }
		race && irq && text ~ /^ (asm_|do_softirq[+])/ { below = 1 }
		race { race = race " | " text; next }
		text ~ /BUG: KCSAN: / { race = text; irq = below = 0; next }
		report != "" { report = report " | " text }
		report != "" && text ~ /<\/TASK>/ { print report; report = ""; next }
		report != "" { next }
		text ~ /WARNING: possible (circular|recursive)/ { report = text; next }
		{ print }
		END {
			if (report != "")
				print report
			if (race)
				print race
			if (warning)
				print warning
		}'
}

# cq_complaints known|new: the kernel's complaints since cq_init, those that
# known_reports has or all others.
cq_complaints()
{
	local re

	re='WARNING:|BUG:|Oops|KASAN|UBSAN|KFENCE|general protection'
	re+='|possible (circular|recursive)|inconsistent lock'
	re+='|suspicious RCU|INFO: task|soft lockup|refcount_t:'
	re+='|unregister_netdevice: waiting|kmemleak:.*new suspected|ODEBUG'
	re+='|sleeping function|scheduling while atomic'
	re+='|list_(add|del) corruption|Call [Tt]race|leaked'
	case "$1" in
	known) cq_kernel_log | grep -Ef <(grep '^[^#]' "$CQ_DIR/known_reports") ;;
	new)   cq_kernel_log | grep -vEf <(grep '^[^#]' "$CQ_DIR/known_reports") | grep -E "$re" ;;
	esac
}

end_no_warning()
{
	local new

	# The control: what looks like a complaint must be seen.
	[ "$SELFTEST_BREAK" != 1 ] || echo "cq selftest: a made up BUG: to be seen" > /dev/kmsg
	new=$(cq_complaints new)
	if [ -n "$new" ]; then
		cq_note "${new// | /$'\n'}"
		cq_bad "the kernel complained"
		return
	fi
	cq_complaints known > /dev/null || return 0
	CQ_WHY="a known report, see known_reports"
	return "$KSFT_XFAIL"
}

# ---------------------------------------------------------------- devices

# Does device $1 have a GID for the IPv4 address $2? Prints its index.
cq_gid()
{
	local hex i gid a b c d

	IFS=. read -r a b c d <<< "$2"
	printf -v hex '%02x%02x:%02x%02x' "$a" "$b" "$c" "$d"
	# The table has a thousand entries; ours come first. And no processes
	# in here, they are dear on a debug kernel.
	for i in {0..15}; do
		{ read -r gid < "/sys/class/infiniband/$1/ports/1/gids/$i"; } 2>/dev/null ||
			continue
		if [ "$gid" = "0000:0000:0000:0000:0000:ffff:$hex" ]; then
			echo "$i"
			return 0
		fi
	done
	return 1
}

cq_load_device_modules()
{
	cq_modprobe "$CQ_MODULE" || return
	cq_modprobe rdma_ucm || return
	cq_wait 5 test -e /dev/infiniband/rdma_cm
}

cq_need_device()
{
	cq_need ip rdma modprobe timeout awk
	cq_need_module "$CQ_MODULE" rdma_ucm
}

# Add an RDMA device: NAME NETDEV ADDRESS [COMMAND PREFIX...]
cq_link_add()
{
	local name=$1 netdev=$2 addr=$3

	shift 3
	cq_do "$@" rdma link add "$name" type "$DEV_TYPE" netdev "$netdev" || return
	cq_wait 5 test -d "/sys/class/infiniband/$name" || return
	cq_wait 5 cq_has_uverbs "$name" || return
	if [ "$DEV_TYPE" != siw ]; then
		cq_wait 10 cq_gid "$name" "$addr" || return
	fi
	cq_wait 10 grep -q ACTIVE "/sys/class/infiniband/$name/ports/1/state"
}

# cq_roce_sockets [NAMESPACE]: how many sockets of the driver there are.
cq_roce_sockets()
{
	${1:+ip netns exec "$1"} ss -Hulna "sport = :$CQ_ROCE_PORT" | wc -l
}

cq_has_uverbs()
{
	[ -e "$(cq_uverbs "$1")" ]
}

# The node of a device in /dev
cq_uverbs()
{
	local d name

	for d in /sys/class/infiniband_verbs/uverbs*; do
		{ read -r name < "$d/ibdev"; } 2>/dev/null || continue
		if [ "$name" = "$1" ]; then
			echo "/dev/infiniband/${d##*/}"
			return 0
		fi
	done
	echo /nonexistent
}

# T1: one device in init_net.
cq_t1_up()
{
	cq_load_device_modules || return
	cq_do ip link add "$CQ_IF" mtu "$CQ_MTU" type veth peer name cqv1 mtu "$CQ_MTU" || return
	cq_defer cq_t1_down
	cq_do ip addr add "$CQ_IP/24" dev "$CQ_IF"
	cq_do ip link set "$CQ_IF" up
	cq_do ip link set cqv1 up
	cq_link_add "$CQ_DEV" "$CQ_IF" "$CQ_IP"
}

cq_t1_down()
{
	if [ -d "/sys/class/infiniband/$CQ_DEV" ]; then
		cq_do rdma link delete "$CQ_DEV"
		cq_wait 10 test ! -d "/sys/class/infiniband/$CQ_DEV"
	fi
	if [ -d "/sys/class/net/$CQ_IF" ]; then
		cq_do ip link del "$CQ_IF"
	fi
}

# T2: two devices in two namespaces.
cq_t2_up()
{
	cq_load_device_modules || return
	cq_t2_net || return
	cq_link_add cqda cqva "$CQ_IP_A" ip netns exec cqa || return
	cq_link_add cqdb cqvb "$CQ_IP_B" ip netns exec cqb
}

# The namespaces and the network between them.
cq_t2_net()
{
	local n

	cq_defer cq_t2_down
	for n in cqa cqb; do
		cq_do ip netns add "$n" || return
		cq_do ip -n "$n" link set lo up
	done
	cq_do ip link add cqva netns cqa mtu "$CQ_MTU" type veth \
		peer name cqvb netns cqb mtu "$CQ_MTU" || return
	cq_do ip -n cqa addr add "$CQ_IP_A/24" dev cqva
	cq_do ip -n cqb addr add "$CQ_IP_B/24" dev cqvb
	cq_do ip -n cqa link set cqva up
	cq_do ip -n cqb link set cqvb up
}

cq_t2_down()
{
	local n

	for n in a b; do
		[ ! -d "/sys/class/infiniband/cqd$n" ] || cq_do rdma link delete "cqd$n"
	done
	for n in cqa cqb; do
		[ ! -e "/run/netns/$n" ] || cq_do ip netns del "$n"
	done
	cq_wait 10 test ! -d /sys/class/infiniband/cqda
	cq_wait 10 test ! -d /sys/class/infiniband/cqdb
}

# How many packets both devices of T2 have sent. A name space sees the counters of a
# device that was moved there; else only the first one has them.
cq_t2_packets()
{
	local n file

	for n in a b; do
		file=/sys/class/infiniband/cqd$n/ports/1/hw_counters/sent_pkts
		if [ -e "$file" ]; then
			cat "$file"
		else
			ip netns exec "cq$n" cat "$file"
		fi
	done | awk '{ n += $1 } END { print n + 0 }'
}

# cq_netem MODEL...: what happens to packets of T2 on their way, in both
# directions; without arguments nothing does.
cq_netem()
{
	local n rc=0

	CQ_WEATHER=$*
	for n in a b; do
		ip netns exec "cq$n" tc qdisc del dev "cqv$n" root 2> /dev/null
		[ $# -eq 0 ] || cq_do ip netns exec "cq$n" tc qdisc add dev "cqv$n" root netem \
			limit 10000 "$@" || rc=1
	done
	return "$rc"
}

# How many packets netem has lost, doubled or held up in T2.
cq_netem_seen()
{
	local n

	for n in a b; do
		ip netns exec "cq$n" tc -s qdisc show dev "cqv$n"
	done | tee -a "$CQ_LOG" | awk '$1 == "Sent" { gsub(",", ""); n += $4 } /dropped/ {
		sub(/.*dropped /, ""); d += $1 } END { print n + 0, d + 0 }'
}

# ---------------------------------------------------------------- pairs

cq_new_port()
{
	CQ_PORT=$((CQ_PORT + 1))
}

# Does process $1 listen on port $2, by TCP or by the RDMA CM?
cq_listening()
{
	local hex

	# No use to wait for one that has ended.
	kill -0 "$1" 2>/dev/null || return 0
	hex=$(printf ':%04X 0' "$2")
	grep -qs "$hex.* 0A " "/proc/$1/net/tcp" "/proc/$1/net/tcp6" && return 0
	rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*:$2\b"
}

# The client has all that it wanted, and so the server. But the goodbye (DREQ) may
# have been lost, and a client that is gone says none again: a server that then
# still waits for it is ended, which is no failure. True if that was done.
cq_goodbye_lost()
{
	[ -n "$CQ_WEATHER" ] || return
	! cq_wait 5 cq_ended "$1" || return
	cq_note "the server got no goodbye"
	cq_end_process "$1"
}

# cq_pair SECONDS PORT: run SRV in the background and CLI against it when it
# listens. Both must succeed. Output in $CQ_TMP/{srv,cli}. SRV_NS and CLI_NS
# are the namespaces.
cq_pair()
{
	local limit=$(($1 * CQ_SCALE)) port=$2 pid src=0 crc=0
	local -a sns=() cns=()

	[ -z "$SRV_NS" ] || sns=(ip netns exec "$SRV_NS")
	[ -z "$CLI_NS" ] || cns=(ip netns exec "$CLI_NS")
	cq_note "server: $SRV_NS ${SRV[*]}"
	cq_note "client: $CLI_NS ${CLI[*]}"
	"${sns[@]}" timeout -k 3 "$limit" "${SRV[@]}" > "$CQ_TMP/srv" 2>&1 &
	pid=$!
	cq_wait 10 cq_listening "$pid" "$port" || cq_note "(not seen to listen)"
	"${cns[@]}" timeout -k 3 "$limit" "${CLI[@]}" > "$CQ_TMP/cli" 2>&1 || crc=$?
	# A server whose client failed may wait for ever.
	[ "$crc" -eq 0 ] || kill "$pid" 2>/dev/null
	{ [ "$crc" -eq 0 ] && cq_goodbye_lost "$pid"; } || wait "$pid" || src=$?
	CQ_PAIR=$((src | crc))
	CQ_ENDS="server exit $src, client exit $crc"
	cq_note "$CQ_ENDS"
	tail -n 12 "$CQ_TMP/srv" | cut -c1-100 | sed 's/^/  srv: /' >> "$CQ_LOG"
	tail -n 12 "$CQ_TMP/cli" | cut -c1-100 | sed 's/^/  cli: /' >> "$CQ_LOG"
	[ "$src" -eq 0 ] && [ "$crc" -eq 0 ]
}

# cq_offload on|off: whether the two ends of T2 take trains of packets.
cq_offload()
{
	cq_do ip netns exec cqa ethtool -K cqva tx-udp_tnl-segmentation "$1" &&
		cq_do ip netns exec cqb ethtool -K cqvb tx-udp_tnl-segmentation "$1"
}

# cq_ends t1|t2: set the namespaces, devices and the server's address.
cq_ends()
{
	case "$1" in
	t1)
		SRV_NS='' CLI_NS='' SRV_DEV=$CQ_DEV CLI_DEV=$CQ_DEV SRV_IP=$CQ_IP
		SRV_GID=$(cq_gid "$SRV_DEV" "$SRV_IP")
		CLI_GID=$SRV_GID
		;;
	t2)
		SRV_NS=cqa CLI_NS=cqb SRV_DEV=cqda CLI_DEV=cqdb SRV_IP=$CQ_IP_A
		SRV_GID=$(cq_gid "$SRV_DEV" "$CQ_IP_A")
		CLI_GID=$(cq_gid "$CLI_DEV" "$CQ_IP_B")
		;;
	esac
	# iWARP does without.
	[ -n "$SRV_GID" ] || [ "$DEV_TYPE" = siw ]
}

# cq_pingpong rc|uc|ud|srq ITERATIONS BYTES [check|spoil]
# With check, the server looks at the data it got and the client sends what it
# looks for; with spoil the client sends something else. The tool only prints
# what it finds, so its output is judged. With -e the ends sleep for events:
# two busy pollers leave no CPU for the kernel's workers on a small machine.
cq_pingpong()
{
	cq_retry cq_pingpong_once "$@"
}

cq_pingpong_once()
{
	local tool=ibv_${1}_pingpong iter size=$3 mode=${4:-} sc=() cc=()

	iter=$(cq_few "$2")
	case "$mode" in
	check) sc=(-c); cc=(-c) ;;
	spoil) sc=(-c) ;;
	esac
	cq_new_port
	SRV=("$tool" -d "$SRV_DEV" -g "$SRV_GID" -p "$CQ_PORT" -e -n "$iter" -s "$size" "${sc[@]}")
	CLI=("$tool" -d "$CLI_DEV" -g "$CLI_GID" -p "$CQ_PORT" -e -n "$iter" -s "$size" "${cc[@]}"
	     "$SRV_IP")
	cq_pair "$CQ_LIMIT" "$CQ_PORT" || { cq_bad "$tool failed"; return; }
	grep -q "^$iter iters in" "$CQ_TMP/srv" || {
		cq_bad "the server did not count $iter iterations"
		return
	}
	grep -q "^$iter iters in" "$CQ_TMP/cli" || {
		cq_bad "the client did not count $iter iterations"
		return
	}
	! grep -qi "invalid data" "$CQ_TMP/srv" "$CQ_TMP/cli" || cq_bad "invalid data"
}

# cq_pingpong_lossy rc|srq ITERATIONS BYTES: the same with checks, where packets
# are lost. Who has all that it waits for goes, and then nobody says to the other
# one that its last message has come. So one of them has to count all, and soon
# after that both are ended.
cq_pingpong_lossy()
{
	local tool=ibv_${1}_pingpong iter size=$3 srv cli

	iter=$(cq_few "$2")
	cq_new_port
	SRV=("$tool" -g "$SRV_GID" -p "$CQ_PORT" -e -n "$iter" -s "$size" -c -d "$SRV_DEV")
	CLI=("$tool" -g "$CLI_GID" -p "$CQ_PORT" -e -n "$iter" -s "$size" -c -d "$CLI_DEV")
	cq_note "server: $SRV_NS ${SRV[*]}"
	cq_note "client: $CLI_NS ${CLI[*]}"
	ip netns exec "$SRV_NS" "${SRV[@]}" > "$CQ_TMP/srv" 2>&1 &
	srv=$!
	cq_wait 10 cq_listening "$srv" "$CQ_PORT"
	ip netns exec "$CLI_NS" "${CLI[@]}" "$SRV_IP" > "$CQ_TMP/cli" 2>&1 &
	cli=$!
	cq_wait "$CQ_LIMIT" eval "cq_ended $srv || cq_ended $cli"
	cq_wait 2 eval "cq_ended $srv && cq_ended $cli"
	cq_end_process "$srv"
	cq_end_process "$cli"
	tail -n 3 "$CQ_TMP/srv" | sed 's/^/  srv: /' >> "$CQ_LOG"
	tail -n 3 "$CQ_TMP/cli" | sed 's/^/  cli: /' >> "$CQ_LOG"
	grep -q "^$iter iters in" "$CQ_TMP/srv" "$CQ_TMP/cli" || {
		cq_bad "neither counted $iter iterations"
		return
	}
	! grep -qi "invalid data" "$CQ_TMP/srv" "$CQ_TMP/cli" || cq_bad "invalid data"
}

# cq_retry COMMAND...: run a pair again if one of its ends failed, and say so.
# Seen on busy machines, with C rxe and siw: a tool that waits until its time
# limit, and a perftest client that crashes in rdma_resolve_addr(). The queues
# of the core are not in the path of these tools, and whether the kernel or the
# tools lose the connection was not found out; what is wrong with the data is
# never tried again.
cq_retry()
{
	local try tries=2

	CQ_LIMIT=20
	if [ "$DEV_TYPE" = siw ]; then
		tries=3
		CQ_LIMIT=8
	fi
	for ((try = 1; try <= tries; try++)); do
		[ "$try" -eq 1 ] || cq_msg "$DEV_TYPE: ${SRV[0]}: $CQ_ENDS: attempt $try"
		"$@" && return 0
		# What was seen to be wrong is wrong.
		[ "$CQ_PAIR" != 0 ] || break
	done
	return "$KSFT_FAIL"
}

# cq_rping COUNT BYTES: the client compares what comes back (-V).
cq_rping()
{
	cq_retry cq_rping_once "$@"
}

cq_rping_once()
{
	local count size=$2 seen

	count=$(cq_few "$1")
	cq_new_port
	SRV=(rping -s -a "$SRV_IP" -p "$CQ_PORT" -C "$count" -S "$size" -V)
	CLI=(rping -c -a "$SRV_IP" -p "$CQ_PORT" -C "$count" -S "$size" -V -v)
	cq_pair "$CQ_LIMIT" "$CQ_PORT" || { cq_bad "rping failed"; return; }
	seen=$(grep -c '^ping data: ' "$CQ_TMP/cli")
	[ "$seen" -eq "$count" ] || cq_bad "$seen pings instead of $count"
}

# cq_perf TOOL ITERATIONS BYTES [-e] [OPTIONS...]
cq_perf()
{
	# With few iterations and -e on iWARP, perftest waits for an event of
	# completions that it did not ask for in time: let it poll.
	if [ "$DEV_TYPE" = siw ] && [ "${1%_bw}" != "$1" ] && [ "${4:-}" = -e ]; then
		set -- "${@:1:3}" "${@:5}"
	fi
	cq_retry cq_perf_once "$@"
}

cq_perf_once()
{
	local tool=$1 iter size=$3 qps=1 options

	iter=$(cq_few "$2")
	shift 3
	# It counts those of all queue pairs.
	options="$* "
	[[ "$options" != *"-q "* ]] || { qps=${options##*-q }; qps=${qps%% *}; }
	cq_new_port
	SRV=("$tool" -d "$SRV_DEV" -F -n "$iter" -s "$size" -p "$CQ_PORT" "$@")
	CLI=("$tool" -d "$CLI_DEV" -F -n "$iter" -s "$size" -p "$CQ_PORT" "$@")
	if [ "$DEV_TYPE" = rxe ]; then
		SRV+=(-x "$SRV_GID")
		CLI+=(-x "$CLI_GID")
	else
		# siw cannot listen on the device of another namespace, which is
		# what listening on any address means.
		SRV+=(-R --bind_source_ip "$SRV_IP")
		CLI+=(-R)
	fi
	CLI+=("$SRV_IP")
	cq_pair "$CQ_LIMIT" "$CQ_PORT" || { cq_bad "$tool failed"; return; }
	awk -v s="$size" -v n="$((iter * qps))" '$1 == s && $2 == n { ok = 1 } END { exit !ok }' \
		"$CQ_TMP/cli" || cq_bad "$tool printed no result"
}

# cq_sample_cycle CONTEXT [PREFIX...]: the sample is loaded, has a queue in this context
# with some traffic, and is unloaded.
cq_sample_cycle()
{
	local ctx=$1 mark="sample $$ $RANDOM$RANDOM"

	shift
	echo "$mark" > /dev/kmsg
	cq_do "$@" modprobe "$CQ_SAMPLE" "poll_ctx=$ctx" completions=100 bytes=2000 || return
	cq_wait 30 cq_sample_done "$mark" || cq_bad "no traffic in context $ctx" || return
	cq_do cq_limit 30 "$@" rmmod "$CQ_SAMPLE"
}

cq_sample_done()
{
	dmesg | awk -v mark="$1" -v dev="$CQ_DEV" '
		index($0, mark) { on = 1 }
		on && index($0, dev) &&
			/100 completions, 50 messages, 100000 bytes, 100000 verified/ {
			found = 1
		}
		END { exit !found }'
}

# ---------------------------------------------------------------- tracing

# Count what the core does from here on. Call it when ib_core is loaded and
# before the device is made, so that the queues of the MAD layer are seen too.
cq_trace_on()
{
	local t=/sys/kernel/tracing e

	[ -d $t/events ] || mount -t tracefs none $t 2>> "$CQ_LOG"
	cq_modprobe ib_core || return
	[ -d $t/events/rdma_core ] || {
		cq_bad "no trace events rdma_core"
		return
	}
	CQ_TRACE=$t/instances/cq.$$
	mkdir "$CQ_TRACE" || { CQ_TRACE=; return 1; }
	cq_defer cq_trace_off
	echo global > "$CQ_TRACE/trace_clock"
	echo 8192 > "$CQ_TRACE/buffer_size_kb"
	for e in cq_alloc cq_alloc_error cq_free cq_schedule cq_reschedule cq_process cq_poll; do
		[ -d "$CQ_TRACE/events/rdma_core/$e" ] || {
			cq_bad "no trace event $e"
			return
		}
	done
	# An empty poll is no completion, and there are very many of them.
	echo 'rc != 0' > "$CQ_TRACE/events/rdma_core/cq_poll/filter"
	for e in cq_alloc cq_alloc_error cq_free cq_schedule cq_reschedule cq_process cq_poll; do
		echo 1 > "$CQ_TRACE/events/rdma_core/$e/enable" || return
	done
	cq_mark start
}

cq_trace_off()
{
	[ -n "$CQ_TRACE" ] || return 0
	echo 0 > "$CQ_TRACE/events/enable"
	rmdir "$CQ_TRACE"
	CQ_TRACE=
}

# cq_mark NAME: what follows belongs to NAME.
cq_mark()
{
	echo "cq_mark=$1" > "$CQ_TRACE/trace_marker"
}

# cq_count NAME: fill CQ_N (queues allocated), CQ_USED (queues that had
# completions), CQ_EVENTS, CQ_RESCHED, CQ_CALLS, CQ_COMP and CQ_FREED, each by
# context, for what happened under this mark (all marks: NAME is "all").
cq_count()
{
	local ctx n used ev re calls comp freed lost

	for ctx in $CQ_CONTEXTS UNKNOWN; do
		CQ_N[$ctx]=0 CQ_USED[$ctx]=0 CQ_EVENTS[$ctx]=0 CQ_RESCHED[$ctx]=0
		CQ_CALLS[$ctx]=0 CQ_COMP[$ctx]=0 CQ_FREED[$ctx]=0
	done
	awk -v want="$1" '
		BEGIN {
			split("DIRECT SOFTIRQ WORKQUEUE UNBOUND_WORKQUEUE", name)
			on = want == "all"
		}
		function of(id) { return id in ctx ? ctx[id] : "UNKNOWN" }
		{ id = "" }
		match($0, /cq\.id=[0-9]+/) { id = substr($0, RSTART + 6, RLENGTH - 6) }
		/cq_mark=/ { sub(/.*cq_mark=/, ""); on = want == "all" || $0 == want; next }
		/: cq_alloc: / {
			c = $0; sub(/.*poll_ctx=/, "", c)
			if (c ~ /^(0x)?[0-3]$/) { sub(/^0x/, "", c); c = name[c + 1] }
			ctx[id] = c; inst[id]++; if (on) n[c]++
		}
		on && /: cq_free: / { freed[of(id)]++ }
		on && /: cq_schedule: / { ev[of(id)]++ }
		on && /: cq_reschedule: / { re[of(id)]++ }
		on && /: cq_process: / { calls[of(id)]++ }
		on && /: cq_poll: / {
			c = $0; sub(/.*returned /, "", c)
			if (c + 0 > 0) {
				comp[of(id)] += c
				key = id "/" inst[id]
				if (!(key in seen)) { seen[key] = 1; used[of(id)]++ }
			}
		}
		END {
			name[5] = "UNKNOWN"
			for (i = 1; i <= 5; i++) {
				c = name[i]
				print c, n[c] + 0, used[c] + 0, ev[c] + 0, re[c] + 0, \
					calls[c] + 0, comp[c] + 0, freed[c] + 0
			}
		}' "$CQ_TRACE/trace" > "$CQ_TMP/count" || {
		cq_bad "the trace is not readable"
		return
	}
	while read -r ctx n used ev re calls comp freed; do
		CQ_N[$ctx]=$n CQ_USED[$ctx]=$used CQ_EVENTS[$ctx]=$ev
		CQ_RESCHED[$ctx]=$re CQ_CALLS[$ctx]=$calls CQ_COMP[$ctx]=$comp
		CQ_FREED[$ctx]=$freed
	done < "$CQ_TMP/count"
	lost=$(awk '/^(overrun|dropped events):/ { s += $NF } END { print s + 0 }' \
		"$CQ_TRACE"/per_cpu/cpu*/stats)
	[ "$lost" -eq 0 ] || cq_msg "$lost trace events lost: the counts are too low"
}

# cq_report NAME: print the lines that make the table "who uses what".
cq_report()
{
	local ctx line="ctx $1:"

	cq_count "$1"
	for ctx in $CQ_CONTEXTS; do
		[ "${CQ_N[$ctx]}" -eq 0 ] || line+=" $ctx ${CQ_N[$ctx]}"
	done
	cq_msg "$line"
	for ctx in $CQ_CONTEXTS UNKNOWN; do
		if [ $((CQ_N[$ctx] + CQ_EVENTS[$ctx] + CQ_COMP[$ctx])) -gt 0 ]; then
			cq_msg "use $1 $ctx: cqs ${CQ_N[$ctx]} used ${CQ_USED[$ctx]}" \
				"events ${CQ_EVENTS[$ctx]} reschedules ${CQ_RESCHED[$ctx]}" \
				"calls ${CQ_CALLS[$ctx]} completions ${CQ_COMP[$ctx]}"
		fi
	done
}

# cq_expect CONTEXT...: after cq_report or cq_count, each must have had queues
# and completions; all but DIRECT must have had events.
cq_expect()
{
	local ctx rc=0

	for ctx in "$@"; do
		if [ "${CQ_USED[$ctx]}" -eq 0 ] || [ "${CQ_COMP[$ctx]}" -eq 0 ]; then
			cq_bad "no completions in context $ctx" || rc=1
		elif [ "$ctx" != DIRECT ] && [ "${CQ_EVENTS[$ctx]}" -eq 0 ]; then
			cq_bad "no events in context $ctx" || rc=1
		fi
	done
	# The handler of a DIRECT queue must never run.
	if [ "${CQ_EVENTS[DIRECT]}" -ne 0 ]; then
		cq_bad "events in context DIRECT" || rc=1
	fi
	return "$rc"
}

# When the device is gone, so must be all queues.
end_all_freed()
{
	local ctx rc=0 sum=0

	[ -n "$CQ_TRACE" ] || { cq_skip "no tracing"; return; }
	cq_t1_down
	cq_count all || return
	for ctx in $CQ_CONTEXTS; do
		cq_note "$ctx: allocated ${CQ_N[$ctx]}, freed ${CQ_FREED[$ctx]}"
		[ "${CQ_N[$ctx]}" -eq "${CQ_FREED[$ctx]}" ] || rc=1
		sum=$((sum + CQ_N[$ctx]))
	done
	[ "$rc" -eq 0 ] || { cq_bad "not all queues were freed"; return; }
	if [ "$sum" -eq 0 ]; then
		[ "$DEV_TYPE" = rxe ] && { cq_bad "no queue was seen"; return; }
		cq_skip "no kernel queue was used"
	fi
}

# The first step of a script with one device.
t_device()
{
	cq_trace_on || return "$CQ_FATAL"
	cq_mark mad
	cq_t1_up || return "$CQ_FATAL"
	if [ "$DEV_TYPE" = rxe ]; then
		cq_count mad
		[ "${CQ_N[UNBOUND_WORKQUEUE]}" -gt 0 ] ||
			cq_bad "the MAD layer has no queue in UNBOUND_WORKQUEUE"
	fi
}

# ---------------------------------------------------------------- data

# A file of $2 KiB of noise at $1.
cq_noise()
{
	dd if=/dev/urandom of="$1" bs=1k count="$2" status=none
}

cq_sum()
{
	sha256sum < "$1" | cut -d' ' -f1
}

# Overwrite 4 KiB of file or device $1, at offset 32 KiB.
cq_spoil()
{
	cq_note "spoil $1"
	dd if=/dev/urandom of="$1" bs=4k seek=8 count=1 conv=notrunc,fsync status=none
}

# cq_fio_verify DEVICE BLOCKSIZE SIZE SPOIL-DEVICE [OPTIONS...]: write at
# random, then read all back and compare CRCs, past the page cache. With
# SELFTEST_BREAK this is two runs, which spoil the data on SPOIL-DEVICE between
# them; in one it is faster, because fio is slow to start.
cq_fio_verify()
{
	local dev=$1 bs=$2 size behind=$4 job sync=--end_fsync=1

	size=$(cq_few "$(numfmt --from=iec "${3^^}")")
	shift 4
	job=(--name=v --filename="$dev" --rw=randwrite --bs="$bs" --size="$size"
	     --verify=crc32c --verify_fatal=1 --verify_state_save=0 --direct=1
	     --randseed=7 --allow_file_create=0 --eta=never --output=/dev/null "$@")
	# A flush cannot be polled for.
	case "$*" in *hipri=1*) sync=--end_fsync=0 ;; esac
	if [ "$SELFTEST_BREAK" != 1 ]; then
		cq_do cq_limit 60 fio "${job[@]}" --do_verify=1 "$sync"
		return
	fi
	cq_do cq_limit 60 fio "${job[@]}" --do_verify=0 "$sync" || return
	cq_spoil "$behind"
	cq_do cq_limit 60 fio "${job[@]}" --verify_only=1
}

# cq_mkfs_verify DEVICE KIB: file system, a file with its checksum, a second
# mount, the checksum again.
cq_mkfs_verify()
{
	local dev=$1 kib m=$CQ_TMP/mnt sum rc=0

	kib=$(cq_few "$2")
	mkdir -p "$m"
	cq_noise "$CQ_TMP/noise" "$kib" || return
	sum=$(cq_sum "$CQ_TMP/noise")
	cq_do cq_limit 60 mkfs.ext4 -q -F -E nodiscard "$dev" || return
	cq_do mount -t ext4 "$dev" "$m" || return
	cq_do cp "$CQ_TMP/noise" "$m/file" || rc=1
	cq_do sync -f "$m/file"
	if [ "$SELFTEST_BREAK" = 1 ]; then
		cq_spoil "$m/file"
	fi
	cq_do umount "$m" || return
	[ "$rc" -eq 0 ] || return "$rc"
	# Only this device's cache: a new start of every program is dear.
	cq_do blockdev --flushbufs "$dev" || return
	cq_do cq_limit 60 fsck.ext4 -fn "$dev" || return
	cq_do mount -t ext4 -o ro "$dev" "$m" || return
	[ "$(cq_sum "$m/file")" = "$sum" ] || { cq_bad "the checksum changed"; rc=1; }
	cq_do umount "$m"
	return "$rc"
}
