// SPDX-License-Identifier: GPL-2.0

//! A datagram, taken apart.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rrxe_host::fuzz::packet(data));
