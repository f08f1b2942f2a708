//! Mortise: locks as a native part of Redis and Valkey.
//!
//! Here is only what the module registers. The rules of locking are in `mortise-core`. The rooms:
//!
//! * `command`: one file a command: parse, ask the core, reply.
//! * `turn`: the turn of the event loop: what callbacks saw change, timers, and the one place that settles.
//! * `waiting`: who waits, and how a waiter is answered.
//! * `keys`: what a key holds, and what replicas and the AOF hear of it.
//! * `time`: clocks, the grace, failover.
//! * `ffi`: the way in and out, and all that is unsafe.

#![deny(unsafe_code)]

mod command;
mod config;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod info;
mod keys;
mod state;
mod time;
mod turn;
mod waiting;

use ffi::{Module, command};

/// What the server is told when it loads the module.
static MODULE: Module = Module {
    name: c"lock",
    version: 1,
    commands: &[
        command::<command::Acquire>("write deny-oom fast blocking", 1),
        command::<command::WLock>("write deny-oom fast blocking", 1),
        command::<command::RLock>("write deny-oom fast blocking", 1),
        command::<command::Release>("write fast", 1),
        command::<command::Leave>("write fast", 1),
        command::<command::Mail>("fast blocking", 0),
        command::<command::Renew>("write fast", 1),
        command::<command::Fence>("write fast", 1),
        command::<command::Guard>("write getkeys-api", 1),
        command::<command::Info>("readonly", 1),
        command::<command::Top>("readonly", 0),
        command::<keys::effect::Apply>("write", 1),
        command::<turn::settle::Settle>("write no-monitor", 1),
    ],
    settings: config::SETTINGS,
};
