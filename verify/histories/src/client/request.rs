//! A request, and its result.

use crate::history::Mode;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) ask: String,
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) weight: u64,
    pub(crate) limit: u64,
    /// Further keys to acquire together with the first, all or none.
    pub(crate) more: Vec<String>,
    /// Milliseconds; none if it does not wait.
    pub(crate) wait: Option<u64>,
}

impl Request {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        [&self.key].into_iter().chain(&self.more)
    }
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Granted by this token; the client believes in it until then.
    Granted(u64, u64),
    Denied,
    Refused(String),
    Unknown,
}
