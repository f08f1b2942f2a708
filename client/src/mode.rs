//! The two ways to hold a lock.

use std::fmt;

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Write,
    /// Together with other readers.
    Read,
}

impl Mode {
    /// The command that takes the lock in this mode.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Mode::Write => "LOCK.ACQUIRE",
            Mode::Read => "LOCK.RLOCK",
        }
    }

    /// The option that names this mode in `LOCK.RELEASE`.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Mode::Write => "WRITE",
            Mode::Read => "READ",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Write => "write",
            Mode::Read => "read",
        })
    }
}
