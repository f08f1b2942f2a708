//! Changes of a hold: upgrades, downgrades, renewals by hand and its release. They only ever change a hold that is there; one whose outcome is not known
//! ends it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select};

use crate::net::task;
use crate::proto::{Acquisition, Outcome, Round, Terms, Verb, Vote};
use crate::run::{Ballot, Call, Calls, Hold};
use crate::value::{BootInstant, ChangeFailed, Error, Lease, Loss, Mode, Released};

/// An upgrade that is on its way. Dropped before it is settled, nobody knows what became of it.
struct Changing<'a> {
    hold: &'a Arc<Hold>,
    is_settled: bool,
}

impl Changing<'_> {
    fn begin(hold: &Arc<Hold>) -> Changing<'_> {
        hold.with(|state| {
            state.belief.changing = true;
            // However it began: who waits for more keeps what he has.
            state.renewing += 1;
        });
        hold.reschedule();
        Changing {
            hold,
            is_settled: false,
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.hold.with(|state| {
            state.belief.changing = false;
            state.renewing -= 1;
            if !self.is_settled {
                state.belief.lose(Loss::Unknown);
            }
        });
    }
}

/// Makes a hold that reads one that writes, unless it does.
pub(crate) async fn upgrade(hold: &Arc<Hold>, wait: Option<Duration>) -> Result<(), ChangeFailed> {
    let now = BootInstant::now();
    let gone = |error| ChangeFailed { error, left: None };
    let (writes, lease, token, round) = hold.with(|state| {
        let lease = match state.belief.loss(now) {
            Some(loss) => Err(gone(Error::Lost(loss))),
            None => state
                .belief
                .ask_lease(None, now)
                .ok_or(gone(Error::NotHeld)),
        };
        let belief = &state.belief;
        lease.map(|lease| (state.writes, lease, belief.token, belief.round.clone()))
    })?;
    if writes {
        return Ok(());
    }
    let terms = Terms {
        mode: Mode::Write,
        lease,
        wait,
        fails_over: false,
    };
    let mut acquisition = Acquisition::new(terms, now);
    let mut changing = Changing::begin(hold);
    let mut ballot = Ballot::new(&hold.core, hold.name.clone(), terms).changing(token, round);
    let outcome = ask_to_write(hold, &mut ballot, &mut acquisition).await;
    let granted = ballot.round.held().count();
    let mut error = hold.core.error_of(&ballot.round, granted);
    let is_won = matches!(outcome, Outcome::Won(_));
    let is_busy = ballot.round.iter().any(|it| matches!(it, Vote::Busy));
    for (server, vote) in ballot.round.iter().enumerate() {
        if matches!(vote, Vote::Held(_) | Vote::Ahead) {
            hold.with(|state| state.belief.set(server, vote.clone()));
        }
    }
    for server in 0..ballot.round.len() {
        let is_to_leave = match ballot.round[server] {
            Vote::Held(_) | Vote::Ahead => {
                !is_won && !matches!(give_back_write(hold, server).await, Vote::Held(_))
            }
            Vote::Unknown(_) | Vote::Pending => true,
            // A reader that had not been heard of when the others were asked.
            Vote::Busy => is_won,
            Vote::Failed(_) | Vote::Unasked => false,
        };
        if is_to_leave {
            leave_at(hold, server);
        }
    }
    changing.is_settled = true;
    drop(changing);
    if let Outcome::Won(token) = outcome {
        hold.with(|state| (state.writes, state.belief.token) = (true, token));
        return match hold.loss() {
            Some(loss) => Err(gone(Error::Lost(loss))),
            None => Ok(()),
        };
    }
    if is_busy {
        error = acquisition.busy(BootInstant::now());
        // An answer of null may mean that nothing is held: the servers are asked.
        let _ = renew(hold, None).await;
    }
    Err(match hold.loss() {
        Some(Loss::Denied) => gone(Error::NotHeld),
        Some(Loss::Unknown) => gone(error),
        Some(loss) => gone(Error::Lost(loss)),
        None => ChangeFailed {
            error,
            left: Some(Mode::Read),
        },
    })
}

/// Over a quorum all are tried at once, and those that others read are waited for one after the other.
async fn ask_to_write(
    hold: &Arc<Hold>,
    ballot: &mut Ballot<'_>,
    acquisition: &mut Acquisition,
) -> Outcome {
    let servers = hold.servers();
    let is_quorum = hold.core.is_quorum();
    if is_quorum {
        ballot.ask(servers.clone()).await;
        ballot.count_all().await;
    }
    let mut lost = hold.clone().lost();
    for server in servers {
        let waits = !is_quorum || acquisition.waits();
        let is_open = matches!(ballot.round[server], Vote::Busy | Vote::Unasked);
        if waits && is_open && !matches!(ballot.agree().await, Outcome::Won(_)) {
            // A hold that is lost is left, and its requests with it: then no letter comes.
            let waiting = pin!(ballot.wait_on(server, acquisition));
            select(&mut lost, waiting).await;
        }
    }
    ballot.agree().await
}

/// What a server has of a hold is not known: it is left there, and with it the whole hold where that leaves too little.
fn leave_at(hold: &Hold, server: usize) {
    let lease = hold.with(|state| {
        state.belief.lose_at(server);
        state.belief.longest
    });
    hold.core.leave(server, &hold.name, lease, true);
}

/// Gives the write part of a hold back.
async fn give_back_write(hold: &Hold, server: usize) -> Vote {
    let token = hold.with(|state| state.belief.round[server].token());
    match token {
        Some(token) => ask(hold, server, Verb::ReleaseMode(Mode::Write, token)).await,
        None => Vote::Unknown(Error::NotHeld),
    }
}

/// Has a server make a writer a reader.
async fn read_at(hold: &Hold, server: usize) -> Vote {
    let asked = hold.with(|state| {
        let lease = state.belief.ask_lease(None, BootInstant::now())?;
        Some((lease, state.belief.round[server].token()?))
    });
    let Some((lease, token)) = asked else {
        // What it has is not known.
        return Vote::Unknown(Error::NotHeld);
    };
    let verb = Verb::Acquire {
        mode: Mode::Read,
        lease,
        fence: None,
        upgrade: Some(token),
    };
    match ask(hold, server, verb).await {
        Vote::Held(_) => give_back_write(hold, server).await,
        vote => vote,
    }
}

async fn ask(hold: &Hold, server: usize, verb: Verb) -> Vote {
    let (lease, server) = (
        hold.with(|it| it.belief.longest),
        &hold.core.servers[server],
    );
    let (sent, answer) = Call::new(server, &hold.name, verb).await;
    Vote::of(answer, sent, lease, &server.name)
}

/// Makes a hold that writes, and whose guards read, one that reads; to its end, whether or not that is waited for.
pub(crate) fn downgrade(
    hold: &Arc<Hold>,
) -> impl Future<Output = Result<(), Error>> + Send + use<> {
    let is_due = hold.with(|state| state.is_to_read());
    let task = is_due.then(|| task::spawn(hold.core.runtime(), downgrade_in_turn(hold.clone())));
    async move {
        match task {
            Some(task) => task.await.unwrap_or(Err(Error::Closed)),
            None => Ok(()),
        }
    }
}

async fn downgrade_in_turn(hold: Arc<Hold>) -> Result<(), Error> {
    let _turn = hold.turn.lock().await;
    let servers = match hold.with(|state| state.is_to_read()) {
        true => hold.servers(),
        false => Vec::new(),
    };
    if servers.is_empty() {
        return Ok(());
    }
    let votes = join_all(servers.iter().map(|server| read_at(&hold, *server))).await;
    let mut round = Round::new(hold.core.servers.len());
    for (server, vote) in servers.into_iter().zip(votes) {
        match vote {
            // It may have the hold by another token, or in another mode.
            Vote::Busy => {
                let lease = hold.with(|state| {
                    state.belief.set(server, Vote::Busy);
                    state.belief.longest
                });
                hold.core.leave(server, &hold.name, lease, false);
            }
            Vote::Unknown(_) => leave_at(&hold, server),
            _ => {}
        }
        round[server] = vote;
    }
    let done = round.held().count();
    if done >= round.majority() {
        hold.with(|state| state.writes = false);
        return Ok(());
    }
    match hold.loss() {
        Some(Loss::Denied) => return Err(Error::NotHeld),
        Some(Loss::Unknown) | None => {}
        Some(loss) => return Err(Error::Lost(loss)),
    }
    // Those that have refused it have it as it was, and no others.
    let still_write = round.those(|vote| matches!(vote, Vote::Failed(_)));
    if still_write.count() < round.majority() {
        hold.lose(Loss::Unknown);
    }
    Err(hold.core.error_of(&round, done))
}

/// Renews a hold now, by its own lease or another.
pub(crate) async fn renew(hold: &Hold, lease: Option<Lease>) -> Result<(), Error> {
    let core = &hold.core;
    let now = BootInstant::now();
    let renewals = hold.with(|state| match state.belief.loss(now) {
        Some(loss) => Err(Error::Lost(loss)),
        None => {
            let lease = state.belief.ask_lease(lease, now);
            let lease = lease.ok_or(Error::Lost(Loss::HoldLimit))?;
            Ok(state.belief.renewals(lease).collect::<Vec<_>>())
        }
    })?;
    let mut calls = Calls::default();
    for (number, renewal) in renewals.iter().enumerate() {
        let verb = Verb::Renew(renewal.lease, renewal.token);
        let call = Call::new(&core.servers[renewal.server], &hold.name, verb);
        calls.add(number, call.repeated());
    }
    let (mut round, mut confirmed) = (Round::new(core.servers.len()), 0);
    while let Some((number, answer)) = calls.next().await {
        match hold.on_renewed(renewals[number], answer) {
            Ok(is_held) => confirmed += usize::from(is_held),
            Err(error) => round[renewals[number].server] = Vote::Unknown(error),
        }
        match hold.loss() {
            Some(Loss::Denied) => return Err(Error::NotHeld),
            Some(loss) => return Err(Error::Lost(loss)),
            None if confirmed >= core.majority() => return Ok(()),
            None => {}
        }
    }
    let is_refused = |vote: &Vote| !matches!(vote, Vote::Unknown(error) if !matches!(error, Error::Refused { .. }));
    if round.iter().all(is_refused) {
        hold.with(|state| state.belief.forget_lease());
    }
    Err(core.error_of(&round, confirmed))
}

/// Gives a hold back, whoever shares it.
pub(crate) async fn release(hold: &Hold) -> Result<Released, Error> {
    let mut releasing = hold.release();
    if releasing.count() == 0 {
        return Ok(Released::Lost);
    }
    let mut round = Round::new(hold.core.servers.len());
    let (all, majority) = (round.len(), round.majority());
    // Where it is not, there is nothing to be released.
    let (mut held, mut lost, mut unknown) = (0, all - releasing.count(), 0);
    while let Some((server, released)) = releasing.next().await {
        match released {
            Ok(Released::Held) => held += 1,
            Ok(Released::Lost) => lost += 1,
            Ok(Released::Unknown) => unknown += 1,
            // It is said again in the background.
            Err(error) => round[server] = Vote::Unknown(error),
        }
        if held >= majority {
            return Ok(Released::Held);
        }
        if lost > all - majority {
            return Ok(Released::Lost);
        }
    }
    match held + lost + unknown >= majority {
        true => Ok(Released::Unknown),
        false => Err(hold.core.error_of(&round, held)),
    }
}
