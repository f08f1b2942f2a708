//! Locks on Redis and Valkey with the Mortise module, with guards that tell the truth.
//!
//! ```no_run
//! # async fn example() -> Result<(), mortise_client::Error> {
//! use mortise_client::Client;
//! use std::time::Duration;
//!
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let guard = client.lock("report:2024").wait(Duration::from_secs(5)).acquire().await?;
//! assert!(guard.is_valid());
//! println!("write with fencing token {}", guard.token());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The server decides: queues, hand-offs and leases are in the module, and a waiting task is one blocked request. This
//! crate keeps time and tells the truth:
//!
//! - **Belief.** A guard believes in its lock until the moment the last confirmed request was *sent*, plus the lease, less
//!   a hundredth of it and 2 ms, on the boot-time clock, which goes on in suspend. Then it is lost, whatever happens.
//! - **Renewal** goes on in the background at a third of the lease, one pipeline for all guards of a client.
//! - **Cancelling** an acquire by dropping its future, at any point, leaves neither lock nor waiter. Dropping a guard
//!   releases it in the background.
//! - **Fencing.** Each grant has a [`Token`] larger than all before. A lease is no fence: where correctness depends on it,
//!   have what you write to refuse tokens smaller than the largest it has seen.
//!
//! | to | use |
//! | --- | --- |
//! | take a lock on one server | [`Client`], [`Client::lock`], [`Lock`], [`Guard`] |
//! | take it over several independent servers | [`Quorum`], with the same [`Lock`] and [`Guard`] |
//! | write code for either | [`Locks`] |
//! | run something under a lock | [`Lock::run`] |
//! | see who holds and who waits | [`Client::info`], [`Client::top`], [`Quorum::info`], [`Quorum::top`] |
//! | do without a runtime | the module `blocking` (feature `blocking`) |
//!
//! Features, none on by default: `blocking`, `tls` (`rediss://`), `sentinel` (a `SentinelClient` is a
//! server), `cluster` (`Server::cluster`), `tracing`.
//!
//! Locks taken without an [`Owner`] get one each. Deadlocks are found only between owners that are named.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod client;
mod clock;
#[cfg(feature = "cluster")]
mod cluster;
mod config;
mod connector;
mod core;
mod error;
mod guard;
mod hold;
mod info;
mod lease;
mod link;
mod lock;
mod mode;
mod node;
mod owner;
mod proposal;
mod quorum;
mod release;
mod renew;
mod renewal;
mod scope;
mod token;
mod trace;
mod wire;

pub use builder::{Builder, IntoServer, Server};
pub use client::{Answers, Client, Locks};
pub use clock::BootInstant;
pub use error::{Error, Loss, NodeFailure, NodeReason};
pub use guard::{Guard, Held};
pub use info::{HoldInfo, LockInfo, ServerAnswer, TopEntry, WaiterInfo};
pub use lock::Lock;
pub use mode::Mode;
pub use owner::Owner;
pub use quorum::{Quorum, QuorumBuilder};
/// The crate this one is built on, in the version it uses.
pub use redis;
pub use release::Released;
pub use token::Token;
