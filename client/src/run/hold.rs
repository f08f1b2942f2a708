//! A lock that is held: what is believed of it, who shares it, and who wants to know when it is lost.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::net::server::Server;
use crate::proto::agenda::Slot;
use crate::proto::command::Who;
use crate::proto::hold::{Belief, Share};
use crate::run::core::Core;
use crate::run::upkeep::{Kept, Leave, Renewal};
use crate::run::{alarm, trace};
use crate::value::clock::BootInstant;
use crate::value::error::{Error, Loss};
use crate::value::mode::Mode;
use crate::value::sync::lock;
use crate::value::token::Token;

/// A hold; several guards may share it.
pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<[u8]>,
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
    /// What the servers have it for.
    pub(crate) wire: Modes,
    watchers: Vec<Waker>,
    slot: Option<Slot>,
    /// The renewals that are on their way, one bit for each server.
    in_flight: u64,
    is_told: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) write: bool,
    pub(crate) read: bool,
}

impl Modes {
    pub(crate) fn of(mode: Mode) -> Modes {
        Modes {
            write: mode == Mode::Write,
            read: mode == Mode::Read,
        }
    }
}

impl Hold {
    /// A hold that was granted, with one guard.
    pub(crate) fn new(
        core: Arc<Core>,
        (key, owner): (Arc<[u8]>, Arc<[u8]>),
        belief: Belief,
        mode: Mode,
        renews: bool,
    ) -> Arc<Hold> {
        let hold = Arc::new(Hold {
            core,
            key,
            owner,
            turn: tokio::sync::Mutex::const_new(()),
            state: Mutex::new(State {
                belief,
                guards: 1,
                writers: u32::from(mode == Mode::Write),
                renewing: u32::from(renews),
                wire: Modes::of(mode),
                watchers: Vec::new(),
                slot: None,
                in_flight: 0,
                is_told: false,
            }),
        });
        let due = lock(&hold.state).due();
        hold.core.upkeep.keep(hold.clone(), due, &hold.core.runtime);
        hold
    }

    pub(crate) fn who(&self) -> Who<'_> {
        (&self.key, &self.owner)
    }

    /// Looks at, or changes, what is known; who waits for a loss is told of one.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        let result = look(&mut state);
        let loss = state.belief.loss(BootInstant::now());
        let Some(loss) = loss.filter(|_| !state.is_told) else {
            return result;
        };
        state.is_told = true;
        let watchers = std::mem::take(&mut state.watchers);
        let (slot, token) = (state.slot.take(), state.belief.token);
        drop(state);
        if let Some(slot) = slot {
            self.core.upkeep.forget(slot);
        }
        trace::over(&self.key, token, loss);
        if loss != Loss::Released {
            // Whatever is left of it keeps nobody out.
            self.leave(loss == Loss::Unknown);
        }
        // Not under the lock: a waker may ask whether the lock is held.
        watchers.into_iter().for_each(Waker::wake);
        result
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.with(|state| {
            state
                .belief
                .known_loss()
                .or(state.belief.loss(BootInstant::now()))
        })
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.with(|state| state.belief.lose(loss));
    }

    /// Leaves it on all servers that may have it.
    fn leave(&self, late: bool) {
        let (shares, lease) = {
            let state = lock(&self.state);
            (state.belief.shares.clone(), state.belief.longest_lease())
        };
        for (server, share) in shares.all().iter().enumerate() {
            if *share != Share::None {
                let late = late || *share == Share::Unknown;
                self.core.leave(server, self.names(), lease, late);
            }
        }
    }

    /// Gives it back, whoever shares it, without waiting.
    pub(crate) fn give_back(&self) {
        for said in self.send_release() {
            self.core.upkeep.leave(said, &self.core.runtime);
        }
    }

    /// Sends its release to every server that may have it. Nothing, where it is over already.
    pub(crate) fn send_release(&self) -> Vec<Leave> {
        let (was_lost, shares, lease) = self.with(|state| {
            let was_lost = state.belief.loss(BootInstant::now()).is_some();
            state.belief.lose(Loss::Released);
            let lease = state.belief.longest_lease();
            (was_lost, state.belief.shares.clone(), lease)
        });
        if was_lost {
            return Vec::new();
        }
        let shares = shares.all().iter().enumerate();
        let had = shares.filter(|(_, share)| **share != Share::None);
        had.map(|(server, share)| {
            let server = self.core.servers[server].clone();
            let late = *share == Share::Unknown;
            Leave::new(server, self.names(), lease.duration(), late).release()
        })
        .collect()
    }

    pub(crate) fn names(&self) -> (Arc<[u8]>, Arc<[u8]>) {
        (self.key.clone(), self.owner.clone())
    }

    /// Has the agenda look by the time that the next renewal is due.
    pub(crate) fn reschedule(&self) {
        let (slot, due) = self.with(|state| (state.slot, state.due()));
        if let Some(slot) = slot.filter(|slot| due < slot.0) {
            self.core.upkeep.hasten(slot, due, &self.core.runtime);
        }
    }

    /// Resolves with the reason once it is lost, on whatever runtime it is awaited.
    pub(crate) fn lost(self: Arc<Hold>) -> Lost {
        Lost {
            hold: self,
            alarm: None,
        }
    }
}

impl State {
    /// When it is to be looked at next.
    fn due(&self) -> BootInstant {
        let deadline = self.belief.deadline();
        match self.renewing {
            0 => deadline,
            _ => self.belief.next_renewal().min(deadline),
        }
    }
}

impl Kept for Hold {
    fn look(&self, now: BootInstant) -> Option<(Vec<Renewal>, BootInstant)> {
        self.with(|state| {
            if state.belief.loss(now).is_some() {
                state.slot = None;
                return None;
            }
            let due = state.due();
            let lease = state.belief.lease_now(now);
            let Some(lease) = lease.filter(|_| due <= now && state.renewing > 0) else {
                return Some((Vec::new(), due.max(now + Duration::from_millis(1))));
            };
            let mut renewals = Vec::new();
            for (server, token) in state.belief.renewals() {
                if state.in_flight & (1 << server) == 0 {
                    renewals.push(Renewal {
                        server,
                        lease,
                        token,
                        sent: now,
                    });
                }
            }
            for renewal in &renewals {
                state.in_flight |= 1 << renewal.server;
            }
            let again = now + state.belief.retry_pause();
            Some((renewals, again.min(state.belief.deadline())))
        })
    }

    fn on_renewed(&self, renewal: &Renewal, answer: Result<Option<Token>, Error>) {
        self.with(|state| {
            state.in_flight &= !(1 << renewal.server);
            let Ok(answer) = answer else { return };
            // One that was asked by a token which a change has replaced meanwhile says nothing.
            let is_stale = answer.is_none()
                && renewal.token.is_some()
                && (state.belief.changing || !state.belief.has_at(renewal.server, renewal.token));
            if !is_stale && state.belief.known_loss().is_none() {
                let lease = (renewal.lease, renewal.sent);
                state.belief.on_renewed(renewal.server, lease, answer);
            }
        });
    }

    fn moved(&self, slot: Slot) {
        let mut state = lock(&self.state);
        if !state.is_told {
            state.slot = Some(slot);
        }
    }

    fn who(&self) -> Who<'_> {
        Hold::who(self)
    }

    fn server(&self, number: usize) -> &Arc<Server> {
        &self.core.servers[number]
    }

    fn close(&self) {
        self.give_back();
    }
}

/// Until a lock is lost.
pub(crate) struct Lost {
    hold: Arc<Hold>,
    alarm: Option<BootInstant>,
}

impl Future for Lost {
    type Output = Loss;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Loss> {
        let (loss, deadline) = self.hold.with(|state| {
            let loss = state.belief.loss(BootInstant::now());
            let watchers = &mut state.watchers;
            if loss.is_none() && !watchers.iter().any(|it| it.will_wake(context.waker())) {
                watchers.push(context.waker().clone());
            }
            (loss, state.belief.deadline())
        });
        if let Some(loss) = loss {
            return Poll::Ready(loss);
        }
        // The runtime that renews it may not run, so the deadline is watched without one, too.
        if self.alarm != Some(deadline) {
            self.alarm = Some(deadline);
            alarm::wake_at(deadline, context.waker().clone());
        }
        Poll::Pending
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Hold")
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("owner", &String::from_utf8_lossy(&self.owner))
            .field("belief", &state.belief)
            .field("guards", &state.guards)
            .finish_non_exhaustive()
    }
}
