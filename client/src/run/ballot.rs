//! The votes on one name: asks servers, counts what they say, and leaves the name everywhere if it is not won.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, pending, select};

use crate::net::task;
use crate::proto::{Acquisition, Belief, Name, Next, Outcome, Round, Terms, Verb, Vote};
use crate::run::call::Limit;
use crate::run::{Call, Calls, Core, Hold};
use crate::value::{BootInstant, Loss, Token, lock};

/// The votes on one name. Dropped before it is settled, nobody knows what became of it: the name is left on all servers that
/// may know it, and a hold that was to be changed is over.
pub(crate) struct Ballot<'a> {
    core: &'a Arc<Core>,
    name: Name,
    terms: Terms,
    pub(crate) round: Round,
    /// What is on its way: to each server one at a time.
    asked: Calls,
    /// The hold that the name has already, where it is to be changed.
    hold: Option<&'a Arc<Hold>>,
    proposed: Option<Token>,
    started: BootInstant,
    /// Something was answered by a letter.
    was_queued: bool,
    /// What becomes of the name is for others to say.
    pub(crate) is_settled: bool,
}

impl<'a> Ballot<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, name: Name, terms: Terms) -> Ballot<'a> {
        Ballot {
            core,
            name,
            terms,
            round: Round::new(core.servers.len()),
            asked: Calls(Vec::with_capacity(core.servers.len())),
            hold: None,
            proposed: None,
            started: BootInstant::now(),
            was_queued: false,
            is_settled: false,
        }
    }

    /// On more for a hold that is there.
    pub(crate) fn on_more(hold: &'a Arc<Hold>, terms: Terms) -> Ballot<'a> {
        hold.with(|state| {
            state.belief.changing = true;
            // However it began: who waits for more keeps what he has.
            state.renewing += 1;
        });
        let mut ballot = Ballot::new(&hold.core, hold.name.clone(), terms);
        ballot.hold = Some(hold);
        ballot
    }

    /// Asks a server for the lock; it may queue there for so long.
    fn ask(&mut self, server: usize, fence: Option<Token>, limit: Option<u64>) {
        self.round[server] = Vote::Pending;
        let verb = Verb::Acquire {
            mode: self.terms.mode,
            lease: self.terms.lease,
            fence,
            upgrade: self
                .hold
                .map(|hold| hold.with(|state| state.belief.token_at(server))),
        };
        let limit = Limit {
            wait: limit.map(|limit| (self.core.clone(), limit)),
            ..Limit::default()
        };
        let call = Call::within(limit, &self.core.servers[server], &self.name, verb);
        self.asked.0.push((server, call));
    }

    /// Unless something is on its way there.
    fn send(&mut self, server: usize, verb: Verb) -> bool {
        let is_free = !self.asked.any(server, |_| true);
        if is_free {
            let call = Call::new(&self.core.servers[server], &self.name, verb);
            self.asked.0.push((server, call));
        }
        is_free
    }

    /// Asks all servers that have not granted it, at once, until it is won, or lost; a token that is larger than what some have
    /// granted is written back to them. They may queue for so long.
    pub(crate) async fn ask_all(&mut self, limit: Option<u64>) -> Option<Token> {
        self.started = BootInstant::now();
        self.proposed = lock(&self.core.proposal).propose(self.started);
        let fence = self.round.proposal(self.proposed);
        for server in 0..self.round.len() {
            // More is asked for where something may be.
            let may_have_it = |hold: &Arc<Hold>| {
                hold.with(|state| state.belief.round[server].may_be_there().is_some())
            };
            if self.round[server].may_be_there().is_none() && self.hold.is_none_or(may_have_it) {
                self.ask(server, fence, limit);
            }
        }
        loop {
            let is_raised = |(_, call): &(usize, Call)| matches!(call.verb, Verb::Fence(_));
            match self.round.outcome(BootInstant::now()) {
                // By which token a server has it has to be known.
                Outcome::Won(token) if !self.asked.0.iter().any(is_raised) => return Some(token),
                Outcome::Raise(token, servers) => {
                    for server in servers {
                        self.send(server, Verb::Fence(token));
                    }
                }
                Outcome::Lost if self.hold.is_some() => return None,
                // Who is to queue has to know who is there.
                Outcome::Lost if self.round.answered().count() >= self.round.majority() => {
                    self.await_earlier().await;
                    return None;
                }
                Outcome::Open | Outcome::Lost | Outcome::Won(_) => {}
            }
            if !self.count_next().await {
                return None;
            }
        }
    }

    /// Counts the next that is answered; `false` once all are.
    async fn count_next(&mut self) -> bool {
        let Some((server, call, vote)) = self.asked.next_vote().await else {
            return false;
        };
        self.was_queued |= call.is_queued;
        self.round.record(server, vote, true);
        true
    }

    /// Counts what is answered within a while, as long as that is of use.
    async fn count_while(&mut self, limit: Duration, is_of_use: impl Fn(&Self) -> bool) {
        let core = self.core;
        let counting = async { while is_of_use(self) && self.count_next().await {} };
        select(pin!(counting), pin!(core.pause(limit))).await;
    }

    /// Gives servers that come first in the queue's order, and have not answered yet, as long again as the others took, or the
    /// time of an answer where the connection was not open yet.
    async fn await_earlier(&mut self) {
        let is_open = |ballot: &Self, is: fn(&Call) -> bool| {
            let first = ballot.round.answered().next();
            let mut open = ballot.round.pending();
            open.any(|server| Some(server) < first && ballot.asked.any(server, is))
        };
        let limit = match is_open(self, Call::is_early) {
            true => self.core.limits.answer,
            false => self.started.elapsed() + Duration::from_millis(2),
        };
        self.count_while(limit, |ballot| is_open(ballot, |_| true))
            .await;
    }

    /// Queues on a server, and on the next one that others hold once it has granted the lock.
    pub(crate) async fn queue(
        &mut self,
        mut at: usize,
        acquisition: &mut Acquisition,
    ) -> Option<Token> {
        loop {
            acquisition.queues = Some(at);
            self.wait_on(at, acquisition).await;
            self.round[at].held()?;
            let won = self.ask_all(None).await;
            let is_alone = self.round.answered().count() < self.round.majority();
            if is_alone || won.is_some() {
                return won;
            }
            self.round[at].held()?;
            let is_busy = |server: &usize| matches!(self.round[*server], Vote::Busy);
            at = (at + 1..self.round.len()).find(is_busy)?;
        }
    }

    /// Waits in a server's queue, as long as it may. What is held before it is renewed meanwhile; what is held behind it is
    /// given back, so that nobody who is waited for waits for that.
    async fn wait_on(&mut self, server: usize, acquisition: &mut Acquisition) {
        let (core, lease) = (self.core, self.terms.lease);
        self.ask(server, None, acquisition.queue_limit(BootInstant::now()));
        while matches!(self.round[server], Vote::Pending) {
            let held = self.round.held().map(|(at, held)| (at, held.token));
            let (held, behind): (Vec<_>, Vec<_>) = held.partition(|(at, _)| *at < server);
            for (later, _) in behind {
                if self.send(later, Verb::Release(None)) {
                    self.round[later] = Vote::Pending;
                }
            }
            let pause = async {
                match held.is_empty() {
                    true => pending().await,
                    false => core.pause(lease.renewal_period()).await,
                }
            };
            let is_due = {
                let (counting, pause) = (pin!(self.count_next()), pin!(pause));
                matches!(select(counting, pause).await, Either::Right(_))
            };
            for (earlier, token) in held.into_iter().filter(|_| is_due) {
                self.send(earlier, Verb::Renew(lease, Some(token)));
            }
        }
        if self.was_queued {
            acquisition.on_queued();
        }
    }

    /// Asks all servers for more of a hold, and queues there for as long as it may.
    pub(crate) async fn ask_for_more(&mut self, acquisition: &mut Acquisition) -> Option<Token> {
        loop {
            let won = self
                .ask_all(acquisition.queue_limit(BootInstant::now()))
                .await;
            // Whatever is decided without them, others are about to answer.
            let is_of_use = |(_, call): &(usize, Call)| won.is_none() || !call.is_queued;
            let limit = self.core.limits.answer;
            self.count_while(limit, |ballot| ballot.asked.0.iter().any(is_of_use))
                .await;
            if self.was_queued {
                acquisition.on_queued();
            }
            // Whoever was sent away may ask again: it is the same request.
            let mut failed = self.round.iter().filter(|it| matches!(it, Vote::Failed(_)));
            let next = failed.next().filter(|_| won.is_none());
            match next.map(|vote| acquisition.after_vote(vote, BootInstant::now())) {
                Some(Next::Again(pause)) => self.core.pause(pause).await,
                _ => return won,
            }
        }
    }

    /// It is won: the hold, which ends when it is that old.
    pub(crate) fn won(&mut self, token: Token, max_hold: Option<Duration>) -> Arc<Hold> {
        let (core, Terms { mode, lease, .. }) = (self.core, self.terms);
        self.is_settled = true;
        if core.is_quorum() {
            lock(&core.proposal).learn(token, self.proposed, self.started);
        }
        let late = std::mem::take(&mut self.asked);
        let since = self.round.held().map(|(_, held)| held.made).min();
        let cap = since.zip(max_hold).map(|(since, max)| since + max);
        let round = std::mem::replace(&mut self.round, Round::new(0));
        let belief = Belief::new(token, round, lease, cap);
        let hold = Hold::new(core.clone(), self.name.clone(), belief, mode);
        if !late.0.is_empty() {
            task::spawn(&core.runtime, learn(hold.clone(), late));
        }
        hold
    }
}

/// Takes in what the others say of a lock that was won without them.
async fn learn(hold: Arc<Hold>, mut late: Calls) {
    while let Some((server, _, vote)) = late.next_vote().await {
        if matches!(vote, Vote::Held(_) | Vote::Busy) {
            hold.with(|state| state.belief.learn(server, vote));
        }
    }
}

impl Drop for Ballot<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold {
            return hold.with(|state| {
                state.belief.changing = false;
                state.renewing -= 1;
                if !self.is_settled {
                    state.belief.lose(Loss::Unknown);
                }
            });
        }
        if !self.is_settled {
            // What has been answered meanwhile needs no more than that.
            while self.count_next().now_or_never() == Some(true) {}
            let (whom, lease) = (
                (&self.name, self.round.there()),
                self.terms.lease.duration(),
            );
            drop(self.core.leave(whom, lease, Verb::Leave { late: false }));
        }
    }
}
