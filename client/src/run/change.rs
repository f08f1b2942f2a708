//! Changes of a hold: renewals by hand, upgrades and downgrades. They only ever change a hold that is there; one whose
//! outcome is not known ends it.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::proto::acquire::{Acquisition, Next, Patience, Terms};
use crate::proto::command::Command;
use crate::proto::hold::Share;
use crate::proto::reply::{Answer, Failure, Reply, checked};
use crate::run::attempt::Attempt;
use crate::run::hold::Hold;
use crate::run::upkeep::renewed;
use crate::value::clock::BootInstant;
use crate::value::error::{ChangeFailed, Error, Loss, NodeFailure, NodeReason};
use crate::value::lease::Lease;
use crate::value::mode::Mode;
use crate::value::token::Token;

/// Renews a hold now, by its own lease or another.
pub(crate) async fn renew(hold: &Arc<Hold>, lease: Option<Lease>) -> Result<(), Error> {
    let now = BootInstant::now();
    let (lease, asked) = hold.with(|state| match state.belief.loss(now) {
        Some(loss) => Err(Error::Lost(loss)),
        None => {
            let lease = state.belief.ask_lease(lease, now);
            let lease = lease.ok_or(Error::Lost(Loss::HoldLimit))?;
            Ok((lease, state.belief.renewals().collect::<Vec<_>>()))
        }
    })?;
    let mut asking: futures_util::stream::FuturesUnordered<_> = asked
        .into_iter()
        .map(|(server, token)| async move {
            let (sent, answer) = renew_at(hold, server, lease, token).await;
            (
                server,
                sent,
                renewed(answer, &hold.core.servers[server].name),
            )
        })
        .collect();
    let (mut failed, mut confirmed) = (Vec::new(), 0);
    while let Some((server, sent, answer)) = futures_util::StreamExt::next(&mut asking).await {
        match answer {
            Ok(token) => {
                confirmed += usize::from(token.is_some());
                hold.with(|state| state.belief.on_renewed(server, (lease, sent), token));
            }
            Err(error) => failed.push((server, error)),
        }
        match hold.loss() {
            Some(Loss::Denied) => return Err(Error::NotHeld),
            Some(loss) => return Err(Error::Lost(loss)),
            None if confirmed >= hold.core.majority() => return Ok(()),
            None => {}
        }
    }
    if failed
        .iter()
        .all(|(_, error)| matches!(error, Error::Refused { .. }))
    {
        hold.with(|state| state.belief.forget_lease());
    }
    Err(joint_error(hold, confirmed, failed))
}

/// Sends a renewal; once more where its connection broke.
async fn renew_at(
    hold: &Hold,
    server: usize,
    lease: Lease,
    token: Option<Token>,
) -> (BootInstant, Answer) {
    let who = hold.who();
    let command = Command::Renew { who, lease, token };
    let mut sent = BootInstant::now();
    let mut answer = hold.core.servers[server].call(&command).await;
    if matches!(&answer, Err(Failure::Unknown(error)) if !error.is_timeout()) {
        sent = BootInstant::now();
        answer = hold.core.servers[server].call(&command).await;
    }
    (sent, answer)
}

fn joint_error(hold: &Hold, granted: usize, mut failed: Vec<(usize, Error)>) -> Error {
    if !hold.core.is_quorum() {
        return failed.pop().map_or(Error::NotHeld, |(_, error)| error);
    }
    let failure = |(server, error): (usize, Error)| NodeFailure {
        server: hold.core.servers[server].name.clone(),
        reason: match error {
            Error::Busy { .. } => NodeReason::Busy,
            error => NodeReason::of(error),
        },
    };
    Error::NoQuorum {
        needed: hold.core.majority(),
        granted,
        nodes: failed.into_iter().map(failure).collect(),
    }
}

/// A change that is on its way. Dropped before its outcome is known, it ends the hold.
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
            state.renewing = state.renewing.saturating_sub(1);
            if !self.is_settled {
                state.belief.lose(Loss::Unknown);
            }
        });
    }
}

/// What one server says to an upgrade.
enum Change {
    Done,
    /// Others read.
    Busy,
    Refused(Error),
    /// The hold is not there.
    Gone,
    Unknown(Error),
}

/// Makes a hold that reads one that writes, too. Its turn is the caller's.
pub(crate) async fn upgrade(hold: &Arc<Hold>, patience: Patience) -> Result<(), ChangeFailed> {
    let none_left = |error| ChangeFailed { error, left: None };
    if let Some(loss) = hold.loss() {
        return Err(none_left(Error::Lost(loss)));
    }
    if hold.with(|state| state.wire.write) {
        return Ok(());
    }
    let started = BootInstant::now();
    let end = patience.end(started);
    let mut changing = Changing::begin(hold);
    let servers: Vec<usize> = hold.with(|state| state.belief.renewals().map(|it| it.0).collect());
    let is_quorum = hold.core.is_quorum();
    // Over a quorum all are tried at once, and those that others read are waited for one after the other.
    let at_once = if is_quorum { Patience::None } else { patience };
    let tried = servers
        .iter()
        .map(|server| upgrade_at(hold, *server, at_once));
    let mut changes: Vec<(usize, Change)> =
        servers.iter().copied().zip(join_all(tried).await).collect();
    let majority = hold.core.majority();
    let done = |changes: &[(usize, Change)]| {
        changes
            .iter()
            .filter(|it| matches!(it.1, Change::Done))
            .count()
    };
    for at in 0..changes.len() {
        let is_busy = matches!(changes[at].1, Change::Busy);
        if done(&changes) >= majority || !is_quorum || patience == Patience::None {
            break;
        }
        if is_busy {
            let left = end.map_or(Patience::Forever, |end| Patience::Limit(end.remaining()));
            changes[at].1 = upgrade_at(hold, changes[at].0, left).await;
        }
    }
    let granted = done(&changes);
    let is_won = granted >= majority && settle_token(hold).await;
    let mut failed = Vec::new();
    for (server, change) in changes {
        match change {
            Change::Done if !is_won => give_back_write(hold, server).await,
            Change::Done => {}
            Change::Busy => failed.push((server, busy(started))),
            Change::Refused(error) => failed.push((server, error)),
            Change::Gone => hold.with(|state| state.belief.forget(server, Share::None)),
            Change::Unknown(error) => {
                end_at(hold, server);
                failed.push((server, error));
            }
        }
    }
    changing.is_settled = true;
    drop(changing);
    if is_won {
        hold.with(|state| state.wire.write = true);
        return hold
            .loss()
            .map_or(Ok(()), |loss| Err(none_left(Error::Lost(loss))));
    }
    let is_busy = failed
        .iter()
        .any(|(_, error)| matches!(error, Error::Busy { .. }));
    let error = match is_busy {
        true => busy(started),
        false => joint_error(hold, granted, failed),
    };
    // An answer of null may mean that nothing is held: the servers are asked.
    if is_busy {
        let _ = renew(hold, None).await;
    }
    Err(match hold.loss() {
        Some(Loss::Denied) => none_left(Error::NotHeld),
        Some(Loss::Unknown) => none_left(error),
        Some(loss) => none_left(Error::Lost(loss)),
        None => ChangeFailed {
            error,
            left: Some(Mode::Read),
        },
    })
}

fn busy(started: BootInstant) -> Error {
    Error::Busy {
        waited: started.elapsed(),
    }
}

/// What a server has of a hold is not known: it is left there, and with it the whole hold where that leaves too little.
fn end_at(hold: &Arc<Hold>, server: usize) {
    let lease = hold.with(|state| {
        state.belief.forget(server, Share::None);
        if state.belief.known_loss() == Some(Loss::Denied) {
            state.belief.reason(Loss::Unknown);
        }
        state.belief.longest_lease()
    });
    hold.core.leave(server, hold.names(), lease, true);
}

async fn upgrade_at(hold: &Arc<Hold>, server: usize, patience: Patience) -> Change {
    let now = BootInstant::now();
    let core = &hold.core;
    let asked = hold.with(|state| {
        let token = match state.belief.shares.all()[server] {
            Share::Held { token, .. } => token,
            _ => state.belief.token,
        };
        state.belief.lease_now(now).map(|lease| (lease, token))
    });
    let Some((lease, token)) = asked else {
        return Change::Gone;
    };
    let terms = Terms {
        mode: Mode::Write,
        lease,
        patience,
        fails_over: false,
    };
    let attempt = Attempt::new(core, server, &hold.key, hold.owner.clone(), lease);
    let mut acquisition = Acquisition::new(terms, now);
    let change = loop {
        match attempt.ask_by(&mut acquisition, terms, Some(token)).await {
            Next::Granted(grant) | Next::Confirm(grant) => {
                hold.with(|state| {
                    state.belief.on_granted(server, grant.token, grant.since);
                    if !core.is_quorum() {
                        state.belief.token = grant.token;
                    }
                });
                break Change::Done;
            }
            // Whoever was sent away may ask again: it is the same request.
            Next::Again {
                leave: false,
                pause,
            } => core.pause(pause).await,
            Next::Again { leave: true, .. } => {
                break Change::Unknown(acquisition.waited(BootInstant::now()));
            }
            Next::Failed {
                leave: false,
                error: Error::Busy { .. },
            } => break Change::Busy,
            Next::Failed {
                leave: false,
                error,
            } => break Change::Refused(error),
            Next::Failed { leave: true, error } => break Change::Unknown(error),
            Next::AwaitLetter => unreachable!("a letter has been awaited"),
        }
    };
    attempt.settled();
    change
}

/// Makes the tokens of the servers one, over a quorum.
async fn settle_token(hold: &Arc<Hold>) -> bool {
    let core = &hold.core;
    if !core.is_quorum() {
        return true;
    }
    let majority = core.majority();
    let old = hold.with(|state| state.belief.token);
    let newer = hold.with(|state| {
        let held = state.belief.shares.all().iter().enumerate();
        let newer = held.filter_map(|(server, share)| match share {
            Share::Held { token, .. } if *token > old => Some((server, *token)),
            _ => None,
        });
        newer.collect::<Vec<_>>()
    });
    let Some(token) = newer
        .iter()
        .map(|it| it.1)
        .max()
        .filter(|_| newer.len() >= majority)
    else {
        return false;
    };
    let below = newer.iter().filter(|it| it.1 < token).map(|it| it.0);
    let raising = below.map(|server| async move {
        let who = hold.who();
        let answer = core.servers[server]
            .call(&Command::Fence { who, token })
            .await;
        matches!(renewed(answer, ""), Ok(Some(raised)) if raised >= token).then_some(server)
    });
    let raised: Vec<usize> = join_all(raising).await.into_iter().flatten().collect();
    let met = newer.iter().filter(|it| it.1 >= token).count() + raised.len();
    hold.with(|state| {
        for server in raised {
            state.belief.raise(server, token);
        }
        if met >= majority {
            state.belief.token = token;
        }
    });
    met >= majority
}

/// Gives the write part of a hold back where too few servers have granted it.
async fn give_back_write(hold: &Arc<Hold>, server: usize) {
    if !matches!(
        release_mode(hold, server).await,
        Change::Done | Change::Gone
    ) {
        end_at(hold, server);
    }
}

async fn release_mode(hold: &Arc<Hold>, server: usize) -> Change {
    let share = hold.with(|state| state.belief.shares.all()[server]);
    let Share::Held { token, .. } = share else {
        return Change::Gone;
    };
    let command = Command::ReleaseMode {
        who: hold.who(),
        mode: Mode::Write,
        token,
    };
    let server = &hold.core.servers[server];
    change_of(server.call(&command).await, &server.name)
}

fn change_of(answer: Answer, server: &str) -> Change {
    match answer {
        Ok(Reply::Error(line)) => Change::Refused(crate::proto::reply::refusal(line, server)),
        Ok(Reply::Nil) => Change::Gone,
        Ok(_) => Change::Done,
        // Never sent: everything is as it was.
        Err(failure @ Failure::NotSent(_)) => Change::Refused(failure.error(server)),
        answer => match checked(answer, server) {
            Err(error) => Change::Unknown(error),
            Ok(_) => Change::Done,
        },
    }
}

/// Makes a hold that writes, and whose guards read, one that reads; to its end, whether or not that is waited for.
pub(crate) fn downgrade(
    hold: &Arc<Hold>,
) -> impl Future<Output = Result<(), Error>> + Send + use<> {
    let task = hold.core.runtime.spawn(downgrade_in_turn(hold.clone()));
    async move { task.await.unwrap_or(Err(Error::Closed)) }
}

async fn downgrade_in_turn(hold: Arc<Hold>) -> Result<(), Error> {
    let _turn = hold.turn.lock().await;
    let (is_due, servers) = hold.with(|state| {
        let is_due = state.guards > 0 && state.writers == 0 && state.wire.write;
        (
            is_due,
            state.belief.renewals().map(|it| it.0).collect::<Vec<_>>(),
        )
    });
    if !is_due {
        return Ok(());
    }
    let changing = servers.iter().map(|server| downgrade_at(&hold, *server));
    let (mut done, mut failed) = (0, Vec::new());
    for (server, change) in servers.iter().copied().zip(join_all(changing).await) {
        match change {
            Change::Done => done += 1,
            Change::Gone => hold.with(|state| state.belief.forget(server, Share::None)),
            Change::Busy => {}
            Change::Refused(error) => failed.push((server, error)),
            Change::Unknown(error) => {
                end_at(&hold, server);
                failed.push((server, error));
            }
        }
    }
    let majority = hold.core.majority();
    if done >= majority {
        hold.with(|state| (state.wire.write, state.wire.read) = (false, true));
        return Ok(());
    }
    match hold.loss() {
        Some(Loss::Denied) => return Err(Error::NotHeld),
        Some(Loss::Unknown) | None => {}
        Some(loss) => return Err(Error::Lost(loss)),
    }
    let still_writes = failed.len();
    if still_writes < majority {
        hold.lose(Loss::Unknown);
    }
    Err(joint_error(&hold, done, failed))
}

async fn downgrade_at(hold: &Arc<Hold>, server: usize) -> Change {
    let (share, lease, reads) = hold.with(|state| {
        let share = state.belief.shares.all()[server];
        (
            share,
            state.belief.lease_now(BootInstant::now()),
            state.wire.read,
        )
    });
    let (Share::Held { token, .. }, Some(lease)) = (share, lease) else {
        // What it has is not known.
        return Change::Unknown(Error::NotHeld);
    };
    if !reads {
        let command = Command::Acquire {
            who: hold.who(),
            mode: Mode::Read,
            lease,
            wait: None,
            fence: None,
            upgrade: Some(token),
        };
        let answer = hold.core.servers[server].call(&command).await;
        match change_of(answer, &hold.core.servers[server].name) {
            Change::Done => {}
            other => return other,
        }
    }
    release_mode(hold, server).await
}
