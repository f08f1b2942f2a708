//! How much memory is kept.

/// A table that a crowd has left keeps room for so many.
pub(crate) const ROOM_KEPT: usize = 256;
