//! Real servers with the module loaded, for tests and benchmarks.
//!
//! ```no_run
//! use mortise_harness::{Server, cmd, int, is_nil, refused, send};
//!
//! let (server, mut a) = Server::start_connected();     // killed when it goes out of scope
//! let mut b = server.connect_resp3();
//!
//! let token = int(&cmd!(a, "LOCK.ACQUIRE key a 10000"));
//! assert!(is_nil(&cmd!(b, "LOCK.ACQUIRE key b 10000")));
//!
//! send!(b, "LOCK.ACQUIRE key b 10000 WAIT 0");         // does not wait for the reply
//! server.await_blocked(&b);
//! cmd!(a, "LOCK.RELEASE key a TOKEN {token}");
//! assert!(int(&b.recv()) > token);
//!
//! let line = refused!(a, "ERR ", "LOCK.ACQUIRE key a 0");
//! assert!(line.contains("lease"));                     // as it was on the wire
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | start a server | [`Server::start`], [`Server::start_connected`], [`Server::configured`], [`Server::builder`], [`Server::start_replica`] |
//! | start one of another version | [`other_servers`], [`Builder::program`] |
//! | send it commands | [`Server::connect`], [`Conn`], [`cmd!`], [`try_cmd!`], [`refused!`], [`send!`] |
//! | read replies | [`int`], [`text`], [`bytes`], [`array`], [`as_map`], [`is_nil`], [`assert_error`], [`error_line`], [`info`] |
//! | inspect a lock | [`lock_info`], [`hold_of`]; all of them: [`Snapshot`] |
//! | put requests into queues | [`waiter!`], [`Server::waiters`], [`granted`], [`queue_of`], [`holders_of`] |
//! | wait by mail | [`queue!`], [`request!`], [`queued`], [`mail!`], [`Mail`], [`Letter`] |
//! | wait | [`Conn::recv`], [`Server::await_blocked`], [`Server::await_gauge`], [`wait_for_sync`], [`eventually`], [`eventually_within`] |
//! | end and revive it | [`Server::restart`], [`Server::shutdown`], [`Server::sigkill`], [`Server::start_again`] |
//! | freeze it | [`Server::stop_signal`], [`Server::cont_signal`]; a child of the test's own: [`stop_process`] |
//! | cut or slow down the network between servers | [`Link`], [`Builder::replica_over`], [`wait_for_sync_over`] |
//! | cut a cluster, or servers and their Sentinels, in two | [`Network`], [`Cluster::start_over_network`] |
//! | start a cluster | [`Cluster`], [`node_id`], [`asking`] |
//! | move a slot | [`Resharding`], [`begin_migration`], [`migrate`], [`end_migration`] |
//! | let Sentinels watch | [`Builder::sentinel`], [`Builder::watching`] |
//! | attach a replica | [`Server::start_replica`], [`replicated`], [`replicated_over_link`]; [`Builder::replica_of`] and [`wait_for_sync`] |
//! | find two clients inside at once | [`Contenders`], [`Record`], [`assert_finds_two_inside`] |
//! | take several keys at once, in any number of clients | [`Bundles`] |
//! | choose at random, the same in every run, or for longer | [`Dice`], [`is_long_run`] |
//! | keep and find its append-only file | [`Builder::appending`], [`Server::append_only_file`], [`Server::rewrite`] |
//! | make locks of all kinds | [`make_history`] |
//! | forge a payload for RESTORE | [`Envelope`] |
//! | step its wall clock | [`Builder::clock_shim`], [`Server::step_clock`], [`Server::clock_envs`] |
//! | put it on another machine | [`Builder::on_another_machine`] |
//! | put it into a container with another boot-time clock | [`Server::set_boot_offset`], [`time_namespaces_work`] |
//! | let it speak TLS, with the feature `tls` | `Authority` |
//! | let valgrind watch its memory | [`Builder::under_valgrind`], [`valgrind_can_watch`] |
//! | let our module panic | [`Builder::may_run_out_of_entropy`], [`Server::run_out_of_entropy`] |
//! | let another module call ours | [`Server::load_actor`] |
//! | let a primary send what the test makes up | [`Server::replicate_late`], [`Effect`] |
//!
//! Environment: `MORTISE_SERVER` names the server to run (default `redis-server`), `MORTISE_MODULE` the module
//! (default `target/release/libmortise.so`), `MORTISE_KEEP=1` keeps the servers' folders. `MORTISE_CLUSTER=1` makes each
//! server a cluster of one node that owns all slots, unless it is [`Builder::alone`] or of another kind.

#![forbid(unsafe_code)]

mod actor;
mod append_only;
mod builder;
mod bundles;
mod c_library;
mod clock;
mod clock_shim;
mod cluster;
mod conn;
mod contenders;
mod dice;
mod door;
mod dump;
mod effect;
mod entropy;
mod eventually;
mod history;
mod link;
mod lock;
mod log;
mod mail;
mod module;
mod network;
mod port;
mod process;
mod queue;
mod replication;
mod server;
mod server_clock;
mod server_entropy;
mod setup;
mod slots;
mod snapshot;
mod start_error;
mod statistics;
mod time_namespace;
#[cfg(feature = "tls")]
mod tls;
mod valgrind;
mod value;
mod version;
mod work_dir;

pub use builder::Builder;
pub use bundles::Bundles;
pub use clock::{boot_id, boot_millis, server_micros, wall_micros};
pub use clock_shim::ClockStep;
pub use cluster::{Cluster, asking, node_id};
pub use conn::{Conn, Protocol, command_of};
pub use contenders::{Contenders, Record, Role, Stay, Stint, assert_finds_two_inside};
pub use dice::Dice;
pub use dump::Envelope;
pub use effect::{Effect, put_number};
pub use eventually::{Attempt, eventually, eventually_within, is_long_run};
pub use history::{HISTORY, make_history};
pub use link::Link;
pub use lock::{Facts, Hold, LockInfo, Queued, hold_of, lock_info};
pub use mail::{Letter, Mail, queued};
pub use module::{module_path, other_servers};
pub use network::Network;
pub use port::Port;
pub use process::stop_process;
pub use queue::{granted, holders_of, queue_of};
/// The crate whose values represent replies.
pub use redis;
pub use replication::{
    assert_same_data, replicated, replicated_over_link, wait_for_sync, wait_for_sync_at,
    wait_for_sync_over,
};
pub use server::{Server, Shutdown};
pub use slots::{Resharding, begin_migration, end_migration, migrate};
pub use snapshot::Snapshot;
pub use start_error::StartError;
pub use time_namespace::time_namespaces_work;
#[cfg(feature = "tls")]
pub use tls::Authority;
pub use valgrind::valgrind_can_watch;
pub use value::{array, as_map, assert_error, bytes, error_line, info, int, is_nil, text};
pub use version::{Flavour, Version};
