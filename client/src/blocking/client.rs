//! Where threads take locks from: one server, or a quorum.

use std::sync::Arc;

use crate::api::builder::Builder;
use crate::api::quorum::QuorumBuilder;
use crate::api::server::IntoServer;
use crate::blocking::guard::Guard;
use crate::blocking::lock::Lock;
use crate::blocking::locks::{Locks, sealed};
use crate::blocking::park::{Source, wait};
use crate::proto::{LockInfo, Reply, ServerAnswer, TopEntry};
use crate::value::Error;

/// A client of one server; see [`crate::Client`].
///
/// ```
/// # fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::blocking::Client::connect(server.url())?;
/// use mortise_client::blocking::Client;
///
/// fn report(client: &Client) -> Result<(), mortise_client::Error> {
///     for lock in client.top(10)? {
///         println!("{}: {} wait", String::from_utf8_lossy(&lock.key), lock.waiters);
///     }
///     assert!(client.info("nobody's")?.is_none());
///     Ok(())
/// }
/// report(&client)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client(Arc<Source>);

/// A quorum of independent servers; see [`crate::Quorum`].
///
/// ```
/// use mortise_client::Error;
/// use mortise_client::blocking::Quorum;
///
/// fn write(quorum: &Quorum) -> Result<(), Error> {
///     quorum.lock("ledger").run(|held| Ok(println!("with fence {}", held.token())))
/// }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "redlock")]
pub struct Quorum(Arc<Source>);

impl Locks for Client {}
impl Locks for Quorum {}

impl sealed::Locks for Client {
    fn source(&self) -> &Arc<Source> {
        &self.0
    }
}

impl sealed::Locks for Quorum {
    fn source(&self) -> &Arc<Source> {
        &self.0
    }
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::blocking::Client;
    ///
    /// # let url = server.url();
    /// let client = Client::connect(url)?; // "redis://127.0.0.1/"
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(server: impl IntoServer) -> Result<Client, Error> {
        Client::connect_with(crate::Client::builder(server)?)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::blocking::Client;
    /// use std::time::Duration;
    ///
    /// # let url = server.url();
    /// let settings = mortise_client::Client::builder(url)?.response_timeout(Duration::from_secs(1));
    /// let client = Client::connect_with(settings)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_with(settings: Builder) -> Result<Client, Error> {
        Source::connect(settings.settings).map(Client)
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
    /// [`Error::NoThread`] if the background thread cannot be started.
    pub fn build_with(settings: Builder) -> Result<Client, Error> {
        Source::build(settings.settings).map(Client)
    }

    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let lock = client.lock("stock:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
    }

    /// Who holds a lock and who waits for it.
    ///
    /// # Errors
    /// As for [`crate::Client::info`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// assert!(client.info("nobody's")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        wait(self.0.here()?.info(key))
    }

    /// The locks with the most waiters.
    ///
    /// # Errors
    /// As for [`crate::Client::top`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// assert!(client.top(10)?.is_empty(), "nobody waits");
    /// # Ok(())
    /// # }
    /// ```
    pub fn top(&self, count: usize) -> Result<Vec<TopEntry>, Error> {
        wait(self.0.here()?.top(count))
    }
}

impl Quorum {
    /// Connects to an odd number of servers.
    ///
    /// # Errors
    /// As for [`crate::Quorum::connect`].
    ///
    /// # Examples
    /// ```
    /// use mortise_client::blocking::Quorum;
    ///
    /// # fn example() -> Result<(), mortise_client::Error> {
    /// let quorum = Quorum::connect(["redis://a/", "redis://b/", "redis://c/"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect<S: IntoServer>(servers: impl IntoIterator<Item = S>) -> Result<Quorum, Error> {
        Quorum::connect_with(crate::Quorum::builder(servers)?)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Quorum::connect`].
    ///
    /// # Examples
    /// ```
    /// use mortise_client::blocking::Quorum;
    /// use std::time::Duration;
    ///
    /// # fn example() -> Result<(), mortise_client::Error> {
    /// let settings = mortise_client::Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?;
    /// let quorum = Quorum::connect_with(settings.node_timeout(Duration::from_millis(20)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_with(settings: QuorumBuilder) -> Result<Quorum, Error> {
        Source::connect(settings.settings).map(Quorum)
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
    /// [`Error::NoThread`] if the background thread cannot be started.
    pub fn build_with(settings: QuorumBuilder) -> Result<Quorum, Error> {
        Source::build(settings.settings).map(Quorum)
    }

    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```
    /// # fn example(quorum: mortise_client::blocking::Quorum) {
    /// let lock = quorum.lock("ledger");
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
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
        self.info_on_each(key.as_ref())
    }

    /// The locks with the most waiters on each server; see [`crate::Quorum::top`].
    ///
    /// ```no_run
    /// # fn example(quorum: mortise_client::blocking::Quorum) {
    /// println!("{:?}", quorum.top(10)[0].answer);
    /// # }
    /// ```
    pub fn top(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        self.top_on_each(count)
    }
}

impl Client {
    /// As [`crate::Client::guarded`], for one command.
    ///
    /// # Errors
    /// As for [`crate::Guarded::run`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("{stock:42}").acquire()?;
    /// client.run_guarded(&guard, ["DECR", "{stock:42}:count"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_guarded<T: AsRef<[u8]>>(
        &self,
        guard: &Guard,
        command: impl IntoIterator<Item = T>,
    ) -> Result<Reply, Error> {
        wait(self.0.here()?.guarded(guard.inner()?).run(command))
    }

    /// As [`crate::Client::close`]. Guards that are dropped are waited for by themselves.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) {
    /// client.close();
    /// # }
    /// ```
    pub fn close(&self) {
        self.0.close();
    }
}

impl Quorum {
    /// As [`crate::Quorum::close`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(quorum: mortise_client::blocking::Quorum) {
    /// quorum.close();
    /// # }
    /// ```
    pub fn close(&self) {
        self.0.close();
    }
}
