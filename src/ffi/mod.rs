//! Everything `unsafe` and every `extern "C"`: the rest of the module is safe Rust.
//!
//! What holds for every block below, and is not repeated at each:
//!
//! * The server calls the module with its lock held, one call at a time: from its event loop, or from a thread of another module that has
//!   taken the lock. Only `free` may come without it, on a background thread, and touches nothing but the value it is given.
//! * Function pointers of the API are filled in by the server before the first call. The ones we
//!   cannot do without are checked at load time (`registration::missing`), so `api!` does not fail later.
//! * No panic crosses into the server: every entry point does all it does inside [`log::catch`].
//!   Only loading makes its context before.

/// Calls a function of the module API.
macro_rules! api {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        (redis_module::raw::$name.expect(concat!(stringify!($name), " is missing")))($($arg),*)
    };
}

mod args;
mod call;
mod client;
pub(crate) mod clock;
mod context;
mod docs;
mod entry;
mod events;
mod handlers;
mod key;
mod log;
mod native_type;
mod on_load;
mod registration;
mod timer;
mod value;

pub(crate) use args::{Arg, Args};
pub(crate) use call::{Refusal, Replica};
pub(crate) use client::{Blocked, Viewer};
pub(crate) use context::{Context, MainThread};
pub(crate) use docs::{Docs, Keys};
pub(crate) use entry::Command;
pub(crate) use handlers::{Alarm, BlockedId, Emit, Event, Handlers};
pub(crate) use key::{Access, Key};
pub(crate) use registration::{Module, Setting, command};
pub(crate) use value::{Source, Value};
