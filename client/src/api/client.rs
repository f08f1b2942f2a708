//! A client of one server.

use std::pin::Pin;
use std::sync::Arc;

use crate::api::guard::Guard;
use crate::api::guarded::Guarded;
use crate::api::lock::Lock;
use crate::proto::command::Command;
use crate::proto::info::{LockInfo, Read, ServerAnswer, TopEntry};
use crate::proto::reply::{Reply, checked};
use crate::run::core::Core;
use crate::value::error::Error;

/// Whatever locks can be taken from: one server ([`Client`]) or a quorum of several ([`Quorum`](crate::Quorum)). Code
/// that asks for this can switch.
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
    fn lock_of(&self, key: &[u8]) -> Lock;

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
    fn info_on_each(&self, key: &[u8]) -> Answers<Option<LockInfo>>;

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
    fn top_on_each(&self, count: usize) -> Answers<Vec<TopEntry>>;

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
    /// Others cannot implement it: it may grow.
    pub trait Locks {}

    impl Locks for super::Client {}
}

impl Locks for Client {
    fn lock_of(&self, key: &[u8]) -> Lock {
        Lock::new(self.core.clone(), key)
    }

    fn info_on_each(&self, key: &[u8]) -> Answers<Option<LockInfo>> {
        info_on_each(self.core.clone(), key.to_vec())
    }

    fn top_on_each(&self, count: usize) -> Answers<Vec<TopEntry>> {
        top_on_each(self.core.clone(), count)
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
#[derive(Debug, Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    #[cfg(feature = "blocking")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn new(core: Arc<Core>) -> Client {
        Client { core }
    }

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
        let mut answers = info_on_each(self.core.clone(), key.as_ref().to_vec()).await;
        answers.remove(0).answer
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
        top_on_each(self.core.clone(), count).await.remove(0).answer
    }

    /// A command that runs only if a guard of this client holds its lock at that moment, which the server looks at
    /// (`LOCK.GUARD`): for data on the same server a lease is a fence. In a cluster its keys have the lock's slot.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("{stock:42}").acquire().await?;
    /// client.guarded(&guard).run(["DECR", "{stock:42}:count"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn guarded<'a>(&'a self, guard: &'a Guard) -> Guarded<'a> {
        Guarded::new(&self.core, guard)
    }

    /// Gives back what guards of this client still hold, and waits until everything is said: releases of guards that were
    /// dropped, too. To be called before the process ends, or the runtime: what is not said by then never is, and the lock
    /// stays taken until its lease is over. The client takes no lock any more.
    ///
    /// It waits for a server that does not answer until the leases that it may have are over.
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
        self.core.close().await;
    }

    /// Whether the server has the module.
    pub(crate) async fn find_module(&self) -> Result<(), Error> {
        find_module(&self.core, 0).await
    }
}

pub(crate) async fn find_module(core: &Core, server: usize) -> Result<(), Error> {
    let server = &core.servers[server];
    // Of nobody's: whatever the lock, the answer is short.
    let look = Command::Info(b"mortise");
    checked(server.call(&look).await, &server.name).map(drop)
}

pub(crate) fn info_on_each(core: Arc<Core>, key: Vec<u8>) -> Answers<Option<LockInfo>> {
    Box::pin(async move {
        let asking = core.servers.iter().map(|server| {
            let key = &key;
            async move {
                let answer = checked(server.call(&Command::Info(key)).await, &server.name);
                ServerAnswer {
                    server: server.name.clone(),
                    answer: answer.and_then(Read::read),
                }
            }
        });
        futures_util::future::join_all(asking).await
    })
}

pub(crate) fn top_on_each(core: Arc<Core>, count: usize) -> Answers<Vec<TopEntry>> {
    Box::pin(async move {
        let asking = core.servers.iter().map(|server| async move {
            let answers = server.call_each(&Command::Top(count)).await;
            let lists = answers.into_iter().map(|it| checked(it, &server.name));
            let all = lists.collect::<Result<Vec<Reply>, Error>>();
            ServerAnswer {
                server: server.name.clone(),
                answer: all.and_then(|all| TopEntry::first(all, count)),
            }
        });
        futures_util::future::join_all(asking).await
    })
}
