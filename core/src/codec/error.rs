//! Why bytes are refused.

use std::fmt;

/// The newest version. Older ones are read for ever; newer ones are refused.
pub(super) const VERSION: u8 = 3;

/// The first version that marks revoked holds.
pub(super) const MARKS_REVOKED: u8 = 3;

/// The version to write: one that older servers read, too, unless a hold is revoked.
pub(super) fn version_to_write(any_revoked: bool) -> u8 {
    if any_revoked {
        MARKS_REVOKED
    } else {
        MARKS_REVOKED - 1
    }
}

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Written by a newer version.
    Newer(u8),
    /// They end too early.
    Short,
    /// Bytes follow the end.
    Long,
    /// A number or a length is out of its bounds.
    OutOfBounds,
    /// The holds could not stand beside each other.
    Impossible,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer(version) => write!(f, "written by a newer version ({version} > {VERSION})"),
            Self::Short => f.write_str("cut short"),
            Self::Long => f.write_str("bytes after the end"),
            Self::OutOfBounds => f.write_str("a number or length out of its bounds"),
            Self::Impossible => f.write_str("holds that exclude each other"),
        }
    }
}

impl std::error::Error for DecodeError {}
