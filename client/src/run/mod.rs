//! The driver: sends what `proto` asks for and feeds it the answers. An acquisition runs in its caller's future; what goes on
//! without one (letters, renewals, what is left to undo) has tasks of its own.

pub(crate) mod acquire;
mod ballot;
pub(crate) mod call;
pub(crate) mod change;
pub(crate) mod core;
pub(crate) mod guard;
pub(crate) mod held;
pub(crate) mod hold;
mod leave;
mod mail;
pub(crate) mod owner;
mod schedule;
mod trace;

pub(crate) use acquire::Request;
pub(crate) use ballot::Ballot;
pub(crate) use call::{Call, Calls};
pub(crate) use core::Core;
pub(crate) use guard::Guard;
pub(crate) use held::Held;
pub(crate) use hold::Hold;
pub(crate) use leave::Leave;
pub(crate) use owner::Owner;
