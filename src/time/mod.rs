//! Clocks, and when this server may not grant or renew because another one may have.
//!
//! Used by every room above. It touches no key and answers no client.

pub(crate) mod clock;
pub(crate) mod failover;
pub(crate) mod grace;
pub(crate) mod heartbeats;
pub(crate) mod lateness;
