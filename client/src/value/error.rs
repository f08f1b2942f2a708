//! The errors.

use std::fmt;
use std::time::Duration;

use crate::value::connection_error::ConnectionError;
use crate::value::loss::Loss;
use crate::value::mode::Mode;

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
#[derive(Clone, thiserror::Error)]
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
    /// This [`Owner`](crate::Owner) holds the key or is acquiring it, and [`Lock::reentrant`](crate::Lock::reentrant)
    /// was not asked for. A guard that was dropped, released or lost does not count, nor does an acquisition that was
    /// dropped or has failed.
    #[error(
        "this owner holds the key or is acquiring it already; ask for re-entry with `reentrant()`"
    )]
    AlreadyHeld,
    /// The hold is over: its lease may have run out, or the server has said so. See [`Loss`] for why.
    #[error("the lock is lost: {0}")]
    Lost(Loss),
    /// The server says that this owner does not hold the lock. The guard is lost from then on.
    #[error("the server says that this owner does not hold the lock")]
    NotHeld,
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
        /// What comes behind it.
        message: String,
    },
    /// An argument is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The server could not be reached, or did not answer in time.
    #[error("could not talk to {server}: {error}")]
    Connection {
        /// The server's address.
        server: String,
        /// What went wrong.
        #[source]
        error: ConnectionError,
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
    /// This process was forked from the one that built the client. The locks, the connections and the background tasks are
    /// that one's.
    #[error(
        "this process was forked from the one that built the client: build a new client after the fork"
    )]
    Forked,
    /// What was asked for is not possible over a quorum. The text says why.
    #[error("not possible over a quorum: {0}")]
    NotOverQuorum(&'static str),
}

/// Why a change of a hold ([`upgrade`](crate::Guard::upgrade), [`downgrade`](crate::Guard::downgrade)) has failed, and what
/// is left of it.
///
/// ```no_run
/// # async fn example(mut guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
/// use mortise_client::Mode;
///
/// match guard.upgrade().await {
///     Ok(()) => println!("a writer"),
///     Err(failed) if failed.left == Some(Mode::Read) => println!("still a reader: {failed}"),
///     Err(failed) => return Err(failed.into()), // nothing is left
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error} ({})", left.map_or("nothing is held any more".into(), |mode| format!("still held to {mode}")))]
#[non_exhaustive]
pub struct ChangeFailed {
    /// Why.
    #[source]
    pub error: Error,
    /// How the lock is held now; `None` where the guard is lost.
    pub left: Option<Mode>,
}

impl From<ChangeFailed> for Error {
    fn from(failed: ChangeFailed) -> Error {
        failed.error
    }
}

impl From<Error> for ChangeFailed {
    /// Nothing is left.
    fn from(error: Error) -> ChangeFailed {
        ChangeFailed { error, left: None }
    }
}

/// One server's answer in a quorum.
///
/// ```
/// use mortise_client::{Error, NodeFailure, NodeReason};
///
/// fn tell(error: &Error) {
///     let Error::NoQuorum { nodes, .. } = error else { return };
///     for NodeFailure { server, reason, .. } in nodes {
///         match reason {
///             NodeReason::Busy => println!("{server}: somebody else holds it"),
///             NodeReason::Silent => println!("{server}: is it up?"),
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
    /// Why it did not count.
    pub reason: NodeReason,
}

/// Why a server did not count towards a majority.
///
/// ```
/// use mortise_client::NodeReason;
///
/// assert_eq!(NodeReason::Silent.to_string(), "no answer in time");
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NodeReason {
    /// Somebody else holds the lock there.
    #[error("held by others")]
    Busy,
    /// It did not answer within the time allowed for one server.
    #[error("no answer in time")]
    Silent,
    /// It granted the lock with a token more than a second ahead of the other servers': its clock is wrong, or theirs
    /// are. It would take everybody's tokens along.
    #[error("its tokens are more than a second ahead")]
    Ahead,
    /// It answered with an error, or could not be reached.
    #[error("{0}")]
    Failed(Box<Error>),
}

impl Error {
    /// Whether the lock was simply taken by others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a").wait(Duration::from_millis(10));
    /// let guard = lock.acquire().await?;
    /// assert!(lock.acquire().await.is_err_and(|error| error.is_busy()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// `None` where others hold the lock.
    pub(crate) fn unless_busy<T>(taken: Result<T, Error>) -> Result<Option<T>, Error> {
        match taken {
            Ok(taken) => Ok(Some(taken)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether trying again later may help without anything being changed.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Owner;
    ///
    /// let error = Owner::named("").unwrap_err();
    /// assert!(!error.is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Busy { .. } | Error::Deadlock(_) | Error::NoQuorum { .. } => true,
            Error::Connection { error, .. } => !error.is_denied(),
            Error::Refused { code, .. } => is_passing(code),
            _ => false,
        }
    }
}

/// Whether the code of an error speaks of a state that passes by itself: a failover, a migration, a load.
pub(crate) fn is_passing(code: &str) -> bool {
    let passing =
        "UNBLOCKED READONLY MOVED ASK CLUSTERDOWN LOADING MASTERDOWN TRYAGAIN NOREPLICAS BUSY";
    passing.split(' ').any(|it| it == code)
}

fn reasons(nodes: &[NodeFailure]) -> String {
    let reason = |node: &NodeFailure| format!("; {}: {}", node.server, node.reason);
    nodes.iter().map(reason).collect()
}

/// The text for people: `main` shows it of an error that it returns, so it says what to do.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl NodeReason {
    pub(crate) fn of(error: Error) -> NodeReason {
        match &error {
            Error::Connection { error: silence, .. } if silence.is_timeout() => NodeReason::Silent,
            _ => NodeReason::Failed(Box::new(error)),
        }
    }
}
