//! Locks on one server: acquire, hold, renew, wait by mail, leave. An acquisition runs in its caller's future. What goes on
//! without one (letters, renewals, what is left to undo) has tasks of its own.

mod acquire;
mod ask;
mod attempt;
mod background;
pub(crate) mod builder;
mod change;
pub(crate) mod client;
pub(crate) mod core;
pub(crate) mod guard;
pub(crate) mod guarded;
pub(crate) mod held;
pub(crate) mod hold;
mod holds;
mod leave;
#[expect(clippy::module_inception, reason = "it is the lock itself")]
pub(crate) mod lock;
mod mail;
mod mailboxes;
pub(crate) mod multi;
pub(crate) mod owner;
mod pass;
mod renew;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod semaphore;
pub(crate) mod server_hold;
mod take;
mod terms;
#[cfg(all(test, not(simulated)))]
mod tests;
pub(crate) mod trace;

pub(crate) use ask::Ask;
pub(crate) use attempt::{Attempted, attempt};
pub(crate) use core::Core;
pub(crate) use guard::Guard;
pub(crate) use held::Held;
pub(crate) use hold::{Hold, Share, Shares, Watchers};
pub(crate) use lock::Lock;
pub(crate) use owner::Owner;
pub(crate) use request::{Failed, Request};
pub(crate) use server_hold::ServerHold;
pub(crate) use terms::{Passed, Source, Terms};
