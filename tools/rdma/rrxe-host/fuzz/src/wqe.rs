// SPDX-License-Identifier: GPL-2.0

//! An entry of a user's send or receive queue, decoded.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rrxe_host::fuzz::wqe(data));
