//! Settings: CONFIG GET and SET, the configuration file, and `loadmodule` arguments.

use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;

use super::catch::catch;
use super::context::Context;

/// A whole number that can be configured.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Without the prefix `lock.`.
    pub(crate) name: &'static CStr,
    pub(crate) default: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) get: fn(&Context<'_>) -> i64,
    pub(crate) set: fn(&Context<'_>, i64),
}

/// Registers `setting` with `default` (the `loadmodule` argument, or its own). False if refused.
pub(super) fn register(ctx: &Context<'_>, setting: &'static Setting, default: i64) -> bool {
    // SAFETY: the setting is static, so it outlives the server's use of it.
    unsafe {
        api!(
            RedisModule_RegisterNumericConfig,
            ctx.as_ptr(),
            setting.name.as_ptr(),
            default,
            raw::REDISMODULE_CONFIG_DEFAULT,
            setting.min,
            setting.max,
            Some(get),
            Some(set),
            None,
            ptr::from_ref(setting).cast_mut().cast(),
        ) == raw::REDISMODULE_OK as c_int
    }
}

unsafe extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    let value = catch("CONFIG GET", || {
        // SAFETY: the pointer that `register` passed, to a static; the server calls this with its lock held.
        let (setting, ctx) = unsafe {
            let setting = &*setting.cast_const().cast::<Setting>();
            (setting, Context::detached())
        };
        (setting.get)(&ctx)
    });
    value.unwrap_or(0)
}

unsafe extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let done = catch("CONFIG SET", || {
        // SAFETY: as above.
        let (setting, ctx) = unsafe {
            let setting = &*setting.cast_const().cast::<Setting>();
            (setting, Context::detached())
        };
        (setting.set)(&ctx, value);
    });
    (match done {
        Some(()) => raw::REDISMODULE_OK,
        None => raw::REDISMODULE_ERR,
    }) as c_int
}
