//! Why bytes are refused.

use std::fmt;

/// The number of the format, in the first byte.
pub(super) const FORMAT: u8 = 1;

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They are of a newer format, whose number it is.
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
            Self::Newer(format) => write!(
                f,
                "written by a newer version of the module (format {format}, this one reads {FORMAT})"
            ),
            Self::Short => f.write_str("cut short"),
            Self::Long => f.write_str("bytes after the end"),
            Self::OutOfBounds => f.write_str("a number or length out of its bounds"),
            Self::Impossible => f.write_str("holds that exclude each other"),
        }
    }
}

impl std::error::Error for DecodeError {}
