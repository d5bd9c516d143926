// SPDX-License-Identifier: GPL-2.0
/*
 * The trace events of rrxe: what Rust calls is in rust/kernel/rdma/driver/trace.rs.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "rrxe_trace.h"
