//! A guard's part in a hold, taken and given back; and a view of it for whoever works under the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::proto::{Round, Vote};
use crate::run::{Hold, change};
use crate::value::{BootInstant, ChangeFailed, Error, Loss, Mode, Released, Token};

/// One guard's part in a hold; dropped, it is given back in the background.
pub(crate) struct Part {
    pub(crate) held: Held,
    renews: bool,
    is_released: bool,
}

/// What is left of a hold.
enum Left {
    Nothing,
    /// Readers, of one that writes.
    Readers,
    Guards,
}

impl Part {
    /// The first one.
    pub(crate) fn new(hold: Arc<Hold>, mode: Mode, renews: bool) -> Part {
        Part {
            held: Held { hold, mode },
            renews,
            is_released: false,
        }
    }

    /// Another one, of a hold that ends by then.
    pub(crate) fn join(
        hold: &Arc<Hold>,
        mode: Mode,
        renews: bool,
        cap: Option<BootInstant>,
    ) -> Result<Part, Error> {
        hold.with(|state| {
            if let Some(loss) = state.belief.loss(BootInstant::now()) {
                return Err(Error::Lost(loss));
            }
            state.guards += 1;
            state.writers += u32::from(mode == Mode::Write);
            state.renewing += u32::from(renews);
            state.belief.limit(cap);
            Ok(())
        })?;
        hold.reschedule();
        Ok(Part::new(hold.clone(), mode, renews))
    }

    fn take_back(&mut self) -> Left {
        self.is_released = true;
        self.held.hold.with(|state| {
            state.guards -= 1;
            state.renewing -= u32::from(self.renews);
            state.writers -= u32::from(self.held.mode == Mode::Write);
            match (state.guards, state.writers) {
                (0, _) => Left::Nothing,
                (_, 0) if state.writes && self.held.mode == Mode::Write => Left::Readers,
                _ => Left::Guards,
            }
        })
    }

    fn set_mode(&mut self, mode: Mode) {
        self.held.mode = mode;
        self.held.hold.with(|state| match mode {
            Mode::Write => state.writers += 1,
            Mode::Read => state.writers -= 1,
        });
    }

    pub(crate) async fn upgrade(&mut self, wait: Option<Duration>) -> Result<(), ChangeFailed> {
        let hold = self.held.hold.clone();
        let _turn = hold.turn.lock().await;
        change::upgrade(&hold, wait).await?;
        if self.held.mode == Mode::Read {
            self.set_mode(Mode::Write);
        }
        Ok(())
    }

    pub(crate) async fn downgrade(&mut self) -> Result<(), ChangeFailed> {
        let gone = |error| ChangeFailed { error, left: None };
        self.held.check()?;
        if self.held.mode == Mode::Read {
            return Ok(());
        }
        // Before anything is sent: what is believed is never more than what is held.
        self.set_mode(Mode::Read);
        let changed = change::downgrade(&self.held.hold).await;
        match (changed, self.held.check()) {
            (Ok(()), held) => held.map(drop).map_err(gone),
            (Err(error), Err(_)) => Err(gone(error)),
            (Err(error), Ok(_)) => {
                self.set_mode(Mode::Write);
                let left = Some(Mode::Write);
                Err(ChangeFailed { error, left })
            }
        }
    }

    /// Gives it back, and what is left of the hold where it was the last one.
    pub(crate) async fn release(mut self) -> Result<Released, Error> {
        let changed = match self.take_back() {
            Left::Nothing => return release(&self.held.hold).await,
            Left::Readers => change::downgrade(&self.held.hold).await,
            Left::Guards => Ok(()),
        };
        match self.held.hold.loss() {
            Some(_) => Ok(Released::Lost),
            None => changed.map(|()| Released::Held),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        match self.take_back() {
            Left::Nothing => drop(self.held.hold.release()),
            Left::Readers => drop(change::downgrade(&self.held.hold)),
            Left::Guards => {}
        }
    }
}

async fn release(hold: &Hold) -> Result<Released, Error> {
    let mut releasing = hold.release();
    if releasing.count() == 0 {
        return Ok(Released::Lost);
    }
    let mut round = Round::new(hold.core.servers.len());
    let (all, majority) = (round.len(), round.majority());
    // Where it is not, there is nothing to be released.
    let (mut held, mut lost, mut unknown) = (0, all - releasing.count(), 0);
    while let Some((server, released)) = releasing.next().await {
        match released {
            Ok(Released::Held) => held += 1,
            Ok(Released::Lost) => lost += 1,
            Ok(Released::Unknown) => unknown += 1,
            // It is said again in the background.
            Err(error) => round[server] = Vote::Unknown(error),
        }
        if held >= majority {
            return Ok(Released::Held);
        }
        if lost > all - majority {
            return Ok(Released::Lost);
        }
    }
    match held + lost + unknown >= majority {
        true => Ok(Released::Unknown),
        false => Err(hold.core.error_of(&round, held)),
    }
}

/// A view of a lock that is held: what to check, and what to hand on. It does not keep the lock.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("a").acquire().await?;
/// let held = guard.held();
/// let worker = tokio::spawn(async move {
///     if held.is_valid() { /* … write with held.token() … */ }
/// });
/// # worker.await.expect("no panic");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Held {
    pub(crate) hold: Arc<Hold>,
    pub(crate) mode: Mode,
}

impl Held {
    /// The key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.key(), b"a");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.hold.name.key
    }

    /// The owner's name as the server knows it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(guard.owner().len() > 36, "the UUID of the client or task, and a number");
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.hold.name.owner
    }

    /// How the lock is held.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.mode(), mortise_client::Mode::Write);
    /// # Ok(())
    /// # }
    /// ```
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token: larger than that of every earlier grant. An upgrade brings a new one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// println!("UPDATE … WHERE fence <= {}", guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> Token {
        self.hold.with(|state| state.belief.token)
    }

    /// Until when the lock may be believed to be held, if it is not renewed again: the moment the last confirmed request
    /// was *sent*, plus the lease, minus a hundredth of it and 2 ms for clocks that run apart.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("a").lease(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.deadline().remaining() <= Duration::from_millis(10_000 - 102));
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(&self) -> BootInstant {
        self.hold.with(|state| state.belief.deadline())
    }

    /// That the lock is still held, and its token: what is to be sent along with a write. Asked right before it, because a
    /// lease is no fence.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// let fence = guard.check()?;
    /// assert_eq!(fence, guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<Token, Error> {
        self.hold
            .with(|state| match state.belief.loss(BootInstant::now()) {
                Some(loss) => Err(Error::Lost(loss)),
                None => Ok(state.belief.token),
            })
    }

    /// Whether the lock may be believed to be held now. Once `false`, always `false`.
    ///
    /// A process that was stopped, or a machine that was suspended, for longer than the lease sees `false` at once: the
    /// clock is looked at here, and it does not stand still meanwhile. Between this answer and what is done with it,
    /// time may pass all the same; that is what the [`token`](Held::token) is for.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.hold.loss().is_none()
    }

    /// Why the lock is lost, or `None` while it is not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.loss(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// Waits until the lock is lost or released; at the deadline at the latest.
    ///
    /// # Cancel safety
    /// Made for `select`: the future borrows nothing and can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn job() {}
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("job").acquire().await?;
    /// tokio::select! {
    ///     _ = job() => {}
    ///     loss = guard.lost() => eprintln!("stopped: {loss}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + use<> {
        self.hold.clone().lost()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f.debug_struct("Held"))
    }
}

impl Held {
    /// For the guard, too.
    pub(crate) fn write(&self, mut out: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        out.field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", &String::from_utf8_lossy(self.owner()))
            .field("mode", &self.mode)
            .field("token", &self.token())
            .field("remaining", &self.deadline().remaining())
            .field("loss", &self.loss())
            .finish()
    }
}
