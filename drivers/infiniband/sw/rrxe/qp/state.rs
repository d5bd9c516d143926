// SPDX-License-Identifier: GPL-2.0

//! States of a queue pair (IBA vol. 1, 10.3.1).
//!
//! Which attributes a transition needs and allows is what `ib_modify_qp_is_ok()` knows, and is not
//! repeated here. This file says what the driver does when a state is entered, which values of
//! attributes make no sense, and what may happen in each state.

/// State of a queue pair; the numbers are those of `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QpState {
    /// Nothing works; both queues are empty.
    Reset = 0,
    /// Receive requests may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue is drained: what was begun ends, nothing is begun.
    Sqd = 4,
    /// The send queue is in error, receiving works.
    Sqe = 5,
    /// All work requests are flushed.
    Error = 6,
}

impl QpState {
    /// All states.
    pub(crate) const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Error,
    ];

    /// Finds a state by the number that verbs have for it.
    pub(crate) fn from_verbs(value: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(value).ok()?).copied()
    }

    /// Tells whether requests of the other side are taken.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Tells whether responses of the other side are taken, and packets sent again.
    pub(crate) const fn sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }

    /// Tells whether work requests are begun.
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::Rts)
    }

    /// Tells whether send requests may be posted: when they can be done or flushed.
    pub(crate) const fn may_post_send(self) -> bool {
        !matches!(self, Self::Reset | Self::Init | Self::Rtr)
    }

    /// Tells whether receive requests may be posted.
    pub(crate) const fn may_post_recv(self) -> bool {
        !matches!(self, Self::Reset)
    }
}

/// What the driver does on entry of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Only attributes change.
    Nothing,
    /// Forget all: PSNs, what is in flight, replies, both queues, timers.
    Reset,
    /// Start the responder at the PSN given.
    StartReceiving,
    /// Start the requester at the PSN given, then look at the send queue.
    StartSending,
    /// Begin nothing more; report when all that was begun is done.
    Drain,
    /// Go on with the send queue.
    Resume,
    /// Flush both queues.
    Flush,
}

/// Returns what a transition does; `None` if there is none. All that `ib_modify_qp_is_ok()` lets
/// through is there.
pub(crate) const fn transition(from: QpState, to: QpState) -> Option<Entry> {
    use QpState::{
        Error,
        Init,
        Reset,
        Rtr,
        Rts,
        Sqd,
        Sqe, //
    };

    Some(match (from, to) {
        (_, Reset) => Entry::Reset,
        (Reset, Error) => Entry::Nothing,
        (_, Error) => Entry::Flush,
        (Reset, Init) | (Init, Init) => Entry::Nothing,
        (Init, Rtr) => Entry::StartReceiving,
        (Rtr, Rts) => Entry::StartSending,
        (Rts, Rts) => Entry::Nothing,
        (Rts, Sqd) => Entry::Drain,
        (Sqd, Sqd) => Entry::Nothing,
        (Sqd, Rts) | (Sqe, Rts) => Entry::Resume,
        _ => return None,
    })
}

/// Values of attributes, those that are to be changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attrs {
    /// Port.
    pub(crate) port: Option<u32>,
    /// Port of the alternate path.
    pub(crate) alt_port: Option<u32>,
    /// Path MTU in bytes.
    pub(crate) mtu: Option<u32>,
    /// READs and atomics that this side may have outstanding.
    pub(crate) max_rd_atomic: Option<u8>,
    /// READs and atomics that the other side may have outstanding.
    pub(crate) max_dest_rd_atomic: Option<u8>,
    /// Code of the time that the other side waits for receive buffers.
    pub(crate) min_rnr_timer: Option<u8>,
    /// Exponent of the time to wait for an answer.
    pub(crate) timeout: Option<u8>,
    /// How often to try again without an answer.
    pub(crate) retry_cnt: Option<u8>,
    /// How often to try again without a receive buffer.
    pub(crate) rnr_retry: Option<u8>,
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    /// MTU of the port now.
    pub(crate) mtu: u32,
    /// Limit for both kinds of outstanding READs and atomics.
    pub(crate) max_rd_atomic: u8,
}

impl Attrs {
    /// Tells whether all values are such as there are on a device.
    ///
    /// The driver changes `max_dest_rd_atomic` only while it owns the responder, so that a READ
    /// that is being answered never sees its state go away.
    pub(crate) fn are_valid(&self, dev: &Device) -> bool {
        fn up_to(value: Option<u8>, max: u8) -> bool {
            value.is_none_or(|v| v <= max)
        }

        self.port.is_none_or(|p| p == 1)
            && self.alt_port.is_none_or(|p| p == 1)
            && self
                .mtu
                .is_none_or(|m| matches!(m, 256 | 512 | 1024 | 2048 | 4096) && m <= dev.mtu)
            && up_to(self.max_rd_atomic, dev.max_rd_atomic)
            && up_to(self.max_dest_rd_atomic, dev.max_rd_atomic)
            && up_to(self.min_rnr_timer, 31)
            && up_to(self.timeout, 31)
            && up_to(self.retry_cnt, 7)
            && up_to(self.rnr_retry, 7)
    }
}

/// Returns the time to wait for an answer in nanoseconds: 4.096 us times two to the power of the
/// attribute, or for ever if that is 0 (IBA vol. 1, 9.7.6.1.3).
pub(crate) const fn timeout_ns(exponent: u8) -> Option<u64> {
    match exponent & 0x1f {
        0 => None,
        e => Some(4096 << e),
    }
}

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(
    CONFIG_RDMA_RRXE_KUNIT_TEST,
    kernel::prelude::kunit_tests(rrxe_qp_state)
)]
mod tests {
    use super::*;

    #[test]
    fn transitions() {
        // Rows: from; columns: to; in the order of `QpState::ALL`.
        const TABLE: [&[u8; 7]; 7] = [
            b"R=....=", b"R=S...F", b"R..T..F", b"R..=D.F", b"R..U=.F", b"R..U..F", b"R.....F",
        ];

        for (from, row) in QpState::ALL.into_iter().zip(TABLE) {
            for (to, &want) in QpState::ALL.into_iter().zip(row) {
                let got = match transition(from, to) {
                    None => b'.',
                    Some(Entry::Nothing) => b'=',
                    Some(Entry::Reset) => b'R',
                    Some(Entry::StartReceiving) => b'S',
                    Some(Entry::StartSending) => b'T',
                    Some(Entry::Drain) => b'D',
                    Some(Entry::Resume) => b'U',
                    Some(Entry::Flush) => b'F',
                };

                assert_eq!(got, want);
            }
        }
    }

    #[test]
    fn numbers_are_those_of_verbs() {
        for (i, state) in QpState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, i);
            assert_eq!(QpState::from_verbs(i as u32), Some(state));
        }
        assert_eq!(QpState::from_verbs(7), None);
        assert_eq!(QpState::from_verbs(u32::MAX), None);
    }

    #[test]
    fn attributes() {
        const DEV: Device = Device {
            mtu: 1024,
            max_rd_atomic: 128,
        };
        let none = Attrs::default();

        assert!(none.are_valid(&DEV));
        for (mtu, valid) in [
            (0, false),
            (256, true),
            (1000, false),
            (1024, true),
            (2048, false),
        ] {
            assert_eq!(
                Attrs {
                    mtu: Some(mtu),
                    ..none
                }
                .are_valid(&DEV),
                valid
            );
        }
        assert!(!Attrs {
            port: Some(2),
            ..none
        }
        .are_valid(&DEV));
        assert!(!Attrs {
            max_dest_rd_atomic: Some(129),
            ..none
        }
        .are_valid(&DEV));
        assert!(!Attrs {
            timeout: Some(32),
            ..none
        }
        .are_valid(&DEV));
        assert!(!Attrs {
            retry_cnt: Some(8),
            ..none
        }
        .are_valid(&DEV));
    }

    #[test]
    fn timeouts() {
        assert_eq!(timeout_ns(0), None);
        assert_eq!(timeout_ns(1), Some(8192));
        assert_eq!(timeout_ns(14), Some(67_108_864));
        assert_eq!(timeout_ns(31), Some(4096 << 31));
    }
}
