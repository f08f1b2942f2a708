//! Why a server was not reached, or did not answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What went wrong with a connection; in [`Error::Connection`](crate::Error::Connection).
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) {
/// use mortise_client::Error;
///
/// if let Err(Error::Connection { server, error }) = client.lock("a").acquire().await
///     && error.is_timeout()
/// {
///     eprintln!("{server} is silent");
/// }
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct ConnectionError {
    text: Arc<str>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Refused, reset, closed: the server may be restarting.
    Broken,
    /// Its answer was late, and another connection was open first.
    Overtaken,
    TimedOut,
    /// The server let the client in no further, and will not until something is changed: a wrong password.
    Denied,
}

impl ConnectionError {
    fn of(kind: Kind, text: impl Into<Arc<str>>) -> ConnectionError {
        let text = text.into();
        ConnectionError { text, kind }
    }

    pub(crate) fn new(text: impl Into<Arc<str>>) -> ConnectionError {
        ConnectionError::of(Kind::Broken, text)
    }

    pub(crate) fn overtaken(text: impl Into<Arc<str>>) -> ConnectionError {
        ConnectionError::of(Kind::Overtaken, text)
    }

    pub(crate) fn timed_out(text: impl Into<Arc<str>>) -> ConnectionError {
        ConnectionError::of(Kind::TimedOut, text)
    }

    pub(crate) fn denied(text: impl Into<Arc<str>>) -> ConnectionError {
        ConnectionError::of(Kind::Denied, text)
    }

    /// No answer, or no connection, within `limit`.
    pub(crate) fn silence(what: &str, limit: Duration) -> ConnectionError {
        ConnectionError::timed_out(format!("{what} within {limit:?}"))
    }

    /// Whether the connection was refused or broken, as by a server that restarts.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.kind, Kind::Broken | Kind::Overtaken)
    }

    /// Whether there was a connection, and an answer over it was late.
    pub(crate) fn was_late(&self) -> bool {
        matches!(self.kind, Kind::TimedOut | Kind::Overtaken)
    }

    /// Whether the server will not let the client in as long as nothing is changed.
    pub(crate) fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }

    /// Whether there was no answer in time, rather than a refusal or a broken connection.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(error: mortise_client::ConnectionError) {
    /// println!("silent: {}", error.is_timeout());
    /// # }
    /// ```
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::TimedOut
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> ConnectionError {
        match error.kind() {
            io::ErrorKind::TimedOut => ConnectionError::timed_out(error.to_string()),
            _ => ConnectionError::new(error.to_string()),
        }
    }
}
