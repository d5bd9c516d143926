// SPDX-License-Identifier: GPL-2.0

//! What the protocol engine needs from the world around it.
//!
//! [`crate::tx`], [`crate::comp`] and [`crate::resp`] have no kernel types. What they need is asked
//! for through these traits, one for each concern, and an implementation is made for one queue
//! pair: it knows the protection domain, the completion queues and the way to the other side. All
//! of them are called by the owner of a half of a queue pair, in any context, and do not sleep
//! unless the owner may.

use crate::{
    packet::TxHeaders,
    sge::{
        Sge,
        SgeRange, //
    },
    wc::{
        Status,
        Wc, //
    },
    wire::{
        feth::Feth,
        reth::Reth, //
    },
    wqe::{
        Malformed,
        RecvWqe,
        SendWqe,
        Work, //
    },
};

/// Time.
pub(crate) trait Clock {
    /// Returns nanoseconds since some moment.
    fn now(&self) -> u64;
}

/// Memory could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemError {
    /// The key, the range or the rights are wrong.
    Access,
    /// The memory is not there yet, and may not be waited for in this context. Nothing was done;
    /// the same is to be tried again from a context that may wait.
    Wait,
}

/// Where the payload of a packet to send comes from.
#[derive(Clone, Debug)]
pub(crate) enum Payload<'a> {
    /// There is none.
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// Local memory, by local keys.
    Sges(SgeRange<'a>),
    /// Memory that the other side asked to read.
    Remote {
        /// Its key.
        rkey: u32,
        /// Where it starts.
        va: u64,
    },
}

/// Where a packet goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dest {
    /// To the other side of the connection.
    Connected,
    /// To where the address handle with this number says.
    Handle(u32),
}

/// A packet to send. Padding follows the payload, and then the ICRC; the header has the padding
/// already.
#[derive(Clone, Debug)]
pub(crate) struct TxPacket<'a> {
    /// Headers.
    pub(crate) hdr: TxHeaders,
    /// Payload.
    pub(crate) payload: Payload<'a>,
    /// Its size.
    pub(crate) len: u32,
    /// Where to send it.
    pub(crate) dest: Dest,
    /// So many packets of the same size, or a little shorter, are likely to be sent behind it at
    /// once.
    pub(crate) alike: u32,
    /// It stands for so many packets, which would have had these PSNs and the payload in pieces of
    /// the MTU: not more than [`Wire::span`] has said.
    pub(crate) span: u32,
}

/// A packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// Too much is on its way; the engine is to be run again when that has become less.
    Busy,
    /// The payload could not be read.
    Mem(MemError),
    /// There is no such address handle, or it is of another protection domain.
    Handle,
    /// It stands for several packets, which now have to be sent one by one.
    Apart,
}

/// The way out.
pub(crate) trait Wire {
    /// Sends a packet. One that is lost on its way was sent.
    fn send(&mut self, pkt: &TxPacket<'_>) -> Result<(), SendError>;

    /// Tells how many packets of a message may be sent as one, if that is done next. More than one
    /// only goes where nothing is between the two sides.
    fn span(&mut self, dest: Dest) -> u32;
}

/// Where to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Local memory by its local key, as a buffer of a work request.
    Local(Sge),
    /// Memory that the other side may write, by its remote key.
    Remote {
        /// The key.
        rkey: u32,
        /// Where it starts.
        va: u64,
        /// How much.
        len: u32,
    },
}

/// What to write.
#[derive(Debug)]
pub(crate) enum Source<'a, P> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Payload of a received packet from an offset on.
    Packet(P, u32),
    /// These bytes, and then payload of a received packet from its start on.
    Behind(&'a [u8], P),
}

/// What the other side wants to do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read it.
    Read,
    /// Write it.
    Write,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    /// Store `swap` if the value is `compare`.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add.
    FetchAdd(u64),
}

/// Memory regions and windows, as the queue pair may use them.
///
/// Each call looks anew at what a key means and permits, so that a region that was deregistered is
/// never touched. Ranges that wrap around the address space are not in any region.
pub(crate) trait Mem {
    /// Payload of a received packet.
    type Packet<'p>: Copy;

    /// Writes as many bytes as `to` has.
    fn scatter(&mut self, to: Target, from: Source<'_, Self::Packet<'_>>) -> Result<(), MemError>;

    /// Checks that the other side may access a range that is not empty.
    fn check(&mut self, reth: &Reth, access: Access) -> Result<(), MemError>;

    /// Does an atomic operation on eight bytes that the other side names, and returns what they
    /// were. The address is a multiple of eight.
    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError>;

    /// Writes the eight bytes of a packet as one. The address is a multiple of eight.
    fn atomic_write(&mut self, rkey: u32, va: u64, from: Self::Packet<'_>) -> Result<(), MemError>;

    /// Makes what was written to a range visible or persistent.
    fn flush(&mut self, feth: &Feth, reth: &Reth) -> Result<(), MemError>;

    /// Makes a key invalid because the other side wants so.
    fn invalidate(&mut self, rkey: u32) -> Result<(), MemError>;
}

/// The send queue.
pub(crate) trait SendQueue {
    /// What only the kernel may ask for.
    type Kernel: Copy;

    /// Takes the next work request, and copies its elements or inline bytes to `area`.
    fn fetch_send(&mut self, area: &mut [u8]) -> Option<Result<SendWqe<Self::Kernel>, Malformed>>;

    /// Does what needs no packet.
    ///
    /// # Errors
    ///
    /// How the completion is to say that it failed.
    fn local(&mut self, work: &Work<Self::Kernel>) -> Result<(), Status>;
}

/// The receive queue, or a shared one.
pub(crate) trait RecvQueue {
    /// Takes the next work request, and copies its elements to `area`, which has room for
    /// [`crate::wqe::MAX_SGE`] of them.
    fn fetch_recv(&mut self, area: &mut [u8]) -> Option<Result<RecvWqe, Malformed>>;
}

/// The completion queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

/// The completion queue of this half.
pub(crate) trait CqSink {
    /// Adds a completion.
    fn complete(&mut self, wc: &Wc) -> Result<(), Overflow>;
}

/// All that requester and completer need.
pub(crate) trait TxEnv: Clock + Wire + Mem + SendQueue + CqSink {}

impl<T: Clock + Wire + Mem + SendQueue + CqSink> TxEnv for T {}

/// All that the responder needs.
pub(crate) trait RxEnv: Wire + Mem + RecvQueue + CqSink {}

impl<T: Wire + Mem + RecvQueue + CqSink> RxEnv for T {}

/// What the caller has to do after a call of the engine. Several may be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// The budget is used up: run it again.
    pub(crate) more: bool,
    /// The queue pair enters the error state: tell the other half, and flush both.
    pub(crate) error: bool,
    /// The send queue is drained.
    pub(crate) drained: bool,
    /// A completion was lost because the completion queue is full.
    pub(crate) overflow: bool,
    /// The other side accessed memory that it may not (`IB_EVENT_QP_ACCESS_ERR`), and there was no
    /// work request to say so.
    pub(crate) access: bool,
    /// The other side asked for something invalid (`IB_EVENT_QP_REQ_ERR`), and there was no work
    /// request to say so.
    pub(crate) request: bool,
}

/// A received packet was not taken, and nothing has changed. Keep it, and those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// Until it can be given again in a context that may wait for memory.
    Memory,
    /// Until replies were sent.
    Replies,
}
