//! Mortise: locks as a native part of Redis and Valkey.
//!
//! Here is only what the module registers. The rules of locking are in `mortise-core`; `command`
//! parses, asks it and replies; `settle` is the one place where holds end and keys go; `effect`
//! is what replicas and the AOF get; `ffi` is the way in and out, and all that is unsafe.

#![deny(unsafe_code)]

mod blocking;
mod clock;
mod command;
mod config;
mod effect;
mod error;
mod events;
mod evictions;
mod failover;
#[allow(unsafe_code)]
mod ffi;
mod grace;
mod info;
mod leases;
mod marks;
mod name;
mod settle;
mod state;
mod timers;
mod value;
mod waiters;

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
        command::<command::Renew>("write fast", 1),
        command::<command::Fence>("write fast", 1),
        command::<command::Info>("readonly", 1),
        command::<command::Top>("readonly", 0),
        command::<effect::Apply>("write", 1),
        command::<settle::Settle>("write no-monitor", 1),
    ],
    settings: config::SETTINGS,
};
