// SPDX-License-Identifier: GPL-2.0

//! Warnings that are given once.

/// Reports a warning the first time that `cond` is true; returns the value of `cond`.
///
/// Like the C macro `WARN_ON_ONCE()`, the place that warned is remembered in the bug table, so
/// writing to `clear_warn_once` in debugfs makes it warn again.
///
/// # Examples
///
/// ```
/// use kernel::warn_on_once;
///
/// fn put(count: &mut u32, n: u32) {
///     if warn_on_once!(n > *count) {
///         return;
///     }
///     *count -= n;
/// }
///
/// let mut count = 2;
/// put(&mut count, 1);
/// assert_eq!(count, 1);
/// ```
#[macro_export]
#[doc(alias = "WARN_ON_ONCE")]
macro_rules! warn_on_once {
    ($cond:expr) => {{
        let cond = $cond;

        #[cfg(CONFIG_DEBUG_BUGVERBOSE_DETAILED)]
        const ONCE_STR: &str = concat!("[", stringify!($cond), "] ", file!());
        #[cfg(not(CONFIG_DEBUG_BUGVERBOSE_DETAILED))]
        const ONCE_STR: &str = file!();

        if cond {
            #[cfg(CONFIG_BUG)]
            const ONCE_FLAGS: u32 = $crate::bindings::BUGFLAG_ONCE
                | $crate::bug::bugflag_taint($crate::bindings::TAINT_WARN);
            #[cfg(not(CONFIG_BUG))]
            const ONCE_FLAGS: u32 = 0;

            // Where a warning has no entry in the bug table nothing remembers it.
            #[cfg(any(CONFIG_UML, CONFIG_LOONGARCH, CONFIG_ARM))]
            $crate::do_once_lite! { $crate::warn_flags!(ONCE_STR, ONCE_FLAGS); };
            #[cfg(not(any(CONFIG_UML, CONFIG_LOONGARCH, CONFIG_ARM)))]
            {
                $crate::warn_flags!(ONCE_STR, ONCE_FLAGS);
            }
        }
        cond
    }};
}

/// Prints a message and reports a warning the first time that `cond` is true; returns `cond`.
///
/// # Examples
///
/// ```
/// use kernel::warn_once;
///
/// # const __LOG_PREFIX: &[u8] = b"rust_doctests\0";
/// let ret = 0;
/// warn_once!(ret != 0, "Destroying should not fail, but it did ({})\n", ret);
/// ```
#[macro_export]
#[doc(alias = "WARN_ONCE")]
macro_rules! warn_once {
    ($cond:expr, $($arg:tt)+) => {{
        let cond = $cond;

        if cond {
            $crate::pr_warn_once!($($arg)+);
            $crate::warn_on_once!(true);
        }
        cond
    }};
}
