//! The server's log, and a context of the module's own for callbacks that get none.

use std::ffi::{CStr, CString};
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
