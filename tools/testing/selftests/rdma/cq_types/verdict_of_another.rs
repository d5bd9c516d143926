// SPDX-License-Identifier: GPL-2.0
//! The verdict of one run cannot be given for another.
// expect: error lifetime may not live long enough

use kernel::irq_poll::{
    Run,
    Verdict, //
};

/// Answers for one run with the verdict of the other.
pub fn poll<'a: 'b, 'b>(_run: Run<'a>, other: Run<'b>) -> Verdict<'a> {
    other.exhausted()
}
