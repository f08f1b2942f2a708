//! What threads can take locks from, be it one server or a quorum.

use crate::api::client::{Answers, Locks as _};
use crate::blocking::lock::Lock;
use crate::blocking::park::{Source, wait};
use crate::proto::{LockInfo, ServerAnswer, TopEntry};

/// Whatever locks can be taken from: a [`Client`](crate::blocking::Client) or a [`Quorum`](crate::blocking::Quorum); see
/// [`crate::Locks`].
///
/// ```no_run
/// use mortise_client::Error;
/// use mortise_client::blocking::{Client, Locks};
///
/// fn job(locks: &impl Locks) -> Result<(), Error> {
///     locks.lock("job").run(|held| Ok(println!("as number {}", held.token())))
/// }
///
/// # fn main() -> Result<(), Error> {
/// job(&Client::connect("redis://127.0.0.1/")?)
/// # }
/// ```
pub trait Locks: std::fmt::Debug + Send + Sync + sealed::Locks {
    /// As [`crate::Locks::lock_of`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::blocking::Locks;
    ///
    /// let lock = client.lock_of(b"stock:42");
    /// # Ok(())
    /// # }
    /// ```
    fn lock_of(&self, key: &[u8]) -> Lock {
        Lock::new(self.source().clone(), key)
    }

    /// As [`crate::Locks::info_on_each`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::blocking::Locks;
    ///
    /// assert!(matches!(client.info_on_each(b"nobody's")[0].answer, Ok(None)));
    /// # Ok(())
    /// # }
    /// ```
    fn info_on_each(&self, key: &[u8]) -> Vec<ServerAnswer<Option<LockInfo>>> {
        each(self.source(), |it| it.info_on_each(key))
    }

    /// As [`crate::Locks::top_on_each`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::blocking::Locks;
    ///
    /// assert_eq!(client.top_on_each(10).len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    fn top_on_each(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        each(self.source(), |it| it.top_on_each(count))
    }

    /// As [`crate::Locks::lock`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::blocking::{Lock, Locks};
    ///
    /// fn stock(locks: &impl Locks, number: u32) -> Lock {
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

pub(super) mod sealed {
    use std::sync::Arc;

    use crate::blocking::park::Source;

    /// Others cannot implement it: it may grow.
    pub trait Locks {
        fn source(&self) -> &Arc<Source>;
    }
}

fn each<T>(source: &Source, ask: impl FnOnce(crate::Client) -> Answers<T>) -> Vec<ServerAnswer<T>> {
    match source.here() {
        Ok(client) => wait(ask(client)),
        Err(error) => vec![ServerAnswer::failed(error)],
    }
}
