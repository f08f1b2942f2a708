//! Why a server did not come up.

use std::fmt;

/// What is known of a server that did not come up.
#[derive(Debug, Clone)]
pub struct StartError {
    /// What went wrong, seen from outside.
    pub reason: String,
    /// All output of the server.
    pub log: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; the server's log:\n{}", self.reason, self.log)
    }
}

impl std::error::Error for StartError {}

/// Why a launch failed: either another port may work, or nothing will.
pub(crate) enum StartFailure {
    PortTaken(StartError),
    Other(StartError),
}
