//! The module's part of INFO.

use std::os::raw::c_int;

use redis_module::raw;

use super::catch::catch;
use super::context::Context;
use super::handlers;
use super::log::c_string;

pub(super) unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, crashing: c_int) {
    if crashing != 0 {
        // The state may be what crashed; a report must not touch it.
        return;
    }
    catch("INFO", || {
        // SAFETY: an empty name makes the section be called after the module: `lock`. The server puts that before the name of each
        // field, and copies names and texts. It calls this with its lock held.
        unsafe {
            if api!(RedisModule_InfoAddSection, info, c"".as_ptr()) != raw::REDISMODULE_OK as c_int
            {
                return;
            }
            for (name, value) in (handlers::get().info)(&Context::detached()) {
                let (name, value) = (c_string(&name), c_string(&value));
                let (name, value) = (name.as_ptr(), value.as_ptr());
                api!(RedisModule_InfoAddFieldCString, info, name, value);
            }
        }
    });
}
