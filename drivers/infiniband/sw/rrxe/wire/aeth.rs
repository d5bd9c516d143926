// SPDX-License-Identifier: GPL-2.0

//! ACK extended transport header (IBA vol. 1, 9.3.5 and 9.7.5).

/// Reasons of a negative acknowledgment (IBA vol. 1, table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    /// The packet is not the next one; the sender starts again from the PSN named.
    PsnSequence,
    /// The request is not allowed or makes no sense here.
    InvalidRequest,
    /// The memory may not be accessed so.
    RemoteAccess,
    /// The responder failed for a reason of its own.
    RemoteOperational,
}

/// What the syndrome says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    /// Positive acknowledgment with a credit count; 31 means that credits are not counted.
    Ack(u8),
    /// Receiver not ready, with the code of the time to wait, 0 to 31.
    Rnr(u8),
    /// Negative acknowledgment.
    Nak(Nak),
}

impl Syndrome {
    /// An acknowledgment that says nothing about credits.
    pub(crate) const ACK: Self = Self::Ack(0x1f);

    /// Reads a syndrome; `None` for one that is reserved.
    pub(crate) const fn parse(b: u8) -> Option<Self> {
        let value = b & 0x1f;

        match b >> 5 {
            0 => Some(Self::Ack(value)),
            1 => Some(Self::Rnr(value)),
            3 => match value {
                0 => Some(Self::Nak(Nak::PsnSequence)),
                1 => Some(Self::Nak(Nak::InvalidRequest)),
                2 => Some(Self::Nak(Nak::RemoteAccess)),
                3 => Some(Self::Nak(Nak::RemoteOperational)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Writes the syndrome.
    pub(crate) const fn emit(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::Rnr(timer) => 0x20 | (timer & 0x1f),
            Self::Nak(Nak::PsnSequence) => 0x60,
            Self::Nak(Nak::InvalidRequest) => 0x61,
            Self::Nak(Nak::RemoteAccess) => 0x62,
            Self::Nak(Nak::RemoteOperational) => 0x63,
        }
    }
}

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aeth {
    /// The raw syndrome, see [`Syndrome`].
    pub(crate) syndrome: u8,
    /// Messages completed so far, 24 bits.
    pub(crate) msn: u32,
}

impl Aeth {
    /// Size on the wire.
    pub(crate) const LEN: usize = 4;

    /// Reads a header.
    pub(crate) const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            syndrome: b[0],
            msn: u32::from_be_bytes([0, b[1], b[2], b[3]]),
        }
    }

    /// Writes the header.
    pub(crate) const fn emit(&self) -> [u8; Self::LEN] {
        let [_, m0, m1, m2] = self.msn.to_be_bytes();

        [self.syndrome, m0, m1, m2]
    }
}

/// Returns the time that an RNR timer code means, in nanoseconds (IBA vol. 1, table 47).
pub(crate) fn rnr_ns(code: u8) -> u64 {
    // In units of 10 us; code 0 is the longest.
    const TICKS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    // Five bits cannot be out of the bounds of 32 values.
    u64::from(TICKS.get(usize::from(code & 0x1f)).copied().unwrap_or(0)) * 10_000
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_wire_aeth)
)]
mod tests {
    use super::{
        rnr_ns,
        Aeth,
        Syndrome, //
    };

    #[test]
    fn parses_and_emits() {
        let aeth = Aeth {
            syndrome: 0x1f,
            msn: 0x01_0203,
        };

        assert_eq!(Aeth::parse(&[0x1f, 1, 2, 3]), aeth);
        assert_eq!(aeth.emit(), [0x1f, 1, 2, 3]);
    }

    #[test]
    fn every_syndrome_round_trips_or_is_reserved() {
        let mut reserved = 0;

        for b in 0..=u8::MAX {
            match Syndrome::parse(b) {
                Some(s) => assert_eq!(s.emit(), b),
                None => reserved += 1,
            }
        }
        // 32 ACKs, 32 RNR NAKs and four NAKs are defined for the transports that we have.
        assert_eq!(reserved, 256 - 68);
    }

    #[test]
    fn rnr_times() {
        assert_eq!(rnr_ns(0), 655_360_000);
        assert_eq!(rnr_ns(1), 10_000);
        assert_eq!(rnr_ns(12), 640_000);
        assert_eq!(rnr_ns(25), 61_440_000);
        assert_eq!(rnr_ns(31), 491_520_000);
        // Only five bits count.
        assert_eq!(rnr_ns(0x21), rnr_ns(1));
    }
}
