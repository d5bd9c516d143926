// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

#[path = "qp/state.rs"]
pub(crate) mod state;
