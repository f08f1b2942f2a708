//! Acquiring over a quorum: in rounds, each under a name of its own. All servers are asked at once, a majority decides, and
//! whatever a round that is not won has got is given back when it is dropped. Where others hold the lock clients queue, on the
//! first of the servers that answers: in the order of the servers' identities, whatever order the client lists them in.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::acquire::Claim;
use crate::belief::{Belief, Grant, Part};
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::name::{Bytes, random_uuid};
use crate::node::{Node, Place};
use crate::quorum::ballot::{Ballot, Vote};
use crate::quorum::votes::{Outcome, majority};
use crate::request::{self, Terms};
use crate::retry::Tries;
use crate::time::BootInstant;
use crate::token::Token;

/// A server's number, and what it has said.
type Voted = (usize, Vote);

/// One round: asks servers for a lock under one name, and counts what they say.
struct Round<'a> {
    core: &'a Arc<Core>,
    terms: &'a Arc<Terms>,
    owner: Bytes,
    ballot: Ballot,
    /// What is on its way: to each server one at a time.
    asking: FuturesUnordered<BoxFuture<'static, Voted>>,
    started: BootInstant,
}

impl<'a> Round<'a> {
    fn new(core: &'a Arc<Core>, terms: &'a Arc<Terms>) -> Round<'a> {
        Round {
            core,
            terms,
            owner: terms.owner.next(),
            ballot: Ballot::new(core.servers.nodes()),
            asking: FuturesUnordered::new(),
            started: BootInstant::now(),
        }
    }

    fn ask(&mut self, server: usize, wait: Option<u64>) {
        let (node, key) = (&self.ballot.nodes[server], &self.terms.keys[0]);
        let place = Place::new(node.clone(), key.clone());
        let owner = self.owner.clone();
        let claim = Claim::new(self.core, place, owner, self.terms);
        self.ballot.votes[server] = Vote::Pending;
        let asking = async move {
            let vote = match claim.win(wait).await {
                Ok((claim, grant)) => Vote::Held(claim, grant),
                Err(Failed::Denied) => Vote::Busy,
                Err(Failed::Refused(error) | Failed::Unknown(error)) => Vote::Failed(error),
            };
            (server, vote)
        };
        self.asking.push(asking.boxed());
    }

    /// Asks all servers that were not asked yet, at once, until it is won, or lost: those after `queued` may wait so long. A token that is
    /// larger than what some have granted is written back to them.
    async fn ask_all(&mut self, queued: usize, wait: Option<u64>) -> Option<Token> {
        for server in self.ballot.servers() {
            if let Vote::Unasked = self.ballot.votes[server] {
                self.ask(server, wait.filter(|_| server > queued));
            }
        }
        loop {
            match self.ballot.tally().outcome(BootInstant::now()) {
                Outcome::Won(token) => return Some(token),
                Outcome::Raise(token, servers) => servers
                    .into_iter()
                    .for_each(|server| self.raise(server, token)),
                // To queue, it has to be known which servers answer.
                Outcome::Lost if self.ballot.has_answer() => {
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

    /// Raises the token of a server's grant. If that fails it is left, and the name is not used again.
    fn raise(&mut self, server: usize, token: Token) {
        let vote = std::mem::replace(&mut self.ballot.votes[server], Vote::Pending);
        let Vote::Held(claim, grant) = vote else {
            return;
        };
        let core = self.core.clone();
        let raising = async move {
            let fence = request::fence(&claim.place.key, &claim.owner, token);
            let vote = match core.number(&claim.place, &fence).await {
                Ok(token) => {
                    let token = Token::new(token);
                    Vote::Held(claim, Grant { token, ..grant })
                }
                Err(failed) => Vote::Unraised(failed.error(Error::Lost(Loss::Denied))),
            };
            (server, vote)
        };
        self.asking.push(raising.boxed());
    }

    /// Counts the next vote; `false` once there are no more.
    async fn count_next(&mut self) -> bool {
        let Some((server, vote)) = self.asking.next().await else {
            return false;
        };
        self.ballot.votes[server] = vote;
        true
    }

    /// Gives servers that come earlier in the queue's order, and have not answered yet, as long again as the others took. Clients then
    /// queue on the same one.
    async fn await_earlier(&mut self) {
        let limit = self.started.elapsed() + Duration::from_millis(2);
        let runtime = self.core.runtime.clone();
        let counting = async { while self.ballot.awaits_earlier() && self.count_next().await {} };
        select(pin!(counting), pin!(runtime.sleep(limit))).await;
    }

    /// Queues on a server, and once that has granted the lock, on all that come later, for a part of the lease: two clients then never
    /// wait for each other for long.
    async fn queue(&mut self, first: usize, tries: &Tries) -> Option<Token> {
        self.ask(first, tries.to_queue(self.started));
        while self.ballot.is_pending(first) {
            self.count_next().await;
        }
        let end = self.ballot.votes[first].grant()?.since + self.terms.lease.renewal_period();
        let left = end.remaining().min(tries.left(BootInstant::now()));
        let left = u64::try_from(left.as_millis()).ok();
        // 0 would be a wait without limit.
        self.ask_all(first, left.filter(|left| *left > 0)).await
    }

    /// It is won: the hold. Servers that grant it late join.
    async fn won(mut self, token: Token) -> Result<Guard, Error> {
        let _pending = self.core.pending();
        let ahead = self.ballot.ahead();
        let Terms { mode, lease, .. } = **self.terms;
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for (server, vote) in std::mem::take(&mut self.ballot.votes)
            .into_iter()
            .enumerate()
        {
            if let Vote::Held(mut claim, grant) = vote
                && !ahead.contains(&server)
            {
                parts.push(Part::new(grant, lease));
                places.append(&mut claim.settle());
            }
        }
        let belief = Belief::new(token, mode, lease, majority(self.ballot.nodes.len()), parts);
        let hold = Hold::keep(self.core, self.owner, self.terms, belief, places);
        let guard = Guard::new(hold.clone()).await?;
        if !self.asking.is_empty() {
            self.core.runtime.spawn(join_late(hold, self.asking));
        }
        Ok(guard)
    }
}

/// Takes in the servers that grant a lock after it was won without them.
async fn join_late(hold: Arc<Hold>, mut late: FuturesUnordered<BoxFuture<'static, Voted>>) {
    while let Ok(Some((_, vote))) = hold.unless_lost(late.next()).await {
        if let Vote::Held(mut claim, grant) = vote
            && hold.join(claim.place.clone(), grant)
        {
            claim.settle();
        }
    }
}

/// A server may take this part of a lease to answer.
const SHARE: u32 = 4;

/// Acquires a lock from a majority: tries until it is granted, or the wait is over.
pub(crate) async fn acquire(core: &Arc<Core>, terms: &Arc<Terms>) -> Result<Guard, Error> {
    check(core, terms)?;
    let mut queues_on = None;
    let tries = Tries::new(terms.wait, BootInstant::now());
    loop {
        core.check_open()?;
        let began = BootInstant::now();
        let mut round = Round::new(core, terms);
        let queue = queues_on.take();
        let waits = queue.and_then(|node: Arc<Node>| round.ballot.number(&node));
        let won = match waits {
            None => round.ask_all(0, None).await,
            Some(first) => round.queue(first, &tries).await,
        };
        core.check_open()?;
        let now = BootInstant::now();
        let is_over = tries.is_over(now);
        let has_waited = waits.is_some();
        let is_refused = round.ballot.is_refused();
        let back_off = back_off(now.since(began));
        let pause = match won {
            Some(token) => match round.won(token).await {
                Ok(guard) => return Ok(guard),
                Err(error) if is_over => return Err(error),
                Err(_) => back_off,
            },
            None if is_over && (has_waited || round.ballot.has_answer()) && !is_refused => {
                return Err(tries.busy(now));
            }
            None if is_over || is_refused => {
                let (waited, limit) = (now.since(began), core.settings.reply);
                return Err(round.ballot.no_quorum(waited, limit));
            }
            None if has_waited => back_off,
            None if !round.ballot.has_answer() => back_off.max(UNREACHED_PAUSE),
            None => {
                queues_on = round.ballot.first_to_queue_on();
                queues_on.as_ref().map_or(back_off, |_| Duration::ZERO)
            }
        };
        core.runtime.sleep(pause.min(tries.left(now))).await;
    }
}

/// Servers that were lost are connected to again by then, if they are there.
const UNREACHED_PAUSE: Duration = Duration::from_millis(150);

/// A pause of a random length, about as long as a round takes.
fn back_off(took: Duration) -> Duration {
    let took = took.clamp(Duration::from_millis(2), Duration::from_millis(200));
    let chance = f64::from(random_uuid().as_u128() as u32) / f64::from(u32::MAX);
    took + took.mul_f64(chance)
}

/// A lease must not run out while servers answer.
fn check(core: &Core, terms: &Terms) -> Result<(), Error> {
    let (limit, lease) = (core.settings.reply, terms.lease.duration());
    match limit.saturating_mul(SHARE) > lease {
        false => Ok(()),
        true => Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {limit:?}, not {lease:?}"
        ))),
    }
}
