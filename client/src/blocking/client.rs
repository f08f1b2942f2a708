//! Where threads take locks from: one server, or a quorum.

use crate::blocking::Lock;
use crate::blocking::park::{background, wait};
use crate::builder::{Builder, IntoServer};
use crate::error::Error;
use crate::info::{LockInfo, ServerAnswer, TopEntry};
use crate::quorum::QuorumBuilder;

/// Whatever locks can be taken from: a [`Client`] or a [`Quorum`]; see [`crate::Locks`].
///
/// ```no_run
/// use mortise_client::Error;
/// use mortise_client::blocking::{Client, Locks};
///
/// fn job(locks: &impl Locks) -> Result<(), Error> {
///     locks.lock("job").run(|held| println!("as number {}", held.token()))
/// }
///
/// # fn main() -> Result<(), Error> {
/// job(&Client::connect("redis://127.0.0.1/")?)
/// # }
/// ```
pub trait Locks: std::fmt::Debug + Send + Sync {
    /// As [`crate::Locks::lock_of`].
    fn lock_of(&self, key: &[u8]) -> Lock;

    /// As [`crate::Locks::info_on_each`].
    fn info_on_each(&self, key: &[u8]) -> Vec<ServerAnswer<Option<LockInfo>>>;

    /// As [`crate::Locks::top_on_each`].
    fn top_on_each(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>>;

    /// As [`crate::Locks::lock`].
    fn lock(&self, key: impl AsRef<[u8]>) -> Lock
    where
        Self: Sized,
    {
        self.lock_of(key.as_ref())
    }
}

impl Locks for Client {
    fn lock_of(&self, key: &[u8]) -> Lock {
        self.lock(key)
    }

    fn info_on_each(&self, key: &[u8]) -> Vec<ServerAnswer<Option<LockInfo>>> {
        wait(crate::Locks::info_on_each(&self.0, key))
    }

    fn top_on_each(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        wait(crate::Locks::top_on_each(&self.0, count))
    }
}

impl Locks for Quorum {
    fn lock_of(&self, key: &[u8]) -> Lock {
        self.lock(key)
    }

    fn info_on_each(&self, key: &[u8]) -> Vec<ServerAnswer<Option<LockInfo>>> {
        wait(crate::Locks::info_on_each(&self.0, key))
    }

    fn top_on_each(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        wait(crate::Locks::top_on_each(&self.0, count))
    }
}

/// A client of one server; see [`crate::Client`].
#[derive(Debug, Clone)]
pub struct Client(crate::Client);

/// A quorum of independent servers; see [`crate::Quorum`].
#[derive(Debug, Clone)]
#[doc(alias = "redlock")]
pub struct Quorum(crate::Quorum);

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    pub fn connect(server: impl IntoServer) -> Result<Client, Error> {
        Client::connect_with(crate::Client::builder(server)?)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    pub fn connect_with(settings: Builder) -> Result<Client, Error> {
        wait(settings.runtime(background()?).connect()).map(Client)
    }

    /// A client with settings of your own that connects when it is first used; see [`Builder::build`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// let settings = mortise_client::Client::builder("redis://127.0.0.1/")?;
    /// let client = mortise_client::blocking::Client::build_with(settings)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connection`] if the background thread cannot be started.
    pub fn build_with(settings: Builder) -> Result<Client, Error> {
        settings.runtime(background()?).build().map(Client)
    }

    /// The lock with this key. Nothing is sent yet.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.lock(key))
    }

    /// Who holds a lock and who waits for it.
    ///
    /// # Errors
    /// As for [`crate::Client::info`].
    pub fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        wait(self.0.info(key))
    }

    /// The locks with the most waiters.
    ///
    /// # Errors
    /// As for [`crate::Client::top`].
    pub fn top(&self, count: usize) -> Result<Vec<TopEntry>, Error> {
        wait(self.0.top(count))
    }
}

impl Quorum {
    /// Connects to an odd number of servers.
    ///
    /// # Errors
    /// As for [`crate::Quorum::connect`].
    pub fn connect<S: IntoServer>(servers: impl IntoIterator<Item = S>) -> Result<Quorum, Error> {
        Quorum::connect_with(crate::Quorum::builder(servers)?)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Quorum::connect`].
    pub fn connect_with(settings: QuorumBuilder) -> Result<Quorum, Error> {
        wait(settings.runtime(background()?).connect()).map(Quorum)
    }

    /// A quorum with settings of your own that connects when it is first used; see [`QuorumBuilder::build`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// let settings = mortise_client::Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?;
    /// let quorum = mortise_client::blocking::Quorum::build_with(settings)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connection`] if the background thread cannot be started.
    pub fn build_with(settings: QuorumBuilder) -> Result<Quorum, Error> {
        settings.runtime(background()?).build().map(Quorum)
    }

    /// The lock with this key. Nothing is sent yet.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.lock(key))
    }

    /// Who holds a lock and who waits for it, as each server sees it; see [`crate::Quorum::info`].
    ///
    /// ```no_run
    /// # fn example(quorum: mortise_client::blocking::Quorum) {
    /// for there in quorum.info("ledger") {
    ///     println!("{}: {:?}", there.server, there.answer);
    /// }
    /// # }
    /// ```
    pub fn info(&self, key: impl AsRef<[u8]>) -> Vec<ServerAnswer<Option<LockInfo>>> {
        wait(self.0.info(key))
    }

    /// The locks with the most waiters on each server; see [`crate::Quorum::top`].
    ///
    /// ```no_run
    /// # fn example(quorum: mortise_client::blocking::Quorum) {
    /// println!("{:?}", quorum.top(10)[0].answer);
    /// # }
    /// ```
    pub fn top(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        wait(self.0.top(count))
    }
}
