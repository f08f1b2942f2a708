//! The description of a command, for the server, `COMMAND DOCS`, cluster clients and ACLs.

use std::ffi::CStr;
use std::str::SplitWhitespace;

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

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Key,
    Text,
    Integer,
    /// A word that is written as it is.
    Flag,
    /// One of those inside.
    OneOf,
    /// All of those inside, one after the other.
    Block,
}

/// An argument.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The word in front of its value.
    pub(super) token: Option<String>,
    pub(super) optional: bool,
    /// It may come more than once.
    pub(super) repeated: bool,
    pub(super) inner: Vec<Argument>,
}

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
pub(super) fn arguments(usage: &str) -> Vec<Argument> {
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
                last.repeated = true;
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
                ..Argument::new("", Kind::OneOf)
            }
        }
    };
    if let Some(title) = title {
        option.name = title.into();
    }
    option.optional = true;
    option
}

impl Argument {
    fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            token: None,
            optional: false,
            repeated: false,
            inner: Vec::new(),
        }
    }

    fn value(name: &str) -> Self {
        let kind = match name {
            "key" => Kind::Key,
            name if INTEGERS.contains(&name) => Kind::Integer,
            _ => Kind::Text,
        };
        Self::new(name, kind)
    }

    /// What `token` and the values behind it are together.
    fn of(token: Option<&str>, mut values: Vec<Self>) -> Self {
        let name = token.unwrap_or_default().to_lowercase();
        let argument = match values.len() {
            0 => Self::new(&name, Kind::Flag),
            1 => values.remove(0),
            _ => Self {
                inner: values,
                ..Self::new(&name, Kind::Block)
            },
        };
        Self {
            token: token.map(str::to_owned),
            ..argument
        }
    }
}
