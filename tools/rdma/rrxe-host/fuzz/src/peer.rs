// SPDX-License-Identifier: GPL-2.0

//! A peer that sends packets in any order to a queue pair at work.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rrxe_host::fuzz::peer(data));
