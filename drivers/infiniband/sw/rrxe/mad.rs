// SPDX-License-Identifier: GPL-2.0

//! Management datagrams: performance counters (IBA vol. 1, 16.1).

use crate::{
    device::Device,
    stats::Counter, //
};
use kernel::rdma::driver::mad::{
    Mad,
    Outcome,
    MAD_LEN, //
};

/// Offset of the payload of this class.
const DATA: usize = 64;

/// `IB_MGMT_CLASS_PERF_MGMT`.
const PERF_MGMT: u8 = 4;
/// `IB_MGMT_METHOD_GET`.
const GET: u8 = 1;
/// `IB_MGMT_METHOD_RESP`.
const RESP: u8 = 0x80;

/// The method is not supported.
const BAD_METHOD: u16 = 2 << 2;
/// Method and attribute are not supported together.
const BAD_ATTR: u16 = 3 << 2;

fn put(out: &mut Mad, at: usize, bytes: &[u8]) {
    for (to, from) in out.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// Answers a datagram.
pub(crate) fn process(dev: &Device, input: &Mad, out: &mut Mad) -> Outcome {
    let [_, class, _, method, ..] = *input;
    let [.., hi, lo] = *input.first_chunk::<18>().unwrap_or(&[0; 18]);
    let get = |c: Counter| dev.stats.get(c as usize);

    *out = [0; MAD_LEN];
    put(out, 0, input.get(..24).unwrap_or(&[]));
    put(out, 3, &[method | RESP]);
    if class != PERF_MGMT {
        put(out, 4, &BAD_METHOD.to_be_bytes());
        return Outcome::Done;
    }
    if method != GET {
        return Outcome::Reply;
    }
    match u16::from_be_bytes([hi, lo]) {
        // ClassPortInfo: counters of 64 bits there are.
        0x01 => put(out, DATA + 2, &0x0200u16.to_be_bytes()),
        // PortCounters; one that is too large for its field stays at the largest value.
        0x12 => {
            let downed = u8::try_from(get(Counter::LinkDowned)).unwrap_or(u8::MAX);

            put(out, DATA + 7, &[downed]);
        }
        // PortCountersExtended, in words of four bytes.
        0x1d => {
            for (at, value) in [
                (8, get(Counter::SentBytes) >> 2),
                (16, get(Counter::RcvdBytes) >> 2),
                (24, get(Counter::SentPkts)),
                (32, get(Counter::RcvdPkts)),
            ] {
                put(out, DATA + at, &value.to_be_bytes());
            }
        }
        _ => {
            put(out, 4, &BAD_ATTR.to_be_bytes());
            return Outcome::Done;
        }
    }
    Outcome::Reply
}
