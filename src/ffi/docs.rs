//! What `COMMAND DOCS`, cluster clients and ACLs learn about a command.

use std::ffi::CStr;
use std::os::raw::c_int;
use std::ptr;
use std::str::SplitWhitespace;

use redis_module::commands::{
    BeginSearch, CommandArgFlags, FindKeys, KeySpec, KeySpecFlags, RedisModuleCommandArg,
    get_redis_command_args, get_redis_key_spec,
};
use redis_module::raw;

/// A command, for people and for clients.
#[derive(Debug)]
pub(crate) struct Docs {
    pub(crate) name: &'static str,
    /// Its arguments: `key owner [HOLDS holds] [mode: READ|WRITE]`. Options are in brackets, a word in capitals is written as it is, `…` means
    /// one or more. A choice, or several arguments in brackets, have a name with a colon or that of their option.
    pub(crate) usage: &'static str,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    /// The server's flags for it.
    pub(crate) flags: &'static str,
    pub(crate) keys: Keys,
}

/// Which arguments are keys, and what the command does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None.
    None,
    /// None, but a cluster's client finds the node by the first argument.
    Route,
    /// It reads the first.
    Read,
    /// It writes to the first.
    Write,
    /// It writes to those behind the third, which says how many they are.
    WriteNumbered,
    /// It writes to all but the first.
    WriteAll,
    /// It reads the first, and there are those of the command that begins with the fourth.
    ReadAndInner,
}

/// An argument.
struct Argument {
    name: String,
    /// The server's number for what it is.
    kind: u32,
    /// The word in front of its value.
    token: Option<String>,
    flags: CommandArgFlags,
    inner: Vec<Argument>,
}

/// A word that is written as it is.
const FLAG: u32 = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN;
/// One of those inside.
const ONE_OF: u32 = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
/// All of those inside, one after the other.
const BLOCK: u32 = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;
const KEY: u32 = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
const INTEGER: u32 = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER;
const TEXT: u32 = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING;

/// Arguments that are whole numbers. All others are text.
const INTEGERS: [&str; 12] = [
    "count",
    "fence",
    "holds",
    "lease",
    "limit",
    "milliseconds",
    "number",
    "numkeys",
    "since",
    "token",
    "wait",
    "waiter",
];

/// The arguments that a usage describes.
fn arguments(usage: &str) -> Vec<Argument> {
    let spaced = usage
        .replace('[', "[ ")
        .replace(']', " ]")
        .replace('|', " | ");
    let mut words = spaced.split_whitespace();
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        add(&mut arguments, word, &mut words);
    }
    arguments
}

/// Adds what begins with `word`.
fn add(arguments: &mut Vec<Argument>, word: &str, words: &mut SplitWhitespace<'_>) {
    match word {
        "[" => arguments.push(option(words)),
        "…" => {
            if let Some(last) = arguments.last_mut() {
                last.flags |= CommandArgFlags::MULTIPLE;
            }
        }
        name => arguments.push(Argument::value(name)),
    }
}

/// What stands in brackets, of which the first is taken.
fn option(words: &mut SplitWhitespace<'_>) -> Argument {
    let (mut title, mut token) = (None, None);
    let (mut choices, mut values) = (Vec::new(), Vec::new());
    loop {
        match words.next() {
            Some("|") => choices.push(Argument::of(token.take(), std::mem::take(&mut values))),
            Some("]") | None => break,
            Some(word) if word.ends_with(':') => title = word.strip_suffix(':'),
            Some(word) if word.bytes().all(|byte| byte.is_ascii_uppercase()) => token = Some(word),
            Some(word) => add(&mut values, word, words),
        }
    }
    let last = Argument::of(token, values);
    let mut option = match choices.is_empty() {
        true => last,
        false => {
            choices.push(last);
            Argument {
                inner: choices,
                ..Argument::new("", ONE_OF)
            }
        }
    };
    if let Some(title) = title {
        option.name = title.into();
    }
    option.flags |= CommandArgFlags::OPTIONAL;
    option
}

impl Argument {
    fn new(name: &str, kind: u32) -> Self {
        Self {
            name: name.into(),
            kind,
            token: None,
            flags: CommandArgFlags::NONE,
            inner: Vec::new(),
        }
    }

    fn value(name: &str) -> Self {
        let kind = match name {
            "key" => KEY,
            name if INTEGERS.contains(&name) => INTEGER,
            _ => TEXT,
        };
        Self::new(name, kind)
    }

    /// What `token` and the values behind it are together.
    fn of(token: Option<&str>, mut values: Vec<Self>) -> Self {
        let name = token.unwrap_or_default().to_lowercase();
        let argument = match values.len() {
            0 => Self::new(&name, FLAG),
            1 => values.remove(0),
            _ => Self {
                inner: values,
                ..Self::new(&name, BLOCK)
            },
        };
        Self {
            token: token.map(str::to_owned),
            ..argument
        }
    }

    /// As the crate describes it to the server.
    fn into_arg(self) -> RedisModuleCommandArg {
        let key = (self.kind == KEY).then_some(0);
        let inner: Vec<_> = self.inner.into_iter().map(Self::into_arg).collect();
        let inner = (!inner.is_empty()).then_some(inner);
        RedisModuleCommandArg::new(
            self.name, self.kind, key, self.token, None, None, self.flags, None, inner, None,
        )
    }
}

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
pub(super) unsafe fn describe(command: *mut raw::RedisModuleCommand, docs: &Docs) -> bool {
    let arguments = arguments(docs.usage);
    let is_optional = |argument: &&Argument| argument.flags.contains(CommandArgFlags::OPTIONAL);
    let optional = arguments.iter().filter(is_optional).count();
    let needed = (1 + arguments.len() - optional) as c_int;
    let is_open_ended = arguments.iter().any(|argument| !argument.flags.is_empty());
    let args = arguments.into_iter().map(Argument::into_arg).collect();
    let mut args = get_redis_command_args(args).unwrap_or_default();
    let mut specs = get_redis_key_spec(key_spec(docs.keys).into_iter().collect());
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: c"0.1.0".as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: if is_open_ended { -needed } else { needed },
        key_specs: specs.as_mut_ptr(),
        args: args.as_mut_ptr(),
    };
    // SAFETY: the server copies all of it; `args` and `specs` outlive the call, and what they point to is never freed.
    let set = unsafe { api!(RedisModule_SetCommandInfo, command, &raw const info) };
    set == raw::REDISMODULE_OK as c_int
}

/// The server's flags of a key that a command reads, or changes.
pub(super) const READ: KeySpecFlags = KeySpecFlags::READ_ONLY.union(KeySpecFlags::ACCESS);
pub(super) const WRITE: KeySpecFlags = KeySpecFlags::READ_WRITE
    .union(KeySpecFlags::ACCESS)
    .union(KeySpecFlags::UPDATE);

/// Where a command says how many keys follow.
pub(super) const NUMKEYS_AT: c_int = 3;

/// The first argument, or what is routed like a key; or several arguments.
fn key_spec(keys: Keys) -> Option<KeySpec> {
    let flags = match keys {
        Keys::None => return None,
        Keys::Write | Keys::WriteNumbered | Keys::WriteAll => WRITE,
        Keys::Route => KeySpecFlags::READ_ONLY | KeySpecFlags::NOT_KEY,
        Keys::Read => READ,
        // The server asks the command for all of them.
        Keys::ReadAndInner => READ | KeySpecFlags::INCOMPLETE,
    };
    let (first, find) = match keys {
        Keys::WriteNumbered => (NUMKEYS_AT, FindKeys::new_keys_num(0, 1, 1)),
        Keys::WriteAll => (2, FindKeys::new_range(-1, 1, 0)),
        _ => (1, FindKeys::new_range(0, 1, 0)),
    };
    let search = BeginSearch::new_index(first);
    Some(KeySpec::new(None, flags, search, find))
}
