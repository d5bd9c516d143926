// SPDX-License-Identifier: GPL-2.0

//! The CRC-32 of Ethernet.
//!
//! # Examples
//!
//! ```
//! use kernel::crc32;
//!
//! // No inversion is done at the start or at the end.
//! assert_eq!(!crc32::le(u32::MAX, b"123456789"), 0xcbf4_3926);
//! assert_eq!(crc32::le(crc32::le(u32::MAX, b"1234"), b"56789"), !0xcbf4_3926);
//! ```
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h)

use crate::bindings;

/// Returns the CRC after `data`, with the least significant bit of each byte first; `crc` is the
/// CRC before it. Any context.
#[inline]
pub fn le(crc: u32, data: &[u8]) -> u32 {
    // SAFETY: The pointer and the length are those of a slice.
    unsafe { bindings::crc32_le(crc, data.as_ptr().cast(), data.len()) }
}
