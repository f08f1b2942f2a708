//! A lock that is held: what is believed of it, who shares it, and who wants to know when it is lost.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::proto::{Answer, Belief, Name, Renewal, Slot, Verb, checked, token};
use crate::run::core::{Due, Renewing};
use crate::run::schedule::wake_at;
use crate::run::{Call, Calls, Core, Leave, trace};
use crate::value::{BootInstant, Error, Loss, Mode, lock};

/// A renewal may take a third of the lease, so that a dead connection is found out while there is time for another; and that
/// at least.
const SHORTEST_LIMIT: Duration = Duration::from_millis(250);

/// A hold; several guards may share it.
pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Name,
    /// Locked while it is changed, so that one change follows the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) belief: Belief,
    /// The guards that share it, those of them who write, and those who want it renewed.
    pub(crate) guards: u32,
    pub(crate) writers: u32,
    pub(crate) renewing: u32,
    /// The servers have it for writing.
    pub(crate) writes: bool,
    watchers: Vec<Waker>,
    slot: Option<Slot>,
    /// When it was renewed last in the background, and on which servers that is still on its way, one bit for each.
    renewed: BootInstant,
    in_flight: u64,
    is_told: bool,
}

impl Hold {
    /// A hold that was granted, and has no guard yet.
    pub(crate) fn new(core: Arc<Core>, name: Name, belief: Belief, mode: Mode) -> Arc<Hold> {
        let state = State {
            belief,
            guards: 0,
            writers: 0,
            renewing: 0,
            writes: mode == Mode::Write,
            watchers: Vec::new(),
            slot: None,
            renewed: BootInstant::default(),
            in_flight: 0,
            is_told: false,
        };
        Arc::new(Hold {
            core,
            name,
            turn: tokio::sync::Mutex::const_new(()),
            state: Mutex::new(state),
        })
    }

    /// Looks at, or changes, what is known; who waits for a loss is told of one, and a renewal that is due earlier than it
    /// was is put there.
    pub(crate) fn with<T>(self: &Arc<Self>, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        let result = look(&mut state);
        let Some(loss) = state.belief.loss(BootInstant::now()) else {
            let due = state.due();
            if state.slot.is_none_or(|slot| due < slot.0) {
                let slot = self.core.look_at(self.clone(), due, state.slot);
                state.slot = Some(slot);
            }
            return result;
        };
        if std::mem::replace(&mut state.is_told, true) {
            return result;
        }
        let (watchers, slot) = (std::mem::take(&mut state.watchers), state.slot.take());
        trace::over(&self.name.key, state.belief.token, loss);
        // Whatever is left of it keeps nobody out.
        let late = loss == Loss::Unknown;
        let leaves = (loss != Loss::Released).then(|| self.leave(&state, Verb::Leave { late }));
        drop(state);
        let gone = slot.and_then(|slot| lock(&self.core.agenda).remove(slot));
        drop((leaves, gone));
        // Not under the lock: a waker may ask whether the lock is held.
        watchers.into_iter().for_each(Waker::wake);
        result
    }

    pub(crate) fn loss(self: &Arc<Self>) -> Option<Loss> {
        self.with(|state| state.belief.loss(BootInstant::now()))
    }

    /// An error once it is lost.
    pub(crate) fn check(self: &Arc<Self>) -> Result<(), Error> {
        self.with(|state| state.belief.check(BootInstant::now()))
    }

    /// What to tell of something that has failed, by what is known of the hold since.
    pub(crate) fn failed(self: &Arc<Self>, error: Error) -> Error {
        match self.loss() {
            None | Some(Loss::Unknown) => error,
            Some(Loss::Denied) => Error::NotHeld,
            Some(loss) => Error::Lost(loss),
        }
    }

    pub(crate) fn lose(self: &Arc<Self>, loss: Loss) {
        self.with(|state| state.belief.lose(loss));
    }

    /// Leaves it on all servers that may have it.
    fn leave(self: &Arc<Self>, state: &State, verb: Verb) -> Calls<Leave> {
        let (round, lease) = (&state.belief.round, state.belief.longest.duration());
        self.core.leave((&self.name, round), lease, verb)
    }

    /// Sends its release to every server that may have it, whoever shares it; nothing, where it is over already. Dropped, the
    /// rest is said in the background.
    pub(crate) fn release(self: &Arc<Self>) -> Calls<Leave> {
        self.with(|state| {
            if state.belief.loss(BootInstant::now()).is_some() {
                return Calls::default();
            }
            state.belief.lose(Loss::Released);
            self.leave(state, Verb::Release(None))
        })
    }

    /// A server's answer to a renewal.
    pub(crate) fn on_renewed(
        self: &Arc<Self>,
        renewal: Renewal,
        (sent, answer): (BootInstant, Answer),
    ) -> Result<bool, Error> {
        let answer = checked(answer, &self.core.servers[renewal.server].name).and_then(token)?;
        self.with(|state| state.belief.on_renewed(renewal, sent, answer));
        Ok(answer.is_some())
    }

    /// Resolves with the reason once it is lost, on whatever runtime it is awaited.
    pub(crate) fn lost(self: Arc<Hold>) -> impl Future<Output = Loss> + Send + Sync + Unpin {
        let mut alarm = None;
        poll_fn(move |context| {
            let loss = self.with(|state| {
                let loss = state.belief.loss(BootInstant::now());
                let (watchers, waker) = (&mut state.watchers, context.waker());
                if loss.is_none() && !watchers.iter().any(|it| it.will_wake(waker)) {
                    watchers.push(waker.clone());
                }
                loss.ok_or(state.belief.deadline())
            });
            let deadline = match loss {
                Ok(loss) => return Poll::Ready(loss),
                Err(deadline) => deadline,
            };
            // The runtime that renews it may not run, so the deadline is watched without one, too.
            if alarm.replace(deadline) != Some(deadline) {
                wake_at(deadline, context.waker().clone());
            }
            Poll::Pending
        })
    }
}

impl State {
    /// The servers have it for writing, and its guards only read.
    pub(crate) fn is_to_read(&self) -> bool {
        self.guards > 0 && self.writers == 0 && self.writes
    }

    /// When it is to be looked at next.
    fn due(&self) -> BootInstant {
        let deadline = self.belief.deadline();
        let again = self.renewed + self.belief.retry_pause();
        match self.renewing {
            0 => deadline,
            _ => self.belief.next_renewal().max(again).min(deadline),
        }
    }

    /// What is to be renewed now.
    fn look(&mut self, now: BootInstant) -> Vec<Renewal> {
        self.slot = None;
        let is_due = self.renewing > 0 && self.due() <= now;
        let Some(Ok(lease)) = is_due.then(|| self.belief.ask_lease(None, now)) else {
            return Vec::new();
        };
        self.renewed = now;
        let mut renewals: Vec<Renewal> = self.belief.renewals(lease).collect();
        renewals.retain(|renewal| self.in_flight & (1 << renewal.server) == 0);
        for renewal in &renewals {
            self.in_flight |= 1 << renewal.server;
        }
        renewals
    }
}

impl Due for Hold {
    fn look(self: Arc<Self>, now: BootInstant) -> Vec<Renewing> {
        let renewals = self.with(|state| state.look(now));
        let renew = |renewal: Renewal| -> Renewing {
            let (hold, server) = (self.clone(), renewal.server);
            let limit = renewal.lease.renewal_period().max(SHORTEST_LIMIT);
            let verb = Verb::Renew(renewal.lease, renewal.token);
            let call = Call::within(limit, &self.core.servers[server], &self.name, verb);
            Box::pin(async move {
                let answer = call.await;
                lock(&hold.state).in_flight &= !(1 << server);
                let failed = hold.on_renewed(renewal, answer).err();
                failed.map(|error| (hold.core.servers[server].name.clone(), error))
            })
        };
        renewals.into_iter().map(renew).collect()
    }

    fn close(self: Arc<Self>) {
        drop(self.release());
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Hold")
            .field("key", &String::from_utf8_lossy(&self.name.key))
            .field("owner", &String::from_utf8_lossy(&self.name.owner))
            .field("belief", &state.belief)
            .field("guards", &state.guards)
            .finish_non_exhaustive()
    }
}
