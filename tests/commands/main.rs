//! Each command by itself: its arguments, replies and errors, its changes, and the server's own tools.
//! Requests that wait are in `waiting`, ends of leases in `time`.

mod acquire;
mod binary;
mod config;
mod errors;
mod info;
mod internal;
mod introspection;
mod limit;
mod options;
mod panics;
mod pass;
mod protocols;
mod renew_and_fence;
mod revoke;
mod rights;
mod stolen;
mod tools;
