//! Locks on Redis and Valkey servers with the Mortise module. A guard knows when its lock is lost.
//!
//! ```no_run
//! use mortise_client::{Client, Error};
//! use std::time::Duration;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let client = Client::connect("redis://127.0.0.1/").await?;
//!     let lock = client
//!         .lock("stock:42")
//!         .lease(Duration::from_secs(10)) // how long it stays taken if this process dies
//!         .wait(Duration::from_secs(5)); // how long to queue for it
//!     match lock.acquire().await {
//!         Ok(guard) => {
//!             println!("write with fencing token {}", guard.token());
//!             guard.release().await?;
//!         }
//!         Err(Error::Busy { waited }) => println!("others had it for {waited:?}"),
//!         Err(error) => return Err(error),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The server decides: queue, hand-off and leases are in the module. A waiter stands in the
//! server's queue, first come, first served; nobody polls, and one connection collects the answers
//! of all tasks that wait. This crate keeps time, and reports a lost lock in time. It recognises a
//! server without the module at once ([`Error::NoModule`], which says how to load it).
//!
//! By default a lock has a lease of 10 s, which is renewed while the guard lives
//! ([`Lock::lease`], [`Lock::auto_renew`]), and [`Lock::acquire`] waits for it without limit ([`Lock::wait`],
//! [`Lock::try_acquire`]). A [`Lock`] is a value that says what is asked for: acquiring consumes it, so clone it to ask again.
//!
//! # What to use
//!
//! | to | use |
//! | --- | --- |
//! | take a lock on one server | [`Client`], [`Client::lock`], [`Lock`], [`Guard`] |
//! | take it over several independent servers | [`Quorum`], with the same [`Lock`] and [`Guard`] |
//! | share it between readers | [`Lock::read`]; on one server [`Guard::upgrade`], [`Guard::downgrade`] |
//! | take several at once, all or none | [`Client::locks`] |
//! | share it up to a number of permits | [`Lock::permits`] |
//! | make another's hold end | [`Client::revoke`] |
//! | give it to another process | [`Guard::pass_to`], [`Lock::take_over`] |
//! | keep it taken for a while after the guard | [`Guard::keep_for`] |
//! | keep it over a failover without a pause | [`Builder::replicas`] |
//! | run something under a lock, cancelled when the lock is lost | [`Lock::run`], [`Guard::run`] |
//! | make the server check the lock when it writes | [`Guard::guarded`], [`Guard::check`] |
//! | hold it in several places of a program | [`Guard::reenter`] |
//! | have deadlocks between tasks found | [`Owner`] |
//! | see who holds and who waits | [`Client::info`], [`Client::top`], [`Quorum::info`] |
//! | connect by TLS or a unix socket | the URL: `rediss://` (feature `tls`), `unix://` |
//! | connect through Sentinel, to a cluster, or by connections of your own | [`Client::sentinel`], `Client::cluster` (feature `cluster`), [`Client::with`] |
//! | use it from a thread without a runtime | [`tokio::runtime::Handle::block_on`](https://docs.rs/tokio/latest/tokio/runtime/struct.Handle.html#method.block_on), see below |
//!
//! # How long a guard holds its lock
//!
//! A lock is granted for its *lease*. The server counts that from the grant. A client that counted from the reply would
//! begin too late, because nobody knows how long the reply took. So a guard counts its lock as held until
//!
//! > the moment the last confirmed request was **sent**, plus the lease, minus a hundredth of it and 2 ms for clocks that
//! > run at different speeds
//!
//! This is its [`deadline`](Guard::deadline), on the boot-time clock ([`BootInstant`]), which runs on
//! while the machine is suspended and never jumps. The client renews in the background at a third of the lease, in one
//! pipeline for all its guards. If no renewal is confirmed before the deadline, or the server says that the lock is
//! gone, the guard is *lost* and stays so: [`is_valid`](Guard::is_valid) is `false`, [`lost`](Guard::lost) resolves, and
//! [`Lock::run`] cancels its work. Servers that still have a lost lock keep it for its guard: until that is dropped, or its deadline
//! has passed, nobody else gets the lock. A process that was stopped for longer than its lease learns that from the first
//! `is_valid` after waking. In the worst moment, just before a renewal, two thirds of a lease are left: **a lease should be more
//! than one and a half times as long as the longest pause of the process** (`benches/README.md`, "Leases and pauses"). After a wait the lease counts from the grant. If more than half of it is over when
//! the answer arrives, the client confirms the lock before it returns the guard.
//!
//! [`Lock::max_hold`] bounds how long a holder that renews, but is stuck, blocks others.
//!
//! # Cancelling, and dropping
//!
//! Every future here may be dropped at any await point, as `select!` and timeouts do. A dropped acquisition
//! leaves neither a lock nor a place in the queue behind. Each has a name of its own on the server. When the outcome of its request is
//! unknown, the client *leaves* the name (`LOCK.LEAVE`), repeats that until the server confirms it or nothing can be left, and
//! never uses the name again.
//! A dropped guard releases its lock in the background: nothing blocks or panics, inside a runtime or not.
//! [`Guard::release`] waits for the release, and fails if the lock was not held to the end.
//!
//! **Before the process ends, or its runtime, call [`Client::close`]**: it releases all locks, waits until the server
//! has answered, and says whether it has. Otherwise a guard that lives to the end of `main` leaves its lock taken until its lease
//! is over.
//!
//! # Time limits
//!
//! | what | how long one try may take | tried again |
//! | --- | --- | --- |
//! | opening a connection, in the background | [`connect_timeout`](Builder::connect_timeout): 2 s; over a quorum 500 ms | by the next request |
//! | a request, a release | [`response_timeout`](Builder::response_timeout): 2 s; over a quorum 50 ms; as long again where its connection has to open first | see below |
//! | collecting letters for all that wait | twice the `response_timeout` (100 ms at least, 1 s at most), and then the `response_timeout` | until nobody waits |
//! | an acquisition with [`wait(limit)`](Lock::wait) | its requests as above | after 20 ms, then after twice as long each time up to 1 s, until the limit is over |
//! | an acquisition without a limit | its requests as above | the same, for ever |
//! | [`try_acquire`](Lock::try_acquire), [`try_read`](Lock::try_read) | one request | once, at once, if its connection was broken |
//! | a renewal | the `response_timeout`, or a third of the lease if that is shorter | after a twentieth of the lease (5 to 200 ms), until the deadline |
//! | a confirmation by replicas | 1 s, and the `response_timeout` | as the grant or the renewal that it confirms |
//! | a release in the background | the `response_timeout` | after 20 ms up to 1 s, until the lease is over and 5 s more |
//!
//! What is tried again is what a restart, a failover or a migration explains: a connection that fails or is silent, and the errors
//! `UNBLOCKED`, `READONLY`, `MOVED`, `ASK`, `CLUSTERDOWN`, `LOADING`, `MASTERDOWN`, `TRYAGAIN`, `NOREPLICAS` and `BUSY`.
//! The client also tries again if too few replicas have confirmed an acquisition, or if its hold was lost before its guard was
//! there. Every other error is reported at once. A request that waits in the server's queue stays there while only the
//! client's connections fail, and is sent again once the server says that it has lost it. An acquisition with a limit ends by the
//! limit and one `response_timeout`.
//!
//! # Threads
//!
//! ```no_run
//! # fn main() -> Result<(), mortise_client::Error> {
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
//! let client = runtime.block_on(mortise_client::Client::connect("redis://127.0.0.1/"))?;
//! std::thread::scope(|threads| {
//!     threads.spawn(|| {
//!         let guard = runtime.block_on(client.lock("stock:42").acquire())?;
//!         runtime.block_on(guard.release())
//!     });
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # Fencing: a lease is not a fence
//!
//! Between `is_valid()` and the next write the process may be stopped for a minute. The store has to refuse
//! the writes of a former holder: send [`Guard::token`] along, and refuse tokens smaller than the
//! largest seen. Each grant has a larger [`Token`] than all before it, on every key of the server, and over a quorum; also
//! after a restart, and after a failover, even one that lost grants, as far as the clocks agree. (Sequencers, as the
//! [Chubby paper] calls them; why locks alone do not do: [Kleppmann].)
//!
//! # Redlock
//!
//! A [`Quorum`] takes a lock on a majority of independent servers: the algorithm of [Distributed Locks with Redis],
//! all servers asked at the same time, with a short time-out for each ([`Builder::response_timeout`]), validity counted from
//! the first request, release everywhere, even where the answer is unknown, and renewal on a majority within the validity.
//! Beyond that,
//!
//! - **tokens grow over all majorities**: a lock counts as taken when a majority has agreed on a token that is no smaller
//!   than any that some majority has granted before; where servers disagree that takes a second round trip;
//! - **clients queue** on the first server that answers instead of polling all of them. That order is one of the servers' own
//!   identities (`run_id`), so clients may list them in any order; and a client that holds the lock on some servers, and
//!   waits on another one, gives it back after a third of the lease;
//! - a server without the module counts as one that cannot be reached: only [`Quorum::info`], and the
//!   errors of requests that fail, show that fewer servers than intended carry the lock;
//! - a server that restarts without its data stays out for `lock.grace`, so that no second majority can form. Set it to
//!   the longest lease in use, or restart such a server only after that time.
//!
//! # Errors
//!
//! | [`Error`] | what happened | what to do |
//! | --- | --- | --- |
//! | [`Busy`](Error::Busy) | others held it for the whole wait | try later, or nothing |
//! | [`Deadlock`](Error::Deadlock) | waiting would close a cycle between named owners | release what is held, begin anew |
//! | [`Lost`](Error::Lost) | the lock was lost before the work was done; [`Loss`] says why | check what was written, begin anew |
//! | [`NoQuorum`](Error::NoQuorum) | too few servers agreed; with each one's reason | check the servers |
//! | [`Unconfirmed`](Error::Unconfirmed) | too few [replicas](Builder::replicas) had it in time | check the replicas |
//! | [`NoModule`](Error::NoModule) | the server does not know the commands | load the module |
//! | [`Refused`](Error::Refused) | the server's own error: its code and message | read it |
//! | [`Connection`](Error::Connection) | not reached, or no answer in time: it may have been carried out | try later |
//! | [`Invalid`](Error::Invalid) | an argument is out of range, or works on one server only | read which |
//! | [`NoRuntime`](Error::NoRuntime) | the client was built outside of a runtime | build it inside, or name one |
//! | [`RuntimeGone`](Error::RuntimeGone) | the runtime that the client was built in is gone | build it in one that lasts |
//! | [`Closed`](Error::Closed) | the client was closed | close it last |
//!
//! [`Error::is_transient`] says whether trying again may help.
//!
//! # What it does not do
//!
//! - **No permits over a quorum.** Majorities overlap in one server, which is enough for one
//!   holder, but not for a count. With two permits on each of three servers, A may hold the first and the second server, B
//!   the second and the third, C the first and the third: every server has granted two, and three are inside.
//! - **No deadlock detection** over a quorum, nor between acquisitions that name no [`Owner`]: each of those is an owner of
//!   its own. A wait limit ends them.
//! - **No protection of the data.** The guard holds no value: the protected data is elsewhere, and nothing stops a program that uses it
//!   without the lock, or a store that does not compare tokens.
//! - **No failover without the server's help.** With replicas, read what `lock.grace` and [`Builder::replicas`] promise and cost.
//! - **No other server.** It needs the module's commands.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | gives |
//! | --- | --- |
//! | `tls` | `rediss://`, through rustls |
//! | `cluster` | `Client::cluster` |
//! | `tracing` | events: released, passed on, lost, renewal failed, release given up |
//!
//! Tasks run on the tokio runtime that a client is built in, which needs I/O and time enabled.
//!
//! [Chubby paper]: https://research.google/pubs/the-chubby-lock-service-for-loosely-coupled-distributed-systems/
//! [Kleppmann]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//! [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![deny(rustdoc::broken_intra_doc_links)]

// Each uses only what stands above it.
mod acquire;
mod belief;
mod builder;
mod change;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod connect;
mod core;
mod error;
mod guard;
mod hold;
mod inspect;
mod keeper;
mod link;
mod lock;
mod mail;
mod name;
mod node;
mod open;
mod quorum;
mod replicas;
mod request;
mod retry;
mod runtime;
mod servers;
mod settings;
mod sync;
mod time;
mod token;
mod trace;

pub use builder::Builder;
pub use client::Client;
pub use error::{Error, Loss, NodeFailure};
pub use guard::Guard;
pub use inspect::{HoldInfo, LockInfo, TopEntry, WaiterInfo};
pub use lock::Lock;
pub use name::{Mode, Owner};
pub use quorum::client::{Quorum, ServerAnswer};
pub use redis;
pub use time::BootInstant;
pub use token::Token;

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
