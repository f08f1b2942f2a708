//! Acquiring over a quorum: in rounds, each under a name of its own. All servers are asked at once, a majority decides, and a
//! round that fails is left everywhere. Where others hold the lock clients queue in the order of the servers, and never on
//! one that comes before one they have.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lock::retry::WaitLimit;
use crate::lock::{Guard, Hold, Share, Source, Terms, trace};
use crate::quorum::quorum_hold::ONE_SERVER_ONLY;
use crate::quorum::{Ballot, Servers};
use crate::value::{BootInstant, Error, Lease, Mode, Names, random};
use crate::wire::Name;

/// A server may take this part of a lease to answer.
const SHARE: u32 = 4;
/// How many rounds in a row may find no majority that answers before that is the answer.
const ROUNDS_WITHOUT_MAJORITY: u32 = 3;
/// Servers that have been lost are connected to again by then, if they are there.
const UNREACHED_PAUSE: Duration = Duration::from_millis(150);

/// Rounds so far.
struct Rounds {
    limit: WaitLimit,
    /// The server that the next round queues on; `None`: it asks all.
    queues_on: Option<usize>,
    without_majority: u32,
}

/// What is done next.
enum Next {
    Again(Duration),
    Failed(Error),
}

impl Source for Servers {
    fn check_open(&self) -> Result<(), Error> {
        self.all[0].check_open()
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn take<'a>(
        self: Arc<Self>,
        names: &'a Names,
        terms: &'a Terms,
        mode: Mode,
    ) -> BoxFuture<'a, Result<Guard, Error>> {
        async move { acquire(&self, names, terms, mode).await }.boxed()
    }
}

async fn acquire(
    servers: &Arc<Servers>,
    names: &Names,
    terms: &Terms,
    mode: Mode,
) -> Result<Guard, Error> {
    let lease = terms.limited_lease()?;
    check(servers, terms, lease)?;
    let mut rounds = Rounds {
        limit: WaitLimit::new(terms.wait, BootInstant::now()),
        queues_on: None,
        without_majority: 0,
    };
    loop {
        servers.check_open()?;
        let began = BootInstant::now();
        let name = Name::new(terms.key.clone(), names.next());
        let mut ballot = Ballot::new(servers, name, terms.ask(mode, lease));
        let won = match rounds.queues_on {
            None => ballot.ask_all().await,
            Some(first) => {
                trace::waited();
                ballot.queue(first, rounds.limit).await
            }
        };
        let next = match won {
            Some(token) => {
                let hold = ballot.won(token, terms);
                let renews = terms.renews;
                let guard = Guard::of(hold.clone(), Share { mode, renews }, None)?;
                match confirm(&*hold, lease).await {
                    Ok(()) => return Ok(guard),
                    Err(_) if terms.wait != Some(Duration::ZERO) => Next::Again(Duration::ZERO),
                    Err(error) => return Err(error),
                }
            }
            None => rounds.after(&ballot, began.elapsed(), BootInstant::now()),
        };
        drop(ballot);
        match next {
            Next::Again(pause) => servers.all[0].pause(pause).await,
            Next::Failed(error) => return Err(error),
        }
    }
}

/// What a quorum cannot do, and a lease that could run out while servers answer.
fn check(servers: &Servers, terms: &Terms, lease: Lease) -> Result<(), Error> {
    if terms.permits.is_some() {
        return Err(Error::NotOverQuorum(
            "majorities overlap in one server, which is enough for one holder, but not for a limit: with two permits on each of three servers, three holders can each have a majority",
        ));
    }
    if terms.passed.is_some() {
        return Err(Error::NotOverQuorum(ONE_SERVER_ONLY));
    }
    let (limit, lease) = (servers.timeouts.answer, lease.duration());
    match limit.saturating_mul(SHARE) > lease {
        false => Ok(()),
        true => Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {limit:?}, not {lease:?}"
        ))),
    }
}

/// A letter may arrive late. If more than half of the lease is gone, the servers have to confirm that the hold is still there.
async fn confirm(hold: &dyn Hold, lease: Lease) -> Result<(), Error> {
    let believed = lease.believed_until(BootInstant::now());
    match hold.deadline() + lease.duration() / 2 >= believed {
        true => Ok(()),
        false => hold.renew(None).await,
    }
}

impl Rounds {
    /// What is next after a round that was not won.
    fn after(&mut self, ballot: &Ballot<'_>, took: Duration, now: BootInstant) -> Next {
        let is_over = self.limit.is_over(now);
        let back_off = took.clamp(Duration::from_millis(2), Duration::from_millis(200));
        let back_off = back_off + back_off.mul_f64(random::fraction());
        match self.queues_on.take() {
            Some(_) if is_over => Next::Failed(self.limit.busy(now)),
            // The other servers were not asked.
            Some(_) => Next::Again(back_off),
            None if !ballot.has_answer() => {
                self.without_majority += 1;
                match is_over || self.without_majority >= ROUNDS_WITHOUT_MAJORITY {
                    true => Next::Failed(ballot.no_quorum()),
                    false => Next::Again(back_off.max(UNREACHED_PAUSE)),
                }
            }
            None if is_over => Next::Failed(self.limit.busy(now)),
            None => {
                self.without_majority = 0;
                self.queues_on = ballot.first_to_queue_on();
                Next::Again(self.queues_on.map_or(back_off, |_| Duration::ZERO))
            }
        }
    }
}
