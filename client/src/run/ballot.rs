//! The votes on one name: asks servers, counts what they say, and leaves the name everywhere if it is not won.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use crate::net::task;
use crate::proto::{
    Acquisition, Belief, Command, Held, Name, Next, Outcome, Reply, Round, Terms, Verb, Vote,
    checked, refusal, token,
};
use crate::run::{Call, Calls, Core, Hold, REDIRECTIONS};
use crate::value::{BootInstant, Error, Lease, Loss, Token, lock};

/// The votes on one name. Dropped before it is settled, nobody knows what became of it: the name is left on all servers that
/// may know it, and a hold that was to be changed is over.
pub(crate) struct Ballot<'a> {
    core: &'a Arc<Core>,
    name: Name,
    terms: Terms,
    pub(crate) round: Round,
    asked: Calls,
    /// The hold that the name has already, where it is to be changed.
    hold: Option<&'a Arc<Hold>>,
    proposed: Option<Token>,
    started: BootInstant,
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
            asked: Calls::default(),
            hold: None,
            proposed: None,
            started: BootInstant::now(),
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

    fn call(&self, server: usize, verb: Verb) -> Call {
        Call::new(&self.core.servers[server], &self.name, verb)
    }

    fn acquire(&self, server: usize, fence: Option<Token>) -> Verb {
        let held = |hold: &Arc<Hold>| {
            hold.with(|state| state.belief.token_at(server).unwrap_or(state.belief.token))
        };
        Verb::Acquire {
            mode: self.terms.mode,
            lease: self.terms.lease,
            fence,
            upgrade: self.hold.map(held),
        }
    }

    /// Asks servers, all at once and without waiting, until it is won, or lost.
    pub(crate) async fn ask(&mut self, servers: Vec<usize>) -> Option<Token> {
        self.started = BootInstant::now();
        self.proposed = lock(&self.core.proposal).propose(self.started);
        let fence = self.round.proposal(self.proposed);
        for server in servers {
            self.round[server] = Vote::Pending;
            let call = self.call(server, self.acquire(server, fence));
            self.asked.add(server, call);
        }
        loop {
            if let Some(token) = self.agree().await {
                return Some(token);
            }
            let is_lost = self.round.outcome(BootInstant::now()) == Outcome::Lost;
            if is_lost && self.round.answered().count() >= self.round.majority() {
                // Who is to queue has to know who is there.
                self.await_earlier().await;
                return None;
            }
            if !self.count_next().await {
                return None;
            }
        }
    }

    /// Counts the next that is answered; `false` once all are.
    pub(crate) async fn count_next(&mut self) -> bool {
        let Some((server, (sent, answer))) = self.asked.next().await else {
            return false;
        };
        let name = &self.core.servers[server].name;
        self.round[server] = Vote::of(answer, sent, self.terms.lease, name);
        true
    }

    /// Gives servers that come first in the queue's order, and have not answered yet, as long again as the others took.
    async fn await_earlier(&mut self) {
        let (core, grace) = (self.core, self.started.elapsed() + Duration::from_millis(2));
        let counting = async {
            let is_earlier_open = |round: &Round| {
                let first = round.answered().next();
                round.pending().any(|server| Some(server) < first)
            };
            while is_earlier_open(&self.round) && self.count_next().await {}
        };
        select(pin!(core.pause(grace)), pin!(counting)).await;
    }

    /// The token that it is won by, which is written back to servers that have granted a smaller one.
    pub(crate) async fn agree(&mut self) -> Option<Token> {
        loop {
            let (raised, servers) = match self.round.outcome(BootInstant::now()) {
                Outcome::Won(token) => return Some(token),
                Outcome::Raise(token, servers) => (token, servers),
                Outcome::Open | Outcome::Lost => return None,
            };
            let fence = |server| (server, self.call(server, Verb::Fence(raised)));
            let mut calls = Calls(servers.into_iter().map(fence).collect());
            while let Some((server, (_, answer))) = calls.next().await {
                match checked(answer, &self.core.servers[server].name).and_then(token) {
                    Ok(token) => self.round.on_renewed(server, token, BootInstant::default()),
                    Err(error) => self.round[server] = Vote::Unknown(error),
                }
                if !matches!(self.round.outcome(BootInstant::now()), Outcome::Raise(..)) {
                    break;
                }
            }
        }
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
            if !self.holds(at) {
                return None;
            }
            let others = self.round.those(|vote| vote.may_be_there().is_none());
            let won = self.ask(others.collect()).await;
            let is_alone = self.round.answered().count() < self.round.majority();
            if is_alone || won.is_some() {
                return won;
            }
            let is_busy = |server: &usize| matches!(self.round[*server], Vote::Busy);
            let next = (at + 1..self.round.len()).find(is_busy)?;
            if !(self.holds(at) && self.give_up_behind(next).await) {
                return None;
            }
            at = next;
        }
    }

    fn holds(&self, server: usize) -> bool {
        self.round[server].held().is_some()
    }

    /// Waits in a server's queue, as long as it may, renewing what is held meanwhile.
    pub(crate) async fn wait_on(&mut self, server: usize, acquisition: &mut Acquisition) {
        let (core, asked) = (self.core, (self.name.clone(), self.acquire(server, None)));
        loop {
            self.round[server] = Vote::Pending;
            self.round[server] = {
                let asking = pin!(queue(core, server, &asked, acquisition));
                let Either::Left((vote, _)) = select(asking, pin!(self.keep())).await;
                vote
            };
            // Whoever asks for more of what he has, and was sent away, may ask again: it is the same request.
            let vote = &self.round[server];
            if self.hold.is_none() || !matches!(vote, Vote::Failed(_)) {
                return;
            }
            match acquisition.after_vote(vote, BootInstant::now()) {
                Next::Again(pause) => core.pause(pause).await,
                _ => return,
            }
        }
    }

    /// Renews what is held while a server is waited on.
    async fn keep(&mut self) -> Infallible {
        let lease = self.terms.lease;
        loop {
            if self.round.held().next().is_none() {
                return pending().await;
            }
            self.core.pause(lease.renewal_period()).await;
            let renew = |(server, held): (usize, &Held)| {
                (
                    server,
                    self.call(server, Verb::Renew(lease, Some(held.token))),
                )
            };
            let mut calls = Calls(self.round.held().map(renew).collect());
            while let Some((server, (sent, answer))) = calls.next().await {
                if let Ok(answer) = checked(answer, "").and_then(token) {
                    let until = lease.believed_until(sent);
                    self.round.on_renewed(server, answer, until);
                }
            }
        }
    }

    /// Gives back what is held behind a server that is to be waited on. `false` if that is not known to be done.
    async fn give_up_behind(&mut self, server: usize) -> bool {
        let behind = self.round.held().filter(|it| it.0 > server);
        let release = |(later, _): (usize, &Held)| (later, self.call(later, Verb::Release(None)));
        let mut calls = Calls(behind.map(release).collect());
        while let Some((later, (_, answer))) = calls.next().await {
            if checked(answer, "").is_err() {
                return false;
            }
            self.round[later] = Vote::Unasked;
        }
        true
    }

    /// It is won: the hold, which ends when it is that old.
    pub(crate) fn won(&mut self, token: Token, max_hold: Option<Duration>) -> Arc<Hold> {
        let (core, Terms { mode, lease, .. }) = (self.core, self.terms);
        self.is_settled = true;
        if core.is_quorum() {
            lock(&core.proposal).learn(token, self.proposed, self.started);
        }
        let since = self.round.held().map(|(_, held)| held.made).min();
        let cap = since.zip(max_hold).map(|(since, max)| since + max);
        let round = std::mem::replace(&mut self.round, Round::new(0));
        let belief = Belief::new(token, round, lease, cap);
        let hold = Hold::new(core.clone(), self.name.clone(), belief, mode);
        let late = std::mem::take(&mut self.asked);
        if !late.0.is_empty() {
            task::spawn(&core.runtime, learn(hold.clone(), lease, late));
        }
        hold
    }
}

/// Takes in what the others say of a lock that was won without them.
async fn learn(hold: Arc<Hold>, lease: Lease, mut late: Calls) {
    while let Some((server, (sent, answer))) = late.next().await {
        let vote = Vote::of(answer, sent, lease, &hold.core.servers[server].name);
        hold.with(|state| {
            let is_open = state.belief.round[server].may_be_there() == Some(true);
            if is_open && matches!(vote, Vote::Held(_) | Vote::Busy) {
                state.belief.set(server, vote, Loss::Denied);
            }
        });
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
            let (whom, lease) = ((&self.name, &self.round), self.terms.lease.duration());
            drop(self.core.leave(whom, lease, Verb::Leave { late: false }));
        }
    }
}

/// Asks a server, wherever the key is, and waits in its queue for the letter that answers.
async fn queue(
    core: &Arc<Core>,
    number: usize,
    (name, verb): &(Name, Verb),
    acquisition: &mut Acquisition,
) -> Vote {
    let (server, lease) = (&core.servers[number], acquisition.terms.lease);
    let mut route = server.route(&name.key);
    for _ in 0..REDIRECTIONS {
        let sent = BootInstant::now();
        let entry = acquisition.queue_limit(sent).map(|limit| {
            let mail = core.mail(number, &route.peer, &name.key);
            // Before the request is sent: a letter may overtake the reply.
            (limit, mail.enter(name.owner.clone()))
        });
        let wait = entry.as_ref().map(|(limit, it)| (*limit, &*it.mail.name));
        let command = Command::Of(name.who(), *verb, wait);
        let answer = route.send(&command, sent).await;
        if let Some(next) = server.redirected(&route, &answer) {
            route = next;
            continue;
        }
        let (Ok(queued @ Reply::Array(_)), Some((_, entry))) = (&answer, &entry) else {
            return Vote::of(answer, sent, lease, &server.name);
        };
        acquisition.on_queued();
        let (answer, since) = entry.decision(core, number, queued).await;
        let vote = Vote::of(answer, since.max(sent), lease, &server.name);
        // What has run out meanwhile is not taken up again.
        let is_over = vote.held().is_some_and(|it| it.until.remaining().is_zero());
        let too_late = Vote::Unknown(Error::Lost(Loss::Expired));
        return if is_over { too_late } else { vote };
    }
    let error = "TRYAGAIN the slot of this key is on its way".to_owned();
    Vote::Failed(refusal(error, &server.name))
}
