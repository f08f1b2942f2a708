//! Whether this server is a primary.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};

static PRIMARY: MainThread<Cell<bool>> = MainThread::new(Cell::new(true));

/// This server is no replica.
pub(crate) fn is_primary(ctx: &Context<'_>) -> bool {
    PRIMARY.get(ctx).get()
}

/// The server has told its role. The one before.
pub(crate) fn set_primary(ctx: &Context<'_>, primary: bool) -> bool {
    PRIMARY.get(ctx).replace(primary)
}
