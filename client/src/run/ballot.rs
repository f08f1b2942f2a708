//! The votes on one name: asks servers, counts what they say, and leaves the name everywhere if it is not won.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::net::server::Server;
use crate::proto::acquire::{Acquisition, Grant, Next, Patience, Terms};
use crate::proto::command::{Command, Who};
use crate::proto::hold::Shares;
use crate::proto::reply::{self, Answer, Failure, Reply, checked, refusal, unexpected};
use crate::proto::round::{Outcome, Round, Vote};
use crate::run::attempt::Attempt;
use crate::run::core::Core;
use crate::value::clock::BootInstant;
use crate::value::error::{Error, NodeFailure, NodeReason};
use crate::value::sync::lock;
use crate::value::token::Token;

/// One server's answer to a request sent at that moment.
pub(crate) type Asked = Pin<Box<dyn Future<Output = (usize, BootInstant, Answer)> + Send>>;

/// A round that was won.
pub(crate) struct Won {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: Token,
    pub(crate) shares: Shares,
    /// When the earliest grant counts from.
    pub(crate) since: BootInstant,
    /// What has not been answered yet.
    pub(crate) late: FuturesUnordered<Asked>,
}

/// The votes on one name. Dropped before it is won, the name is left on all servers that may know it.
pub(crate) struct Ballot<'a> {
    core: &'a Arc<Core>,
    key: &'a Arc<[u8]>,
    owner: Arc<[u8]>,
    terms: Terms,
    pub(crate) round: Round,
    asked: FuturesUnordered<Asked>,
    proposed: Option<Token>,
    started: BootInstant,
    is_won: bool,
}

impl<'a> Ballot<'a> {
    pub(crate) fn new(
        core: &'a Arc<Core>,
        key: &'a Arc<[u8]>,
        owner: Arc<[u8]>,
        terms: Terms,
    ) -> Ballot<'a> {
        Ballot {
            core,
            key,
            owner,
            terms,
            round: Round::new(core.servers.len(), terms.lease),
            asked: FuturesUnordered::new(),
            proposed: None,
            started: BootInstant::now(),
            is_won: false,
        }
    }

    fn names(&self) -> (Arc<[u8]>, Arc<[u8]>) {
        (self.key.clone(), self.owner.clone())
    }

    /// Asks servers, all at once and without waiting, until the outcome is known.
    pub(crate) async fn ask(&mut self, servers: impl Iterator<Item = usize>) -> Outcome {
        self.started = BootInstant::now();
        self.proposed = lock(&self.core.proposal).propose(self.started);
        let fence = self.round.proposal(self.proposed);
        for server in servers {
            self.round.votes[server] = Vote::Pending;
            let target = self.core.servers[server].clone();
            let ((key, owner), terms) = (self.names(), self.terms);
            self.asked.push(Box::pin(async move {
                let sent = BootInstant::now();
                let answer = ask_one(&target, (&key, &owner), terms, fence).await;
                (server, sent, answer)
            }));
        }
        // The requests are sent before anything is decided: what is held may be a majority already.
        let mut first = self.asked.next().now_or_never().flatten();
        loop {
            let answer = match first.take() {
                Some(answer) => Some(answer),
                None => match self.round.outcome(BootInstant::now()) {
                    Outcome::Raise(token, servers) => {
                        self.raise(token, servers).await;
                        continue;
                    }
                    Outcome::Won(token) => return Outcome::Won(token),
                    // Who is to queue has to know who is there.
                    Outcome::Lost if self.round.answered().count() >= self.round.majority() => {
                        self.await_earlier().await;
                        return Outcome::Lost;
                    }
                    Outcome::Lost | Outcome::Open => self.asked.next().await,
                },
            };
            match answer {
                Some((server, sent, answer)) => self.count(server, sent, answer),
                None => return self.round.outcome(BootInstant::now()),
            }
        }
    }

    /// Gives servers that come first in the queue's order, and have not answered yet, as long again as the others took.
    async fn await_earlier(&mut self) {
        let grace = self.started.elapsed() + Duration::from_millis(2);
        let core = self.core;
        let mut pause = Box::pin(core.pause(grace));
        loop {
            let first = self.round.answered().next();
            let is_earlier = |server| Some(server) < first;
            if !self.round.pending().any(is_earlier) {
                return;
            }
            match select(self.asked.next(), pause).await {
                Either::Left((Some((server, sent, answer)), left)) => {
                    pause = left;
                    self.count(server, sent, answer);
                }
                _ => return,
            }
        }
    }

    fn count(&mut self, server: usize, sent: BootInstant, answer: Answer) {
        let name = &self.core.servers[server].name;
        self.round.votes[server] = match answer {
            Ok(Reply::Int(token)) if token > 0 => {
                let token = Token::new(token.unsigned_abs());
                return self.round.on_granted(server, token, sent);
            }
            Ok(Reply::Nil) => Vote::Busy,
            Ok(Reply::Error(line)) => Vote::Failed(refusal(line, name)),
            Err(failure @ Failure::NotSent(_)) => Vote::Failed(failure.error(name)),
            answer => match checked(answer, name) {
                Ok(reply) => Vote::Unknown(unexpected(&reply)),
                Err(error) => Vote::Unknown(error),
            },
        };
    }

    /// Writes a token back to servers that have granted a smaller one.
    async fn raise(&mut self, token: Token, servers: Vec<usize>) {
        let who = (&**self.key, &*self.owner);
        let core = self.core;
        let mut answers: FuturesUnordered<_> = servers
            .into_iter()
            .map(|server| async move {
                let command = Command::Fence { who, token };
                (server, core.servers[server].call(&command).await)
            })
            .collect();
        while let Some((server, answer)) = answers.next().await {
            let raised = checked(answer, &core.servers[server].name).and_then(reply::token);
            self.round.on_raised(server, raised);
            if !matches!(self.round.outcome(BootInstant::now()), Outcome::Raise(..)) {
                return;
            }
        }
    }

    /// Waits in a server's queue, renewing what is held meanwhile. `None`: it was not granted; the vote says why.
    pub(crate) async fn wait_on(&mut self, server: usize, patience: Patience) -> Option<Grant> {
        let terms = Terms {
            patience,
            fails_over: false,
            ..self.terms
        };
        self.round.votes[server] = Vote::Pending;
        let core = self.core;
        // The votes of this ballot say what is to be left.
        let attempt = Attempt::new(core, server, self.key, self.owner.clone(), terms.lease);
        let mut acquisition = Acquisition::new(terms, BootInstant::now());
        let next = {
            let mut asking = Box::pin(attempt.ask_by(&mut acquisition, terms, None));
            loop {
                let pause = Box::pin(core.pause(terms.lease.renewal_period()));
                match select(asking, pause).await {
                    Either::Left((next, _)) => break next,
                    Either::Right(((), left)) => asking = left,
                }
                self.renew().await;
            }
        };
        attempt.settled();
        match next {
            // What is late is seen by the round.
            Next::Granted(grant) | Next::Confirm(grant) => Some(grant),
            Next::Failed {
                leave: false,
                error: Error::Busy { .. },
            } => {
                self.round.votes[server] = Vote::Busy;
                None
            }
            Next::Failed { leave, error } => {
                self.round.votes[server] = match leave {
                    true => Vote::Unknown(error),
                    false => Vote::Failed(error),
                };
                None
            }
            Next::Again { leave, .. } => {
                let error = acquisition.waited(BootInstant::now());
                self.round.votes[server] = match leave {
                    true => Vote::Unknown(error),
                    false => Vote::Failed(error),
                };
                None
            }
            Next::AwaitLetter => None,
        }
    }

    /// Renews what is held while a server is waited on.
    async fn renew(&mut self) {
        let held: Vec<(usize, Token)> = self
            .round
            .granted()
            .map(|(server, granted)| (server, granted.token))
            .collect();
        let sent = BootInstant::now();
        let (who, lease) = ((&**self.key, &*self.owner), self.terms.lease);
        let core = self.core;
        let asking = held.into_iter().map(|(server, had)| async move {
            let token = Some(had);
            let command = Command::Renew { who, lease, token };
            let answer = core.servers[server].call(&command).await;
            (
                server,
                checked(answer, &core.servers[server].name).and_then(reply::token),
            )
        });
        for (server, answer) in join_all(asking).await {
            if let Ok(answer) = answer {
                self.round.on_renewed(server, answer, sent);
            }
        }
    }

    /// Gives back what is held behind a server that is to be waited on. `false` if that is not known to be done.
    pub(crate) async fn give_up_behind(&mut self, server: usize) -> bool {
        let behind: Vec<usize> = self.round.granted().map(|it| it.0).collect();
        let who = (&**self.key, &*self.owner);
        let core = self.core;
        for later in behind.into_iter().filter(|it| *it > server) {
            let command = Command::Release { who, token: None };
            let answer = core.servers[later].call(&command).await;
            if checked(answer, &core.servers[later].name).is_err() {
                return false;
            }
            self.round.votes[later] = Vote::Unasked;
        }
        true
    }

    pub(crate) fn holds(&self, server: usize) -> bool {
        matches!(self.round.votes[server], Vote::Granted(_))
    }

    pub(crate) fn not_granted(&self) -> Vec<usize> {
        let votes = self.round.votes.iter().enumerate();
        let open =
            votes.filter(|(_, vote)| matches!(vote, Vote::Unasked | Vote::Busy | Vote::Failed(_)));
        open.map(|(server, _)| server).collect()
    }

    /// Where to queue: on the first server that has answered, if any is held by others.
    pub(crate) fn first_in_line(&self) -> Option<usize> {
        let is_busy = |vote: &Vote| matches!(vote, Vote::Busy);
        let is_there = |vote: &Vote| match vote {
            Vote::Granted(_) | Vote::Busy => true,
            // Its connection was closed, and is opened again.
            Vote::Unknown(Error::Connection { error, .. }) => !error.is_timeout(),
            _ => false,
        };
        let first = self.round.votes.iter().position(is_there)?;
        self.round.votes.iter().any(is_busy).then_some(first)
    }

    pub(crate) fn error(&self) -> Error {
        let failure = |(server, vote): (usize, &Vote)| {
            let reason = match vote {
                Vote::Granted(_) => return None,
                Vote::Busy => NodeReason::Busy,
                Vote::Ahead => NodeReason::Ahead,
                Vote::Unasked | Vote::Pending => NodeReason::Silent,
                Vote::Unknown(error) | Vote::Failed(error) => NodeReason::of(error.clone()),
            };
            let server = self.core.servers[server].name.clone();
            Some(NodeFailure { server, reason })
        };
        Error::NoQuorum {
            needed: self.core.majority(),
            granted: self.round.granted().count(),
            nodes: self
                .round
                .votes
                .iter()
                .enumerate()
                .filter_map(failure)
                .collect(),
        }
    }

    pub(crate) fn won(mut self, token: Token) -> Won {
        self.is_won = true;
        lock(&self.core.proposal).learn(token, self.proposed, self.started);
        let since = self.round.granted().map(|(_, granted)| granted.since);
        Won {
            owner: self.owner.clone(),
            token,
            shares: self.round.shares(),
            since: since.min().unwrap_or(self.started),
            late: std::mem::take(&mut self.asked),
        }
    }
}

async fn ask_one(server: &Arc<Server>, who: Who<'_>, terms: Terms, fence: Option<Token>) -> Answer {
    let command = Command::Acquire {
        who,
        mode: terms.mode,
        lease: terms.lease,
        wait: None,
        fence,
        upgrade: None,
    };
    server.call(&command).await
}

impl Drop for Ballot<'_> {
    fn drop(&mut self) {
        if self.is_won {
            return;
        }
        // What has been answered meanwhile needs no more than that.
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some((server, sent, answer))) =
            self.asked.poll_next_unpin(&mut context)
        {
            self.count(server, sent, answer);
        }
        for (server, vote) in self.round.votes.iter().enumerate() {
            let late = match vote {
                Vote::Unasked | Vote::Busy | Vote::Failed(_) => continue,
                Vote::Granted(_) | Vote::Ahead => false,
                Vote::Pending | Vote::Unknown(_) => true,
            };
            self.core
                .leave(server, self.names(), self.terms.lease, late);
        }
    }
}
