//! The driver: sends what `proto` asks for and feeds it the answers. An acquisition runs in its caller's future; what goes on
//! without one (letters, renewals, what is left to undo) has tasks of its own.

pub(crate) mod acquire;
mod alarm;
mod ballot;
pub(crate) mod call;
pub(crate) mod change;
pub(crate) mod core;
pub(crate) mod hold;
mod leave;
mod mail;
pub(crate) mod owner;
pub(crate) mod part;
mod schedule;
mod trace;
