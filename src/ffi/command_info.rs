//! What `COMMAND DOCS`, cluster clients and ACLs learn about a command.

use std::ffi::CString;
use std::os::raw::{c_char, c_int};
use std::ptr;

use redis_module::raw;

use super::docs::{self, Argument, Docs, Keys, Kind};
use super::log::c_string;

/// The layout of the structures below, as the server wants to know it.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Registers what `docs` say about `command`. False if the server refuses.
///
/// SAFETY: `command` is a command of this module.
pub(super) unsafe fn set(command: *mut raw::RedisModuleCommand, docs: &Docs) -> bool {
    let arguments = docs::arguments(docs.usage);
    let needed = 1 + arguments
        .iter()
        .filter(|argument| !argument.optional)
        .count() as c_int;
    let open_ended = arguments
        .iter()
        .any(|argument| argument.optional || argument.repeated);
    let mut lists = Lists::default();
    let args = lists.add(&arguments);
    let mut specs = [key_spec(docs.keys), end_of_specs()];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: c"0.1.0".as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: if open_ended { -needed } else { needed },
        key_specs: match docs.keys {
            Keys::None => ptr::null_mut(),
            _ => specs.as_mut_ptr(),
        },
        args,
    };
    // SAFETY: the server copies all of it; `lists` and `specs` outlive the call.
    unsafe { api!(RedisModule_SetCommandInfo, command, &raw const info) == OK }
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// Lists of arguments as the server takes them, and the strings in them.
#[derive(Default)]
struct Lists {
    lists: Vec<Vec<raw::RedisModuleCommandArg>>,
    strings: Vec<CString>,
}

impl Lists {
    /// The arguments as a list that an empty element ends.
    fn add(&mut self, arguments: &[Argument]) -> *mut raw::RedisModuleCommandArg {
        let mut args: Vec<_> = arguments
            .iter()
            .map(|argument| self.arg(argument))
            .collect();
        args.push(empty_arg());
        let start = args.as_mut_ptr();
        // Moving the vector does not move what it points to.
        self.lists.push(args);
        start
    }

    fn arg(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        let type_ = match argument.kind {
            Kind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            Kind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            Kind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            Kind::Flag => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            Kind::OneOf => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            Kind::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
        };
        let token = argument.token.as_ref();
        raw::RedisModuleCommandArg {
            name: self.string(&argument.name),
            type_,
            key_spec_index: if argument.kind == Kind::Key { 0 } else { -1 },
            token: token.map_or(ptr::null(), |token| self.string(token)),
            flags: flag(argument.optional, raw::REDISMODULE_CMD_ARG_OPTIONAL)
                | flag(argument.repeated, raw::REDISMODULE_CMD_ARG_MULTIPLE),
            subargs: match argument.inner.as_slice() {
                [] => ptr::null_mut(),
                inner => self.add(inner),
            },
            ..empty_arg()
        }
    }

    fn string(&mut self, text: &str) -> *const c_char {
        let text = c_string(text);
        let start = text.as_ptr();
        self.strings.push(text);
        start
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
fn key_spec(keys: Keys) -> raw::RedisModuleCommandKeySpec {
    let read = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
    let flags = match keys {
        Keys::Write | Keys::WriteNumbered | Keys::WriteAll => WRITE,
        Keys::Route => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_NOT_KEY,
        Keys::Read | Keys::None => read,
        // The server asks the command for all of them.
        Keys::ReadAndInner => read | raw::REDISMODULE_CMD_KEY_INCOMPLETE,
    };
    let (first, find_keys_type, fk) = match keys {
        Keys::WriteNumbered => (
            NUMKEYS_AT,
            raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM,
            numbered(),
        ),
        Keys::WriteAll => (2, RANGE, range(-1)),
        _ => (1, RANGE, range(0)),
    };
    raw::RedisModuleCommandKeySpec {
        notes: ptr::null(),
        flags: u64::from(flags),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: first },
        },
        find_keys_type,
        fk,
    }
}

const RANGE: raw::RedisModuleKeySpecFindKeysType =
    raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;

/// The server's flags of a key that a command changes.
pub(super) const WRITE: u32 =
    raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE;

/// Where a command says how many keys follow.
pub(super) const NUMKEYS_AT: c_int = 3;

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
        ..key_spec(Keys::None)
    }
}
