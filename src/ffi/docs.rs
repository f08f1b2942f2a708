//! The description of a command, for `COMMAND DOCS`, cluster clients and ACLs.

use std::ffi::CStr;

/// A command, for people and for clients.
#[derive(Debug)]
pub(crate) struct Docs {
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) key: KeyAccess,
    /// More arguments than the minimum may follow.
    pub(crate) open_ended: bool,
    pub(crate) args: &'static [ArgDoc],
    /// ACL categories beside `lock`.
    pub(crate) categories: &'static CStr,
}

/// What a command does with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAccess {
    /// It has none.
    None,
    /// It has none, but an argument at its place by which a cluster's client finds the node.
    Route,
    Read,
    Write,
    /// It writes to several, whose number is the third argument and which follow that.
    WriteNumbered,
    /// It writes to all its arguments but the first.
    WriteAll,
    /// It reads its first one; only the command itself knows whether more follow.
    ReadAndMore,
}

/// An argument.
#[derive(Debug)]
pub(crate) struct ArgDoc {
    pub(crate) name: &'static CStr,
    pub(crate) kind: ArgKind,
    /// The option's name, in front of its value.
    pub(crate) token: Option<&'static CStr>,
    pub(crate) optional: bool,
    /// It may come more than once.
    pub(crate) repeated: bool,
}

#[derive(Debug)]
pub(crate) enum ArgKind {
    Key,
    Text,
    Integer,
    /// An option without a value.
    Flag,
    OneOf(&'static [ArgDoc]),
    /// All of these, one after the other.
    Block(&'static [ArgDoc]),
}
