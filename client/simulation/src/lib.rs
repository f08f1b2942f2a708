//! Whole clients, simulated: the client's own code, as `client/src` has it, against servers in memory that decide by
//! `mortise-core`, in a world where every message, clock and chance comes from a seed. A run of some seconds of life takes
//! some milliseconds, and the same seed is the same story each time.
//!
//! `cfg(simulated)`, which only this package sets, marks where the client's code takes from `simulated` what it takes from
//! the machine otherwise: the boot-time clock, random numbers, tasks, TCP connections, and the alarm of a deadline.
//!
//! # What happens
//!
//! Two to four processes with one to three tasks each take one or two locks of one server, or of three or five by Redlock: for
//! reading and writing, with and without waiting, limits, renewal, caps and names; they renew, upgrade and downgrade on one server, enter
//! again, write under `LOCK.GUARD`, release, drop, wait for the loss, drop futures in the middle, and close their clients
//! early or at the end. One kind of run shares locks besides ([`Kind::Sharing`]): tasks take several permits of a pool, or the whole
//! pool, pass a lock that is being renewed on to a job, take over a job that may be delivered twice, keep a lock taken for a while
//! after its guard, and revoke the holds of others. Another takes two to four keys at once ([`Kind::Several`]), holds and renews each like
//! any other lock, leaves one of them to a job, and gives them back together; beside it, named tasks take one key after the other.
//! Meanwhile
//!
//! - requests are lost, or their replies; they arrive late, up to 4 s after their connection was given up, or twice; the client
//!   is told that its connection is gone, or is not; replies and letters are slow;
//! - processes are stopped and go on, or are killed; a process and a server do not reach each other for a while;
//! - servers stall, restart with their data, or without and then with a grace, or a replica takes their place that lacks the last
//!   0.2 s, a pass among them; their wall clocks are up to 0.3 s apart, and all clocks run at speeds that differ as much as clients
//!   allow for.
//!
//! After 3 to 8 s the network is well, everybody goes on to the end, closes, and somebody comes last.
//!
//! # What is judged
//!
//! - Never are two inside together, by what clients believe, in true time; also not while one of them is stopped, nor before the
//!   deadline that a guard has shown, though it is lost since.
//! - Several keys are granted together, in the order asked for and by one token, and each is judged like any other lock.
//! - By permits never more are inside than there are, and each has as many on the server as it believes in.
//! - Nobody believes in a hold for longer than its lease lasted when it was revoked, and nobody is inside a lock that is to stay taken.
//! - Whoever believes in a lock holds it on a majority of servers, unless servers lose their data.
//! - Tokens grow from each holder to the next who could not be inside with it, and what is written under `LOCK.GUARD` bears
//!   them in order.
//! - When all have closed their clients nothing is left: no hold but those of jobs, and nobody in a queue; after killings and restarts when the
//!   leases are over. Whoever comes last has each lock at once, and in the end no box and no letter is there.
//! - Nobody waits for ever, nor much longer than he said; closing ends. A loss is told of at the deadline.
//!
//! # Whether it would notice
//!
//! Rules of the client that were broken on purpose, each by a word or two, and what the first 1,000 seeds said:
//!
//! | broken | found |
//! | --- | --- |
//! | a name whose request was not answered is not left (`Drop for Armed`) | after 1 seed of three servers, 12 of one: something is left |
//! | a grant counts from its reply instead of its request (`Request::grant`) | after 158 seeds of one server: two are inside, a belief that no server bears out |
//! | the token of a majority is its smallest (`Tally::outcome`) | after 2 seeds of three servers: a token after a larger one |
//! | what servers have of a lost hold is left at once (`QuorumHold::finish`) | after 10 seeds of three servers: two are inside |
//! | a hold that was revoked is left at once (`ServerHold::end`) | after 1 seed of shared locks: a belief that no server bears out |
//! | too few servers are known to hold it, and it is believed in all the same (`believed_until`) | after 7 seeds of three servers: two are inside |
//! | no `LIMIT` is sent (`Args::acquire`) | after 1 seed of shared locks: more permits are out than there are |
//! | the giver believes on while it passes (`Belief::doubt`) | after 1 seed: a belief that no server bears out |
//! | it does so when the pass is done (`ServerHold::pass_to`) | after 1 seed: the same |
//! | it does so when the pass may be done (`Drop for Changing`) | after 7 seeds: the same |
//! | a pass that may be done does not leave the new name (`pass_to`) | after 58 seeds: something is left |
//! | a takeover that may be done does not leave its name (`take_over`) | after 586 seeds: something is left |
//! | what is to stay taken is released (`ServerHold::last_verb`) | after 36 seeds: somebody is inside a lock that stays taken |
//!
//! Rules of the server about several keys, in runs of [`Kind::Several`]:
//!
//! | broken | found |
//! | --- | --- |
//! | the last key is granted without a second check | after 1 seed: a belief that no server bears out |
//! | a grant at once leaves out a key | after 1 seed: the same |
//! | a request whose keys have all become free is not granted | after 1 seed: somebody waits for ever |
//! | the client leaves only the first key | after 5 seeds: something is left |
//! | a name that has left one of the keys is granted | after 449 seeds: something is left |
//!
//! That nobody overtakes such a request, and that a grant nobody received ends at every key, it does not show: the tests of the server do
//! (`tests/waiting/several`).
//!
//! # What is left out
//!
//! Sentinel, clusters, TLS, supplied connections and the blocking API; clocks that jump; servers so far
//! ahead of the others that they count as failed; refusals (`OOM`, `MAXWAITERS`, …); the thread that watches deadlines on a
//! machine, instead of which a task does here; and more than 60 s of lateness, for which no name stays away.

#![forbid(unsafe_code)]
// The features of the client's package.
#![allow(unexpected_cfgs)]

// The client's own code, all of it; its lints are told of where it belongs.
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../src/lock/mod.rs"]
mod lock;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../src/net/mod.rs"]
mod net;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../src/quorum/mod.rs"]
mod quorum;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../src/value/mod.rs"]
mod value;
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../src/wire/mod.rs"]
mod wire;

mod dice;
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
