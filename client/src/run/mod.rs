//! The driver: sends what `proto` asks for and feeds it the answers. An acquisition runs in its caller's future; what goes on
//! without one (letters, renewals, what is left to undo) has tasks of its own.

pub(crate) mod acquire;
mod alarm;
mod ballot;
mod call;
pub(crate) mod change;
pub(crate) mod core;
pub(crate) mod hold;
mod leave;
mod mail;
pub(crate) mod owner;
pub(crate) mod part;
pub(crate) mod renew;
mod schedule;
mod trace;
