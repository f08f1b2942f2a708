//! The data type: what the server calls with values of it.
//!
//! It calls all of it but `free` with its lock held, or in the child of a fork, which has one thread. So they may use the detached context.

use std::ffi::CStr;
use std::os::raw::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use mortise_core::KeyRef;
use redis_module::raw;

use super::args::Arg;
use super::context::{Context, db_of};
use super::handlers;
use super::log::c_string;
use super::log::catch;
use super::value::{Source, Value};

/// How `TYPE` names a lock: nine characters, as the server demands.
const NAME: &CStr = c"mort-lock";
/// The version of the encoding that goes into RDB files beside the codec's own.
const ENCODING: c_int = 1;

/// Written once, at load time.
static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// The type; null before `register`.
pub(super) fn get() -> *mut raw::RedisModuleType {
    TYPE.load(Relaxed)
}

/// Makes the type known to the server; false if it refuses.
pub(super) fn register(ctx: &Context<'_>) -> bool {
    let mut methods = raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: None,
        digest: Some(digest),
        free: Some(free),
        aux_load: Some(aux_load),
        // For servers that do not know `aux_save2`.
        aux_save: Some(aux_save),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: Some(mem_usage),
        free_effort2: Some(free_effort),
        unlink2: Some(unlink),
        copy2: Some(copy),
        aux_save2: Some(aux_save_if_any),
    };
    // SAFETY: the server copies the methods.
    let created = unsafe {
        api!(
            RedisModule_CreateDataType,
            ctx.as_ptr(),
            NAME.as_ptr(),
            ENCODING,
            &raw mut methods
        )
    };
    TYPE.store(created, Relaxed);
    !created.is_null()
}

/// SAFETY: `value` is a value of our type that lives for the call.
unsafe fn borrow<'a>(value: *const c_void) -> &'a Value {
    // SAFETY: promised by the caller.
    unsafe { &*value.cast::<Value>() }
}

/// The bytes of a key's name, if the server knows it.
///
/// SAFETY: `name` is null or a string of the server that lives for the call.
unsafe fn name_of<'a>(name: *const raw::RedisModuleString) -> Option<&'a [u8]> {
    // SAFETY: promised by the caller.
    (!name.is_null()).then(|| unsafe { Arg::new(name.cast_mut()) }.bytes())
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    catch("saving a lock", || {
        // SAFETY: a value of ours.
        let bytes = unsafe { (handlers::get().to_bytes)(&Context::detached(), borrow(value)) };
        raw::save_slice(io, &bytes);
    });
}

unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    let loaded = catch("loading a lock", || {
        // SAFETY: the server's context for this load, which stays its own.
        let ctx = unsafe { Context::new(api!(RedisModule_GetContextFromIO, io)) };
        let source = Source::of(&ctx);
        if encoding > ENCODING {
            return Err(format!("encoding {encoding} is newer than {ENCODING}"));
        }
        let bytes = raw::load_string_buffer(io).map_err(|_| "the bytes of a lock end too early")?;
        match (handlers::get().from_bytes)(&ctx, bytes.as_ref(), source) {
            Ok(value) => Ok((value, source)),
            Err(error) => Err(format!("a lock: {error}")),
        }
    });
    let (value, source) = match loaded {
        Some(Ok(loaded)) => loaded,
        Some(Err(why)) => {
            // SAFETY: `io` lives for the call.
            catch("refusing a lock", || unsafe { refuse(io, &why) });
            return ptr::null_mut();
        }
        None => return ptr::null_mut(),
    };
    catch("marking a lock", || {
        // SAFETY: the server's own, for the call. Null where it does not know the name.
        unsafe {
            let name = name_of(api!(RedisModule_GetKeyNameFromIO, io));
            if let Some(name) = name {
                let db = db_of(api!(RedisModule_GetDbIdFromIO, io));
                (handlers::get().on_loaded)(&Context::detached(), KeyRef { db, name }, source);
            }
        }
    });
    Box::into_raw(Box::new(value)).cast()
}

/// Logs why a lock is not loaded. SAFETY: `io` lives for the call.
unsafe fn refuse(io: *mut raw::RedisModuleIO, why: &str) {
    let why = c_string(&format!(
        "refused: {why}. It is damaged or from a newer module, and was refused whole; load the module that wrote it, or \
         another copy"
    ));
    // SAFETY: promised by the caller; `%s` takes one C string.
    unsafe {
        api!(
            RedisModule_LogIOError,
            io,
            c"warning".as_ptr(),
            c"%s".as_ptr(),
            why.as_ptr()
        )
    };
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    catch("rewriting a lock", || {
        // SAFETY: a value of ours; the format names the key and a buffer with its length.
        unsafe {
            let emit = &mut |effect: &[u8]| {
                let (command, format) = (handlers::get().effect.as_ptr(), c"sb".as_ptr());
                let (bytes, len) = (effect.as_ptr(), effect.len());
                api!(RedisModule_EmitAOF, io, command, format, key, bytes, len);
            };
            (handlers::get().to_effects)(&Context::detached(), borrow(value), emit);
        }
    });
}

unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _when: c_int) {
    catch("saving the token clock", || {
        // SAFETY: see the file's head.
        let last = (handlers::get().last_token)(&unsafe { Context::detached() });
        raw::save_unsigned(io, last);
    });
}

/// Writes nothing if the token clock was never used: such a file loads without the module.
unsafe extern "C" fn aux_save_if_any(io: *mut raw::RedisModuleIO, when: c_int) {
    let any = catch("looking at the token clock", || {
        // SAFETY: see the file's head.
        (handlers::get().last_token)(&unsafe { Context::detached() }) > 0
    });
    if any == Some(true) {
        // SAFETY: passed on.
        unsafe { aux_save(io, when) };
    }
}

unsafe extern "C" fn aux_load(io: *mut raw::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let accepted = catch("loading the token clock", || {
        // SAFETY: see the file's head.
        let ctx = unsafe { Context::detached() };
        let accepts = |last| (handlers::get().load_last_token)(&ctx, last);
        let accepted = encoding <= ENCODING && raw::load_unsigned(io).is_ok_and(accepts);
        if !accepted {
            ctx.warn(
                "refused: the saved token clock cannot be read. The file is damaged or from a newer module: load the module \
                 that wrote it, or another copy",
            );
        }
        accepted
    });
    (match accepted {
        Some(true) => raw::REDISMODULE_OK,
        Some(false) | None => raw::REDISMODULE_ERR,
    }) as c_int
}

/// May run on a background thread: has no context.
unsafe extern "C" fn free(value: *mut c_void) {
    catch("freeing a lock", || {
        // SAFETY: the server gives back what `set`, `rdb_load` or `copy` gave it, once.
        drop(unsafe { Box::from_raw(value.cast::<Value>()) });
    });
}

unsafe extern "C" fn mem_usage(
    ctx: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
    _samples: usize,
) -> usize {
    let usage = catch("MEMORY USAGE", || {
        // SAFETY: a value of ours; the name lives for the call.
        unsafe {
            let name = name_of(api!(RedisModule_GetKeyNameFromOptCtx, ctx));
            let len = name.map_or(0, <[u8]>::len);
            (handlers::get().memory)(borrow(value), len)
        }
    });
    usage.unwrap_or(0)
}

unsafe extern "C" fn free_effort(
    _ctx: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) -> usize {
    let holds = catch("counting holds", || {
        // SAFETY: a value of ours.
        unsafe { borrow(value) }.lock.len()
    });
    // A released lock has none when its key goes, and 0 would mean: free it on another thread.
    holds.map_or(1, |holds| holds.max(1))
}

unsafe extern "C" fn unlink(ctx: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    catch("unlinking a lock", || {
        // SAFETY: a value of ours; the name lives for the call.
        unsafe {
            let name = name_of(api!(RedisModule_GetKeyNameFromOptCtx, ctx));
            let db = db_of(api!(RedisModule_GetDbIdFromOptCtx, ctx));
            if let Some(name) = name {
                let unlinked = handlers::get().on_unlinked;
                unlinked(&Context::detached(), KeyRef { db, name }, borrow(value));
            }
        }
    });
}

unsafe extern "C" fn copy(
    ctx: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) -> *mut c_void {
    let copy = catch("copying a lock", || {
        // SAFETY: a value of ours; the name lives for the call.
        unsafe {
            let name = name_of(api!(RedisModule_GetToKeyNameFromOptCtx, ctx));
            let db = db_of(api!(RedisModule_GetToDbIdFromOptCtx, ctx));
            if let Some(name) = name {
                (handlers::get().on_copied)(&Context::detached(), KeyRef { db, name });
            }
            Value::new(borrow(value).lock.clone())
        }
    });
    copy.map_or(ptr::null_mut(), |copy| Box::into_raw(Box::new(copy)).cast())
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    catch("DEBUG DIGEST-VALUE", || {
        // SAFETY: a value of ours.
        for (owner, stake) in unsafe { borrow(value) }.lock.holds() {
            let mut bytes = owner.text().to_vec();
            let (write, read) = (stake.write.into(), stake.read.into());
            for number in [write, read, stake.token.get(), stake.revoked.into()] {
                bytes.extend(u64::to_be_bytes(number));
            }
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            // SAFETY: the server copies the bytes.
            unsafe {
                api!(RedisModule_DigestAddStringBuffer, digest, start, len);
                api!(RedisModule_DigestEndSequence, digest);
            }
        }
    });
}
