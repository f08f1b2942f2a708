//! Locks over several independent servers: the Redlock algorithm, point by point, and what the client adds.

mod ends;
mod queues;
mod redlock;
mod redlock_tokens;
mod renewals;
mod rounds;
mod silent;

#[path = "../support/mod.rs"]
mod support;
