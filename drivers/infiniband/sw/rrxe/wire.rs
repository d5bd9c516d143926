// SPDX-License-Identifier: GPL-2.0

//! Headers of the InfiniBand transport as they are on the wire (IBA vol. 1, chapter 9.2 to 9.6).
//!
//! Each header is a plain value with `parse`, which takes an array of exactly the header's size,
//! and `emit`, which returns one. So no access can be out of bounds and none can fail: whether
//! the bytes are there is decided once, in [`crate::packet`]. All numbers are big-endian.

// A file that is named by `path` looks for its modules beside itself, one that is not named so in
// a directory of its own name; the explicit paths mean the same file in both.
#[path = "wire/aeth.rs"]
pub(crate) mod aeth;
#[path = "wire/atomic.rs"]
pub(crate) mod atomic;
#[path = "wire/bth.rs"]
pub(crate) mod bth;
#[path = "wire/deth.rs"]
pub(crate) mod deth;
#[path = "wire/feth.rs"]
pub(crate) mod feth;
#[path = "wire/grh.rs"]
pub(crate) mod grh;
#[path = "wire/reth.rs"]
pub(crate) mod reth;

/// UDP destination port of RoCEv2.
pub(crate) const UDP_PORT: u16 = 4791;

/// Size of the immediate data header.
pub(crate) const IMMDT_LEN: usize = 4;

/// Size of the invalidate header.
pub(crate) const IETH_LEN: usize = 4;

/// Size of the ICRC at the end of each packet.
pub(crate) const ICRC_LEN: usize = 4;

/// Returns how many bytes of padding follow a payload of `len` bytes.
pub(crate) const fn pad(len: u32) -> u8 {
    // The mask leaves 0 to 3.
    (len.wrapping_neg() & 3) as u8
}
