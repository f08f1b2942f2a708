//! One round: asks servers for a lock under one name, and counts what they say. Whatever a round that is not won has got is
//! given back when it is dropped.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::lock::retry::WaitLimit;
use crate::lock::{Ask, Attempted, Failed, Guard, Terms, attempt};
use crate::net::{sleep_until, task};
use crate::quorum::votes::{Outcome, Part, Tally};
use crate::quorum::{Member, QuorumHold, Servers};
use crate::value::{BootInstant, Error, NodeReason, Token, lock};
use crate::wire::Name;

/// What a server has said.
enum Vote {
    Unasked,
    Pending,
    Held(Member),
    /// Others hold the lock there.
    Busy,
    /// It may have granted it, and was left.
    Unknown(Error),
    /// Refused, or never reached.
    Failed(Error),
}

struct Voted {
    server: usize,
    vote: Vote,
}

type Asking = FuturesUnordered<BoxFuture<'static, Voted>>;

pub(crate) struct Ballot<'a> {
    servers: &'a Arc<Servers>,
    name: Name,
    ask: Ask,
    votes: Vec<Vote>,
    /// What is on its way: to each server one at a time.
    asking: Asking,
    /// The servers to which a connection was open when they were asked.
    was_connected: Vec<bool>,
    started: BootInstant,
}

impl<'a> Ballot<'a> {
    pub(super) fn new(servers: &'a Arc<Servers>, name: Name, ask: Ask) -> Ballot<'a> {
        let count = servers.all.len();
        Ballot {
            servers,
            name,
            // What only a lock that was won is to do.
            ask: Ask {
                at_least: Duration::ZERO,
                renews: false,
                is_part: true,
                ..ask
            },
            votes: (0..count).map(|_| Vote::Unasked).collect(),
            asking: Asking::new(),
            was_connected: vec![false; count],
            started: BootInstant::now(),
        }
    }

    fn ask(&mut self, server: usize, fence: Option<Token>, wait: Option<u64>) {
        let (core, name) = (self.servers.all[server].clone(), self.name.clone());
        let mut ask = Ask { wait, ..self.ask };
        ask.acquire.fence = fence;
        self.votes[server] = Vote::Pending;
        self.was_connected[server] = core.endpoint.is_connected(&name.key);
        let asking = async move {
            let vote = vote(attempt(&core, &name, ask).await);
            Voted { server, vote }
        };
        self.asking.push(asking.boxed());
    }

    /// Asks all servers that have not granted it, at once, until it is won, or lost; a token that is larger than what some have
    /// granted is written back to them.
    pub(super) async fn ask_all(&mut self) -> Option<Token> {
        self.started = BootInstant::now();
        let proposed = lock(&self.servers.clocks).propose(self.started);
        let fence = self.tally().proposal(proposed);
        for server in 0..self.votes.len() {
            // A name that was left is not used again.
            if matches!(
                self.votes[server],
                Vote::Unasked | Vote::Busy | Vote::Failed(_)
            ) {
                self.ask(server, fence, None);
            }
            self.servers
                .read_clock(server, &self.name.key, self.started);
        }
        loop {
            match self.tally().outcome(BootInstant::now()) {
                Outcome::Won(token) => return Some(token),
                Outcome::Raise(token, servers) => {
                    if proposed.is_some() {
                        lock(&self.servers.clocks).exceeded(BootInstant::now());
                    }
                    self.raise(token, servers);
                }
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

    fn raise(&mut self, token: Token, servers: Vec<usize>) {
        for server in servers {
            let Some(member) = self.take_member(server) else {
                continue;
            };
            let raising = async move {
                let vote = match member.hold.fence(token).await {
                    Ok(()) => Vote::Held(member),
                    // It is given back, or left: the name is not used again.
                    Err(error) => Vote::Unknown(error),
                };
                Voted { server, vote }
            };
            self.asking.push(raising.boxed());
        }
    }

    /// Takes out what a server has granted: until it has answered again, it is pending.
    fn take_member(&mut self, server: usize) -> Option<Member> {
        match mem::replace(&mut self.votes[server], Vote::Pending) {
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

    /// Gives servers that come first in the queue's order, and have not answered yet, as long again as the others took, or the
    /// time of an answer where the connection was not open yet.
    async fn await_earlier(&mut self) {
        let is_pending = |ballot: &Self, connected: bool| {
            let first = (0..ballot.votes.len()).find(|server| ballot.has_answered(*server));
            let mut earlier = 0..first.unwrap_or(0);
            earlier.any(|server| {
                let is_pending = matches!(ballot.votes[server], Vote::Pending);
                is_pending && (connected || !ballot.was_connected[server])
            })
        };
        let limit = match is_pending(self, false) {
            true => self.servers.timeouts.answer,
            false => self.started.elapsed() + Duration::from_millis(2),
        };
        let end = sleep_until(BootInstant::now() + limit);
        let counting = async { while is_pending(self, true) && self.count_next().await {} };
        select(pin!(counting), pin!(end)).await;
    }

    /// Queues on a server, and on the next one that others hold once it has granted the lock.
    pub(super) async fn queue(&mut self, mut at: usize, limit: WaitLimit) -> Option<Token> {
        loop {
            self.wait_on(at, limit).await;
            if !matches!(self.votes[at], Vote::Held(_)) {
                return None;
            }
            let won = self.ask_all().await;
            if won.is_some() || !self.has_answer() || !matches!(self.votes[at], Vote::Held(_)) {
                return won;
            }
            at = (at + 1..self.votes.len()).find(|server| self.is_busy(*server))?;
        }
    }

    /// Waits in a server's queue, as long as it may. What is held behind it is given back, so that nobody who is waited for
    /// waits for that.
    async fn wait_on(&mut self, server: usize, limit: WaitLimit) {
        self.ask(server, None, limit.to_queue(BootInstant::now()));
        while matches!(self.votes[server], Vote::Pending) {
            for behind in server + 1..self.votes.len() {
                self.give_back(behind);
            }
            self.count_next().await;
        }
    }

    /// Gives back what a server has granted. It may be asked again under the same name once it has confirmed that.
    fn give_back(&mut self, server: usize) {
        let Some(member) = self.take_member(server) else {
            return;
        };
        member.hold.reuse_name();
        let giving_back = async move {
            let vote = match member.guard.release().await {
                Ok(()) => Vote::Unasked,
                Err(error) => Vote::Unknown(error),
            };
            Voted { server, vote }
        };
        self.asking.push(giving_back.boxed());
    }

    /// It is won: the hold.
    pub(super) fn won(&mut self, token: Token, terms: &Terms) -> Arc<QuorumHold> {
        let servers = self.servers;
        lock(&servers.clocks).granted(token);
        let ahead: Vec<usize> = self.tally().ahead(BootInstant::now()).collect();
        let mut members = Vec::new();
        for (server, vote) in self.votes.iter_mut().enumerate() {
            if let Vote::Held(member) = mem::replace(vote, Vote::Unasked)
                && !ahead.contains(&server)
            {
                members.push(member);
            }
        }
        let mode = self.ask.acquire.mode;
        let name = self.name.clone();
        let hold = QuorumHold::new(servers.clone(), name, mode, token, terms, members);
        let late = mem::take(&mut self.asking);
        hold.set_late(late.len());
        if !late.is_empty() {
            task::spawn(&servers.all[0].runtime, join_late(hold.clone(), late));
        }
        hold
    }

    fn tally(&self) -> Tally {
        let part = |vote: &Vote| match vote {
            Vote::Held(Member { hold, .. }) => hold.grant().map(|grant| Part {
                grant,
                made: hold.first_token(),
            }),
            _ => None,
        };
        let is_pending = |vote: &&Vote| matches!(vote, Vote::Pending);
        Tally {
            parts: self.votes.iter().map(part).collect(),
            pending: self.votes.iter().filter(is_pending).count(),
        }
    }

    fn is_busy(&self, server: usize) -> bool {
        matches!(self.votes[server], Vote::Busy)
    }

    /// Whether the server has said something of the lock that may be relied on.
    fn has_answered(&self, server: usize) -> bool {
        matches!(self.votes[server], Vote::Held(_) | Vote::Busy)
    }

    /// Whether a majority has.
    pub(super) fn has_answer(&self) -> bool {
        let ahead: Vec<usize> = self.tally().ahead(BootInstant::now()).collect();
        let answered = (0..self.votes.len())
            .filter(|server| self.has_answered(*server) && !ahead.contains(server));
        answered.count() >= self.servers.majority()
    }

    /// Where to queue: on the first server that answers, if others hold any.
    pub(super) fn first_to_queue_on(&self) -> Option<usize> {
        let answers = |vote: &Vote| match vote {
            Vote::Held(_) | Vote::Busy => true,
            // Its connection was closed, and is opened again.
            Vote::Unknown(Error::Connection { error, .. }) => error.is_broken(),
            _ => false,
        };
        let first = self.votes.iter().position(answers)?;
        let is_busy = self.votes.iter().any(|vote| matches!(vote, Vote::Busy));
        is_busy.then_some(first)
    }

    /// That too few servers have granted it, and why.
    pub(super) fn no_quorum(&self) -> Error {
        let ahead: Vec<usize> = self.tally().ahead(BootInstant::now()).collect();
        let reason = |(server, vote): (usize, &Vote)| {
            let reason = match vote {
                Vote::Held(_) if ahead.contains(&server) => NodeReason::Ahead,
                Vote::Held(_) | Vote::Unasked => return None,
                Vote::Busy => NodeReason::Busy,
                Vote::Pending => NodeReason::Silent,
                Vote::Unknown(error) | Vote::Failed(error) => NodeReason::of(error.clone()),
            };
            Some((server, reason))
        };
        let reasons = self.votes.iter().enumerate().filter_map(reason);
        let granted = self.votes.iter().filter(|it| matches!(it, Vote::Held(_)));
        self.servers
            .no_quorum(granted.count() - ahead.len(), reasons)
    }
}

fn vote(attempted: Attempted<Guard>) -> Vote {
    match attempted.result {
        Ok(guard) => match Member::of(guard) {
            Ok(member) => Vote::Held(member),
            Err(error) => Vote::Unknown(error),
        },
        Err(Failed::Denied) => Vote::Busy,
        Err(Failed::Refused(error)) => Vote::Failed(error),
        Err(Failed::Unknown(error)) => Vote::Unknown(error),
    }
}

/// Takes in the servers that grant a lock after it was won without them.
async fn join_late(hold: Arc<QuorumHold>, mut late: Asking) {
    let mut lost = hold.clone().lost();
    while let Either::Left((Some(voted), _)) = select(late.next(), &mut lost).await {
        if let Vote::Held(member) = voted.vote {
            hold.join(member);
        }
        hold.set_late(late.len());
    }
    // Lost: nobody waits for the others.
    hold.set_late(0);
}
