//! The net under every callback: no panic crosses into the server.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log;

/// Runs `body`; a panic becomes a log line and `None`.
pub(super) fn catch<T>(what: &str, body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(panic) => {
            let why = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            // SAFETY: null, or kept from load time on.
            unsafe {
                log::write(
                    log::detached(),
                    log::WARNING,
                    &format!(
                        "bug: {what} panicked at: {why}. The server goes on, but a lock may be wrong: restart it or \
                         fail over when you can, and report this line"
                    ),
                );
            }
            None
        }
    }
}
