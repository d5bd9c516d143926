#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel's own selftests of rdma_rxe, as they are, on the RoCE driver in Rust.
# They load and unload a module of that name: for them it is a name of rrxe. Each
# is run with rdma_rxe first, and what passes there has to pass. With DEV_TYPE=rxe
# that is done twice.

# The steps are called by name:
# shellcheck disable=SC2329,SC2034

DEV_TYPE=${DEV_TYPE:-rrxe}
# shellcheck source=cq_lib.sh
. "$(dirname "$0")/cq_lib.sh"

# In a kernel tree they are beside this one.
KERNEL_SELFTESTS=${KERNEL_SELFTESTS:-$CQ_DIR/..}
# Where modprobe looks; nobody else sees what is there.
CONFIG=/run/modprobe.d
declare -A WITH_C

# What a name stands for.
alias_for()
{
	rm -f "$CONFIG/rrxe_kernel.conf"
	[ "$1" = rdma_rxe ] || echo "alias rdma_rxe $1" > "$CONFIG/rrxe_kernel.conf"
}

t_alias()
{
	local rc=0

	mkdir -p "$CONFIG" && cq_do mount -t tmpfs none "$CONFIG" || return "$CQ_FATAL"
	alias_for "$CQ_MODULE"
	cq_do modprobe rdma_rxe || return "$CQ_FATAL"
	cq_loaded "$CQ_MODULE" || { cq_bad "$CQ_MODULE is not loaded"; rc=$CQ_FATAL; }
	[ "$CQ_MODULE" = rdma_rxe ] || ! cq_loaded rdma_rxe ||
		{ cq_bad "rdma_rxe is loaded"; rc=$CQ_FATAL; }
	cq_do modprobe -r rdma_rxe || rc=$CQ_FATAL
	! cq_loaded "$CQ_MODULE" || { cq_bad "$CQ_MODULE stays"; rc=$CQ_FATAL; }
	return "$rc"
}

# kernel_test SCRIPT MODULE: its results as lines "ok|fail|skip NAME".
kernel_test()
{
	local rc=0 path=$PATH

	alias_for "$2"
	cq_note "$1 with $2"
	# The control: none of the ports that they look for.
	[ "$SELFTEST_BREAK" != 1 ] || [ -z "$3" ] || path=$CQ_TMP/broken:$PATH
	PATH=$path timeout -k 3 $((60 * CQ_SCALE)) "$KERNEL_SELFTESTS/rdma/$1" \
		> "$CQ_TMP/out" 2>&1 || rc=$?
	cat "$CQ_TMP/out" >> "$CQ_LOG"
	cq_note "-> exit status $rc"
	cq_rmmod "$2"
	awk -v rc="$rc" -v skip="$KSFT_SKIP" '
		/^(not )?ok [0-9]+/ {
			status = /^not/ ? "fail" : /# SKIP/ ? "skip" : "ok"
			sub(/^(not )?ok [0-9]+ (- )?/, ""); sub(/ *# SKIP.*/, "")
			print status, $0
		}
		# The whole of it too: some say nothing else.
		END { print rc == 0 ? "ok" : rc == skip ? "skip" : "fail", "all of it" }' \
		"$CQ_TMP/out"
}

# One that fails may have waited for a second when a busy machine needs more.
better()
{
	local try

	for try in {1..3}; do
		[ "$try" -eq 1 ] || cq_msg "$1: attempt $try"
		kernel_test "$1" "$CQ_MODULE" here > "$CQ_TMP/results"
		grep -q "^fail" "$CQ_TMP/results" || break
		# As it is with C: once is enough.
		! cmp -s "$CQ_TMP/results" "$CQ_TMP/results.c" || break
	done
}

# Compare a script; its results are those of a subtest.
compare()
{
	local script=$1 nr=0 rc=0 status name

	WITH_C=()
	kernel_test "$script" rdma_rxe '' > "$CQ_TMP/results.c"
	while read -r status name; do
		WITH_C[$name]=$status
	done < "$CQ_TMP/results.c"
	better "$script"
	while read -r status name; do
		nr=$((nr + 1))
		case "$status,${WITH_C[$name]:-none}" in
		ok,ok)		echo "    ok $nr $name" ;;
		ok,*)		echo "    ok $nr $name"
				cq_msg "passes, but not with rdma_rxe: $script: $name" ;;
		skip,skip)	echo "    ok $nr $name # SKIP it is with rdma_rxe, too" ;;
		fail,fail)	echo "    ok $nr $name # XFAIL it fails with rdma_rxe, too" ;;
		*)
			echo "    # $status, and ${WITH_C[$name]:-not there} with rdma_rxe"
			echo "    not ok $nr $name"
			rc=1
			;;
		esac
		unset "WITH_C[$name]"
	done < "$CQ_TMP/results"
	for name in "${!WITH_C[@]}"; do
		nr=$((nr + 1))
		echo "    not ok $nr $name"
		rc=1
	done
	echo "    1..$nr"
	return "$rc"
}

t_ipv6()	{ compare rxe_ipv6.sh; }
t_rping()	{ compare rxe_rping_between_netns.sh; }
t_bytes()	{ compare rxe_sent_rcvd_bytes.sh; }
t_socket()	{ compare rxe_socket_with_netns.sh; }
t_names()	{ compare rxe_netns_names.sh; }
# It looks at once, and the device goes when a work item has run, with rdma_rxe too.
t_unregister()	{ compare rxe_test_NETDEV_UNREGISTER.sh; }

# Are there others?
t_all()
{
	local f

	for f in "$KERNEL_SELFTESTS"/rdma/rxe_*.sh; do
		grep -q "compare ${f##*/};" "$0" || cq_bad "nothing is done with ${f##*/}" || return
	done
}

end_unload()
{
	alias_for rdma_rxe
	cq_module_goes
}

cq_init rrxe_kernel
cq_need_device
cq_need_module rdma_rxe tun veth dummy
cq_need modinfo ss rping ping ip
[ -e "$KERNEL_SELFTESTS/rdma/rxe_ipv6.sh" ] ||
	cq_skip_all "no selftests of the kernel in $KERNEL_SELFTESTS"
cq_loaded rdma_rxe && cq_skip_all "rdma_rxe is loaded already"
cq_loaded rrxe && cq_skip_all "rrxe is loaded already"
mkdir "$CQ_TMP/broken"
printf '#!/bin/sh\nexit 0\n' > "$CQ_TMP/broken/ss"
chmod +x "$CQ_TMP/broken/ss"
cq_main \
	t_alias "the name of the module" \
	t_ipv6 "rxe_ipv6" \
	t_rping "rxe_rping_between_netns" \
	t_bytes "rxe_sent_rcvd_bytes" \
	t_socket "rxe_socket_with_netns" \
	t_names "rxe_netns_names" \
	t_unregister "rxe_test_NETDEV_UNREGISTER" \
	t_all "there are no others" \
	end_unload "the module goes" \
	end_no_warning "no complaint of the kernel"
