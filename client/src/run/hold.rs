//! A lock that is held: what is believed of it, who shares it, and who wants to know when it is lost.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::proto::{Belief, Name, Round, Slot, Verb};
use crate::run::call::Limit;
use crate::run::core::{Due, Renewing};
use crate::run::schedule::wake_at;
use crate::run::{Call, Calls, Core, Leave, trace};
use crate::value::{BootInstant, Error, Lease, Loss, Mode, lock};

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
    /// When it was renewed last in the background, and whether that is still on its way.
    renewed: BootInstant,
    is_in_flight: bool,
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
            is_in_flight: false,
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
    fn leave(self: &Arc<Self>, state: &State, verb: Verb) -> Leave {
        let (there, lease) = (state.belief.round.there(), state.belief.longest.duration());
        self.core.leave((&self.name, there), lease, verb)
    }

    /// Sends its release to every server that may have it, whoever shares it; nothing, where it is over already. Dropped, the
    /// rest is said in the background.
    pub(crate) fn release(self: &Arc<Self>) -> Option<Leave> {
        self.with(|state| {
            let is_held = state.belief.loss(BootInstant::now()).is_none();
            state.belief.lose(Loss::Released);
            is_held.then(|| self.leave(state, Verb::Release(None)))
        })
    }

    /// Renews it, by its lease or another, on every server that may have it, until so many have confirmed that, or all have
    /// answered, or it is lost. `in_time`: answers are of use while there is time for another renewal.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        lease: Option<Lease>,
        (in_time, enough): (bool, usize),
    ) -> Result<Round, Error> {
        let mut calls = self.with(|state| {
            let lease = state.belief.ask_lease(lease, BootInstant::now())?;
            let call = |(server, token)| {
                let (wait, to) = (None, &self.core.servers[server]);
                let answer = in_time.then(|| lease.renewal_period().max(SHORTEST_LIMIT));
                let limit = Limit { answer, wait };
                let call = Call::within(limit, to, &self.name, Verb::Renew(lease, token));
                (server, call.repeated())
            };
            Ok::<_, Error>(Calls(state.belief.renewals().map(call).collect()))
        })?;
        let mut round = Round::new(self.core.servers.len());
        while let Some((server, call, answer)) = calls.next().await {
            let vote = call.vote(answer);
            if let Verb::Renew(_, asked) = call.verb {
                self.with(|state| state.belief.on_renewed(server, asked, &vote));
            }
            round[server] = vote;
            if self.loss().is_some() || round.held().count() >= enough {
                break;
            }
        }
        Ok(round)
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
        match self.renewing > 0 && !self.is_in_flight {
            true => self.belief.next_renewal().max(again).min(deadline),
            false => deadline,
        }
    }
}

impl Due for Hold {
    fn look(self: Arc<Self>, now: BootInstant) -> Option<Renewing> {
        let is_due = self.with(|state| {
            state.slot = None;
            let is_due = state.due() <= now && state.renewing > 0 && !state.is_in_flight;
            if is_due {
                (state.renewed, state.is_in_flight) = (now, true);
            }
            is_due
        });
        let renewing = async move {
            let renewed = self.renew(None, (true, usize::MAX)).await;
            self.with(|state| state.is_in_flight = false);
            renewed.ok()
        };
        is_due.then(|| Box::pin(renewing) as Renewing)
    }

    fn close(self: Arc<Self>) {
        drop(self.release());
    }
}
