//! Settings: CONFIG GET and SET, the configuration file, and `loadmodule` arguments.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;

use super::context::Context;
use super::context::MainThread;
use super::log::catch;

/// A whole number that can be configured.
pub(crate) struct Setting {
    /// Without the prefix `lock.`.
    pub(super) name: &'static CStr,
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    value: MainThread<Cell<i64>>,
}

impl Setting {
    pub(crate) const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self {
            name,
            default,
            min,
            max,
            value: MainThread::new(Cell::new(0)),
        }
    }

    /// What it is set to.
    pub(crate) fn value(&'static self, ctx: &Context<'_>) -> i64 {
        self.value.get(ctx).get()
    }

    /// What it is set to, 0 if that is below zero.
    pub(crate) fn get(&'static self, ctx: &Context<'_>) -> u64 {
        self.value(ctx).max(0) as u64
    }
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

/// The value of a setting.
///
/// SAFETY: `setting` is the pointer that `register` passed, and the server calls this with its lock held.
unsafe fn value(setting: *mut c_void) -> &'static Cell<i64> {
    // SAFETY: promised by the caller; all settings are static.
    unsafe {
        let setting: &'static Setting = &*setting.cast_const().cast();
        setting.value.get(&Context::detached())
    }
}

unsafe extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: as the server calls it.
    catch("CONFIG GET", || unsafe { value(setting) }.get()).unwrap_or(0)
}

unsafe extern "C" fn set(
    _name: *const c_char,
    number: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as the server calls it.
    let done = catch("CONFIG SET", || unsafe { value(setting) }.set(number));
    (match done {
        Some(()) => raw::REDISMODULE_OK,
        None => raw::REDISMODULE_ERR,
    }) as c_int
}
