//! Registers the parts of the module with the server.

use std::ffi::{CStr, CString};
use std::os::raw::c_int;

use redis_module::alloc::RedisAlloc;
use redis_module::raw;

use super::args::Args;
use super::block::{self, ClientHandlers};
use super::catch;
use super::config::{self, Setting};
use super::context::Context;
use super::docs::Docs;
use super::entry::{self, Command};
use super::events::{self, Event};
use super::info;
use super::native_type::{self, DataType};
use super::timer::{self, Alarm};
use super::{command_info, log};
use crate::decimal;

/// All memory of the module is the server's, so that `used_memory` and `maxmemory` see it.
#[global_allocator]
static ALLOCATOR: RedisAlloc = RedisAlloc;

/// The parts of the module, as `lib.rs` lists them.
#[derive(Debug)]
pub(crate) struct Module {
    /// Prefix of its settings and of its INFO fields.
    pub(crate) name: &'static CStr,
    pub(crate) version: i32,
    pub(crate) commands: &'static [Entry],
    pub(crate) settings: &'static [Setting],
    pub(crate) data_type: Type,
    pub(crate) handlers: Handlers,
}

/// The handlers of callbacks, registered here once, so that lower layers need not know them.
#[derive(Debug)]
pub(crate) struct Handlers {
    /// The module has been registered.
    pub(crate) on_load: fn(&Context<'_>),
    pub(crate) on_alarm: fn(&Context<'_>, Alarm),
    pub(crate) on_event: fn(&Context<'_>, Event),
    pub(crate) clients: ClientHandlers,
    pub(crate) write_info: info::Write,
}

/// The data type as it is registered.
#[derive(Debug)]
pub(crate) struct Type(fn(&Context<'_>) -> bool);

/// The module's data type is `T`.
pub(crate) const fn data_type<T: DataType>() -> Type {
    Type(native_type::register::<T>)
}

/// A command as it is registered.
#[derive(Debug)]
pub(crate) struct Entry {
    name: &'static str,
    flags: &'static str,
    /// Position of its one key, 0 for none.
    key: c_int,
    min_args: usize,
    docs: &'static Docs,
    function: raw::RedisModuleCmdFunc,
}

/// The command `C` with the server's flags for it and the position of its key, 0 for none.
pub(crate) const fn command<C: Command>(flags: &'static str, key: i32) -> Entry {
    Entry {
        name: C::NAME,
        flags,
        key,
        min_args: C::MIN_ARGS,
        docs: C::DOCS,
        function: Some(entry::command::<C>),
    }
}

macro_rules! required {
    ($($name:ident),* $(,)?) => {
        /// Names of functions that the server lacks and without which the module cannot work.
        fn missing() -> Vec<&'static str> {
            // SAFETY: filled in by the server before this is called.
            unsafe {
                [$((stringify!($name), { let found = raw::$name; found.is_none() })),*]
                    .into_iter()
                    .filter_map(|(name, missing)| missing.then_some(name))
                    .collect()
            }
        }
    };
}

required![
    RedisModule_ACLCheckCommandPermissions,
    RedisModule_ACLCheckKeyPermissions,
    RedisModule_AvoidReplicaTraffic,
    RedisModule_BlockClient,
    RedisModule_Call,
    RedisModule_CallReplyArrayElement,
    RedisModule_CallReplyStringPtr,
    RedisModule_CallReplyType,
    RedisModule_CloseKey,
    RedisModule_CreateCommand,
    RedisModule_CreateDataType,
    RedisModule_CreateModuleUser,
    RedisModule_CreateString,
    RedisModule_CreateTimer,
    RedisModule_DeleteKey,
    RedisModule_DigestAddLongLong,
    RedisModule_DigestAddStringBuffer,
    RedisModule_DigestEndSequence,
    RedisModule_EmitAOF,
    RedisModule_EventLoopAddOneShot,
    RedisModule_Free,
    RedisModule_FreeCallReply,
    RedisModule_FreeModuleUser,
    RedisModule_FreeServerInfo,
    RedisModule_FreeString,
    RedisModule_GetBlockedClientHandle,
    RedisModule_GetClientId,
    RedisModule_GetClientInfoById,
    RedisModule_GetClientUserNameById,
    RedisModule_GetCommand,
    RedisModule_GetCommandKeysWithFlags,
    RedisModule_GetContextFlags,
    RedisModule_GetContextFromIO,
    RedisModule_GetCurrentUserName,
    RedisModule_GetDbIdFromIO,
    RedisModule_GetDbIdFromOptCtx,
    RedisModule_GetDetachedThreadSafeContext,
    RedisModule_GetExpire,
    RedisModule_GetKeyNameFromIO,
    RedisModule_GetKeyNameFromOptCtx,
    RedisModule_GetModuleUserFromUserName,
    RedisModule_GetSelectedDb,
    RedisModule_GetServerInfo,
    RedisModule_GetToDbIdFromOptCtx,
    RedisModule_GetToKeyNameFromOptCtx,
    RedisModule_InfoAddFieldCString,
    RedisModule_InfoAddFieldULongLong,
    RedisModule_InfoAddSection,
    RedisModule_IsIOError,
    RedisModule_IsKeysPositionRequest,
    RedisModule_KeyAtPosWithFlags,
    RedisModule_KeyType,
    RedisModule_LoadConfigs,
    RedisModule_LoadStringBuffer,
    RedisModule_LoadUnsigned,
    RedisModule_Log,
    RedisModule_LogIOError,
    RedisModule_ModuleTypeGetType,
    RedisModule_ModuleTypeGetValue,
    RedisModule_ModuleTypeSetValue,
    RedisModule_NotifyKeyspaceEvent,
    RedisModule_OpenKey,
    RedisModule_RegisterInfoFunc,
    RedisModule_RegisterNumericConfig,
    RedisModule_Replicate,
    RedisModule_ReplicateVerbatim,
    RedisModule_ReplyWithArray,
    RedisModule_ReplyWithCallReply,
    RedisModule_ReplyWithError,
    RedisModule_ReplyWithLongLong,
    RedisModule_ReplyWithMap,
    RedisModule_ReplyWithNull,
    RedisModule_ReplyWithStringBuffer,
    RedisModule_SaveStringBuffer,
    RedisModule_SaveUnsigned,
    RedisModule_SelectDb,
    RedisModule_ServerInfoGetFieldC,
    RedisModule_ServerInfoGetFieldUnsigned,
    RedisModule_SetCommandInfo,
    RedisModule_SetDisconnectCallback,
    RedisModule_SetExpire,
    RedisModule_SetModuleOptions,
    RedisModule_SetModuleUserACL,
    RedisModule_SignalModifiedKey,
    RedisModule_StopTimer,
    RedisModule_StringPtrLen,
    RedisModule_SubscribeToServerEvent,
    RedisModule_UnblockClient,
    RedisModule_WrongArity,
];

/// Why the module does not load, for the server's log.
pub(super) type Failure = String;

pub(super) fn register(
    ctx: &Context<'_>,
    module: &'static Module,
    args: Args<'_>,
) -> Result<(), Failure> {
    let missing = missing();
    if !missing.is_empty() {
        return Err(format!(
            "this server is too old: Mortise needs Redis 7.0.15 or Valkey 8.0, or later. It lacks {}",
            missing.join(", ")
        ));
    }
    catch::log_panics();
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
    let handlers = &module.handlers;
    timer::answer_with(handlers.on_alarm);
    events::answer_with(handlers.on_event);
    block::answer_with(handlers.clients);
    info::write_with(handlers.write_info);
    if !module.data_type.0(ctx) {
        return Err(
            "the server refuses the data type 'mort-lock': another module may have it".into(),
        );
    }
    add_acl_category(ctx);
    for entry in module.commands {
        register_command(ctx, entry)?;
    }
    register_settings(ctx, module.settings, args)?;
    // SAFETY: the callback is ours for as long as the module is loaded.
    unsafe {
        api!(
            RedisModule_RegisterInfoFunc,
            ctx.as_ptr(),
            Some(info::on_info)
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

fn add_acl_category(ctx: &Context<'_>) {
    // SAFETY: a C string; the function is there from 7.2 on.
    unsafe {
        if let Some(add) = raw::RedisModule_AddACLCategory {
            add(ctx.as_ptr(), c"lock".as_ptr());
        }
    }
}

fn register_command(ctx: &Context<'_>, entry: &Entry) -> Result<(), Failure> {
    let refused = || format!("the server refuses the command {}", entry.name);
    let name = CString::new(entry.name).map_err(|_| refused())?;
    let flags = CString::new(entry.flags).map_err(|_| refused())?;
    let step = c_int::from(entry.key > 0);
    // SAFETY: C strings that outlive the calls; the function is ours.
    unsafe {
        let created = api!(
            RedisModule_CreateCommand,
            ctx.as_ptr(),
            name.as_ptr(),
            entry.function,
            flags.as_ptr(),
            entry.key,
            entry.key,
            step,
        );
        if created != raw::REDISMODULE_OK as c_int {
            return Err(refused());
        }
        let command = api!(RedisModule_GetCommand, ctx.as_ptr(), name.as_ptr());
        if command.is_null() || !command_info::set(command, entry.docs, entry.min_args) {
            return Err(format!(
                "the server refuses the description of {}",
                entry.name
            ));
        }
        // From 7.2 on. A category that the server does not know is no reason not to load.
        if let Some(set) = raw::RedisModule_SetCommandACLCategories {
            set(command, entry.docs.categories.as_ptr());
        }
    }
    Ok(())
}

/// Registers the settings, with the `loadmodule` arguments as their defaults.
fn register_settings(
    ctx: &Context<'_>,
    settings: &'static [Setting],
    args: Args<'_>,
) -> Result<(), Failure> {
    let mut defaults: Vec<i64> = settings.iter().map(|setting| setting.default).collect();
    let mut position = 0;
    while let Some(name) = args.get(position) {
        let shown = name.bytes().escape_ascii();
        let bare = name.bytes().strip_prefix(b"lock.").unwrap_or(name.bytes());
        let index = settings
            .iter()
            .position(|setting| setting.name.to_bytes().eq_ignore_ascii_case(bare))
            .ok_or_else(|| format!("unknown loadmodule argument '{shown}'"))?;
        let Setting { min, max, .. } = settings[index];
        let value = args
            .get(position + 1)
            .and_then(|value| decimal::parse_signed(value.bytes()));
        defaults[index] = value
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| format!("loadmodule argument '{shown}' must be {min} to {max}"))?;
        position += 2;
    }
    for (setting, default) in settings.iter().zip(defaults) {
        if !config::register(ctx, setting, default) {
            return Err(format!("the server refuses the setting {:?}", setting.name));
        }
    }
    // SAFETY: see the module's head.
    if unsafe { api!(RedisModule_LoadConfigs, ctx.as_ptr()) } != raw::REDISMODULE_OK as c_int {
        return Err("a lock.* setting in the configuration file is refused".into());
    }
    Ok(())
}
