//! Acquiring, in the caller's future.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lock::attempt::Granted;
use crate::lock::pass::take_over;
use crate::lock::retry::{Retries, WaitLimit};
use crate::lock::server_hold::on_one_server;
use crate::lock::{
    Ask, Core, Failed, Guard, Hold, Lock, Owner, Share, Source, Terms, attempt, trace,
};
use crate::value::{BootInstant, Error, Lease, Loss, Mode, Names};
use crate::wire::Name;
use crate::wire::command::Acquire;

impl Terms {
    /// The lease to ask for: no longer than the lock may be held.
    pub(crate) fn limited_lease(&self) -> Result<Lease, Error> {
        let lease = Lease::of_a_hold(self.lease)?;
        match self.max_hold {
            Some(limit) if limit < Duration::from_millis(1) => Err(Error::Invalid(format!(
                "a lock is held for at least a millisecond, not {limit:?}"
            ))),
            Some(limit) => Ok(lease.limited(limit)),
            None => Ok(lease),
        }
    }

    /// What a server is asked for.
    pub(crate) fn ask(&self, mode: Mode, lease: Lease) -> Ask {
        Ask {
            acquire: Acquire {
                mode,
                lease,
                permits: self.permits,
                fence: None,
                upgrades: None,
            },
            wait: None,
            max_hold: self.max_hold,
            at_least: self.at_least,
            renews: self.renews,
            is_part: false,
        }
    }

    /// These terms for a request that may wait only for what is left of `limit`.
    fn for_the_rest_of(&self, limit: WaitLimit) -> Terms {
        Terms {
            wait: limit.end().map(BootInstant::remaining),
            ..self.clone()
        }
    }
}

impl Lock {
    pub(super) async fn take(&self, mode: Mode, wait: Option<Duration>) -> Result<Guard, Error> {
        let started = BootInstant::now();
        let terms = Terms {
            wait,
            ..self.terms.clone()
        };
        let taking = async {
            match &self.owner {
                None => {
                    let (source, names) = (self.source.clone(), self.source.names());
                    source.take(names, &terms, mode).await
                }
                Some(owner) => self.take_for(owner, &terms, mode).await,
            }
        };
        let result = trace::acquiring(&terms.key, mode, taking).await;
        match &result {
            Ok(guard) => trace::granted(&terms.key, guard.mode(), guard.token(), started.elapsed()),
            Err(error) => trace::refused(&terms.key, mode, error),
        }
        result
    }

    /// Takes it for a named task, which may have it already.
    async fn take_for(&self, owner: &Owner, terms: &Terms, mode: Mode) -> Result<Guard, Error> {
        self.source.check_open()?;
        let limit = WaitLimit::new(terms.wait, BootInstant::now());
        let client = Arc::as_ptr(&self.source).addr();
        let key = owner.key(client, &terms.key);
        // Another task of this owner may be acquiring it. The wait for that task counts against the limit.
        let mut owned = match self.is_reentrant {
            true => {
                let owned = limit.wait_for(pin!(key.lock())).await;
                owned.ok_or_else(|| limit.busy(BootInstant::now()))?
            }
            false => key.try_lock().map_err(|_| Error::AlreadyHeld)?,
        };
        if let Some(hold) = owned.as_ref().and_then(|hold| hold.upgrade())
            && hold.loss().is_none()
        {
            if !self.is_reentrant || terms.permits.is_some() || terms.passed.is_some() {
                return Err(Error::AlreadyHeld);
            }
            match enter(hold, &terms.for_the_rest_of(limit), mode).await {
                // It was given back meanwhile.
                Err(Error::Lost(Loss::Released)) => {}
                entered => return entered,
            }
        }
        let source = self.source.clone();
        let guard = source
            .take(owner.names(), &terms.for_the_rest_of(limit), mode)
            .await?;
        *owned = Some(Arc::downgrade(&guard.hold));
        Ok(guard)
    }
}

/// Enters a hold again: that is counted here, the servers see one hold.
async fn enter(hold: Arc<dyn Hold>, terms: &Terms, mode: Mode) -> Result<Guard, Error> {
    let lease = Lease::of_a_hold(terms.lease)?;
    let renews = terms.renews;
    let share = Share { mode, renews };
    // Before anything is awaited: no downgrade begins while somebody is to write.
    let entering = Guard::of(hold.clone(), share, None)?;
    match on_one_server(&hold) {
        // Waits for a downgrade that has begun.
        Ok(hold) if mode == Mode::Write => hold.upgrade(terms.wait).await?,
        Err(error) if mode == Mode::Write && hold.mode() == Mode::Read => return Err(error),
        _ => {}
    }
    let cap = terms.max_hold.map(|max| BootInstant::now() + max);
    let guard = Guard::of(hold.clone(), share, cap)?;
    drop(entering);
    // The servers have to say that it is still there, and for as long as is asked for.
    hold.renew(Some(lease)).await?;
    Ok(guard)
}

impl Source for Core {
    fn check_open(&self) -> Result<(), Error> {
        Core::check_open(self)
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn take<'a>(
        self: Arc<Self>,
        names: &'a Names,
        terms: &'a Terms,
        mode: Mode,
    ) -> BoxFuture<'a, Result<Guard, Error>> {
        async move { take_one(&self, names, terms, mode).await }.boxed()
    }
}

async fn take_one(
    core: &Arc<Core>,
    names: &Names,
    terms: &Terms,
    mode: Mode,
) -> Result<Guard, Error> {
    match &terms.passed {
        Some(passed) => take_over(core, names, terms, passed).await,
        None => take(core, names, terms, mode).await,
    }
}

/// Asks again and again, each time under a new name, until it is granted or the wait is over.
pub(super) async fn take<T: Granted>(
    core: &Arc<Core>,
    names: &Names,
    terms: &Terms,
    mode: Mode,
) -> Result<T, Error> {
    let limit = WaitLimit::new(terms.wait, BootInstant::now());
    let lease = terms.limited_lease()?;
    let mut retries = Retries::new(limit, core.endpoint.fails_over());
    loop {
        core.endpoint.prepare().await;
        core.check_open()?;
        let name = Name {
            key: terms.key.clone(),
            owner: names.next(),
            keys: terms.keys.clone(),
        };
        let ask = Ask {
            wait: limit.to_queue(BootInstant::now()),
            ..terms.ask(mode, lease)
        };
        let attempted = attempt(core, &name, ask).await;
        if attempted.was_queued {
            retries.on_queued();
            trace::waited();
        }
        let failed = match attempted.result {
            Ok(granted) => match confirm(&granted, lease).await {
                Ok(()) => return Ok(granted),
                Err(error) => Failed::Unknown(error),
            },
            Err(failed) => failed,
        };
        core.pause(retries.after(failed, BootInstant::now())?).await;
    }
}

/// The letter may arrive late. If more than half of the lease is gone, the server has to confirm that the hold is still there.
async fn confirm(granted: &impl Granted, lease: Lease) -> Result<(), Error> {
    for guard in granted.guards() {
        let hold = guard.on_one_server()?;
        if hold.confirmed().elapsed() <= lease.duration() / 2 {
            continue;
        }
        match hold.renew(None).await {
            // It has gone, and may be asked for again.
            Err(Error::NotHeld | Error::Lost(_)) => return Err(Error::Lost(Loss::Expired)),
            confirmed => confirmed?,
        }
    }
    Ok(())
}
