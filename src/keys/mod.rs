//! What a key holds, what replicas and the AOF get of it, and which keys have changed.
//!
//! Used by `waiting`, `work` and `command`; uses `time` and `ffi`. It decides nothing about who may hold: that is the
//! core's.
//!
//! Each part keeps what it knows in its own file. A function borrows it while it uses it, and drops the borrow before it calls
//! the server.

pub(crate) mod arrivals;
pub(crate) mod effect;
pub(crate) mod evictions;
pub(crate) mod leases;
pub(crate) mod tokens;
