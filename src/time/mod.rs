//! Clocks and timers, and when this server may not grant or renew because another one may have.
//!
//! Used by every room above; uses `ffi` alone. It touches no key and answers no client.

pub(crate) mod alarms;
pub(crate) mod clock;
pub(crate) mod failover;
pub(crate) mod grace;
pub(crate) mod heartbeats;
pub(crate) mod lag;
pub(crate) mod last_deadline;
pub(crate) mod lateness;
pub(crate) mod role;
