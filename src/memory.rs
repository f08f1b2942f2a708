//! How much memory is kept.

/// Of a crowd that has gone room for so many is kept.
pub(crate) const ROOM_KEPT: usize = 256;
