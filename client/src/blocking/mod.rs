//! The same locks for threads without a runtime.
//!
//! One background thread serves all clients made here: it renews, waits and releases. It does not matter where these
//! functions are called, inside a runtime included, except that they block the thread they are called on: in async code,
//! use the crate's own [`Client`](crate::Client).
//!
//! What is said of the async functions of the same name holds here too, as far as it is not about futures;
//! [`Owner`](crate::Owner), [`Held`](crate::Held), [`Error`](crate::Error) and what the servers report are the very same
//! types.
//!
//! ```no_run
//! use mortise_client::blocking::Client;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), mortise_client::Error> {
//! let client = Client::connect("redis://127.0.0.1/")?;
//! let guard = client.lock("report").wait(Duration::from_secs(5)).acquire()?;
//! println!("write with fencing token {}", guard.token());
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

mod client;
mod guard;
mod lock;
mod locks;
mod park;

pub use client::{Client, Connected, Quorum};
pub use guard::Guard;
pub use lock::Lock;
pub use locks::Locks;
