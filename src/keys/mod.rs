//! What a key holds, what replicas and the AOF hear of it, and which keys have changed.
//!
//! Used by `waiting`, `turn` and `command`; uses `time` and `ffi`. It decides nothing about who may hold: that is the
//! core's.

pub(crate) mod arrivals;
pub(crate) mod dirty;
pub(crate) mod effect;
pub(crate) mod evictions;
pub(crate) mod leases;
pub(crate) mod remains;
pub(crate) mod saved;
pub(crate) mod strays;
pub(crate) mod subscription;
pub(crate) mod tokens;
