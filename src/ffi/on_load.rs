//! The one symbol that the server looks up. It uses all layers of the module.

use std::os::raw::c_int;

use redis_module::raw;

use super::args::Args;
use super::context::Context;
use super::log::catch;
use super::registration::register;
use crate::MODULE;

/// Called by the server when it loads the module.
///
/// # Safety
/// Only the server calls it, with a context and `argc` strings.
#[unsafe(no_mangle)]
#[allow(non_snake_case, unreachable_pub)] // the server looks it up by this name
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let module = &MODULE;
    // Nothing may be allocated before this call: it brings the server's allocator.
    // SAFETY: the server's context; the name is a C string.
    let init = unsafe {
        let api = raw::REDISMODULE_APIVER_1 as c_int;
        raw::Export_RedisModule_Init(ctx, module.name.as_ptr(), module.version, api)
    };
    if init != raw::REDISMODULE_OK as c_int {
        return init;
    }
    // SAFETY: both live for the call.
    let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    let loaded = catch("loading", || register(&ctx, module, args));
    match loaded {
        Some(Ok(())) => return raw::REDISMODULE_OK as c_int,
        Some(Err(why)) => ctx.warn(&format!("not loaded: {why}")),
        None => {}
    }
    raw::REDISMODULE_ERR as c_int
}
