//! The server's log, the net under every callback (no panic crosses into the server), and a context of the module's own for callbacks that
//! get none.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use redis_module::raw;

/// Written once, at load time; null before.
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// The context that is kept from load time on; null before.
pub(super) fn detached() -> *mut raw::RedisModuleCtx {
    DETACHED.load(Relaxed)
}

/// Makes the detached context.
///
/// SAFETY: `ctx` is a context that lives for the call.
pub(super) unsafe fn detach(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: promised by the caller. A context of the module's own, never freed.
    let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext, ctx) };
    DETACHED.store(detached, Relaxed);
}

/// How much a line matters, in the server's words for `loglevel`.
pub(super) const WARNING: &CStr = c"warning";
pub(super) const NOTICE: &CStr = c"notice";

/// Writes a line.
///
/// SAFETY: `ctx` is null or a context that lives for the call.
pub(super) unsafe fn write(ctx: *mut raw::RedisModuleCtx, level: &CStr, line: &str) {
    let line = c_string(line);
    // SAFETY: promised by the caller; `%s` takes one C string.
    unsafe {
        api!(
            RedisModule_Log,
            ctx,
            level.as_ptr(),
            c"%s".as_ptr(),
            line.as_ptr()
        );
    }
}

/// `text` as a C string; an inner NUL would end it, so it is shown as `?`.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

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
    unsafe { write(detached(), WARNING, &line) };
}
