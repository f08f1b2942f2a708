//! The votes on one name: asks servers, counts what they say, and leaves the name everywhere if it is not won.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::net::server::Server;
use crate::proto::{
    Acquisition, Command, Held, Name, Next, Outcome, Reply, Round, Terms, Verb, Vote, checked,
    refusal, token,
};
use crate::run::{Call, Calls, Core, REDIRECTIONS};
use crate::value::{BootInstant, Error, Lease, Loss, Mode, Token, lock};

/// The votes on one name. Dropped before it is settled, the name is left on all servers that may know it.
pub(crate) struct Ballot<'a> {
    core: &'a Arc<Core>,
    name: Name,
    mode: Mode,
    lease: Lease,
    pub(crate) round: Round,
    asked: Calls,
    /// The hold that the name has already, where it is to be changed.
    upgrade: Option<(Token, Round)>,
    proposed: Option<Token>,
    started: BootInstant,
    is_settled: bool,
}

impl<'a> Ballot<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, name: Name, terms: Terms) -> Ballot<'a> {
        Ballot {
            core,
            name,
            mode: terms.mode,
            lease: terms.lease,
            round: Round::new(core.servers.len()),
            asked: Calls::default(),
            upgrade: None,
            proposed: None,
            started: BootInstant::now(),
            is_settled: false,
        }
    }

    /// On more for a hold that is there; what is to be left of it is not for this to say.
    pub(crate) fn changing(mut self, token: Token, round: Round) -> Ballot<'a> {
        self.upgrade = Some((token, round));
        self.is_settled = true;
        self
    }

    fn call(&self, server: usize, verb: Verb) -> Call {
        Call::new(&self.core.servers[server], &self.name, verb)
    }

    fn acquire(&self, server: usize, fence: Option<Token>) -> Verb {
        let upgrade = self.upgrade.as_ref();
        Verb::Acquire {
            mode: self.mode,
            lease: self.lease,
            fence,
            upgrade: upgrade.map(|(token, round)| round[server].token().unwrap_or(*token)),
        }
    }

    /// Asks servers, all at once and without waiting, until the outcome is known.
    pub(crate) async fn ask(&mut self, servers: Vec<usize>) -> Outcome {
        self.started = BootInstant::now();
        self.proposed = lock(&self.core.proposal).propose(self.started);
        let fence = self.round.proposal(self.proposed);
        for server in servers {
            self.round[server] = Vote::Pending;
            let call = self.call(server, self.acquire(server, fence));
            self.asked.add(server, call);
        }
        loop {
            match self.agree().await {
                // Who is to queue has to know who is there.
                Outcome::Lost if self.round.answered().count() >= self.round.majority() => {
                    self.await_earlier().await;
                    return Outcome::Lost;
                }
                Outcome::Lost | Outcome::Open => {}
                outcome => return outcome,
            }
            if !self.count_next().await {
                return self.round.outcome(BootInstant::now());
            }
        }
    }

    /// Counts what is answered yet, to the last.
    pub(crate) async fn count_all(&mut self) {
        while self.count_next().await {}
    }

    async fn count_next(&mut self) -> bool {
        let next = self.asked.next().await;
        next.is_some_and(|(server, answer)| {
            let (sent, answer) = answer;
            let name = &self.core.servers[server].name;
            self.round[server] = Vote::of(answer, sent, self.lease, name);
            true
        })
    }

    /// Gives servers that come first in the queue's order, and have not answered yet, as long again as the others took.
    async fn await_earlier(&mut self) {
        let grace = self.started.elapsed() + Duration::from_millis(2);
        let mut pause = pin!(self.core.pause(grace));
        loop {
            let first = self.round.answered().next();
            if !self.round.pending().any(|server| Some(server) < first) {
                return;
            }
            let next = pin!(self.count_next());
            if !matches!(select(next, pause.as_mut()).await, Either::Left((true, _))) {
                return;
            }
        }
    }

    /// The outcome, after a token has been written back to servers that have granted a smaller one.
    pub(crate) async fn agree(&mut self) -> Outcome {
        loop {
            let outcome = self.round.outcome(BootInstant::now());
            let Outcome::Raise(token, servers) = outcome else {
                return outcome;
            };
            self.raise(token, servers).await;
        }
    }

    async fn raise(&mut self, raised: Token, servers: Vec<usize>) {
        let mut calls = Calls::default();
        for server in servers {
            calls.add(server, self.call(server, Verb::Fence(raised)));
        }
        while let Some((server, (_, answer))) = calls.next().await {
            let answer = checked(answer, &self.core.servers[server].name).and_then(token);
            self.round.on_raised(server, answer);
            if !matches!(self.round.outcome(BootInstant::now()), Outcome::Raise(..)) {
                return;
            }
        }
    }

    /// Queues on a server, and on the next one that others hold once it has granted the lock. Returns where it stood last.
    pub(crate) async fn queue(
        &mut self,
        first: usize,
        acquisition: &mut Acquisition,
    ) -> (Outcome, usize) {
        let mut at = first;
        loop {
            self.wait_on(at, acquisition).await;
            if !self.holds(at) {
                return (Outcome::Lost, at);
            }
            let others = self.round.those(|vote| vote.may_be_there().is_none());
            let outcome = self.ask(others.collect()).await;
            let is_alone = self.round.answered().count() < self.round.majority();
            if is_alone || matches!(outcome, Outcome::Won(_)) {
                return (outcome, at);
            }
            let is_busy = |server: &usize| matches!(self.round[*server], Vote::Busy);
            match (at + 1..self.round.len()).find(is_busy) {
                Some(next) if self.holds(at) && self.give_up_behind(next).await => at = next,
                _ => return (Outcome::Lost, at),
            }
        }
    }

    fn holds(&self, server: usize) -> bool {
        matches!(self.round[server], Vote::Held(_))
    }

    /// Waits in a server's queue, as long as it may, renewing what is held meanwhile.
    pub(crate) async fn wait_on(&mut self, server: usize, acquisition: &mut Acquisition) {
        let (core, lease) = (self.core, self.lease);
        let asked = (self.name.clone(), self.acquire(server, None));
        loop {
            self.round[server] = Vote::Pending;
            self.round[server] = {
                let mut asking = pin!(queue(core, server, &asked, lease, acquisition));
                loop {
                    if self.round.held().next().is_none() {
                        break asking.await;
                    }
                    let pause = pin!(core.pause(lease.renewal_period()));
                    if let Either::Left((vote, _)) = select(asking.as_mut(), pause).await {
                        break vote;
                    }
                    self.renew().await;
                }
            };
            // Whoever asks for more of what he has, and was sent away, may ask again: it is the same request.
            let vote = &self.round[server];
            if self.upgrade.is_none() || !matches!(vote, Vote::Failed(_)) {
                return;
            }
            match acquisition.after_vote(vote, BootInstant::now()) {
                Next::Again(pause) => core.pause(pause).await,
                _ => return,
            }
        }
    }

    /// Renews what is held while a server is waited on.
    async fn renew(&mut self) {
        let mut calls = Calls::default();
        for (server, held) in self.round.held() {
            let verb = Verb::Renew(self.lease, Some(held.token));
            calls.add(server, self.call(server, verb));
        }
        while let Some((server, (sent, answer))) = calls.next().await {
            if let Ok(answer) = checked(answer, "").and_then(token) {
                let until = self.lease.believed_until(sent);
                self.round.on_renewed(server, answer, until);
            }
        }
    }

    /// Gives back what is held behind a server that is to be waited on. `false` if that is not known to be done.
    async fn give_up_behind(&mut self, server: usize) -> bool {
        let mut calls = Calls::default();
        for (later, _) in self.round.held().filter(|it| it.0 > server) {
            calls.add(later, self.call(later, Verb::Release));
        }
        while let Some((later, (_, answer))) = calls.next().await {
            if checked(answer, "").is_err() {
                return false;
            }
            self.round[later] = Vote::Unasked;
        }
        true
    }

    /// It is won: the name, the votes, and what has not been answered yet.
    pub(crate) fn won(mut self, token: Token) -> (Name, Round, Calls) {
        self.is_settled = true;
        if self.core.is_quorum() {
            lock(&self.core.proposal).learn(token, self.proposed, self.started);
        }
        let late = std::mem::take(&mut self.asked);
        (self.name.clone(), self.round.clone(), late)
    }
}

impl Drop for Ballot<'_> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        // What has been answered meanwhile needs no more than that.
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some((server, (sent, answer)))) = self.asked.poll_next(&mut context) {
            self.round[server] = Vote::of(answer, sent, self.lease, "");
        }
        for (server, vote) in self.round.iter().enumerate() {
            if let Some(late) = vote.may_be_there() {
                self.core.leave(server, &self.name, self.lease, late);
            }
        }
    }
}

/// Asks a server, wherever the key is, and waits in its queue for the letter that answers.
async fn queue(
    core: &Arc<Core>,
    number: usize,
    (name, verb): &(Name, Verb),
    lease: Lease,
    acquisition: &mut Acquisition,
) -> Vote {
    let server = &core.servers[number];
    let mut route = server.route(&name.key);
    for _ in 0..REDIRECTIONS {
        let sent = BootInstant::now();
        let limit = acquisition.queue_limit(sent);
        let mail = limit.map(|_| core.mail(number, &route.peer, &name.key));
        // Before the request is sent: a letter may overtake the reply.
        let entry = mail.as_ref().map(|mail| mail.enter(name.owner.clone()));
        let command = match limit.zip(mail.as_ref()) {
            Some((limit, mail)) => Command::Queue(name.who(), *verb, (limit, &mail.name)),
            None => Command::Of(name.who(), *verb),
        };
        let answer = route.send(&command, sent).await;
        if let Some(next) = server.redirected(&route, &answer) {
            route = next;
            continue;
        }
        let (Ok(queued @ Reply::Array(_)), Some(entry)) = (&answer, entry) else {
            return Vote::of(answer, sent, lease, &server.name);
        };
        acquisition.on_queued();
        let (answer, since) = entry.decision(queued).await;
        let vote = Vote::of(answer, since.max(sent), lease, &server.name);
        return confirmed(vote, server, name, lease).await;
    }
    let error = "TRYAGAIN the slot of this key is on its way".to_owned();
    Vote::Failed(refusal(error, &server.name))
}

/// A grant is confirmed where half of its lease is gone. Where it has run out meanwhile it is not taken up again.
async fn confirmed(vote: Vote, server: &Arc<Server>, name: &Name, lease: Lease) -> Vote {
    let Vote::Held(held) = vote else { return vote };
    if held.made.elapsed() <= lease.duration() / 2 {
        return vote;
    }
    let too_late = Vote::Unknown(Error::Lost(Loss::Expired));
    if held.until.remaining().is_zero() {
        return too_late;
    }
    let verb = Verb::Renew(lease, Some(held.token));
    let (sent, answer) = Call::new(server, name, verb).await;
    match Vote::of(answer, sent, lease, &server.name) {
        Vote::Held(new) if new.token == held.token && !held.until.remaining().is_zero() => {
            let made = held.made;
            Vote::Held(Held { made, ..new })
        }
        Vote::Held(_) => too_late,
        Vote::Busy => Vote::Unasked,
        Vote::Failed(error) => Vote::Unknown(error),
        vote => vote,
    }
}
