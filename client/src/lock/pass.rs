//! Passing a hold on to another name, and taking over one that was passed on. From the moment a pass is sent nobody may rely
//! on the old hold; when its outcome is unknown, the client leaves both names.

use std::sync::Arc;
use std::time::Duration;

use crate::lock::attempt::{Armed, Granted};
use crate::lock::change::Changing;
use crate::lock::retry::{Retries, WaitLimit};
use crate::lock::{Core, Failed, Guard, Lock, Passed, Request, ServerHold, Terms};
use crate::value::{BootInstant, Error, Lease, Loss, Mode, Names, Token};
use crate::wire::{Change, Grant, Name, Verb};

impl ServerHold {
    async fn pass_to(self: &Arc<Self>, new_owner: &[u8], lease: Lease) -> Result<Token, Error> {
        let _change = self.changes.lock().await;
        let token = self.check()?;
        let new_name = Name::new(self.name.key.clone(), new_owner.into());
        let verb = Verb::Pass {
            new_owner: new_name.owner.clone(),
            lease,
            token,
        };
        // If the outcome is unknown, the client leaves by both names, so neither keeps a hold.
        let mut armed = Armed::new(&self.core, &new_name, lease.duration());
        armed.is_settled = false;
        let mut passing = Changing::begin(self, Change::Pass);
        let granted = Request::new(&self.core, &self.name, verb).granted().await;
        passing.is_decided = !matches!(granted, Err(Failed::Unknown(_)));
        armed.is_settled = passing.is_decided;
        // Refused, it is held as before.
        let grant = granted.map_err(|failed| self.not_changed(failed))?;
        self.lose(Loss::Passed);
        Ok(grant.token)
    }
}

impl Guard {
    /// Passes the lock on to another name, with that lease from now on; nobody is granted in between. Returns its new
    /// token: any process that knows it, and the name, goes on with [`Lock::take_over`]. So a job can be locked
    /// when it is queued, and if it is delivered twice only one of the two runners gets the lock.
    ///
    /// This passes on the whole hold, even if others share it by [re-entry](Lock::reentrant), and ends its
    /// [`at_least`](Lock::at_least). From the moment this is sent nobody may rely on the lock under its old name, so
    /// [`is_valid`](crate::Held::is_valid) is `false` from then on, and `true` again if the server refuses.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server passes nothing on now (`TRYAGAIN`, while it grants
    /// nothing), or the new owner holds the lock already: the guard is as before.
    /// [`Error::NotHeld`] and [`Error::Lost`] if the lock was lost; [`Error::Connection`] when the
    /// outcome is unknown: the client leaves both names, and the guard is lost.
    /// [`Error::NotOverQuorum`]: on one server only.
    ///
    /// # Cancel safety
    /// Dropped before the server has answered, it leaves both names: the guard is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::{Error, Loss};
    /// use std::time::Duration;
    ///
    /// let producer = client.lock("import:7").acquire().await?;
    /// let token = producer.pass_to("job:7", Duration::from_secs(600)).await?;
    /// assert_eq!(producer.loss(), Some(Loss::Passed));
    ///
    /// // Where the job runs, with what was put into it: the name and the token.
    /// let runner = client.lock("import:7").take_over("job:7", token).await?;
    /// assert!(runner.token() > token);
    /// let again = client.lock("import:7").take_over("job:7", token).await;
    /// assert!(matches!(again, Err(Error::NotHeld)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pass_to(
        &self,
        new_owner: impl AsRef<[u8]>,
        lease: Duration,
    ) -> Result<Token, Error> {
        let lease = Lease::new(lease)?;
        self.on_one_server()?
            .pass_to(new_owner.as_ref(), lease)
            .await
    }
}

impl Lock {
    /// Goes on with the lock that was passed on to the name `owner`, by that token ([`Guard::pass_to`]), under a new name
    /// and on this lock's terms. It is held to write or to read, as it was before. Of several that try, one gets it.
    ///
    /// A request whose answer is lost is repeated, within the limit of the wait
    /// ([`wait`](Lock::wait)).
    ///
    /// # Errors
    /// [`Error::NotHeld`] if that name does not hold the lock by that token, or no longer does.
    /// [`Error::AlreadyHeld`] if this lock's [`owner`](Lock::owner) has the key already.
    /// [`Error::NotOverQuorum`]: on one server only. Others as for [`acquire`](Lock::acquire).
    ///
    /// # Cancel safety
    /// Dropped while its outcome is unknown, it leaves the new name, and nobody has the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let reader = client.lock("report").read().await?;
    /// let token = reader.pass_to("job:8", Duration::from_secs(60)).await?;
    /// let runner = client.lock("report").take_over("job:8", token).await?;
    /// assert_eq!(runner.mode(), mortise_client::Mode::Read);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn take_over(&self, owner: impl AsRef<[u8]>, token: Token) -> Result<Guard, Error> {
        let mut lock = self.clone();
        let owner = owner.as_ref().into();
        lock.terms.passed = Some(Passed { owner, token });
        lock.take(Mode::Write, self.terms.wait).await
    }
}

/// A request to take a hold over, repeated under the same name, which nobody works under yet.
struct TakingOver<'a> {
    core: &'a Arc<Core>,
    name: &'a Name,
    passed: &'a Passed,
    lease: Lease,
    armed: Armed<'a>,
    /// An earlier one may have done it.
    may_be_done: bool,
}

/// What was taken over.
struct TakenOver {
    grant: Grant,
    mode: Mode,
}

impl TakingOver<'_> {
    /// Asks once.
    async fn attempt(&mut self) -> Result<TakenOver, Failed> {
        let verb = Verb::TakeOver {
            owner: self.passed.owner.clone(),
            lease: self.lease,
            token: self.passed.token,
        };
        let request = self.armed.send(verb, None).map_err(Failed::Refused)?;
        let mut granted = request.granted().await;
        if self.may_be_done && matches!(granted, Err(Failed::Denied)) {
            granted = self.ask(Verb::Renew(self.lease, None)).await;
        }
        self.may_be_done |= matches!(granted, Ok(_) | Err(Failed::Unknown(_)));
        let grant = granted?;
        // A writer may hold it several times. This crate's holds write once.
        let token = grant.token;
        let mode = match self.ask(Verb::LowerWrites { to: 1, token }).await {
            Ok(_) => Mode::Write,
            Err(Failed::Denied) => Mode::Read,
            Err(failed) => return Err(failed),
        };
        Ok(TakenOver { grant, mode })
    }

    async fn ask(&self, verb: Verb) -> Result<Grant, Failed> {
        Request::new(self.core, self.name, verb).granted().await
    }
}

pub(super) async fn take_over(
    core: &Arc<Core>,
    names: &Names,
    terms: &Terms,
    passed: &Passed,
) -> Result<Guard, Error> {
    let limit = WaitLimit::new(terms.wait, BootInstant::now());
    let lease = terms.limited_lease()?;
    let mut retries = Retries::new(limit, core.endpoint.fails_over());
    let name = Name::new(terms.key.clone(), names.next());
    let mut taking = TakingOver {
        core,
        name: &name,
        passed,
        lease,
        armed: Armed::new(core, &name, lease.duration()),
        may_be_done: false,
    };
    loop {
        core.endpoint.prepare().await;
        core.check_open()?;
        let attempted = taking.attempt().await;
        taking.armed.is_settled = !taking.may_be_done;
        let failed = match attempted {
            Ok(TakenOver { grant, mode }) => {
                let guard = Guard::new(core, &name, grant, &terms.ask(mode, lease))?;
                taking.armed.is_settled = true;
                return Ok(guard);
            }
            Err(Failed::Denied) => return Err(Error::NotHeld),
            Err(failed) => failed,
        };
        core.pause(retries.after(failed, BootInstant::now())?).await;
    }
}
