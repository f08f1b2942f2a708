//! The quorum protocol, checked in every interleaving: three servers, two or three clients, requests that arrive at any
//! time or are answered into the void, servers that restart empty, and clocks that differ. A client that crashes is one
//! that has given up and whose releases never arrive.
//!
//! Two things must hold. At most one client believes that it holds the lock; and the tokens of those who do grow. With
//! `lock.grace`, and clocks that are less than the grace apart, both do. Without it, or with clocks further apart, the
//! checker finds how each fails, so the model is able to see it.
//!
//! `checks` says within which bounds everything is looked at: two clients, who may renew, and a server that restarts empty,
//! over the length of a lease, are 9.0 million states; three clients, without time passing, 2.7 million. Three with more
//! rounds, time and restarts are too many to look at all, and are run at random.
//!
//! What a client makes of the answers is not modelled but run: the one token and the one deadline of a majority are those of
//! `client/src/quorum/votes.rs`, and the belief in each server's hold is that of `client/src/wire/belief.rs`, with a tick for a
//! second.
//!
//! What the model leaves out: read mode, queueing (which only decides when a client asks), servers so far ahead that they
//! count as failed, and clocks that run at different speeds (which the drift is for).

#![forbid(unsafe_code)]
#![cfg(test)]

// The client's own code: its votes, tokens and beliefs are what is checked.
#[allow(dead_code, unexpected_cfgs, unreachable_pub, unused_imports)]
#[path = "../../src/value/mod.rs"]
mod value;
#[allow(dead_code, unexpected_cfgs, unreachable_pub, unused_imports)]
#[path = "../../src/quorum/votes.rs"]
mod votes;
#[allow(dead_code, unexpected_cfgs, unreachable_pub, unused_imports)]
#[path = "../../src/wire/mod.rs"]
mod wire;

mod checks;
mod client;
mod quorum;
mod server;
mod state;

pub(crate) const NODES: usize = 3;
pub(crate) const MAJORITY: usize = 2;
/// In ticks of time.
pub(crate) const LEASE: u8 = 2;
/// How far the servers' clocks move in a tick: they make tokens of that.
pub(crate) const TOKENS_PER_TICK: u8 = 2;
