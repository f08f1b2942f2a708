//! The rules of Mortise's locks: who may hold, who waits, what a lease and a fencing token are.
//!
//! The crate is sans-IO. It knows no server, no socket and no clock: every function that depends
//! on time takes `now`, and every function returns what happened as plain data. The module turns these results into replies,
//! effects and wake-ups. The tests run millions of random programs on them.
//!
//! * [`Lock`]: the holds on one key, and what each command does to them.
//! * [`Queues`]: all waiters, which of them to grant next, and the search for deadlocks.
//! * [`Mail`]: boxes and letters, for requests that wait without a blocked connection.
//! * [`Undelivered`]: grants to be undone if their answers cannot be delivered.
//! * [`Left`]: owners that have left a key (`LOCK.LEAVE … FOR`).
//! * [`TokenClock`]: where fencing tokens come from.
//! * [`LeaseOrder`]: locks by when their leases end. [`LeaseTables`] keeps one for each database.
//! * [`codec`]: the bytes of a lock and of an effect; every decoder refuses bad bytes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admission;
pub mod codec;
mod histogram;
mod homes;
mod key;
mod lease;
mod left;
mod live;
mod lock;
pub mod mail;
mod owner;
mod queues;
mod readers;
mod request;
mod short;
mod slab;
mod slots;
mod stake;
mod token;
mod types;
mod undelivered;
mod uuid;

pub use admission::{Turn, compatible};
pub use histogram::Histogram;
pub use homes::{HomeKey, Homes};
pub use key::{Db, KeyId, KeyList, KeyRef};
pub use lease::{LeaseId, LeaseOrder, LeaseTables, Listed};
pub use left::Left;
pub use live::Live;
pub use lock::Lock;
pub use mail::Mail;
pub use owner::{Owner, OwnerRef, Text};
pub use queues::{
    Deadlock, Decided, Enqueued, Moves, PendingKey, PendingRequest, Queue, Queues, Removed,
    Settled, Verdict, Visited, Waiter, WaiterId, WaitingKeys,
};
pub use readers::Remains;
pub use request::{
    AcquireError, Busy, Grant, How, Pass, PassError, Passed, Release, ReleaseError, Released,
    Request, Revoked, Terms,
};
pub use short::ShortBytes;
pub use slots::slot_of;
pub use stake::{Stake, Touched};
pub use token::{TokenClock, TokenTooHigh};
pub use types::{Count, Instant, Lease, Micros, Mode, Sharing, Token};
pub use undelivered::{Undelivered, UndeliveredGrant, Undo};
