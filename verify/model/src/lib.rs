//! The quorum protocol, checked in every interleaving: three servers, two or three clients, requests that arrive at any
//! time, lost replies, servers that restart empty, and clocks that differ. A client that crashes is one that gives up and
//! whose releases never arrive.
//!
//! Two properties must hold: at most one client believes that it holds the lock, and the tokens of the holders grow. With
//! `lock.grace`, and clocks that are less than the grace apart, both do. Without it, or with clocks further apart, the
//! checker finds a run that breaks each, so the model can detect such errors.
//!
//! `checks` has the bounds. Two clients that may renew, and a server that restarts empty, over the length of a lease, have
//! 8.8 million states, which `MORTISE_LONG=1` visits; without it, the checker visits those without renewals, and those of half a lease.
//! Three clients, without time passing, have 2.7 million. Three clients with more rounds, time and restarts have too many states to
//! visit, so the checker runs them at random.
//!
//! The model runs the client's own code on the replies: `client/src/quorum/votes.rs` computes the token of
//! a majority, and `client/src/belief.rs` the belief in the hold on each server, and on a majority. A tick is a second.
//!
//! Left out: read mode, queueing (which only decides when a client asks), servers so far ahead that they
//! count as failed, and clocks that run at different speeds (which the drift covers).

#![forbid(unsafe_code)]
#![cfg(test)]

// The client's own code, whose votes, tokens and beliefs are checked.
#[allow(dead_code, unexpected_cfgs, unreachable_pub)]
#[path = "../../../client/src/belief.rs"]
mod belief;
#[allow(dead_code, unexpected_cfgs, unreachable_pub)]
#[path = "../../../client/src/error.rs"]
mod error;
#[allow(dead_code, unexpected_cfgs, unreachable_pub)]
#[path = "../../../client/src/name.rs"]
mod name;
#[allow(dead_code, unexpected_cfgs, unreachable_pub)]
#[path = "../../../client/src/time.rs"]
mod time;
#[allow(dead_code, unexpected_cfgs, unreachable_pub)]
#[path = "../../../client/src/token.rs"]
mod token;
#[allow(dead_code, unexpected_cfgs, unreachable_pub)]
#[path = "../../../client/src/quorum/votes.rs"]
mod votes;

mod checks;
mod client;
mod quorum;
mod server;
mod state;

pub(crate) const NODES: usize = 3;
pub(crate) const MAJORITY: usize = 2;
/// In ticks.
pub(crate) const LEASE: u8 = 2;
/// How far a server's clock, from which it makes tokens, moves in a tick.
pub(crate) const TOKENS_PER_TICK: u8 = 2;
