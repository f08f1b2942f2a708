//! Everything `unsafe` and every `extern "C"`: the rest of the module is safe Rust.
//!
//! What holds for every block below, and is not repeated at each:
//!
//! * The server calls the module with its lock held, one call at a time: from its event loop, or from a thread of another module that has
//!   taken the lock. Only `free` may come without it, on a background thread, and touches nothing but the value it is given.
//! * Function pointers of the API are filled in by the server before the first call. The ones we
//!   cannot do without are checked at load time (`registration::missing`), so `api!` does not fail later.
//! * No panic crosses into the server: every entry point does all it does inside [`catch::catch`].
//!   Only loading makes its context before.

/// Calls a function of the module API.
macro_rules! api {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        (redis_module::raw::$name.expect(concat!(stringify!($name), " is missing")))($($arg),*)
    };
}

mod args;
mod block;
mod call;
mod catch;
mod client;
mod clock;
mod command_info;
mod config;
mod context;
mod docs;
mod entry;
mod events;
mod handlers;
mod info;
mod inner_command;
mod key;
mod key_request;
mod log;
mod main_thread;
mod native_type;
mod on_load;
mod registration;
mod reply;
mod server_info;
mod source;
mod timer;
mod value;
mod viewer;

pub(crate) use args::{Arg, Args};
pub(crate) use block::Blocked;
pub(crate) use call::{Refusal, Refused};
pub(crate) use clock::{
    boot_id, boot_micros, boot_millis, command_wall_micros, cpu_micros, machine_id, wall_micros,
};
pub(crate) use config::Setting;
pub(crate) use context::Context;
pub(crate) use docs::{Docs, Keys};
pub(crate) use entry::Command;
pub(crate) use handlers::{Alarm, BlockedId, Emit, Event, Handlers, Swap};
pub(crate) use key::{Access, Key};
pub(crate) use main_thread::MainThread;
pub(crate) use registration::{Module, command};
pub(crate) use server_info::Replica;
pub(crate) use source::Source;
pub(crate) use value::Value;
pub(crate) use viewer::Viewer;
