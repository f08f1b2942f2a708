//! A client of one server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::lock::{Core, Lock, Request, Source};
use crate::value::{BootInstant, Error};
use crate::wire::{
    Command, FromReply, LockInfo, Name, Reply, ServerAnswer, TopEntry, Verb, checked,
};

/// A source of locks: one server ([`Client`]) or a quorum of several ([`Quorum`](crate::Quorum)). Code
/// that takes this trait works with both.
///
/// ```no_run
/// use mortise_client::{Client, Error, Locks, Quorum};
///
/// async fn job(locks: &impl Locks) -> Result<(), Error> {
///     locks.lock("job").run(|held| async move { Ok(println!("as number {}", held.token())) }).await
/// }
///
/// # async fn example() -> Result<(), Error> {
/// job(&Client::connect("redis://127.0.0.1/").await?).await?;
/// job(&Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?).await
/// # }
/// ```
pub trait Locks: std::fmt::Debug + Send + Sync + sealed::Locks {
    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use mortise_client::Locks;
    ///
    /// let lock = client.lock_of(b"stock:42");
    /// # Ok(())
    /// # }
    /// ```
    fn lock_of(&self, key: &[u8]) -> Lock {
        Lock::new(self.source(), key)
    }

    /// Who holds a lock and who waits for it, at most 100 of each, as each server sees it: one answer from one server,
    /// and of a quorum all of them, in their order. `None` where nobody does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Locks;
    ///
    /// let answers = client.info_on_each(b"nobody's").await;
    /// assert!(matches!(answers[0].answer, Ok(None)));
    /// # Ok(())
    /// # }
    /// ```
    fn info_on_each(&self, key: &[u8]) -> Answers<Option<LockInfo>> {
        let name = Name::of_key(key);
        on_each(self.servers(), |server| {
            let name = name.clone();
            async move {
                server.check_open()?;
                server.endpoint.prepare().await;
                let info = Request::new(&server, &name, Verb::Info).reply().await?;
                FromReply::read(info)
            }
        })
    }

    /// The locks with the most waiters now, at most `count`, the longest queue first, as each server sees it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Locks;
    ///
    /// assert_eq!(client.top_on_each(10).await.len(), 1, "one answer from one server");
    /// # Ok(())
    /// # }
    /// ```
    fn top_on_each(&self, count: usize) -> Answers<Vec<TopEntry>> {
        on_each(self.servers(), |server| async move {
            server.check_open()?;
            let answers = server.endpoint.call_each(&Command::Top(count)).await;
            let lists = answers
                .into_iter()
                .map(|it| checked(it, &server.endpoint.name));
            TopEntry::first(lists.collect::<Result<_, _>>()?, count)
        })
    }

    /// The lock with this key, which may be anything made of bytes.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use mortise_client::Locks;
    ///
    /// fn stock(locks: &impl Locks, number: u32) -> mortise_client::Lock {
    ///     locks.lock(format!("stock:{number}"))
    /// }
    /// let lock = stock(&client, 42);
    /// # Ok(())
    /// # }
    /// ```
    fn lock(&self, key: impl AsRef<[u8]>) -> Lock
    where
        Self: Sized,
    {
        self.lock_of(key.as_ref())
    }
}

/// What becomes the answer of each server; from [`Locks`]. It borrows nothing.
///
/// ```
/// use mortise_client::{Answers, LockInfo, Locks};
///
/// fn both(locks: &dyn Locks) -> [Answers<Option<LockInfo>>; 2] {
///     [locks.info_on_each(b"a"), locks.info_on_each(b"b")]
/// }
/// ```
pub type Answers<T> = Pin<Box<dyn Future<Output = Vec<ServerAnswer<T>>> + Send>>;

pub(crate) mod sealed {
    use super::{Arc, Core, Source};

    /// Others cannot implement it: it may grow.
    pub trait Locks {
        #[allow(private_interfaces, reason = "the trait is sealed")]
        fn source(&self) -> Arc<dyn Source>;

        /// In the order in which they were named.
        #[allow(private_interfaces, reason = "the trait is sealed")]
        fn servers(&self) -> &[Arc<Core>];
    }
}

impl Locks for Client {}

impl sealed::Locks for Client {
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn source(&self) -> Arc<dyn Source> {
        self.0.clone()
    }

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn servers(&self) -> &[Arc<Core>] {
        std::slice::from_ref(&self.0)
    }
}

/// A client of one server, or of what counts as one: a Sentinel group, a cluster. Clones share its connections.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::Client;
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// let other = client.clone();
/// tokio::spawn(async move { other.lock("report").acquire().await });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(pub(super) Arc<Core>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.0).finish()
    }
}

impl Client {
    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let lock = client.lock("stock:42");
    /// let also = client.lock([0xff, 0x00]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
    }

    /// Who holds a lock and who waits for it, at most 100 of each; `None` if nobody does.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::NoModule`], [`Error::Refused`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// assert!(client.info("nobody's").await?.is_none());
    /// let guard = client.lock("mine").acquire().await?;
    /// assert!(client.info("mine").await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        self.info_on_each(key.as_ref()).await.remove(0).answer
    }

    /// The locks with the most waiters now, at most `count`, the longest queue first; in a cluster, of all its primaries.
    ///
    /// # Errors
    /// As for [`info`](Client::info).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// assert!(client.top(10).await?.is_empty(), "nobody waits");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn top(&self, count: usize) -> Result<Vec<TopEntry>, Error> {
        self.top_on_each(count).await.remove(0).answer
    }

    /// Makes an owner's hold end with its current lease: no renewal succeeds any more. The next renewal reports the loss to its guard.
    /// The lock stays taken until that guard is dropped or the lease is over. [`info`](Client::info) shows the owners. Returns what is
    /// left of the lease; `None` if this owner holds nothing.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::NoModule`], [`Error::Refused`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("job").acquire().await?;
    /// let left = client.revoke("job", guard.owner()).await?;
    /// assert!(left.is_some());
    /// assert!(guard.renew().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(
        &self,
        key: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
    ) -> Result<Option<Duration>, Error> {
        self.0.check_open()?;
        let (key, owner) = (key.as_ref().into(), owner.as_ref().into());
        let name = Name::new(key, owner);
        self.0.endpoint.prepare().await;
        match Request::new(&self.0, &name, Verb::Revoke).reply().await? {
            Reply::Nil => Ok(None),
            left => Ok(Some(FromReply::read(left)?)),
        }
    }

    /// Releases what guards of this client still hold, and waits until all releases are answered, those of dropped guards,
    /// too. Call it before the process or the runtime ends: a release that is not sent by then never is, and its lock
    /// stays taken until its lease is over. The client takes no more locks.
    ///
    /// It waits for a server that does not answer until the leases there must be over, and five seconds more for late
    /// replies.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let url = server.url();
    /// let client = mortise_client::Client::connect(&url).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// client.close().await;
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        self.0.close().await;
    }
}

/// Finds out whether there is a server that has the module, within the time that connecting may take.
pub(crate) async fn find_module(core: &Arc<Core>) -> Result<(), Error> {
    let end = BootInstant::now() + core.timeouts.connect;
    // Whatever lock it asks for, the answer is short.
    let name = Name::of_key(b"mortise");
    loop {
        core.endpoint.prepare().await;
        match Request::new(core, &name, Verb::Info).reply().await {
            Err(Error::Connection { error, .. })
                if error.was_late() && !end.remaining().is_zero() => {}
            // Only if the server knows a command it says that the user may not run it.
            Err(Error::Refused { code, .. }) if code == "NOPERM" => return Ok(()),
            found => return found.map(drop),
        }
        core.pause(Duration::from_millis(10)).await;
    }
}

fn on_each<T, F>(servers: &[Arc<Core>], ask: impl Fn(Arc<Core>) -> F) -> Answers<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let asked = |core: &Arc<Core>| {
        let (server, asking) = (core.endpoint.name.clone(), ask(core.clone()));
        async move {
            let answer = asking.await;
            ServerAnswer { server, answer }
        }
    };
    Box::pin(join_all(servers.iter().map(asked)))
}
