//! State of the module, beside the code that uses it.
//!
//! The server calls the module on its main thread. A [`Context`] exists only there, so to have one is to be there: state
//! is reached without a lock, and without asking for the thread each time.
//!
//! Every part has a cell of its own, and no borrow is held across a call into the server, because such a call may come
//! back through a callback.

use super::context::Context;

/// A value that only the main thread sees.
pub(crate) struct MainThread<T>(T);

// SAFETY: nothing but `get` gives the value away, as a reference that stays on its thread if the value is to; and `get`
// takes a context, which is made on the main thread alone and is not sent. A static is never dropped.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value; `ctx` shows that this is the main thread.
    pub(crate) fn get(&'static self, _ctx: &Context<'_>) -> &'static T {
        &self.0
    }
}
