//! Whether this server is a primary.

use crate::ffi::Context;
use crate::time::state;

/// This server is no replica.
pub(crate) fn is_primary(ctx: &Context<'_>) -> bool {
    state::get(ctx).primary.get()
}

/// The server has told its role. The one before.
pub(crate) fn set_primary(ctx: &Context<'_>, primary: bool) -> bool {
    state::get(ctx).primary.replace(primary)
}
