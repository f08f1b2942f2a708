//! A hold on one server: what the client believes of it, and the guards that share it.

use std::any::Any;
use std::mem;
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::lock::leave::Releasing;
use crate::lock::{Ask, Core, Failed, Hold, Request, Share, Shares, Watchers, trace};
use crate::net::schedule::Due;
use crate::value::{BootInstant, Error, Lease, Loss, Mode, Token, lock};
use crate::wire::command::Permits;
use crate::wire::{Belief, Grant, Name, Verb};

pub(crate) struct ServerHold {
    this: Weak<ServerHold>,
    pub(crate) core: Arc<Core>,
    pub(crate) name: Name,
    /// Locked by an upgrade or a downgrade, so that one follows the other.
    pub(super) changes: tokio::sync::Mutex<()>,
    /// As the server granted it. What it confirms later is in the belief.
    granted: Grant,
    /// How many permits it has, if it has any.
    pub(super) permits: Option<Permits>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) belief: Belief,
    pub(super) shares: Shares,
    /// How it is held on the server.
    pub(super) mode: Mode,
    /// The server counts reads of it, also while it writes.
    pub(super) has_reads: bool,
    /// Its name is used again after its release.
    reuses_name: bool,
    /// How long the lock stays taken after its grant, however early it is given back.
    at_least: Duration,
    /// It is a part of a hold over several servers, which reports its own end.
    is_part: bool,
    watchers: Watchers,
    /// When the background task looks after it next.
    pub(super) due: Option<Due>,
    pub(super) renewal: Renewal,
    has_ended: bool,
    /// It is lost, and is left when its last guard is gone.
    is_left_last: bool,
}

/// The last renewal in the background.
#[derive(Default)]
pub(super) struct Renewal {
    pub(super) sent: BootInstant,
    pub(super) is_in_flight: bool,
}

impl ServerHold {
    /// A hold that was granted, and has no guard yet. An error if the client was closed meanwhile.
    pub(super) fn new(
        core: &Arc<Core>,
        name: &Name,
        grant: Grant,
        ask: &Ask,
    ) -> Result<Arc<ServerHold>, Error> {
        let state = State {
            belief: Belief::new(grant, ask.acquire.lease, ask.max_hold),
            shares: Shares::default(),
            mode: ask.acquire.mode,
            has_reads: ask.acquire.mode == Mode::Read,
            reuses_name: false,
            at_least: ask.at_least,
            is_part: ask.is_part,
            watchers: Watchers::default(),
            due: None,
            renewal: Renewal::default(),
            has_ended: false,
            is_left_last: false,
        };
        let hold = Arc::new_cyclic(|this| ServerHold {
            this: this.clone(),
            core: core.clone(),
            name: name.clone(),
            changes: tokio::sync::Mutex::const_new(()),
            granted: grant,
            permits: ask.acquire.permits,
            state: Mutex::new(state),
        });
        let mut state = lock(&hold.state);
        let due = state.next_due();
        state.due = Some(core.schedule(hold.clone(), due)?);
        drop(state);
        Ok(hold)
    }

    /// Reads or changes the state. Afterwards a hold that is lost is ended, and another is scheduled for when it is due.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        match state.belief.loss(BootInstant::now()) {
            None => self.reschedule(&mut state),
            Some(loss) => self.end(state, loss),
        }
        result
    }

    /// Schedules it for when it is due, if that is earlier than before.
    fn reschedule(&self, state: &mut State) {
        let due = state.next_due();
        if let Some(this) = self.this.upgrade()
            && state.due.is_none_or(|(scheduled, _)| due < scheduled)
        {
            // Unless the background task has just taken it: then that schedules it again.
            state.due = self.core.reschedule(this, state.due, due).or(state.due);
        }
    }

    /// Ends a hold that is lost, once: leaves its name on the server, and wakes the tasks that await its loss. If the server has
    /// denied it, there is nothing left of it, or it was revoked: then it keeps others out until its lease is over, or until
    /// its guards are gone.
    fn end(&self, mut state: std::sync::MutexGuard<'_, State>, loss: Loss) {
        if mem::replace(&mut state.has_ended, true) {
            return;
        }
        let (watchers, due) = (state.watchers.take(), state.due.take());
        let (token, lease) = (state.belief.token(), state.belief.longest_lease());
        state.is_left_last = loss == Loss::Denied;
        let is_part = state.is_part;
        drop(state);
        // Not under the lock: subscribers and wakers may ask whether the lock is held.
        let scheduled = due.and_then(|due| lock(&self.core.holds).schedule.remove(due));
        match loss {
            Loss::Released | Loss::Passed | Loss::Denied => {}
            Loss::Unknown => self.core.leave(&self.name, lease),
            _ => self.core.leave_known(&self.name, lease),
        }
        match is_part {
            true => trace::part_ended(&self.core.endpoint.name, &self.name.key, loss),
            false => trace::ended(&self.name.key, token, loss),
        }
        watchers.for_each(Waker::wake);
        drop(scheduled);
    }

    /// An error once it is lost.
    pub(super) fn check(&self) -> Result<Token, Error> {
        self.update(|state| {
            state.belief.check(BootInstant::now())?;
            Ok(state.belief.token())
        })
    }

    /// When the last confirmed request was sent.
    pub(super) fn confirmed(&self) -> BootInstant {
        self.update(|state| state.belief.confirmed())
    }

    /// What the server has granted, while that may be believed.
    pub(crate) fn grant(&self) -> Option<Grant> {
        self.update(|state| {
            let loss = state.belief.loss(BootInstant::now());
            loss.is_none().then(|| Grant {
                token: state.belief.token(),
                since: self.granted.since,
                until: state.belief.deadline(),
            })
        })
    }

    /// The token by which the server granted it. It may have been raised since.
    pub(crate) fn first_token(&self) -> Token {
        self.granted.token
    }

    /// Counts one more reason to renew it, or one less.
    pub(crate) fn want_renewal(&self, is_wanted: bool) {
        self.update(|state| match is_wanted {
            true => state.shares.renewing += 1,
            false => state.shares.renewing -= 1,
        });
    }

    /// A guard changes its share.
    pub(super) fn reshare(&self, from: Share, to: Share) {
        self.update(|state| {
            state.shares.add(to);
            state.shares.remove(from);
        });
    }

    /// It ends at `cap` at the latest.
    pub(crate) fn limit(&self, cap: BootInstant) {
        self.update(|state| state.belief.limit(cap));
    }

    /// However early it is given back, the lock stays taken for so long after its grant.
    pub(crate) fn keep_for(&self, at_least: Duration) {
        self.update(|state| state.at_least = at_least);
    }

    /// The server will be asked for the lock under the same name once this is released. A release that arrives late, or twice, must
    /// not end the next hold, so it names this one's token.
    pub(crate) fn reuse_name(&self) {
        self.update(|state| state.reuses_name = true);
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.update(|state| state.belief.lose(loss));
    }

    /// Releases it, whatever guards still share it. The request is sent at once, and repeated in the background if the future is
    /// dropped.
    pub(super) fn release(&self) -> BoxFuture<'static, Result<(), Error>> {
        let releasing = self.update(|state| {
            let lease = state.belief.longest_lease();
            if let Some(loss) = state.belief.loss(BootInstant::now()) {
                if mem::take(&mut state.is_left_last) {
                    self.core.leave_known(&self.name, lease);
                }
                return Err(Error::Lost(loss));
            }
            let verb = self.last_verb(state);
            state.belief.lose(Loss::Released);
            Ok(Releasing::send(&self.core, &self.name, verb, lease))
        });
        match releasing {
            Ok(releasing) => releasing.finish().boxed(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    /// What ends it: a release, or a pass to a name that nobody uses, where the lock is to stay taken for a while.
    fn last_verb(&self, state: &State) -> Verb {
        let token = state.belief.token();
        let rest = state.at_least.saturating_sub(self.granted.since.elapsed());
        let release = Verb::Release(state.reuses_name.then_some(token));
        if rest.is_zero() {
            return release;
        }
        match Lease::new(rest) {
            Ok(lease) => Verb::Pass {
                new_owner: self.core.names.next(),
                lease,
                token,
            },
            // Too short to matter.
            Err(_) => release,
        }
    }

    /// The error of something that has failed, by what is known of the hold since.
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.loss() {
            None | Some(Loss::Unknown) => error,
            Some(Loss::Denied) => Error::NotHeld,
            Some(loss) => Error::Lost(loss),
        }
    }

    /// Raises its token. Fails, and the hold is lost, if nobody knows by which token the server has it.
    pub(crate) async fn fence(&self, token: Token) -> Result<(), Error> {
        let mut request = Request::new(&self.core, &self.name, Verb::Fence(token));
        let granted = request.granted().await;
        let grant = granted.map_err(|failed| self.not_changed(failed))?;
        self.update(|state| state.belief.raise(grant.token));
        self.check().map(drop)
    }

    /// The error of a request to change the hold. The hold is lost if the server does not have it, or may have changed it.
    pub(super) fn not_changed(&self, failed: Failed) -> Error {
        match failed {
            Failed::Denied => {
                self.lose(Loss::Denied);
                Error::NotHeld
            }
            Failed::Refused(error) => error,
            Failed::Unknown(error) => {
                self.lose(Loss::Unknown);
                error
            }
        }
    }
}

impl State {
    /// The server has it for writing, and all its guards only read.
    pub(super) fn is_to_read(&self) -> bool {
        self.shares.guards > 0 && self.shares.writers == 0 && self.mode == Mode::Write
    }
}

/// The hold, if it is on one server. Otherwise an error that says why this is not possible.
pub(crate) fn on_one_server(hold: &Arc<dyn Hold>) -> Result<Arc<ServerHold>, Error> {
    let hold = hold.clone().on_one_server()?.downcast();
    Ok(hold.expect("no other hold is on one server"))
}

impl Hold for ServerHold {
    fn name(&self) -> &Name {
        &self.name
    }

    fn mode(&self) -> Mode {
        self.update(|state| state.mode)
    }

    fn token(&self) -> Token {
        self.update(|state| state.belief.token())
    }

    fn deadline(&self) -> BootInstant {
        self.update(|state| state.belief.deadline())
    }

    fn loss(&self) -> Option<Loss> {
        self.update(|state| state.belief.doubt(BootInstant::now()))
    }

    fn share(&self, share: Share, cap: Option<BootInstant>) -> Result<(), Error> {
        self.update(|state| {
            state.belief.check(BootInstant::now())?;
            state.shares.add(share);
            if let Some(cap) = cap {
                state.belief.limit(cap);
            }
            Ok(())
        })
    }

    fn unshare(self: Arc<Self>, share: Share) -> BoxFuture<'static, Result<(), Error>> {
        let is_last = self.update(|state| {
            state.shares.remove(share);
            state.shares.guards == 0
        });
        if is_last {
            return self.release();
        }
        let downgrading = self.downgrade();
        async move {
            downgrading.await?;
            self.check().map(drop)
        }
        .boxed()
    }

    fn renew(&self, lease: Option<Lease>) -> BoxFuture<'_, Result<(), Error>> {
        self.renew_within(Duration::MAX, lease).boxed()
    }

    fn watch(&self, id: &mut Option<u64>, waker: &Waker) -> Result<BootInstant, Loss> {
        self.update(|state| match state.belief.loss(BootInstant::now()) {
            Some(loss) => Err(loss),
            None => {
                state.watchers.add(id, waker);
                Ok(state.belief.deadline())
            }
        })
    }

    fn unwatch(&self, id: u64) {
        // The waker may hold a task, whose end may ask for this hold.
        let waker = lock(&self.state).watchers.remove(id);
        drop(waker);
    }

    fn answer_limit(&self) -> Duration {
        self.core.timeouts.answer
    }

    fn on_one_server(self: Arc<Self>) -> Result<Arc<dyn Any + Send + Sync>, Error> {
        Ok(self)
    }
}
