//! Leases and clocks: when leases and waits end, whatever wall clocks show, and what a server does that does not know how long it was down.

mod clock_skew;
mod clock_turns;
mod clocks;
mod expiry;
mod grace;
mod namespaces;
mod promotion_grace;
mod stall_guard;
