//! State of the module, kept beside the code that uses it.
//!
//! Every caller of the module holds the server's lock: the event loop, or a thread of another
//! module that has taken it (`RM_ThreadSafeContextLock`). So one call runs at a time, whatever its
//! thread. A [`Context`] exists only within such a call, and having one proves the lock: state
//! needs no lock of its own. (`free` of a value may run without the server's lock; it gets no
//! context.)
//!
//! Every part has a cell of its own, and no borrow is held across a call into the server, because such a call may come
//! back through a callback.

use super::context::Context;

/// A value that only the holder of the server's lock reaches.
pub(crate) struct MainThread<T>(T);

// SAFETY: nothing but `get` gives the value away, and `get` takes a context, which exists only while its thread holds the
// server's lock and is not sent. Taking that lock orders the accesses of different threads, so even a value that is not
// `Send` (an `Rc`) is used by one thread at a time. A static is never dropped.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value; `ctx` shows that this thread holds the server's lock.
    pub(crate) fn get(&'static self, _ctx: &Context<'_>) -> &'static T {
        &self.0
    }
}
