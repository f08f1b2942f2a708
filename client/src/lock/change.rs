//! Upgrades and downgrades of a hold on one server. They only ever change a hold that is there; one whose outcome is unknown
//! ends it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::lock::hold::Lost;
use crate::lock::retry::{Retries, WaitLimit};
use crate::lock::server_hold::State;
use crate::lock::{Failed, Hold, Request, ServerHold};
use crate::net::{sleep_until, task};
use crate::value::{BootInstant, ChangeFailed, Error, Lease, Loss, Mode, Token};
use crate::wire::command::Acquire;
use crate::wire::{Change, Verb};

/// A change of a hold on its way. Dropped before it is decided, it has an unknown outcome, which ends the hold.
pub(super) struct Changing<'a> {
    hold: &'a ServerHold,
    pub(super) is_decided: bool,
}

impl Changing<'_> {
    pub(super) fn begin(hold: &ServerHold, change: Change) -> Changing<'_> {
        hold.update(|state| state.belief.set_change(Some(change)));
        Changing {
            hold,
            is_decided: false,
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.hold.update(|state| {
            state.belief.set_change(None);
            if !self.is_decided {
                state.belief.lose(Loss::Unknown);
            }
        });
    }
}

impl ServerHold {
    /// Makes a hold that reads one that writes, unless it does. A wait of zero does not wait for others.
    pub(crate) async fn upgrade(
        self: &Arc<Self>,
        wait: Option<Duration>,
    ) -> Result<(), ChangeFailed> {
        let limit = WaitLimit::new(wait, BootInstant::now());
        let Some(_change) = limit.wait_for(pin!(self.changes.lock())).await else {
            let error = limit.busy(BootInstant::now());
            let left = self.loss().is_none().then_some(Mode::Read);
            return Err(ChangeFailed { error, left });
        };
        self.check()?;
        if self.mode() == Mode::Write {
            return Ok(());
        }
        // A hold that is lost is left, and its requests with it: then no letter comes.
        let lost = Lost::of(self.clone());
        let failed = match select(lost, pin!(self.ask_to_write(limit))).await {
            Either::Left((loss, _)) => Error::Lost(loss),
            Either::Right((Ok(()), _)) => return Ok(self.check().map(drop)?),
            Either::Right((Err(error), _)) => error,
        };
        if let Error::Busy { .. } = failed {
            // Null may also mean that nothing is held any more.
            let _ = self.renew(None).await;
        }
        let left = self.loss().is_none().then_some(Mode::Read);
        let error = self.explain(failed);
        Err(ChangeFailed { error, left })
    }

    async fn ask_to_write(self: &Arc<Self>, limit: WaitLimit) -> Result<(), Error> {
        let mut retries = Retries::new(limit, false);
        let mut upgrading = Changing::begin(self, Change::Upgrade);
        loop {
            let now = BootInstant::now();
            let verb = self.update(|state| {
                Ok::<_, Error>(self.acquire(
                    Mode::Write,
                    state.belief.lease_to_ask(None, now)?,
                    state.belief.token(),
                ))
            })?;
            let wait = limit.to_queue(now);
            upgrading.is_decided = false;
            let mut request = Request::acquiring(&self.core, &self.name, verb, wait)?;
            let granted = request.granted().await;
            upgrading.is_decided = !matches!(granted, Err(Failed::Unknown(_)));
            if request.was_queued() {
                retries.on_queued();
            }
            let error = match granted {
                Ok(grant) => {
                    self.update(|state| {
                        state.belief.upgrade(grant);
                        state.mode = Mode::Write;
                    });
                    return Ok(());
                }
                Err(Failed::Denied) => return Err(limit.busy(BootInstant::now())),
                Err(Failed::Unknown(error)) => return Err(error),
                Err(Failed::Refused(error)) => error,
            };
            let pause = retries.after_refusal(error, BootInstant::now())?;
            self.core.pause(pause).await;
        }
    }

    /// Makes a hold that writes, and whose guards only read, one that reads: in the background, whether or not that is
    /// waited for.
    pub(crate) fn downgrade(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let is_due = self.update(|state| state.is_to_read());
        let hold = self.clone();
        let task = is_due.then(|| {
            let runtime = &self.core.runtime;
            task::spawn(runtime, async move { hold.downgrade_in_turn().await })
        });
        async move {
            match task {
                Some(task) => task.await.unwrap_or(Err(Error::RuntimeGone)),
                None => Ok(()),
            }
        }
    }

    async fn downgrade_in_turn(self: &Arc<Self>) -> Result<(), Error> {
        let _change = self.changes.lock().await;
        let asked = self.update(|state| {
            let is_to_read = state.is_to_read();
            let lease = state.belief.lease_to_ask(None, BootInstant::now());
            is_to_read.then_some(lease.map(|lease| self.to_read(state, lease)))
        });
        let Some(verbs) = asked else {
            return Ok(());
        };
        for verb in verbs? {
            let granted = Request::new(&self.core, &self.name, verb).granted().await;
            // Refused, it writes as before.
            granted.map_err(|failed| self.explain(self.not_changed(failed)))?;
        }
        self.update(|state| (state.mode, state.has_reads) = (Mode::Read, true));
        Ok(())
    }

    /// What makes it a reader. If it was one before, as many reads as it had are still there: nobody here may know how many
    /// permits a hold has that was taken over.
    fn to_read(&self, state: &State, lease: Lease) -> Vec<Verb> {
        let token = state.belief.token();
        let reads = (!state.has_reads).then(|| self.acquire(Mode::Read, lease, token));
        let lowers = Verb::LowerWrites { to: 0, token };
        reads.into_iter().chain([lowers]).collect()
    }

    /// What asks for the hold of this token in a mode.
    fn acquire(&self, mode: Mode, lease: Lease, token: Token) -> Verb {
        Verb::Acquire(Acquire {
            mode,
            lease,
            permits: self.permits.filter(|_| mode == Mode::Read),
            fence: None,
            upgrades: Some(token),
        })
    }
}

impl WaitLimit {
    /// Waits for something else than the server, which must not take longer either.
    pub(crate) async fn wait_for<T>(self, future: impl Future<Output = T> + Unpin) -> Option<T> {
        let Some(end) = self.end() else {
            return Some(future.await);
        };
        let end = pin!(sleep_until(end));
        match select(future, end).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }
}
