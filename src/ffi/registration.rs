//! Registers the parts of the module with the server.

use std::ffi::CStr;
use std::os::raw::c_int;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use redis_module::alloc::RedisAlloc;
use redis_module::configuration::{ConfigurationFlags, register_i64_configuration};
use redis_module::raw;

use super::args::Args;

use super::context::Context;
use super::docs::{self, Docs, Keys};
use super::entry::{self, Command};
use super::events;
use super::handlers::{self, Handlers};
use super::log::{self, c_string};
use super::native_type;
use super::timer;
use crate::decimal::signed_decimal;

/// All memory of the module is the server's, so that `used_memory` and `maxmemory` see it.
#[global_allocator]
static ALLOCATOR: RedisAlloc = RedisAlloc;

/// The parts of the module, as `lib.rs` lists them.
pub(crate) struct Module {
    /// Prefix of its settings and of its INFO fields.
    pub(crate) name: &'static CStr,
    pub(crate) version: i32,
    pub(crate) commands: &'static [Entry],
    pub(crate) settings: &'static [&'static Setting],
    pub(crate) handlers: Handlers,
}

/// A whole number that can be configured.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Without the prefix `lock.`.
    name: &'static str,
    default: i64,
    min: i64,
    max: i64,
    value: AtomicI64,
}

impl Setting {
    pub(crate) const fn new(name: &'static str, default: i64, min: i64, max: i64) -> Self {
        Self {
            name,
            default,
            min,
            max,
            value: AtomicI64::new(0),
        }
    }

    /// What it is set to; `None` below zero.
    pub(crate) fn if_set(&self) -> Option<u64> {
        u64::try_from(self.value.load(Relaxed)).ok()
    }

    /// What it is set to, which is not below zero.
    pub(crate) fn get(&self) -> u64 {
        self.if_set().unwrap_or(0)
    }
}

/// A command as it is registered.
#[derive(Debug)]
pub(crate) struct Entry {
    docs: Docs,
    function: raw::RedisModuleCmdFunc,
}

/// The command `C`.
pub(crate) const fn command<C: Command>() -> Entry {
    Entry {
        docs: C::DOCS,
        function: Some(entry::command::<C>),
    }
}

/// Whether the server has the newest functions that the module cannot work without, and so all older ones.
fn is_new_enough() -> bool {
    // SAFETY: filled in by the server before this is called.
    let (one_shot, keys, config) = unsafe {
        (
            raw::RedisModule_EventLoopAddOneShot,
            raw::RedisModule_GetCommandKeysWithFlags,
            raw::RedisModule_RegisterNumericConfig,
        )
    };
    one_shot.is_some() && keys.is_some() && config.is_some()
}

/// Registers everything.
///
/// # Errors
/// Why the module does not load, for the server's log.
pub(super) fn register(
    ctx: &Context<'_>,
    module: &'static Module,
    args: Args<'_>,
) -> Result<(), String> {
    if !is_new_enough() {
        return Err(
            "this server is too old: Mortise needs Redis 7.0.15 or Valkey 8.0, or later".into(),
        );
    }
    log::log_panics();
    // SAFETY: the context of this load.
    unsafe { log::detach(ctx.as_ptr()) };
    // SAFETY: see the module's head. Loads are checked for errors, see `native_type`; changed keys
    // are announced one by one, see `effect`, because most keys are opened for writing and many are
    // left as they were.
    unsafe {
        api!(
            RedisModule_SetModuleOptions,
            ctx.as_ptr(),
            (raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
                | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
                | ATOMIC_SLOT_MIGRATION) as c_int
        );
    }
    handlers::set(&module.handlers);
    timer::on_load();
    if !native_type::register(ctx) {
        return Err(
            "the server refuses the data type 'mort-lock': another module may have it".into(),
        );
    }
    // SAFETY: a C string; the function is there from 7.2 on.
    unsafe {
        if let Some(add) = raw::RedisModule_AddACLCategory {
            add(ctx.as_ptr(), c"lock".as_ptr());
        }
    }
    for entry in module.commands {
        register_command(ctx, entry)?;
    }
    register_settings(ctx, module.settings, args)?;
    // SAFETY: the callback is ours for as long as the module is loaded.
    unsafe {
        api!(
            RedisModule_RegisterInfoFunc,
            ctx.as_ptr(),
            Some(events::on_info)
        )
    };
    if !events::subscribe(ctx) {
        return Err("the server refuses a subscription to its events".into());
    }
    (module.handlers.on_load)(ctx);
    Ok(())
}

/// Valkey 9: the module's data can be migrated slot by slot. Not in the crate's header.
const ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

fn register_command(ctx: &Context<'_>, entry: &Entry) -> Result<(), String> {
    let docs = &entry.docs;
    let (first, extra_flags) = match docs.keys {
        Keys::None | Keys::Route => (0, ""),
        Keys::Read | Keys::Write => (1, ""),
        Keys::WriteAll => (2, ""),
        Keys::WriteNumbered => (0, " getkeys-api"),
        Keys::ReadAndInner => (1, " getkeys-api"),
    };
    let (name, flags) = (
        c_string(docs.name),
        c_string(&format!("{}{extra_flags}", docs.flags)),
    );
    // SAFETY: C strings that outlive the calls; the function is ours.
    unsafe {
        let created = api!(
            RedisModule_CreateCommand,
            ctx.as_ptr(),
            name.as_ptr(),
            entry.function,
            flags.as_ptr(),
            first,
            first,
            c_int::from(first > 0),
        );
        let command = api!(RedisModule_GetCommand, ctx.as_ptr(), name.as_ptr());
        let ok = raw::REDISMODULE_OK as c_int;
        if created != ok || command.is_null() || !docs::describe(command, docs) {
            return Err(format!("the server refuses the command {}", docs.name));
        }
        // From 7.2 on. A category that the server does not know is no reason not to load.
        if let Some(set) = raw::RedisModule_SetCommandACLCategories {
            set(command, c_string(&categories(docs.flags)).as_ptr());
        }
    }
    Ok(())
}

/// The ACL categories of a command with these flags.
fn categories(flags: &str) -> String {
    let has = |flag| flags.split(' ').any(|word| word == flag);
    let mut categories = vec!["lock"];
    categories.push(if has("write") { "write" } else { "read" });
    categories.push(if has("fast") { "fast" } else { "slow" });
    if has("blocking") {
        categories.push("blocking");
    }
    categories.join(" ")
}

/// Registers the settings, with the `loadmodule` arguments as their defaults.
fn register_settings(
    ctx: &Context<'_>,
    settings: &'static [&'static Setting],
    args: Args<'_>,
) -> Result<(), String> {
    let mut defaults: Vec<i64> = settings.iter().map(|setting| setting.default).collect();
    let mut position = 0;
    while let Some(name) = args.get(position) {
        let shown = name.bytes().escape_ascii();
        let bare = name.bytes().strip_prefix(b"lock.").unwrap_or(name.bytes());
        let index = settings
            .iter()
            .position(|setting| setting.name.as_bytes().eq_ignore_ascii_case(bare))
            .ok_or_else(|| format!("unknown loadmodule argument '{shown}'"))?;
        let Setting { min, max, .. } = *settings[index];
        let value = args
            .get(position + 1)
            .and_then(|value| signed_decimal(value.bytes()));
        defaults[index] = value
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| format!("loadmodule argument '{shown}' must be {min} to {max}"))?;
        position += 2;
    }
    let context = redis_module::Context::new(ctx.as_ptr());
    for (setting, default) in settings.iter().copied().zip(defaults) {
        let (name, value) = (setting.name, &setting.value);
        let (min, max, flags) = (setting.min, setting.max, ConfigurationFlags::DEFAULT);
        register_i64_configuration(&context, name, value, default, min, max, flags, None);
    }
    // SAFETY: see the module's head.
    if unsafe { api!(RedisModule_LoadConfigs, ctx.as_ptr()) } != raw::REDISMODULE_OK as c_int {
        return Err("a lock.* setting in the configuration file is refused".into());
    }
    Ok(())
}
