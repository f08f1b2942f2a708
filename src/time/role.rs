//! Whether this server is a primary.

use crate::time::state::Time;

/// This server is no replica.
pub(crate) fn is_primary(time: &Time) -> bool {
    time.primary.get()
}

/// The server has reported its role. Returns the one before.
pub(crate) fn set_primary(time: &Time, primary: bool) -> bool {
    time.primary.replace(primary)
}
