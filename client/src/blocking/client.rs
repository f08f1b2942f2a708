//! Where threads take locks from: one server, or a quorum.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::api::builder::Builder;
use crate::api::client;
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
pub type Client = Connected<crate::Client>;

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
#[doc(alias = "redlock")]
pub type Quorum = Connected<crate::Quorum>;

/// A [`Client`], or a [`Quorum`]: what both have.
///
/// ```no_run
/// use mortise_client::blocking::{Connected, Lock};
/// use mortise_client::Locks;
///
/// fn stock<T: Locks>(client: &Connected<T>, number: u32) -> Lock {
///     client.lock(format!("stock:{number}"))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Connected<T> {
    source: Arc<Source>,
    of: PhantomData<fn() -> T>,
}

impl<T: client::Locks> Locks for Connected<T> {}

impl<T: client::Locks> sealed::Locks for Connected<T> {
    fn source(&self) -> &Arc<Source> {
        &self.source
    }
}

impl<T: client::Locks> Connected<T> {
    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`] and [`crate::Quorum::connect`].
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
    pub fn connect_with(settings: Builder<T>) -> Result<Connected<T>, Error> {
        Source::connect(settings.settings).map(Connected::of)
    }

    /// With settings of your own; connects when it is first used; see [`Builder::build`].
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
    pub fn build_with(settings: Builder<T>) -> Result<Connected<T>, Error> {
        Source::build(settings.settings).map(Connected::of)
    }

    fn of(source: Arc<Source>) -> Connected<T> {
        let of = PhantomData;
        Connected { source, of }
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

    /// As [`crate::Client::close`] and [`crate::Quorum::close`]. Guards that are dropped are waited for by themselves.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) {
    /// client.close();
    /// # }
    /// ```
    pub fn close(&self) {
        self.source.close();
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
        wait(self.source.here()?.info(key))
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
        wait(self.source.here()?.top(count))
    }

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
        wait(self.source.here()?.guarded(guard.inner()?).run(command))
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
