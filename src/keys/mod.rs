//! What a key holds, and what replicas and the AOF hear of it.
//!
//! Used by `turn` and `command`. It decides nothing about who may hold: that is the core's.

pub(crate) mod effect;
pub(crate) mod evictions;
pub(crate) mod leases;
pub(crate) mod name;
pub(crate) mod remains;
pub(crate) mod value;
