//! The module's part of INFO.

use std::os::raw::c_int;
use std::sync::OnceLock;

use redis_module::raw;

use super::catch::catch;
use super::context::Context;
use super::log::c_string;

/// The function that writes the module's part, see [`write_with`].
static WRITE: OnceLock<Write> = OnceLock::new();

pub(super) type Write = fn(&Context<'_>, &InfoWriter);

/// At load time: lets `write` write the module's part.
pub(super) fn write_with(write: Write) {
    WRITE.get_or_init(|| write);
}

/// Writes the fields of one section.
#[derive(Debug)]
pub(crate) struct InfoWriter {
    ctx: *mut raw::RedisModuleInfoCtx,
}

impl InfoWriter {
    /// A field with a number. The server puts `lock_` in front of its name.
    pub(crate) fn number(&self, field: &str, value: u64) {
        let field = c_string(field);
        // SAFETY: `ctx` lives for the call, and the server copies the name.
        unsafe {
            api!(
                RedisModule_InfoAddFieldULongLong,
                self.ctx,
                field.as_ptr(),
                value
            )
        };
    }

    /// A field with a text, on one line.
    pub(crate) fn text(&self, field: &str, value: &str) {
        let (field, value) = (c_string(field), c_string(value));
        let (field, value) = (field.as_ptr(), value.as_ptr());
        // SAFETY: `ctx` lives for the call, and the server copies both.
        unsafe { api!(RedisModule_InfoAddFieldCString, self.ctx, field, value) };
    }
}

pub(super) unsafe extern "C" fn on_info(ctx: *mut raw::RedisModuleInfoCtx, crashing: c_int) {
    if crashing != 0 {
        // The state may be what crashed; a report must not touch it.
        return;
    }
    catch("INFO", || {
        // SAFETY: an empty name makes the section be called after the module: `lock`.
        let wanted = unsafe { api!(RedisModule_InfoAddSection, ctx, c"".as_ptr()) };
        if wanted == raw::REDISMODULE_OK as c_int
            && let Some(write) = WRITE.get()
        {
            // SAFETY: the server calls this with its lock held.
            write(&unsafe { Context::detached() }, &InfoWriter { ctx });
        }
    });
}
