// SPDX-License-Identifier: GPL-2.0

//! Operation codes and what follows each of them (IBA vol. 1, table 38).
//!
//! The upper three bits name the transport service, the lower five the operation. Reliable
//! datagrams, which nobody uses, are not here: a code that is not in the table is not valid, and
//! there is no entry that says so in a number.

use crate::wire::{
    aeth::Aeth,
    atomic::{
        AtomicEth,
        ATOMIC_ACK_LEN, //
    },
    bth::Bth,
    deth::Deth,
    feth::Feth,
    reth::Reth,
    IETH_LEN,
    IMMDT_LEN, //
};

/// Transport services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram, also for the general services interface.
    Ud,
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Message for a receive work request.
    Send,
    /// Data for the memory of the responder.
    Write,
    /// Request for data of the responder.
    ReadRequest,
    /// Data that was requested; also the answer to a flush and to an atomic write.
    ReadResponse,
    /// Positive or negative acknowledgment.
    Acknowledge,
    /// Original value of an atomic operation.
    AtomicAcknowledge,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// Request to make writes visible or persistent.
    Flush,
    /// Atomic write of eight bytes.
    AtomicWrite,
}

impl Kind {
    /// Tells whether the packet goes from requester to responder.
    pub(crate) const fn is_request(self) -> bool {
        !matches!(
            self,
            Self::ReadResponse | Self::Acknowledge | Self::AtomicAcknowledge
        )
    }
}

/// Where in its message a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The only one.
    Only,
}

impl Position {
    /// Tells whether a message starts with the packet.
    pub(crate) const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Tells whether the packet ends its message.
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Returns the position of the packet that has `start` and `end` of a message.
    pub(crate) const fn of(start: bool, end: bool) -> Self {
        match (start, end) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// The headers between BTH and the trailing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtKind {
    /// None.
    None,
    /// Datagram header.
    Deth,
    /// RDMA header.
    Reth,
    /// Flush header, then RDMA header.
    FethReth,
    /// Atomic request.
    Atomic,
    /// ACK header.
    Aeth,
    /// ACK header, then original value.
    AethAtomic,
}

impl ExtKind {
    /// Size on the wire.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Deth => Deth::LEN,
            Self::Reth => Reth::LEN,
            Self::FethReth => Feth::LEN + Reth::LEN,
            Self::Atomic => AtomicEth::LEN,
            Self::Aeth => Aeth::LEN,
            Self::AethAtomic => Aeth::LEN + ATOMIC_ACK_LEN,
        }
    }
}

/// The header right before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailKind {
    /// None.
    None,
    /// Immediate data.
    Imm,
    /// Key to invalidate.
    Inv,
}

impl TailKind {
    /// Size on the wire.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Imm => IMMDT_LEN,
            Self::Inv => IETH_LEN,
        }
    }
}

/// What there is to know about an operation code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpcodeInfo {
    /// The code itself.
    pub(crate) code: u8,
    /// Transport service.
    pub(crate) transport: Transport,
    /// What the packet is for.
    pub(crate) kind: Kind,
    /// Where in its message it is.
    pub(crate) pos: Position,
    /// Headers after the BTH.
    pub(crate) ext: ExtKind,
    /// Header before the payload.
    pub(crate) tail: TailKind,
    /// Size of all headers.
    pub(crate) hdr_len: usize,
    /// Tells whether a payload may follow.
    pub(crate) payload: bool,
}

/// The largest size of all headers.
// An index out of bounds would not compile here.
#[allow(clippy::indexing_slicing)]
pub(crate) const MAX_HDR_LEN: usize = {
    let mut max = 0;
    let mut code = 0;

    while code < 256 {
        if let Some(info) = &TABLE[code] {
            if info.hdr_len > max {
                max = info.hdr_len;
            }
        }
        code += 1;
    }
    max
};

/// Finds what an operation code means.
#[doc(alias = "rxe_opcode")]
pub(crate) fn lookup(code: u8) -> Option<&'static OpcodeInfo> {
    TABLE.get(usize::from(code))?.as_ref()
}

/// Returns the code of a packet, `None` if there is none for this combination.
pub(crate) const fn code(
    transport: Transport,
    kind: Kind,
    pos: Position,
    tail: TailKind,
) -> Option<u8> {
    let op = match (kind, pos, tail) {
        (Kind::Send, Position::First, TailKind::None) => 0x00,
        (Kind::Send, Position::Middle, TailKind::None) => 0x01,
        (Kind::Send, Position::Last, TailKind::None) => 0x02,
        (Kind::Send, Position::Last, TailKind::Imm) => 0x03,
        (Kind::Send, Position::Only, TailKind::None) => 0x04,
        (Kind::Send, Position::Only, TailKind::Imm) => 0x05,
        (Kind::Write, Position::First, TailKind::None) => 0x06,
        (Kind::Write, Position::Middle, TailKind::None) => 0x07,
        (Kind::Write, Position::Last, TailKind::None) => 0x08,
        (Kind::Write, Position::Last, TailKind::Imm) => 0x09,
        (Kind::Write, Position::Only, TailKind::None) => 0x0a,
        (Kind::Write, Position::Only, TailKind::Imm) => 0x0b,
        (Kind::ReadRequest, Position::Only, TailKind::None) => 0x0c,
        (Kind::ReadResponse, Position::First, TailKind::None) => 0x0d,
        (Kind::ReadResponse, Position::Middle, TailKind::None) => 0x0e,
        (Kind::ReadResponse, Position::Last, TailKind::None) => 0x0f,
        (Kind::ReadResponse, Position::Only, TailKind::None) => 0x10,
        (Kind::Acknowledge, Position::Only, TailKind::None) => 0x11,
        (Kind::AtomicAcknowledge, Position::Only, TailKind::None) => 0x12,
        (Kind::CompareSwap, Position::Only, TailKind::None) => 0x13,
        (Kind::FetchAdd, Position::Only, TailKind::None) => 0x14,
        (Kind::Send, Position::Last, TailKind::Inv) => 0x16,
        (Kind::Send, Position::Only, TailKind::Inv) => 0x17,
        (Kind::Flush, Position::Only, TailKind::None) => 0x1c,
        (Kind::AtomicWrite, Position::Only, TailKind::None) => 0x1d,
        _ => return None,
    };
    let allowed = match transport {
        Transport::Rc => true,
        Transport::Uc => op <= 0x0b,
        Transport::Ud => op == 0x04 || op == 0x05,
    };

    if allowed {
        Some(base(transport) | op)
    } else {
        None
    }
}

const fn base(transport: Transport) -> u8 {
    match transport {
        Transport::Rc => 0x00,
        Transport::Uc => 0x20,
        Transport::Ud => 0x60,
    }
}

/// Describes the packet that has these properties.
const fn info(
    transport: Transport,
    kind: Kind,
    pos: Position,
    tail: TailKind,
) -> Option<OpcodeInfo> {
    let Some(code) = code(transport, kind, pos, tail) else {
        return None;
    };
    let ext = match (transport, kind, pos) {
        (Transport::Ud, _, _) => ExtKind::Deth,
        (_, Kind::Write, Position::First | Position::Only) => ExtKind::Reth,
        (_, Kind::ReadRequest | Kind::AtomicWrite, _) => ExtKind::Reth,
        (_, Kind::Flush, _) => ExtKind::FethReth,
        (_, Kind::CompareSwap | Kind::FetchAdd, _) => ExtKind::Atomic,
        (_, Kind::ReadResponse, Position::Middle) => ExtKind::None,
        (_, Kind::ReadResponse | Kind::Acknowledge, _) => ExtKind::Aeth,
        (_, Kind::AtomicAcknowledge, _) => ExtKind::AethAtomic,
        _ => ExtKind::None,
    };

    Some(OpcodeInfo {
        code,
        transport,
        kind,
        pos,
        ext,
        tail,
        hdr_len: Bth::LEN + ext.len() + tail.len(),
        payload: matches!(
            kind,
            Kind::Send | Kind::Write | Kind::ReadResponse | Kind::AtomicWrite
        ),
    })
}

// An index out of bounds would not compile here.
#[allow(clippy::indexing_slicing)]
const TABLE: [Option<OpcodeInfo>; 256] = {
    const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];
    const KINDS: [Kind; 10] = [
        Kind::Send,
        Kind::Write,
        Kind::ReadRequest,
        Kind::ReadResponse,
        Kind::Acknowledge,
        Kind::AtomicAcknowledge,
        Kind::CompareSwap,
        Kind::FetchAdd,
        Kind::Flush,
        Kind::AtomicWrite,
    ];
    const POSITIONS: [Position; 4] = [
        Position::First,
        Position::Middle,
        Position::Last,
        Position::Only,
    ];
    const TAILS: [TailKind; 3] = [TailKind::None, TailKind::Imm, TailKind::Inv];

    let mut table = [None; 256];
    let mut i = 0;

    while i < TRANSPORTS.len() * KINDS.len() * POSITIONS.len() * TAILS.len() {
        let info = info(
            TRANSPORTS[i % 3],
            KINDS[i / 3 % 10],
            POSITIONS[i / 30 % 4],
            TAILS[i / 120],
        );

        if let Some(info) = info {
            table[info.code as usize] = Some(info);
        }
        i += 1;
    }
    table
};

#[cfg(any(test, CONFIG_RDMA_RRXE_KUNIT_TEST))]
#[cfg_attr(CONFIG_RDMA_RRXE_KUNIT_TEST, kernel::prelude::kunit_tests(rrxe_opcode))]
mod tests {
    use super::{
        code,
        lookup,
        MAX_HDR_LEN, //
    };

    /// All codes that exist and the size of their headers, written down by hand.
    const DEFINED: [(u8, usize); 37] = [
        (0x00, 12),
        (0x01, 12),
        (0x02, 12),
        (0x03, 16),
        (0x04, 12),
        (0x05, 16),
        (0x06, 28),
        (0x07, 12),
        (0x08, 12),
        (0x09, 16),
        (0x0a, 28),
        (0x0b, 32),
        (0x0c, 28),
        (0x0d, 16),
        (0x0e, 12),
        (0x0f, 16),
        (0x10, 16),
        (0x11, 16),
        (0x12, 24),
        (0x13, 40),
        (0x14, 40),
        (0x16, 16),
        (0x17, 16),
        (0x1c, 32),
        (0x1d, 28),
        (0x20, 12),
        (0x21, 12),
        (0x22, 12),
        (0x23, 16),
        (0x24, 12),
        (0x25, 16),
        (0x26, 28),
        (0x27, 12),
        (0x28, 12),
        (0x29, 16),
        (0x2a, 28),
        (0x2b, 32),
    ];

    const DATAGRAMS: [(u8, usize); 2] = [(0x64, 20), (0x65, 24)];

    #[test]
    fn headers_of_every_code() {
        for c in 0..=u8::MAX {
            let want = DEFINED.iter().chain(&DATAGRAMS).find(|(d, _)| *d == c);

            assert_eq!(lookup(c).map(|i| i.hdr_len), want.map(|(_, len)| *len));
        }
        assert_eq!(MAX_HDR_LEN, 40);
    }

    #[test]
    fn code_and_description_agree() {
        for c in 0..=u8::MAX {
            if let Some(i) = lookup(c) {
                assert_eq!(i.code, c);
                assert_eq!(code(i.transport, i.kind, i.pos, i.tail), Some(c));
            }
        }
    }
}
