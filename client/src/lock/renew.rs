//! When and how a hold on one server is renewed: in the background while a guard wants that, or by a call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lock::holds::Scheduled;
use crate::lock::server_hold::State;
use crate::lock::{Failed, Request, ServerHold, trace};
use crate::value::{BootInstant, Error, Lease};
use crate::wire::{Denial, Verb};

impl ServerHold {
    /// Renews it by its own lease or another; the answer is late after a while.
    pub(super) async fn renew_within(
        &self,
        late: Duration,
        lease: Option<Lease>,
    ) -> Result<(), Error> {
        loop {
            let (lease, token) = self.update(|state| {
                let lease = state.belief.lease_to_ask(lease, BootInstant::now())?;
                Ok::<_, Error>((lease, state.belief.token_to_renew()))
            })?;
            let verb = Verb::Renew(lease, token);
            let request = Request::urgent(late, &self.core, &self.name, verb);
            return match request.resent_once().granted().await {
                Ok(grant) => {
                    self.update(|state| state.belief.confirm(grant));
                    trace::renewed();
                    self.check().map(drop)
                }
                Err(Failed::Denied) => match self.update(|state| state.belief.deny(token)) {
                    // By the new token it is there.
                    Denial::Stale => continue,
                    Denial::Lost => Err(Error::NotHeld),
                },
                Err(Failed::Refused(error)) => {
                    self.update(|state| state.belief.forget_longest_lease());
                    Err(self.explain(error))
                }
                Err(Failed::Unknown(error)) => Err(self.explain(error)),
            };
        }
    }
}

impl State {
    /// When the next renewal is due; `None` if there is none, or it is on its way.
    fn renewal_due(&self) -> Option<BootInstant> {
        let next = self.belief.next_renewal()?;
        let again = self.renewal.sent + self.belief.retry_pause();
        // An upgrade may wait for longer than the lease, even with `auto_renew(false)`.
        let is_wanted = self.shares.renewing > 0 || self.belief.is_upgrading();
        let is_idle = !self.renewal.is_in_flight;
        (is_wanted && is_idle).then_some(next.max(again))
    }

    pub(super) fn next_due(&self) -> BootInstant {
        let deadline = self.belief.deadline();
        self.renewal_due().map_or(deadline, |due| due.min(deadline))
    }
}

impl Scheduled for ServerHold {
    fn on_due(self: Arc<Self>) -> Option<BoxFuture<'static, Result<(), Error>>> {
        // The answer to a renewal is late after a third of the lease, while there is time for another connection.
        let late = self.update(|state| {
            state.due = None;
            let now = BootInstant::now();
            let is_due = state.renewal_due().is_some_and(|due| due <= now);
            is_due.then(|| {
                state.renewal.sent = now;
                state.renewal.is_in_flight = true;
                state.belief.renewal_period()
            })
        });
        let (hold, late) = (self, late?);
        let renewing = async move {
            let renewed = hold.renew_within(late, None).await;
            hold.update(|state| state.renewal.is_in_flight = false);
            match renewed {
                // That is reported otherwise.
                Err(Error::NotHeld | Error::Lost(_)) => Ok(()),
                other => other,
            }
        };
        Some(renewing.boxed())
    }

    fn close(&self) {
        drop(self.release());
    }
}
