//! One round: asks servers for a lock under one name, and counts what they say. Whatever a round that is not won has got is
//! given back when it is dropped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::acquire::{Attempt, Wanted, Won};
use crate::belief::{Belief, Part};
use crate::core::Core;
use crate::error::{Error, Failed, NodeFailure, NodeReason};
use crate::hold::{Hold, Share};
use crate::name::Bytes;
use crate::node::{Node, Route};
use crate::quorum::votes::{self, Outcome, Tally, majority};
use crate::request::{self, Name};
use crate::time::BootInstant;
use crate::token::Token;

/// What a server has said.
enum Vote {
    Unasked,
    Pending,
    Held(Member),
    /// Others hold the lock there.
    Busy,
    /// It may have granted it, and was left.
    Unknown(Error),
    /// It has granted it, and does not take a larger token.
    Unraised(Error),
    /// Refused, or never reached.
    Failed(Error),
}

/// What a server has granted, and the token that it made itself.
struct Member {
    won: Won,
    made: Token,
}

struct Voted {
    server: usize,
    vote: Vote,
}

pub(crate) struct Round<'a> {
    core: &'a Arc<Core>,
    wanted: &'a Wanted,
    /// In the order in which clients queue.
    nodes: Vec<Arc<Node>>,
    name: Name,
    votes: Vec<Vote>,
    /// What is on its way: to each server one at a time.
    asking: FuturesUnordered<BoxFuture<'static, Voted>>,
    started: BootInstant,
}

impl<'a> Round<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, wanted: &'a Wanted, owner: Bytes) -> Round<'a> {
        let mut nodes = core.servers.nodes();
        // In whatever order they were listed.
        nodes
            .sort_by_cached_key(|node| node.identity.id().unwrap_or_else(|| node.name.to_string()));
        let votes = nodes.iter().map(|_| Vote::Unasked).collect();
        let name = Name {
            keys: wanted.keys.clone(),
            owner,
        };
        Round {
            core,
            wanted,
            nodes,
            name,
            votes,
            asking: FuturesUnordered::new(),
            started: BootInstant::now(),
        }
    }

    fn ask(&mut self, server: usize, wait: Option<u64>) {
        let core = self.core.clone();
        let attempt = Attempt {
            route: Route::to(self.nodes[server].clone()),
            name: self.name.clone(),
            terms: self.wanted.terms,
            wait,
        };
        self.votes[server] = Vote::Pending;
        let asking = async move {
            let vote = match attempt.ask(&core).await {
                Ok(won) => Vote::Held(Member {
                    made: won.grant.token,
                    won,
                }),
                Err(Failed::Denied) => Vote::Busy,
                Err(Failed::Refused(error)) => Vote::Failed(error),
                Err(Failed::Unknown(error)) => Vote::Unknown(error),
            };
            Voted { server, vote }
        };
        self.asking.push(asking.boxed());
    }

    /// Asks all servers that have not granted it, at once, until it is won, or lost. A token that is larger than what some have
    /// granted is written back to them.
    pub(crate) async fn ask_all(&mut self) -> Option<Token> {
        for server in 0..self.votes.len() {
            // A name that was left is not used again.
            if matches!(
                self.votes[server],
                Vote::Unasked | Vote::Busy | Vote::Failed(_)
            ) {
                self.ask(server, None);
            }
        }
        loop {
            match self.tally().outcome(BootInstant::now()) {
                Outcome::Won(token) => return Some(token),
                Outcome::Raise(token, servers) => servers
                    .into_iter()
                    .for_each(|server| self.raise(server, token)),
                // To queue, it has to be known which servers answer.
                Outcome::Lost if self.has_answer() => {
                    self.await_earlier().await;
                    return None;
                }
                Outcome::Open | Outcome::Lost => {}
            }
            if !self.count_next().await {
                return None;
            }
        }
    }

    /// Raises the token of a server's grant.
    fn raise(&mut self, server: usize, token: Token) {
        let Some(mut member) = self.take_member(server) else {
            return;
        };
        let (core, place) = (self.core.clone(), member.won.place());
        let fence = request::fence(&place.key, member.won.owner(), token);
        let raising = async move {
            let reply = core.servers.call(&place, &fence, core.settings.reply).await;
            let vote = match reply.and_then(|reply| request::token(reply.value)) {
                Ok(token) => {
                    member.won.grant.token = token;
                    Vote::Held(member)
                }
                // It is left, and the name is not used again.
                Err(failed) => {
                    Vote::Unraised(failed.error(Error::Lost(crate::error::Loss::Denied)))
                }
            };
            Voted { server, vote }
        };
        self.asking.push(raising.boxed());
    }

    /// Gives back what a server has granted. It may be asked again under the same name once it has confirmed that.
    fn give_back(&mut self, server: usize) {
        let Some(member) = self.take_member(server) else {
            return;
        };
        let (core, place) = (self.core.clone(), member.won.place());
        let release = request::release(&place.key, member.won.owner(), member.won.grant.token);
        let giving_back = async move {
            let reply = core
                .servers
                .call(&place, &release, core.settings.reply)
                .await;
            let vote = match reply.and_then(|reply| request::number(reply.value)) {
                Ok(_) => {
                    member.won.armed.settle();
                    Vote::Unasked
                }
                Err(failed) => Vote::Unknown(failed.error(Error::Lost(crate::error::Loss::Denied))),
            };
            Voted { server, vote }
        };
        self.asking.push(giving_back.boxed());
    }

    /// Takes out what a server has granted: until it has answered again, it is pending.
    fn take_member(&mut self, server: usize) -> Option<Member> {
        match std::mem::replace(&mut self.votes[server], Vote::Pending) {
            Vote::Held(member) => Some(member),
            other => {
                self.votes[server] = other;
                None
            }
        }
    }

    /// Counts the next vote; `false` once there are no more.
    async fn count_next(&mut self) -> bool {
        let Some(voted) = self.asking.next().await else {
            return false;
        };
        self.votes[voted.server] = voted.vote;
        true
    }

    /// Gives servers that come earlier in the queue's order, and have not answered yet, as long again as the others took. Clients then
    /// queue on the same one.
    async fn await_earlier(&mut self) {
        let is_pending = |round: &Self| {
            let first = (0..round.votes.len()).find(|server| round.has_answered(*server));
            let mut earlier = 0..first.unwrap_or(0);
            earlier.any(|server| {
                matches!(round.votes[server], Vote::Pending)
                    && !round.nodes[server].link.is_silent()
            })
        };
        let limit = self.started.elapsed() + Duration::from_millis(2);
        let runtime = self.core.runtime.clone();
        let counting = async { while is_pending(self) && self.count_next().await {} };
        select(pin!(counting), pin!(runtime.sleep(limit))).await;
    }

    /// Queues on a server, and on the next one that others hold once it has granted the lock. What it holds while it waits
    /// on another one it gives back after a part of the lease: two clients then never wait for each other for long.
    pub(crate) async fn queue(&mut self, first: usize, wait: u64) -> Option<Token> {
        let (mut at, mut wait) = (first, wait);
        loop {
            self.wait_on(at, wait).await;
            if !matches!(self.votes[at], Vote::Held(_)) {
                return None;
            }
            let won = self.ask_all().await;
            if won.is_some() || !self.has_answer() || !matches!(self.votes[at], Vote::Held(_)) {
                return won;
            }
            at = (at + 1..self.votes.len())
                .find(|server| matches!(self.votes[*server], Vote::Busy))?;
            let left = self.oldest()? + self.wanted.terms.lease.renewal_period();
            wait = u64::try_from(left.remaining().as_millis())
                .ok()
                .filter(|left| *left > 0)?;
        }
    }

    /// When the first server that holds it has granted it.
    fn oldest(&self) -> Option<BootInstant> {
        let held = self.votes.iter().filter_map(|vote| match vote {
            Vote::Held(member) => Some(member.won.grant.since),
            _ => None,
        });
        held.min()
    }

    /// Waits in a server's queue, as long as it may. What is held behind it is given back, so that nobody who is waited for
    /// waits for that.
    async fn wait_on(&mut self, server: usize, wait: u64) {
        self.ask(server, Some(wait));
        while matches!(self.votes[server], Vote::Pending) {
            for behind in server + 1..self.votes.len() {
                self.give_back(behind);
            }
            self.count_next().await;
        }
    }

    /// It is won: the hold. Servers that grant it late join.
    pub(crate) async fn won(mut self, token: Token) -> Result<Share, Error> {
        let ahead: Vec<usize> = self.tally().ahead(BootInstant::now()).collect();
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for (server, vote) in std::mem::take(&mut self.votes).into_iter().enumerate() {
            if let Vote::Held(Member { won, .. }) = vote
                && !ahead.contains(&server)
            {
                parts.push(Part::new(won.grant, self.wanted.terms.lease));
                places.push(won.place());
                won.armed.settle();
            }
        }
        let terms = self.wanted.terms;
        let belief = Belief::new(
            token,
            terms.mode,
            terms.lease,
            majority(self.nodes.len()),
            parts,
        );
        let share = self
            .wanted
            .confirmed(self.core, self.name.owner.clone(), belief, places)
            .await?;
        if !self.asking.is_empty() {
            self.core
                .runtime
                .spawn(join_late(share.0.clone(), self.asking));
        }
        Ok(share)
    }

    fn tally(&self) -> Tally {
        let part = |vote: &Vote| match vote {
            Vote::Held(Member { won, made }) => Some(votes::Part {
                grant: won.grant,
                made: *made,
            }),
            _ => None,
        };
        // A server that did not answer the last time decides nothing before it does.
        let may_answer = |(vote, node): &(&Vote, &Arc<Node>)| {
            matches!(vote, Vote::Pending) && !node.link.is_silent()
        };
        Tally {
            parts: self.votes.iter().map(part).collect(),
            pending: self
                .votes
                .iter()
                .zip(&self.nodes)
                .filter(may_answer)
                .count(),
        }
    }

    /// Whether the server has said something of the lock that may be relied on.
    fn has_answered(&self, server: usize) -> bool {
        matches!(self.votes[server], Vote::Held(_) | Vote::Busy)
    }

    /// Whether a majority has.
    pub(crate) fn has_answer(&self) -> bool {
        let ahead: Vec<usize> = self.tally().ahead(BootInstant::now()).collect();
        let answered = (0..self.votes.len())
            .filter(|server| self.has_answered(*server) && !ahead.contains(server));
        answered.count() >= majority(self.votes.len())
    }

    /// Where to queue: on the first server that answers, if others hold any.
    pub(crate) fn first_to_queue_on(&self) -> Option<usize> {
        let is_busy = self.votes.iter().any(|vote| matches!(vote, Vote::Busy));
        (0..self.votes.len())
            .find(|server| self.has_answered(*server))
            .filter(|_| is_busy)
    }

    /// Whether so many servers refuse it that asking again cannot help.
    pub(crate) fn is_refused(&self) -> bool {
        let refuses = |vote: &&Vote| matches!(vote, Vote::Failed(error) | Vote::Unknown(error) if !error.passes());
        let unraised = |vote: &Vote| matches!(vote, Vote::Unraised(error) if !error.passes());
        if self.votes.iter().any(unraised) {
            return true;
        }
        let refusals = self.votes.iter().filter(refuses).count();
        refusals > self.votes.len() - majority(self.votes.len())
    }

    /// That too few servers have granted it, and why.
    pub(crate) fn no_quorum(&self) -> Error {
        let ahead: Vec<usize> = self.tally().ahead(BootInstant::now()).collect();
        let failure = |(server, vote): (usize, &Vote)| {
            let reason = match vote {
                Vote::Held(_) if ahead.contains(&server) => NodeReason::Ahead,
                Vote::Held(_) | Vote::Unasked => return None,
                Vote::Busy => NodeReason::Busy,
                Vote::Pending => self.nodes[server].link.silence().into(),
                Vote::Unknown(error) | Vote::Unraised(error) | Vote::Failed(error) => {
                    error.clone().into()
                }
            };
            Some(NodeFailure {
                server: self.nodes[server].name.to_string(),
                reason,
            })
        };
        let granted = self
            .votes
            .iter()
            .filter(|vote| matches!(vote, Vote::Held(_)))
            .count()
            - ahead.len();
        Error::NoQuorum {
            needed: majority(self.votes.len()),
            granted,
            nodes: self.votes.iter().enumerate().filter_map(failure).collect(),
        }
    }
}

/// Takes in the servers that grant a lock after it was won without them.
async fn join_late(hold: Arc<Hold>, mut late: FuturesUnordered<BoxFuture<'static, Voted>>) {
    let pending = hold.core.pending();
    while let Some(voted) = late.next().await {
        if let Vote::Held(Member { won, .. }) = voted.vote
            && hold.join(won.place(), won.grant)
        {
            won.armed.settle();
        }
    }
    drop(pending);
}
