//! The driver: sends what `proto` asks for and feeds it the answers. An acquisition runs in its caller's future; what goes on
//! without one (letters, renewals, what is left to undo) has a task for each server that is waited on, and one for the rest.

pub(crate) mod acquire;
pub(crate) mod alarm;
pub(crate) mod attempt;
pub(crate) mod change;
pub(crate) mod core;
pub(crate) mod hold;
pub(crate) mod mail;
pub(crate) mod owner;
pub(crate) mod quorum;
pub(crate) mod release;
pub(crate) mod trace;
pub(crate) mod upkeep;
