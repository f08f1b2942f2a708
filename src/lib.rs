//! Mortise: locks as a native part of Redis and Valkey.
//!
//! Here is only what the module registers. The rules of locking are in `mortise-core`. The layers, each of which uses
//! those below it alone:
//!
//! * `command`: one file a command: parse, ask the core, reply.
//! * `work`: what happens without a command: the timers, and the one place that settles.
//! * `waiting`: who waits, and how a waiter is answered.
//! * `keys`: what a key holds, what replicas and the AOF get of it, and which keys have changed.
//! * `time`: clocks, timers, the grace, failover.
//! * `ffi`: the way in and out, and all that is unsafe.
//!
//! Callbacks from a lower layer to a higher one are handed down here: see [`ffi::Handlers`].

#![cfg(feature = "module")]
#![deny(unsafe_code)]

mod command;
mod config;
mod decimal;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod info;
mod keys;
mod time;
mod totals;
mod waiting;
mod work;

use ffi::{Handlers, Module, command};

/// Registers the module with the server.
static MODULE: Module = Module {
    name: c"lock",
    version: 1,
    commands: &[
        command::<command::Acquire>(),
        command::<command::WLock>(),
        command::<command::RLock>(),
        command::<command::MAcquire>(),
        command::<command::Release>(),
        command::<command::Leave>(),
        command::<command::Mail>(),
        command::<command::Renew>(),
        command::<command::Revoke>(),
        command::<command::Fence>(),
        command::<command::Pass>(),
        command::<command::Guard>(),
        command::<command::Info>(),
        command::<command::Top>(),
        command::<command::Apply>(),
        command::<command::Settle>(),
    ],
    settings: config::SETTINGS,
    handlers: Handlers {
        on_load: work::events::on_load,
        on_alarm: work::timers::on_alarm,
        on_event: work::events::on_event,
        on_reply: waiting::on_reply,
        on_unblock: waiting::on_unblock,
        on_disconnect: waiting::end_wait,
        on_freed: waiting::on_freed,
        info: info::fields,
        effect: keys::effect::APPLY,
        to_bytes: keys::arrivals::to_bytes,
        to_effects: keys::arrivals::to_effects,
        from_bytes: keys::arrivals::from_bytes,
        on_loaded: keys::arrivals::on_lock_loaded,
        on_copied: keys::arrivals::on_copied,
        on_unlinked: work::events::on_unlinked,
        memory: keys::leases::memory,
        last_token: keys::tokens::last,
        load_last_token: keys::tokens::load,
    },
};
