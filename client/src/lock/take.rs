//! Taking a lock.

use std::time::Duration;

use crate::lock::{Guard, Held, Lock};
use crate::value::{Error, Mode};

impl Lock {
    /// Takes the lock for writing: alone.
    ///
    /// # Errors
    /// [`Error::Busy`] if others held it for as long as the wait may last, [`Error::Deadlock`], [`Error::AlreadyHeld`],
    /// [`Error::NoQuorum`], [`Error::NoModule`], [`Error::Refused`] with the server's error,
    /// [`Error::Invalid`] for a lease below a millisecond, [`Error::Connection`]; [`Error::Lost`] if the lock was granted,
    /// and its lease over before the guard could be handed out.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves neither lock nor place in the queue behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("stock:42").acquire().await?;
    /// // … only this task is here …
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.take(Mode::Write, self.terms.wait).await
    }

    /// Takes the lock for writing if it is free now; `None` if others hold it or queue for it.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire), but never [`Error::Busy`].
    ///
    /// # Cancel safety
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("job");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_take(Mode::Write).await
    }

    /// Takes the lock for writing; the same as [`acquire`](Lock::acquire).
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Mode;
    ///
    /// let guard = client.lock("report").write().await?;
    /// assert_eq!(guard.mode(), Mode::Write);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write(&self) -> Result<Guard, Error> {
        self.acquire().await
    }

    /// The same as [`try_acquire`](Lock::try_acquire).
    ///
    /// # Errors
    /// As for [`try_acquire`](Lock::try_acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let reader = lock.read().await?;
    /// assert!(lock.try_write().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire().await
    }

    /// Takes the lock for reading: together with other readers.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let (one, two) = (lock.read().await?, lock.read().await?);
    /// assert!(one.is_valid() && two.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(&self) -> Result<Guard, Error> {
        self.take(Mode::Read, self.terms.wait).await
    }

    /// Takes the lock for reading if no writer holds it or queues for it now.
    ///
    /// # Errors
    /// As for [`try_acquire`](Lock::try_acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let writer = lock.write().await?;
    /// assert!(lock.try_read().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.try_take(Mode::Read).await
    }

    /// Runs `work` under the lock, taken for writing: cancels it when the lock is lost, and always releases.
    ///
    /// Its value comes back only if the lock was held to the end.
    ///
    /// # Errors
    /// What `work` fails with. As for [`acquire`](Lock::acquire), and [`Error::Lost`] if the lock was lost before `work` had
    /// ended, made into its kind of error.
    ///
    /// ```no_run
    /// # async fn charge(order: u64, fence: u64) -> Result<(), mortise_client::Error> { Ok(()) }
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// client.lock("order:7").run(|held| async move { charge(7, held.check()?.get()).await }).await
    /// # }
    /// ```
    pub async fn run<T, E, F>(&self, work: impl FnOnce(Held) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.acquire().await?.run(work).await
    }

    /// Like [`run`](Lock::run), under the lock taken for reading.
    ///
    /// # Errors
    /// As for [`run`](Lock::run).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Error;
    ///
    /// let lock = client.lock("report");
    /// let length = lock.run_read(|_| async { Ok::<_, Error>("the report".len()) }).await?;
    /// assert_eq!(length, 10);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_read<T, E, F>(&self, work: impl FnOnce(Held) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.read().await?.run(work).await
    }

    async fn try_take(&self, mode: Mode) -> Result<Option<Guard>, Error> {
        Error::unless_busy(self.take(mode, Some(Duration::ZERO)).await)
    }
}
