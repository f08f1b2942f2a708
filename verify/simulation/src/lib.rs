//! Simulates whole clients: the client's own code from `client/src`, against servers in memory that decide with
//! `mortise-core`. A seed decides every message, clock and random number. A run of several simulated seconds takes some
//! milliseconds, and the same seed gives the same run each time.
//!
//! The clients connect by a closure that opens connections in memory. Only this package sets `cfg(simulated)`. It marks where the
//! client's code takes from `simulated` what it otherwise takes from the machine: the boot-time clock, random numbers, and tasks.
//!
//! # What happens
//!
//! Two to four processes with one to three tasks each acquire one or two locks, on one server, or over three or five by Redlock: for
//! reading and writing, with and without waiting, limits, renewal, `max_hold` and owners. They renew, upgrade and downgrade on one
//! server, re-enter, write under `LOCK.GUARD`, release, drop guards and unfinished futures, wait for the loss, and close their clients
//! early or at the end. One kind of run also shares locks ([`Kind::Sharing`]): tasks take several permits of a pool, or the whole pool,
//! pass a lock that is being renewed on to a job, take over a job that may be delivered twice, keep a lock taken for a while after
//! its guard, and revoke the holds of others. Another kind acquires two to four keys at once ([`Kind::Several`]), holds and renews
//! each like any other lock, passes one of them on to a job, and releases them together; meanwhile tasks with an owner acquire one key
//! after the other. In all of them
//!
//! - requests or replies are lost; requests arrive late, up to 4 s after the client gave up their connection, or twice; the client
//!   notices a closed connection at once, or does not; replies and letters are slow;
//! - processes are stopped and continued, or killed; the network between a process and a server fails for a while;
//! - servers stall, restart with their data, or restart without it and with a grace; or a replica replaces them that lacks the last
//!   0.2 s, which may include a pass. Wall clocks are up to 0.3 s apart, and the speeds of all clocks differ by as much as clients
//!   allow for.
//!
//! After 3 to 8 s the network works, all processes finish and close their clients, and one more process acquires every lock.
//!
//! # What is judged
//!
//! - Clients never believe in incompatible holds at the same true time; not while one of them is stopped, nor before the
//!   deadline that a guard has shown, even if it is lost since.
//! - Several keys are granted together, in the order of the request and by one token, and each is judged like any other lock.
//! - Holders never have more permits together than there are, and each has as many on the server as it believes in.
//! - Nobody believes in a revoked hold past the lease that it had then, and nobody is granted a lock that `keep_for` keeps taken.
//! - A client that believes in a lock holds it on a majority of servers, unless servers lose their data.
//! - Tokens grow from each holder to the next incompatible one, and so do those of the writes under `LOCK.GUARD`.
//! - When all clients are closed, no hold is left but those of jobs, and no request is queued; after kills and restarts, when the
//!   leases are over. The last process is granted each lock at once, and in the end there is no box and no letter.
//! - No wait lasts for ever, nor much longer than its limit; closing ends. A client reports a loss at the deadline.
//!
//! # Whether it would notice
//!
//! Rules of the client that were broken on purpose, each by a word or two, on 27 November 2026, and the first of the seeds from 0 on that
//! found it:
//!
//! | broken | found |
//! | --- | --- |
//! | the client does not leave by a name whose request got no reply (`Drop for Claim`) | three servers, seed 2, and one server, seed 12: something is left |
//! | a grant counts from its reply instead of its request (`Grant::new`) | one server, seed 4: a token after a larger one; seed 5: two are inside |
//! | the token of a majority is its smallest (`Tally::outcome`) | three servers, seed 0: a token after a larger one |
//! | the client leaves the rest of a lost hold at once (`Hold::renew_part`) | three servers, seed 351: two are inside |
//! | the client leaves a revoked hold at once (`Hold::renew_part`) | shared locks, seed 6: a belief in a hold that no server has; seed 9: two are inside |
//! | a client believes in a hold though it knows of too few servers that have it (`believed_until`) | three servers, seed 7: two are inside |
//! | no `LIMIT` is sent (`request::acquire`) | shared locks, seed 0: more permits are out than there are |
//! | the old holder still believes while it passes the lock on (`Belief::doubt`) | shared locks, seed 0: a belief in a hold that no server has |
//! | it still believes when the pass is done (`Hold::pass_to`) | shared locks, seed 0: the same |
//! | it still believes when the outcome of the pass is unknown (`Drop for Changing`) | shared locks, seed 0: the same |
//! | a pass of unknown outcome does not leave by the new name (`Hold::pass_to`) | shared locks, seed 0: something is left |
//!
//! Rules of the server about several keys, in runs of [`Kind::Several`]:
//!
//! | broken | found |
//! | --- | --- |
//! | the last key is granted without a second check | after 1 seed: a belief in a hold that no server has |
//! | an immediate grant leaves out a key | after 1 seed: the same |
//! | a request whose keys have all become free is not granted | after 1 seed: a process never ends |
//! | the client leaves only the first key | after 5 seeds: something is left |
//! | a name that has left one of the keys is granted | after 449 seeds: something is left |
//!
//! The simulation does not show that nobody overtakes such a request, nor that an undelivered grant ends at every key. The tests of the
//! server do (`tests/waiting/several`).
//!
//! # What is left out
//!
//! Sentinel, clusters, TLS and replicas that confirm; clocks that jump; servers so far
//! ahead of the others that they count as failed; refusals (`OOM`, `MAXWAITERS`, …); and requests more than 60 s late, when the server has forgotten that their name has left.

#![forbid(unsafe_code)]
// The features of the client's package.
#![allow(unexpected_cfgs)]

// All of the client's own code. Its lints run in its own package.
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/acquire.rs"]
mod acquire;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/belief.rs"]
mod belief;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/builder.rs"]
mod builder;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/change.rs"]
mod change;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/client.rs"]
mod client;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/connect.rs"]
mod connect;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/core.rs"]
mod core;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/error.rs"]
mod error;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/guard.rs"]
mod guard;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/hold.rs"]
mod hold;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/inspect.rs"]
mod inspect;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/keeper.rs"]
mod keeper;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/link.rs"]
mod link;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/lock.rs"]
mod lock;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/mail.rs"]
mod mail;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/name.rs"]
mod name;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/node.rs"]
mod node;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/open.rs"]
mod open;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/quorum/mod.rs"]
mod quorum;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/replicas.rs"]
mod replicas;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/request.rs"]
mod request;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/retry.rs"]
mod retry;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/runtime.rs"]
mod runtime;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/servers.rs"]
mod servers;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/settings.rs"]
mod settings;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/sync.rs"]
mod sync;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/time.rs"]
mod time;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/token.rs"]
mod token;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../client/src/trace.rs"]
mod trace;

mod dice;
mod held;
mod network;
mod parts;
mod plan;
mod referee;
mod run_seed;
mod script;
mod server;
mod simulated;
mod world;

pub use plan::Kind;
pub use run_seed::{Run, simulate};
