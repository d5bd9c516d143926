# SPDX-License-Identifier: GPL-2.0
#
# The front door.  This is no kernel Makefile: in a tree of your own you say
# scripts/integrate KERNEL_TREE, and then the kernel's make as ever.

# What the targets may be told; see "make help".
KERNEL ?= release
CORE ?= rust
export NATIVE JOBS KERNEL_TARBALL RUST_RDMA_CACHE DRIVERS FRESH

.DEFAULT_GOAL := help
.PHONY: help run check build build-release build-debug build-kcsan build-arm64 shell integrate patches bench bench-gate profile bench-cq fuzz clean distclean

help:
	@echo 'From a fresh clone, as root on Debian 12 or 13:'
	@echo '  make run            boot a VM, move RDMA data over the Rust CQ code, show what happened'
	@echo '  make check          run all test suites; results in results/'
	@echo '                      (again only those of which something changed; FRESH=1: all)'
	@echo '  make check-SUITE    one suite:'
	@scripts/check --list | sed 's/^/                        /'
	@echo '  make shell          a prompt in the VM (KERNEL=debug, KERNEL=arm64, CORE=c)'
	@echo '  make bench-cq       speed of the Rust CQ code against the C code'
	@echo '  make bench          speed of rrxe against C rxe and siw, with pictures, in results/bench/;'
	@echo '                      scripts/bench --help for parts of it'
	@echo '  make bench-gate     has rrxe become slower than scripts/bench-baseline.json says?'
	@echo '  make profile CASE=send_64   instructions by function for a case of make bench (DRIVER=rxe, TOPOLOGY=device)'
	@echo '  make fuzz           long runs of the fuzzers of rrxe (KERNEL=debug); scripts/fuzz --help for parts of it'
	@echo '  make build          build root, source, both kernels (build-release, build-debug: one;'
	@echo '                      build-kcsan: that which finds data races; build-arm64: that for an emulated arm64 CPU, and its user space)'
	@echo '  make integrate KDIR=TREE   lay the project over a 7.3 kernel tree of your own'
	@echo '  make patches        mail series against Linux 7.3, in patches/'
	@echo '  make clean          remove results/'
	@echo '  make distclean      remove the cache too (build root, source, kernels)'
	@echo
	@echo 'Each builds what is missing.  Variables:'
	@echo '  RUST_RDMA_CACHE=DIR the cache; default $${XDG_CACHE_HOME:-~/.cache}/rust-rdma'
	@echo '  JOBS=N              jobs of a build; default: the number of CPUs'
	@echo '  DRIVERS=1           convert the RDMA drivers of the kernel too (also for make integrate)'
	@echo '  NATIVE=1            build with the compilers of this machine'
	@echo '  KERNEL_TARBALL=FILE a linux-7.3.y tarball instead of the Debian package'
	@echo '  scripts/vm run --help: run a command of your own in the VM'

run:
	@scripts/demo

check:
	@scripts/check

check-%:
	@scripts/check $*

build:
	@scripts/build

build-release build-debug build-kcsan build-arm64: build-%:
	@scripts/build $*

shell:
	@scripts/build $(KERNEL)
	@scripts/vm shell --kernel $(KERNEL) --core $(CORE)

fuzz:
	@scripts/fuzz --kernel $(KERNEL)

bench:
	@scripts/build release
	@scripts/setup-mpi
	@scripts/setup-plot
	@scripts/bench

bench-gate:
	@scripts/build release
	@scripts/setup-mpi
	@scripts/bench --gate

profile:
	@test -n "$(CASE)" || { echo 'make profile: error: CASE is not set; say make profile CASE=send_64' >&2; exit 2; }
	@scripts/build release
	@scripts/profile $(if $(DRIVER),--driver $(DRIVER)) $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(CASE)

bench-cq:
	@scripts/bench-cq

integrate:
	@test -n "$(KDIR)" || { echo 'make integrate: error: KDIR is not set; say make integrate KDIR=KERNEL_TREE' >&2; exit 2; }
	@scripts/integrate $(if $(DRIVERS),--drivers) "$(KDIR)"

patches:
	@scripts/patches

clean:
	rm -rf results patches
	find scripts -name __pycache__ -exec rm -rf {} +

distclean: clean
	@scripts/distclean
