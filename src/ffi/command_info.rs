//! What `COMMAND DOCS`, cluster clients and ACLs learn about a command.

use std::ffi::CStr;
use std::os::raw::c_int;
use std::ptr;

use redis_module::raw;

use super::docs::{ArgDoc, ArgKind, Docs, KeyAccess};

/// The layout of the structures below, as the server wants to know it.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Registers what `docs` say about `command`, whose minimum number of arguments, with its name, is
/// `min_args`. False if the server refuses.
///
/// SAFETY: `command` is a command of this module.
pub(super) unsafe fn set(
    command: *mut raw::RedisModuleCommand,
    docs: &Docs,
    min_args: usize,
) -> bool {
    let mut lists = Vec::new();
    let args = list(docs.args, &mut lists);
    let mut specs = [key_spec(docs.key), end_of_specs()];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: c"0.1.0".as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: if docs.open_ended {
            -(min_args as c_int)
        } else {
            min_args as c_int
        },
        key_specs: match docs.key {
            KeyAccess::None => ptr::null_mut(),
            KeyAccess::Route
            | KeyAccess::Read
            | KeyAccess::Write
            | KeyAccess::WriteNumbered
            | KeyAccess::WriteAll
            | KeyAccess::ReadAndMore => specs.as_mut_ptr(),
        },
        args,
    };
    // SAFETY: the server copies all of it; `lists` and `specs` outlive the call.
    unsafe { api!(RedisModule_SetCommandInfo, command, &raw const info) == OK }
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// `docs` as a list that an empty element ends. The list is kept alive by `lists`.
fn list(
    docs: &[ArgDoc],
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    let mut args: Vec<_> = docs.iter().map(|doc| arg(doc, lists)).collect();
    args.push(empty_arg());
    let start = args.as_mut_ptr();
    // Moving the vector does not move what it points to.
    lists.push(args);
    start
}

fn arg(
    doc: &ArgDoc,
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> raw::RedisModuleCommandArg {
    let (kind, key, subargs) = match doc.kind {
        ArgKind::Key => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            0,
            None,
        ),
        ArgKind::Text => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            -1,
            None,
        ),
        ArgKind::Integer => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            -1,
            None,
        ),
        ArgKind::Flag => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            -1,
            None,
        ),
        ArgKind::OneOf(docs) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            -1,
            Some(docs),
        ),
        ArgKind::Block(docs) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            -1,
            Some(docs),
        ),
    };
    raw::RedisModuleCommandArg {
        name: doc.name.as_ptr(),
        type_: kind,
        key_spec_index: key,
        token: doc.token.map_or(ptr::null(), CStr::as_ptr),
        flags: flag(doc.optional, raw::REDISMODULE_CMD_ARG_OPTIONAL)
            | flag(doc.repeated, raw::REDISMODULE_CMD_ARG_MULTIPLE),
        subargs: subargs.map_or(ptr::null_mut(), |docs| list(docs, lists)),
        ..empty_arg()
    }
}

fn flag(set: bool, flag: u32) -> c_int {
    if set { flag as c_int } else { 0 }
}

fn empty_arg() -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: ptr::null(),
        type_: 0,
        key_spec_index: -1,
        token: ptr::null(),
        summary: ptr::null(),
        since: ptr::null(),
        flags: 0,
        deprecated_since: ptr::null(),
        subargs: ptr::null_mut(),
        display_text: ptr::null(),
    }
}

/// The first argument, or what is routed like a key; or several arguments.
fn key_spec(access: KeyAccess) -> raw::RedisModuleCommandKeySpec {
    let flags = match access {
        KeyAccess::Write | KeyAccess::WriteNumbered | KeyAccess::WriteAll => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyAccess::Route => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_NOT_KEY,
        KeyAccess::Read | KeyAccess::None => {
            raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS
        }
        // The server asks the command for all of them.
        KeyAccess::ReadAndMore => {
            raw::REDISMODULE_CMD_KEY_RO
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_INCOMPLETE
        }
    };
    raw::RedisModuleCommandKeySpec {
        notes: ptr::null(),
        flags: u64::from(flags),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 {
                pos: match access {
                    KeyAccess::WriteNumbered => 3,
                    KeyAccess::WriteAll => 2,
                    _ => 1,
                },
            },
        },
        find_keys_type: match access {
            KeyAccess::WriteNumbered => {
                raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM
            }
            _ => raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        },
        fk: match access {
            KeyAccess::WriteNumbered => numbered(),
            KeyAccess::WriteAll => range(-1),
            _ => range(0),
        },
    }
}

/// The keys from the first one on to the one at `last` behind it, or with -1 to the last argument.
fn range(last: c_int) -> raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
    raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: last,
            keystep: 1,
            limit: 0,
        },
    }
}

/// So many keys as the first argument says, which follow it.
fn numbered() -> raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
    raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        keynum: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
            keynumidx: 0,
            firstkey: 1,
            keystep: 1,
        },
    }
}

fn end_of_specs() -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
        ..key_spec(KeyAccess::None)
    }
}
