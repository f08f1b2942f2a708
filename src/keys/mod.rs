//! What a key holds, what replicas and the AOF get of it, and which keys have changed.
//!
//! Used by `waiting`, `work` and `command`; uses `time` and `ffi`. It decides nothing about who may hold: that is the
//! core's.
//!
//! What the layer knows is in `state`, and nowhere else but for the list of locks that other threads
//! free (`strays`). A function borrows one part of it while it uses it, and drops the borrow before
//! it calls the server.

pub(crate) mod arrivals;
pub(crate) mod dirty;
pub(crate) mod effect;
pub(crate) mod evictions;
pub(crate) mod leases;
pub(crate) mod remains;
pub(crate) mod saved;
mod state;
pub(crate) mod strays;
pub(crate) mod subscription;
pub(crate) mod tokens;

pub(crate) use state::get as state;
