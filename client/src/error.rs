//! The errors.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

/// Why a lock was not taken, kept, or given back.
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// use mortise_client::Error;
///
/// match client.lock("a").acquire().await {
///     Ok(guard) => drop(guard),
///     Err(Error::Busy { waited }) => eprintln!("taken for {waited:?}"),
///     Err(Error::NoQuorum { nodes, .. }) => nodes.iter().for_each(|node| eprintln!("{}: {}", node.server, node.reason)),
///     Err(error) if error.is_transient() => eprintln!("later, perhaps: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Others held the lock for as long as the request was willing to wait.
    #[error("the lock is held by others; gave up after {waited:?}")]
    Busy {
        /// How long it waited.
        waited: Duration,
    },
    /// Waiting would have closed a cycle: somebody who stands in the way waits for this owner. Nothing was queued.
    ///
    /// Found only between acquisitions that name an [`Owner`](crate::Owner). The text is the server's and names the keys.
    #[error("waiting would be a deadlock: {0}")]
    Deadlock(String),
    /// The hold is over, or may be.
    #[error("the lock is lost: {0}")]
    Lost(Loss),
    /// No majority of the servers granted the request.
    #[error(
        "{granted} of the servers agreed, {needed} are needed{}",
        reasons(nodes)
    )]
    NoQuorum {
        /// How many servers make a majority.
        needed: usize,
        /// How many granted it.
        granted: usize,
        /// What the others said.
        nodes: Vec<NodeFailure>,
    },
    /// A server of a quorum granted the lock with a token more than a second ahead of the other servers': its clock is wrong,
    /// or theirs are. It would take everybody's tokens along. Only in [`NoQuorum`](Error::NoQuorum).
    #[error("its tokens are more than a second ahead of the other servers'")]
    Ahead,
    /// Too few replicas have the lock: [`Builder::replicas`](crate::Builder::replicas). It was given back.
    #[error("{had} replicas have the lock, and {needed} have to")]
    Unconfirmed {
        /// How many have to have it.
        needed: u32,
        /// How many had it, or were attached at all.
        had: u64,
    },
    /// The server does not have the module. The text says how to load it.
    #[error(
        "{server} does not have the mortise module: start it with `--loadmodule /path/to/libmortise.so`, or put `loadmodule /path/to/libmortise.so` into its configuration"
    )]
    NoModule {
        /// The server's address.
        server: String,
    },
    /// The server refused the command.
    #[error("the server refused the command: {code} {message}")]
    Refused {
        /// The first word of the error line: `WRONGTYPE`, `NOREPLICAS`, `MAXWAITERS`, …
        code: String,
        /// The rest of the error line.
        message: String,
    },
    /// An argument is out of range, or does not fit the others. The text says which, and what is possible.
    #[error("{0}")]
    Invalid(String),
    /// The server could not be reached, or did not answer in time.
    #[error("could not talk to {server}: {error}")]
    Connection {
        /// The server's address.
        server: String,
        /// What went wrong. Its `is_timeout()` is true if the server was silent.
        #[source]
        error: RedisError,
    },
    /// The client was built outside of a tokio runtime, and none was named.
    #[error(
        "there is no tokio runtime here: build the client inside of one, or name one with `runtime(…)`"
    )]
    NoRuntime,
    /// The runtime that the client was built in is gone, and with it the tasks that renew and release.
    #[error(
        "the tokio runtime that the client was built in is gone: build a new client in one that lasts"
    )]
    RuntimeGone,
    /// The client was closed.
    #[error("the client was closed: build a new one")]
    Closed,
}

/// Why a guard lost its lock.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Loss;
///
/// let guard = client.lock("a").acquire().await?;
/// client.revoke("a", guard.owner()).await?;
/// assert!(guard.renew().await.is_err());
/// assert_eq!(guard.loss(), Some(Loss::Denied));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The lease may have run out: no renewal was confirmed in time, or none was asked for.
    #[error("its lease may have run out")]
    Expired,
    /// The server said that the owner no longer holds it: the key was deleted, or the lease ran out there.
    #[error("the server says that this owner no longer holds it")]
    Denied,
    /// The limit on the total time of the hold was reached: [`Lock::max_hold`](crate::Lock::max_hold).
    #[error("it was held for as long as it may be")]
    HoldLimit,
    /// It was passed on to another name, or is about to be: [`Guard::pass_to`](crate::Guard::pass_to).
    #[error("it was passed on")]
    Passed,
    /// The guard was given back, or its client closed.
    #[error("it was released")]
    Released,
    /// The outcome of a request that changes it (an upgrade, a downgrade) is not known: it was not answered, or
    /// cancelled. A hold whose state is unknown is not kept.
    #[error("the outcome of its change is unknown")]
    Unknown,
}

/// Why a server did not count towards a majority.
///
/// ```
/// use mortise_client::{Error, NodeFailure};
///
/// fn tell(error: &Error) {
///     let Error::NoQuorum { nodes, .. } = error else { return };
///     for NodeFailure { server, reason, .. } in nodes {
///         match reason {
///             Error::Busy { .. } => println!("{server}: somebody else holds it"),
///             other => println!("{server}: {other}"),
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The server's address.
    pub server: String,
    /// Why it did not count. The `is_timeout()` of an [`Error::Connection`] is true if it did not answer in time.
    pub reason: Error,
}

/// Why a request was not granted, by what it may have left on the server.
#[derive(Debug, Clone)]
pub(crate) enum Failed {
    /// Others hold the lock, or this owner does not.
    Denied,
    /// It has changed nothing: the server has refused it, or it was never sent.
    Refused(Error),
    /// It may have been carried out.
    Unknown(Error),
}

impl Failed {
    /// The error; `denied` where the server has denied the request.
    pub(crate) fn error(self, denied: Error) -> Error {
        match self {
            Failed::Denied => denied,
            Failed::Refused(error) | Failed::Unknown(error) => error,
        }
    }

    /// The error of a request to which null is no answer.
    pub(crate) fn of_reply(self) -> Error {
        self.error(Error::unexpected(&"null"))
    }
}

/// The codes of errors that pass by themselves: a failover, a migration, a load.
const PASSING: [&str; 11] = [
    "UNBLOCKED",
    "READONLY",
    "MOVED",
    "ASK",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
];

impl Error {
    /// Whether others held the lock for the whole wait.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a").wait(Duration::from_millis(10));
    /// let guard = lock.clone().acquire().await?;
    /// assert!(lock.acquire().await.is_err_and(|error| error.is_busy()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// Whether trying again later may help without anything being changed.
    ///
    /// ```
    /// use mortise_client::Owner;
    ///
    /// assert!(!Owner::named("").unwrap_err().is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::Busy { .. } | Error::Deadlock(_) | Error::NoQuorum { .. }
        ) || self.passes()
    }

    /// Whether the same request may succeed after a while, because the server or the way to it recovers.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Error::Connection { error, .. } => !is_final(error),
            Error::Refused { code, .. } => PASSING.contains(&code.as_str()),
            Error::Unconfirmed { .. } => true,
            _ => false,
        }
    }

    /// Whether to ask anew, under another name: it may pass, or the server no longer had what it had granted.
    pub(crate) fn is_retried(&self) -> bool {
        self.passes() || matches!(self, Error::Lost(_))
    }

    /// Whether another node of a cluster has the key.
    pub(crate) fn is_redirection(&self) -> bool {
        matches!(self, Error::Refused { code, .. } if code == "MOVED" || code == "ASK")
    }

    /// Whether a connection was refused or broke: another one may do.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Error::Connection { error, .. } => !error.is_timeout(),
            Error::NoQuorum { nodes, .. } => nodes.iter().any(|node| node.reason.is_broken()),
            _ => false,
        }
    }

    /// The error for a line, in two parts: its code, and what follows.
    pub(crate) fn of_line(server: &str, code: &str, message: &str) -> Error {
        match code {
            "DEADLOCK" => Error::Deadlock(message.to_owned()),
            "ERR" if message.contains("unknown command 'LOCK.") => Error::NoModule {
                server: server.to_owned(),
            },
            _ => Error::Refused {
                code: code.to_owned(),
                message: message.to_owned(),
            },
        }
    }

    /// The error for a reply that no server of this contract gives.
    pub(crate) fn unexpected(reply: &dyn fmt::Debug) -> Error {
        Error::Refused {
            code: "ERR".to_owned(),
            message: format!("an unexpected reply: {reply:?}"),
        }
    }
}

/// Whether a retry is useless: the server refuses the password, or the address is malformed.
fn is_final(error: &RedisError) -> bool {
    use redis::ErrorKind::{AuthenticationFailed, InvalidClientConfig};

    matches!(error.kind(), AuthenticationFailed | InvalidClientConfig)
        || matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "NOPERM"))
}

fn reasons(nodes: &[NodeFailure]) -> String {
    let reason = |node: &NodeFailure| format!("; {}: {}", node.server, node.reason);
    nodes.iter().map(reason).collect()
}

impl NodeFailure {
    pub(crate) fn new(server: &str, reason: Error) -> NodeFailure {
        NodeFailure {
            server: server.to_owned(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_form_of_an_error_shows_its_variant() {
        let error = Error::Busy {
            waited: Duration::from_secs(1),
        };
        assert_eq!(format!("{error:?}"), "Busy { waited: 1s }");
    }

    #[test]
    fn what_a_failover_or_a_load_replies_passes_and_a_refusal_does_not() {
        let replied = |code: &str| Error::of_line("s", code, "text");
        assert!(replied("READONLY").passes() && replied("LOADING").is_transient());
        assert!(!replied("NOPERM").passes() && !replied("WRONGTYPE").is_transient());
        assert!(replied("DEADLOCK").is_transient());
    }

    #[test]
    fn an_unknown_command_means_that_the_module_is_missing() {
        let error = Error::of_line("host:1", "ERR", "unknown command 'LOCK.ACQUIRE'");
        assert!(
            error
                .to_string()
                .starts_with("host:1 does not have the mortise module")
        );
    }
}
