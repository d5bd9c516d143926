# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034 # most is for the scripts that source this
#
# What the set-up and build scripts share: where things are, how a step is
# shown, how a fault is told.  To be sourced.

set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
project=$(dirname "$here")
cache=${RUST_RDMA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rust-rdma}
export RUST_RDMA_CACHE=$cache
logs=$cache/log
jobs=${JOBS:-$(nproc)}
name=$(basename "$0")

# The clock of the whole run, also across the scripts that a script calls.
export RUST_RDMA_START=${RUST_RDMA_START:-$(date +%s)}

elapsed() {
	local s=$(($(date +%s) - ${1:-$RUST_RDMA_START}))
	printf '%d:%02d' $((s / 60)) $((s % 60))
}

say() {
	printf '[%6s] %s\n' "$(elapsed)" "$*"
}

# die TEXT CURE: one line that says what is wrong and what helps.
die() {
	printf '%s: error: %s; %s\n' "$name" "$1" "$2" >&2
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "this needs root (chroot, mounts)" "run it with sudo"
}

# How far a step is, in percent: the lines of its log against what they were
# when it was last complete.  Sets $progress, to nothing when not known.
step_progress() {
	local log=$1 total=$2 n
	progress=
	[ -n "$total" ] && [ "$total" -gt 0 ] || return 0
	n=$(wc -l <"$log")
	progress=$((n * 100 / total))
	[ $progress -lt 100 ] || progress=99
	progress=" $progress %"
}

# step TITLE LOG CURE COMMAND...: run a long command with its output in a log.
# $step_lines is how many lines that usually are, where that is known.
step() {
	local title=$1 log=$2 cure=$3 pid start status=0 wheel='|/-\\|' i=0
	shift 3
	mkdir -p "$(dirname "$log")"
	start=$(date +%s)
	: >"$log"
	say "$title (log: $log)"
	# In a process group of its own, which is ended as a whole: a command in
	# the background of a script ignores Ctrl-C, and would go on alone.
	set -m
	"$@" >>"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	local stop="kill -TERM -- -$pid 2>/dev/null || :; wait $pid || :"
	# shellcheck disable=SC2064 # the pid of now
	trap "$stop; echo; say 'Interrupted'; exit 130" INT TERM HUP
	if [ -t 1 ]; then
		while kill -0 $pid 2>/dev/null; do
			step_progress "$log" "${step_lines:-}"
			printf '\r[%6s] %s %s%s ' "$(elapsed)" "${wheel:i++ % 4:1}" \
				"$(elapsed "$start")" "$progress"
			sleep 0.5
		done
		printf '\r\033[K'
	fi
	wait $pid || status=$?
	trap - INT TERM HUP
	if [ $status != 0 ]; then
		echo "---- the last lines of $log:" >&2
		tail -n "${step_tail:-20}" "$log" >&2
		echo "----" >&2
		die "$title: failed with status $status, see $log" "$cure"
	fi
	[ $(($(date +%s) - start)) -lt 2 ] || say "  done in $(elapsed "$start")"
}

# lock NAME: one at a time on what NAME stands for, until this script ends.
# With a second argument 'shared' many may hold it.
lock() {
	local file=$cache/$1.lock fd mode=${2:-exclusive}
	mkdir -p "$(dirname "$file")"
	exec {fd}>>"$file"
	if ! flock -n "--$mode" "$fd"; then
		say "waiting for another run that uses $1 ($file)"
		flock "--$mode" "$fd"
	fi
	lock_fd=$fd
}

unlock() {
	exec {lock_fd}>&-
}

hash_of() {
	cat "$@" | sha256sum | cut -c1-12
}

inroot() {
	"$here/inroot" "$@"
}

# What apt and dpkg have in their environment in the root.
apt_env=(DEBIAN_FRONTEND=noninteractive LC_ALL=C
	${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"}
	${no_proxy:+"no_proxy=$no_proxy"})

# A command of apt or dpkg in the root.
apt() {
	inroot env "${apt_env[@]}" "$@"
}

# package_list FILE: the packages that it names, in $packages.
package_list() {
	mapfile -t packages < <(sed 's/#.*//' "$1" | tr -s '[:blank:]' '\n' | grep . | sort -u)
}

# unpack_debs SUITE DIR PACKAGE...: what these packages of a Debian suite hold, in a
# directory of the root that has nothing else. Downloaded with lists of its own, so
# that nothing is installed from there.
unpack_debs() {
	local suite=$1 dir=$2 state=$cache/root/k/debs deb mirror
	shift 2
	mirror=$(awk '$1 == "deb" { print $2; exit }' \
		"$cache/root/etc/apt/sources.list.d/kernel-source.list")
	rm -rf "${cache:?}/root$dir" "$state"
	mkdir -p "$cache/root$dir" "$state"/{lists,cache/archives,debs}/partial
	echo "deb $mirror $suite main" >"$state/sources.list"
	cat >"$state/apt.conf" <<-END
		Dir::Etc::SourceList "/k/debs/sources.list";
		Dir::Etc::SourceParts "-";
		Dir::State::Lists "/k/debs/lists";
		Dir::Cache "/k/debs/cache";
		APT::Sandbox::User "root";
	END
	apt env APT_CONFIG=/k/debs/apt.conf apt-get update -q
	# shellcheck disable=SC2016 # expanded by that shell
	apt env APT_CONFIG=/k/debs/apt.conf sh -c 'cd "$0" && apt-get download -q "$@"' \
		/k/debs/debs "${@/%//$suite}"
	for deb in "$state"/debs/*.deb; do
		apt dpkg-deb -x "/k/debs/debs/$(basename "$deb")" "$dir"
	done
	rm -rf "$state"
}

# add_to_root NAME WHAT TEXT FUNCTION: what scripts/setup-NAME has the FUNCTION unpack
# into the build root, beside what is installed there; nothing if it has done so. WHAT
# ends with "is" or "are".
add_to_root() {
	local name=$1 what=$2 text=$3 fill=$4 want
	need_root
	[ -e "$cache/root/k/packages" ] ||
		die "there is no build root in $cache" "run 'scripts/setup-root', or 'make build'"
	lock root
	want=$(hash_of "$0" "$cache/root/k/packages")
	if [ "$(cat "$cache/root/k/$name.key" 2>/dev/null)" = "$want" ]; then
		say "$what up to date"
		return
	fi
	step "$text" "$logs/$name.log" \
		"check the network; the packages are named in scripts/setup-$name" "$fill"
	echo "$want" >"$cache/root/k/$name.key"
}

# The kernel's make, in the root or with the host's own tools (NATIVE=1).
# The source is always seen as the same path, so nothing depends on where it is.
kmake() {
	local output=$1
	shift
	# Always the same, or each build would have something new to link.
	local vars=(KBUILD_BUILD_USER=rust-rdma KBUILD_BUILD_HOST=vm
		"KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 2026")
	if [ -n "${NATIVE:-}" ]; then
		make -C "$cache/src" "O=$cache/build/$output" "LLVM=${NATIVE_LLVM:-1}" \
			"${vars[@]}" "$@"
	else
		inroot make -C /k/src "O=/k/build/$output" LLVM=-22 "${vars[@]}" "$@"
	fi
}

# The drivers that call completion handlers, for scripts/check-drivers and
# scripts/check-asm: two copies of the source, "before" with the drivers as they
# are, and "after" with scripts/integrate --drivers.  Their files are links to
# those of the kernels' source; who changes one writes a new file.
trees=$cache/drivers

copy_tree() {
	rm -rf "${trees:?}/$1" "$trees/$1.part"
	cp -al "$(readlink -f "$cache/src")" "$trees/$1.part"
	mv -T "$trees/$1.part" "$trees/$1"
}

lay_tree() {
	local options=()
	[ "$1" = before ] || options=(--drivers)
	"$here/integrate" "${options[@]}" "$trees/$1"
}

driver_trees() {
	local which
	mkdir -p "$trees"
	for which in before after; do
		if ! cmp -s "$cache/src/.rust-rdma-version" "$trees/$which/.rust-rdma-version"; then
			step "Copy the source: $which" "$logs/drivers/copy-$which.log" \
				"make room in $cache" copy_tree $which >&2
		fi
		step "Lay the overlay: $which" "$logs/drivers/lay-$which.log" \
			"see the message above" lay_tree $which >&2
	done
}

# The kernel's make with one of the two as the source.
dmake() {
	local which=$1 output=$2 arch=$3
	shift 3
	# rdmavt is for x86-64, but its code is not.
	[ "$arch" = x86_64 ] || set -- CONFIG_INFINIBAND_RDMAVT=m "$@"
	inroot -b "$trees/$which:/k/src" make -C /k/src "O=/k/build/$output" LLVM=-22 \
		"ARCH=$arch" "-j$jobs" "$@"
}
