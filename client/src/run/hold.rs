//! A lock that is held: what is believed of it, who shares it, and who wants to know when it is lost.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::proto::{Answer, Belief, Name, Renewal, Slot, Verb, Vote, checked, token};
use crate::run::{Answers, Call, Calls, Core, Due, Failed, Leave, alarm, trace};
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
    /// The renewals that are on their way, one bit for each server.
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
            self.core.schedule.remove(slot);
        }
        trace::over(&self.name.key, token, loss);
        if loss != Loss::Released {
            // Whatever is left of it keeps nobody out.
            drop(self.leave((false, loss == Loss::Unknown)));
        }
        // Not under the lock: a waker may ask whether the lock is held.
        watchers.into_iter().for_each(Waker::wake);
        result
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.with(|state| state.belief.loss(BootInstant::now()))
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.with(|state| state.belief.lose(loss));
    }

    /// Leaves it on all servers that may have it.
    fn leave(&self, (is_held, late): (bool, bool)) -> Calls<Leave> {
        let (round, lease) = {
            let state = lock(&self.state);
            (state.belief.round.clone(), state.belief.longest.duration())
        };
        let mut leaves = Calls::default();
        for (server, vote) in round.iter().enumerate() {
            if let Some(may_come_late) = vote.may_be_there() {
                let how = (is_held, late || may_come_late);
                let (janitor, target) = (&self.core.janitor, &self.core.servers[server]);
                let leave = Leave::new(janitor, target, self.name.clone(), lease, how);
                leaves.add(server, leave);
            }
        }
        leaves
    }

    /// Sends its release to every server that may have it, whoever shares it; nothing, where it is over already. Dropped, the
    /// rest is said in the background.
    pub(crate) fn release(&self) -> Calls<Leave> {
        let was_lost = self.with(|state| {
            let loss = state.belief.loss(BootInstant::now());
            state.belief.lose(Loss::Released);
            loss.is_some()
        });
        match was_lost {
            true => Calls::default(),
            false => self.leave((true, false)),
        }
    }

    /// Has it looked at by the time that the next renewal is due.
    pub(crate) fn reschedule(self: &Arc<Self>) {
        let (slot, due) = self.with(|state| (state.slot, state.due()));
        if slot.is_none_or(|slot| due < slot.0) {
            self.core.schedule.add(self.clone(), due, slot);
        }
    }

    /// The servers that may have it.
    pub(crate) fn servers(&self) -> Vec<usize> {
        let there = |vote: &Vote| vote.may_be_there().is_some();
        self.with(|state| state.belief.round.those(there).collect())
    }

    /// A server's answer to a renewal.
    pub(crate) fn on_renewed(
        &self,
        renewal: Renewal,
        (sent, answer): (BootInstant, Answer),
    ) -> Result<bool, Error> {
        let answer = checked(answer, &self.core.servers[renewal.server].name).and_then(token)?;
        self.with(|state| state.belief.on_renewed(renewal, sent, answer));
        Ok(answer.is_some())
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
    /// The servers have it for writing, and its guards only read.
    pub(crate) fn is_to_read(&self) -> bool {
        self.guards > 0 && self.writers == 0 && self.writes
    }

    /// When it is to be looked at next.
    fn due(&self) -> BootInstant {
        let deadline = self.belief.deadline();
        match self.renewing {
            0 => deadline,
            _ => self.belief.next_renewal().min(deadline),
        }
    }

    /// What is to be renewed now, and when it is to be looked at next; `None` if it is over.
    fn look(&mut self, now: BootInstant) -> Option<(Vec<Renewal>, BootInstant)> {
        if self.belief.loss(now).is_some() {
            self.slot = None;
            return None;
        }
        let due = self.due();
        let lease = self.belief.ask_lease(None, now);
        let Some(lease) = lease.filter(|_| due <= now && self.renewing > 0) else {
            return Some((Vec::new(), due.max(now + Duration::from_millis(1))));
        };
        let mut renewals: Vec<Renewal> = self.belief.renewals(lease).collect();
        renewals.retain(|renewal| self.in_flight & (1 << renewal.server) == 0);
        for renewal in &renewals {
            self.in_flight |= 1 << renewal.server;
        }
        let again = now + self.belief.retry_pause();
        Some((renewals, again.min(self.belief.deadline())))
    }
}

impl Due for Hold {
    fn look(self: Arc<Self>, now: BootInstant, answers: &mut Answers) -> Option<BootInstant> {
        let (renewals, next) = self.with(|state| state.look(now))?;
        for renewal in renewals {
            let Renewal {
                server,
                lease,
                token,
            } = renewal;
            let limit = lease.renewal_period().max(SHORTEST_LIMIT);
            let target = &self.core.servers[server];
            let call = Call::within(limit, target, &self.name, Verb::Renew(lease, token));
            let hold = self.clone();
            answers.push(Box::pin(async move {
                let answer = call.await;
                lock(&hold.state).in_flight &= !(1 << server);
                let failed: Failed = match hold.on_renewed(renewal, answer) {
                    Ok(_) => None,
                    Err(error) => Some((hold.core.servers[server].name.clone(), error)),
                };
                failed
            }));
        }
        Some(next)
    }

    fn moved(&self, slot: Slot) {
        let mut state = lock(&self.state);
        if !state.is_told {
            state.slot = Some(slot);
        }
    }

    fn close(&self) {
        drop(self.release());
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
            .field("key", &String::from_utf8_lossy(&self.name.key))
            .field("owner", &String::from_utf8_lossy(&self.name.owner))
            .field("belief", &state.belief)
            .field("guards", &state.guards)
            .finish_non_exhaustive()
    }
}
