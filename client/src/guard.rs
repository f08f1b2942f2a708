//! A held lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Loss};
use crate::hold::Hold;
use crate::name::{Mode, text};
use crate::request;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// A held lock. It is renewed while the guard lives, and released when it is dropped.
///
/// The guard counts the lock as held until its [`deadline`](Guard::deadline), which each renewal moves. If no renewal is confirmed
/// before, or the server says that the lock is gone, the guard is lost and stays so.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// println!("write with fencing token {}", guard.check()?);
/// guard.release().await?; // an error if the lock was lost meanwhile
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard(Arc<Held>);

/// What the guards of a hold share. Dropped, the hold is released in the background.
struct Held(Arc<Hold>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.end(Loss::Released);
        self.0.leave();
    }
}

impl Guard {
    /// Returns a guard of `hold`. Renews it first if the grant came late, or if replicas have to confirm it. On an error, the
    /// servers are asked to remove the hold.
    pub(crate) async fn new(hold: Arc<Hold>) -> Result<Guard, Error> {
        let guard = Guard(Arc::new(Held(hold)));
        let (hold, core) = (guard.hold(), &guard.hold().core);
        // If `close` ran before it could find this hold, the error drops the guard, and that gives the hold back.
        core.check_open()?;
        // The letter may have been late. Past half of the lease, the server has to confirm that the hold is still there. Where
        // replicas have to, nothing else counts.
        let lease = hold.terms.lease;
        let newest = lease.believed_until(BootInstant::now());
        let is_late = newest.since(guard.deadline()) > lease.duration() / 2;
        if is_late || core.settings.replicas > 0 {
            hold.renew().await?;
        }
        Ok(guard)
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.0.0
    }

    /// Returns the fencing token: larger than those of all earlier holders. Whatever the lock protects should refuse a smaller one
    /// than the largest it has seen. An upgrade changes it.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let first = client.lock("a").acquire().await?;
    /// let second = client.lock("b").acquire().await?;
    /// assert!(second.token() > first.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> Token {
        self.hold().belief(|belief| belief.token)
    }

    /// Returns the token if the lock is held now.
    ///
    /// # Errors
    /// [`Error::Lost`] with the reason.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// println!("UPDATE … WHERE fence <= {}", guard.check()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<Token, Error> {
        self.hold().check()
    }

    /// Returns whether the lock is held now.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::Guard) {
    /// assert!(guard.is_valid());
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns until when the lock counts as held, unless it is renewed or lost before.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::Guard) {
    /// println!("{:?} left", guard.deadline().remaining());
    /// # }
    /// ```
    pub fn deadline(&self) -> BootInstant {
        self.hold().belief(|belief| belief.deadline())
    }

    /// Returns why the lock is lost, if it is.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::Guard) {
    /// assert_eq!(guard.loss(), None);
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.hold().loss()
    }

    /// Resolves once the lock is lost: at its deadline at the latest. The future does not keep the lock.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard, work: impl Future<Output = ()>) {
    /// tokio::select! {
    ///     () = work => println!("done"),
    ///     loss = guard.lost() => println!("stopped: {loss}"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let hold = self.hold().clone();
        async move { hold.lost().await }
    }

    /// Renews the lock now. It is renewed by itself, unless [`Lock::auto_renew`](crate::Lock::auto_renew) says otherwise.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Connection`] and others where it may still be held until its deadline.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// guard.renew().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        self.hold().renew().await
    }

    /// Makes a reader a writer: waits until the other readers have left, ahead of the queue, for as long as the lock's
    /// [`wait`](crate::Lock::wait) says.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::Deadlock`] leave it a reader. If the outcome is unknown ([`Error::Connection`], a dropped
    /// future), the lock is lost.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// guard.upgrade().await?;
    /// println!("now by token {}", guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn upgrade(&self) -> Result<(), Error> {
        self.hold().upgrade().await
    }

    /// Makes a writer a reader: readers that wait are granted the lock, too. The token stays.
    ///
    /// # Errors
    /// As for [`upgrade`](Guard::upgrade); a refused request leaves it a writer.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// guard.downgrade().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(&self) -> Result<(), Error> {
        self.hold().downgrade().await
    }

    /// Returns another guard of the same hold, which ends with the last of its guards.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// let inner = guard.reenter();
    /// guard.release().await?;
    /// assert!(inner.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Guard {
        Guard(self.0.clone())
    }

    /// Gives the lock back, and keeps others out for `time` from now all the same: for work that must not run more often.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Refused`] where the server does not grant leases as long as `time` (`lock.max-lease`);
    /// [`Error::Connection`] where the outcome is unknown. After these nobody keeps it: it is free as soon as its servers answer.
    /// [`Error::Invalid`] while it has other guards.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// // Nobody sends this mail again within the hour.
    /// guard.keep_for(std::time::Duration::from_secs(3600)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn keep_for(self, time: Duration) -> Result<(), Error> {
        let lease = Lease::new(time)?;
        if Arc::strong_count(&self.0) > 1 {
            return Err(Error::Invalid(
                "the lock has another guard, which would lose it".into(),
            ));
        }
        self.hold().keep_for(lease).await
    }

    /// Runs a command on the lock's server if, at that moment, the lock is held by this token: for data on that server, the lock is
    /// a fence. Returns its reply. If several keys were taken together, the server looks at the first.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is not held; nothing was run. [`Error::Refused`] with the server's error, also that of the
    /// command.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::redis;
    ///
    /// let guard = client.lock("{stock:42}").acquire().await?;
    /// let reply = guard.guarded(redis::cmd("DECR").arg("{stock:42}:count")).await?;
    /// assert_eq!(reply, redis::Value::Int(-1));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn guarded(&self, command: &redis::Cmd) -> Result<redis::Value, Error> {
        let (hold, core) = (self.hold(), &self.hold().core);
        let place = match hold.one_place() {
            Err(error) if core.settings.is_quorum() => return Err(error),
            _ => hold.places().remove(0),
        };
        let token = self.check()?;
        let guarded = request::guard(&place.key, &hold.owner, token, command);
        let reply = core.servers.call(&place, &guarded, core.settings.reply);
        let lost = Error::Lost(Loss::Denied);
        match reply.await.map_err(|failed| failed.error(lost.clone())) {
            Err(Error::Refused { code, .. }) if code == "NOTHELD" => {
                // An upgrade may have given it a token that this client has not read yet. A renewal shows whether it is held.
                if hold.renew_once().await.is_err() {
                    hold.end(Loss::Denied);
                }
                Err(lost)
            }
            reply => Ok(reply?.value),
        }
    }

    /// Gives the lock to another owner, for `lease` from now, without anybody else getting it in between: a job is locked when it is
    /// queued, and whoever runs it [takes it over](crate::Lock::take_over). Returns the new token. This guard is lost from the moment
    /// that the request is sent.
    ///
    /// # Errors
    /// A refusal leaves the lock held. If the outcome is unknown, neither has it.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// let token = guard.pass_to("job:7", std::time::Duration::from_secs(60)).await?;
    /// println!("queue the job with {token}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pass_to(&self, owner: impl AsRef<[u8]>, lease: Duration) -> Result<Token, Error> {
        let lease = Lease::new(lease)?;
        self.hold().pass_to(owner.as_ref().into(), lease).await
    }

    /// Releases the lock, and waits until the server has confirmed that. If it has other guards, only this one ends.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was not held to the end. After any other error the lock is released in the background.
    ///
    /// ```no_run
    /// # async fn example(guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        let checked = self.check().map(drop);
        match Arc::into_inner(self.0) {
            Some(held) => held.0.release().await,
            None => checked,
        }
    }

    /// Runs `work` under the lock, and releases it. If the lock is lost before the work is done, the work is cancelled. It
    /// gets a guard of its own, which it must not keep.
    ///
    /// # Errors
    /// The error of the work; [`Error::Lost`] if the lock was lost before it was done.
    ///
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use mortise_client::Error;
    ///
    /// let readers = client.lock("report").read().await?;
    /// readers.run(|guard| async move { Ok::<_, Error>(println!("by token {}", guard.check()?)) }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, E, F>(self, work: impl FnOnce(Guard) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let inner = self.reenter();
        let done = self.hold().unless_lost(work(inner)).await??;
        self.release().await?;
        Ok(done)
    }

    /// Returns how the lock is held.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::Guard) {
    /// assert_eq!(guard.mode(), mortise_client::Mode::Write);
    /// # }
    /// ```
    pub fn mode(&self) -> Mode {
        self.hold().belief(|belief| belief.mode)
    }

    /// Returns the key, or the first of several.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::Guard) {
    /// assert_eq!(guard.key(), b"stock:42");
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.hold().key
    }

    /// Returns the owner's name on the server: another one for each acquisition.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::Guard) {
    /// println!("{}", String::from_utf8_lossy(guard.owner()));
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.hold().owner
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &text(self.key()))
            .field("owner", &text(self.owner()))
            .field("mode", &self.mode())
            .field("token", &self.token())
            .field("loss", &self.loss())
            .finish()
    }
}
