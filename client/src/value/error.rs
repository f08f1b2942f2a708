//! What can go wrong, told apart.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// Others held the lock for as long as the request was willing to wait.
    Busy {
        /// How long it waited.
        waited: Duration,
    },
    /// Waiting would have closed a cycle: somebody who stands in the way waits for this owner. Nothing was queued.
    ///
    /// Found only between acquisitions that name an [`Owner`](crate::Owner). The text is the server's and names the keys.
    Deadlock(String),
    /// This [`Owner`](crate::Owner) holds the key or is acquiring it, and [`Lock::reentrant`](crate::Lock::reentrant)
    /// was not asked for. A guard that was dropped, released or lost does not count, nor does an acquisition that was
    /// dropped or has failed.
    AlreadyHeld,
    /// The hold is over: its lease may have run out, or the server has said so. See [`Loss`] for why.
    Lost(Loss),
    /// The server says that this owner does not hold the lock. The guard is lost from then on.
    NotHeld,
    /// No majority of the servers granted the request.
    NoQuorum {
        /// How many servers make a majority.
        needed: usize,
        /// How many granted it.
        granted: usize,
        /// What the others said.
        nodes: Vec<NodeFailure>,
    },
    /// The server does not have the module. The text says how to load it.
    NoModule {
        /// The server's address.
        server: String,
    },
    /// The server refused the command.
    Refused {
        /// The first word of the error line: `WRONGTYPE`, `NOREPLICAS`, `MAXWAITERS`, …
        code: String,
        /// What comes behind it.
        message: String,
    },
    /// An argument is out of range.
    Invalid(String),
    /// The server could not be reached, or did not answer in time.
    Connection {
        /// The server's address.
        server: String,
        /// What went wrong.
        error: ConnectionError,
    },
    /// The background thread of the blocking client cannot be started.
    NoThread(String),
    /// The client was built outside of a tokio runtime, and none was named.
    NoRuntime,
    /// The client was closed, or the runtime that it was built in is gone.
    Closed,
}

/// What went wrong with a connection; in [`Error::Connection`].
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
#[derive(Debug, Clone)]
pub struct ConnectionError {
    text: Arc<str>,
    timeout: bool,
}

impl ConnectionError {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> ConnectionError {
        ConnectionError {
            text: text.into(),
            timeout: false,
        }
    }

    /// No answer, or no connection, within `limit`.
    pub(crate) fn silence(what: &str, limit: Duration) -> ConnectionError {
        ConnectionError {
            text: format!("{what} within {limit:?}").into(),
            timeout: true,
        }
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
        self.timeout
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConnectionError {}

impl From<std::io::Error> for ConnectionError {
    fn from(error: std::io::Error) -> ConnectionError {
        ConnectionError {
            text: error.to_string().into(),
            timeout: error.kind() == std::io::ErrorKind::TimedOut,
        }
    }
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChangeFailed {
    /// Why.
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

impl fmt::Display for ChangeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left {
            Some(mode) => write!(f, "{} (still held to {mode})", self.error),
            None => write!(f, "{} (nothing is held any more)", self.error),
        }
    }
}

impl std::error::Error for ChangeFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
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
/// let held = guard.held();
/// guard.release().await?;
/// assert_eq!(held.loss(), Some(Loss::Released));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease may have run out: no renewal was confirmed in time, or none was asked for.
    Expired,
    /// The server said that the owner no longer holds it: the key was deleted, or the lease ran out there.
    Denied,
    /// The limit on the total time of the hold was reached: [`Lock::max_hold`](crate::Lock::max_hold).
    HoldLimit,
    /// The guard was given back, so there is nothing left to lose.
    Released,
    /// What became of a change of it, an upgrade, is not known: it was not answered, or cancelled. A hold whose state is
    /// unknown is not kept.
    Unknown,
}

/// What one server of a quorum said.
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeReason {
    /// Somebody else holds the lock there.
    Busy,
    /// It did not answer within the time allowed for one server.
    Silent,
    /// It granted the lock with a token more than a second ahead of the other servers': its clock is wrong, or theirs
    /// are. It would take everybody's tokens along.
    Ahead,
    /// It answered with an error, or could not be reached.
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

    /// The variant's name.
    fn name(&self) -> &'static str {
        match self {
            Error::Busy { .. } => "Busy",
            Error::Deadlock(_) => "Deadlock",
            Error::AlreadyHeld => "AlreadyHeld",
            Error::Lost(_) => "Lost",
            Error::NotHeld => "NotHeld",
            Error::NoQuorum { .. } => "NoQuorum",
            Error::NoModule { .. } => "NoModule",
            Error::Refused { .. } => "Refused",
            Error::Invalid(_) => "Invalid",
            Error::Connection { .. } => "Connection",
            Error::NoThread(_) => "NoThread",
            Error::NoRuntime => "NoRuntime",
            Error::Closed => "Closed",
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
            Error::Busy { .. }
            | Error::Deadlock(_)
            | Error::NoQuorum { .. }
            | Error::Connection { .. } => true,
            Error::Refused { code, .. } => is_passing(code),
            _ => false,
        }
    }
}

/// Whether the code of an error speaks of a state that passes by itself: a failover, a migration, a load.
pub(crate) fn is_passing(code: &str) -> bool {
    const PASSING: [&str; 10] = [
        "UNBLOCKED",
        "READONLY",
        "MOVED",
        "ASK",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "TRYAGAIN",
        "NOREPLICAS",
        "BUSY",
    ];
    PASSING.contains(&code)
}

/// The variant and the text for people: what `main` shows of an error that it returns is this, and it is to tell what to do.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.name())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Busy { waited } => {
                write!(f, "the lock is held by others; gave up after {waited:?}")
            }
            Error::Deadlock(line) => {
                let text = line.strip_prefix("DEADLOCK ").unwrap_or(line);
                write!(f, "waiting would be a deadlock: {text}")
            }
            Error::AlreadyHeld => f.write_str(
                "this owner holds the key or is acquiring it already; ask for re-entry with `reentrant()`",
            ),
            Error::Lost(loss) => write!(f, "the lock is lost: {loss}"),
            Error::NotHeld => f.write_str("the server says that this owner does not hold the lock"),
            Error::NoQuorum {
                needed,
                granted,
                nodes,
            } => {
                write!(f, "{granted} of the servers agreed, {needed} are needed")?;
                for node in nodes {
                    write!(f, "; {}: {}", node.server, node.reason)?;
                }
                Ok(())
            }
            Error::NoModule { server } => write!(
                f,
                "{server} does not have the mortise module: start it with `--loadmodule /path/to/libmortise.so`, or \
                 put `loadmodule /path/to/libmortise.so` into its configuration"
            ),
            Error::Refused { code, message } => {
                write!(f, "the server refused the command: {code} {message}")
            }
            Error::Invalid(text) => f.write_str(text),
            Error::Connection { server, error } => write!(f, "could not talk to {server}: {error}"),
            Error::NoThread(why) => {
                write!(f, "the background thread of the blocking client cannot be started: {why}")
            }
            Error::NoRuntime => f.write_str(
                "there is no tokio runtime here: build the client inside of one, or name one with `runtime(…)`",
            ),
            Error::Closed => {
                f.write_str("the client was closed, or the runtime that it was built in is gone")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connection { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Expired => "its lease may have run out",
            Loss::Denied => "the server says that this owner does not hold it any more",
            Loss::HoldLimit => "it was held for as long as it may be",
            Loss::Released => "it was released",
            Loss::Unknown => "what became of a change of it is not known",
        })
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

impl fmt::Display for NodeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeReason::Busy => f.write_str("held by others"),
            NodeReason::Silent => f.write_str("no answer in time"),
            NodeReason::Ahead => f.write_str("its tokens are more than a second ahead"),
            NodeReason::Failed(error) => match &**error {
                // Said beside the server's name.
                Error::Connection { error, .. } => write!(f, "could not talk to it: {error}"),
                error => error.fmt(f),
            },
        }
    }
}
