//! A client of one server.

use std::sync::Arc;

use crate::builder::{Builder, IntoServer};
use crate::core::Core;
use crate::error::Error;
use crate::info::{LockInfo, TopEntry};
use crate::lock::Lock;

/// Whatever locks can be taken from: one server ([`Client`]) or a quorum of several ([`Quorum`](crate::Quorum)). Code
/// that asks for this can switch.
pub trait Locks: std::fmt::Debug + Send + Sync {
    /// The lock with this key. Nothing is sent yet.
    fn lock_of(&self, key: &[u8]) -> Lock;

    /// The lock with this key, which may be anything made of bytes.
    fn lock(&self, key: impl AsRef<[u8]>) -> Lock
    where
        Self: Sized,
    {
        self.lock_of(key.as_ref())
    }
}

impl Locks for Client {
    fn lock_of(&self, key: &[u8]) -> Lock {
        Lock::new(self.core.clone(), key)
    }
}

/// A client of one server, or of what counts as one: a Sentinel group, a cluster. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    pub(crate) fn new(core: Arc<Core>) -> Client {
        Client { core }
    }

    /// Connects to a server: `redis://127.0.0.1/`, `unix:///run/redis.sock`, with the feature `tls` `rediss://…`, or
    /// anything else that is [`IntoServer`].
    ///
    /// Tasks run on the runtime this is called in, and the client lives no longer than that.
    ///
    /// # Errors
    /// [`Error::Connection`] if the server cannot be reached, [`Error::NoModule`] if it does not have the module.
    pub async fn connect(server: impl IntoServer) -> Result<Client, Error> {
        Builder::new(server)?.connect().await
    }

    /// Settings, for a client of `server`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address cannot be understood.
    pub fn builder(server: impl IntoServer) -> Result<Builder, Error> {
        Builder::new(server)
    }

    /// The lock with this key. Nothing is sent yet.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
    }

    /// Who holds a lock and who waits for it, at most 100 of each; `None` if nobody does.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::NoModule`], [`Error::Refused`].
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        let mut cmd = redis::cmd("LOCK.INFO");
        cmd.arg(key.as_ref());
        LockInfo::parse(self.ask(cmd).await?)
    }

    /// The locks with the most waiters now, at most `count`, the longest queue first.
    ///
    /// # Errors
    /// As for [`info`](Client::info).
    pub async fn top(&self, count: usize) -> Result<Vec<TopEntry>, Error> {
        let mut cmd = redis::cmd("LOCK.TOP");
        cmd.arg("COUNT").arg(count);
        TopEntry::parse(self.ask(cmd).await?)
    }

    async fn ask(&self, cmd: redis::Cmd) -> Result<redis::Value, Error> {
        let node = self.core.nodes[0].clone();
        let task = self.core.runtime.spawn(async move { node.ask(&cmd).await });
        task.await.map_err(|_| Error::Closed)?
    }
}
