//! The net under every callback: no panic crosses into the server.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};

use super::log;

thread_local! {
    /// What this thread is doing for the server, as the log names it.
    static DOING: Cell<&'static str> = const { Cell::new("loading") };
}

/// Runs `body`, which the log calls `what`; `None` if it panics.
pub(super) fn catch<T>(what: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    let outer = DOING.replace(what);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    DOING.set(outer);
    outcome.ok()
}

/// At load time: a panic writes one line to the server's log. The standard library's own hook prints a backtrace if
/// `RUST_BACKTRACE` is set, and that printer frees with libc's allocator what the server's allocator has allocated.
pub(super) fn log_panics() {
    panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let why = match payload.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => payload.downcast_ref().copied().unwrap_or("no message"),
    };
    let place = panic.location().map(ToString::to_string);
    let line = format!(
        "bug: {} panicked at {}: {why}. The server goes on, but a lock may be wrong: restart it or fail over when you can, \
         and report this line",
        DOING.get(),
        place.as_deref().unwrap_or("an unknown place"),
    );
    // SAFETY: null, or kept from load time on.
    unsafe { log::write(log::detached(), log::WARNING, &line) };
}
