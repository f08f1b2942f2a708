//! Taking a lock, in a task of its own: the caller's future only waits for what comes of it, so that dropping it at any
//! point is the same as saying so. The task then undoes whatever it may have got.

mod grants;
mod line;
mod one;
mod quorum;
mod round;
mod trail;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use crate::clock::{BootInstant, sleep_until};
use crate::connector::Closing;
use crate::core::Core;
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::hold::{Grant, Hold, Terms};
use crate::lease::Lease;
use crate::link::Link;
use crate::mode::Mode;
use crate::owner::{Slot, Turn};
use crate::renew::{self, Outcome};
use crate::token::Token;
use crate::trace;

use grants::Vote;
pub(crate) use trail::Trail;
use turn::take_turn;

/// How long an acquisition may wait for others to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    Limit(Duration),
    Forever,
}

/// One acquisition.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) core: Arc<Core>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) slot: Slot,
    pub(crate) terms: Terms,
    pub(crate) wait: Wait,
    pub(crate) reentrant: bool,
    /// The hold that this changes: if that is over, nothing is taken.
    pub(crate) part_of: Option<Arc<Hold>>,
}

/// Starts an acquisition and waits for what comes of it; dropping the future cancels it.
pub(crate) async fn submit(request: Request) -> Result<Guard, Error> {
    let asking = request.slot.ask(request.reentrant);
    let _asking = asking.ok_or(Error::AlreadyHeld)?;
    let (reply, answer) = oneshot::channel();
    let runtime = request.core.runtime.clone();
    runtime.spawn(run(request, reply));
    let guard = answer.await.map_err(|_| Error::Closed)??;
    match guard.loss() {
        None => Ok(guard),
        // The process has slept since, or the lease is shorter than its drift: not to be handed out.
        Some(loss) => Err(Error::Lost(loss)),
    }
}

/// One acquisition under way: what it adds to, and when it gives up.
#[derive(Debug)]
pub(crate) struct Attempt<'r> {
    pub(crate) request: &'r Request,
    /// Who is to hold. Over a quorum another one in every round, so that a late release of one cannot hit the next.
    pub(crate) owner: Arc<[u8]>,
    /// The owner's hold on this key so far.
    pub(crate) existing: Option<Arc<Hold>>,
    /// What the owner has held here and lost, where the server may still have it.
    pub(crate) lost: Option<Arc<Hold>>,
    /// What the servers know that hold by.
    pub(crate) known: &'r [Option<Token>],
    /// What the count of the mode is to be.
    pub(crate) holds: u32,
    pub(crate) started: BootInstant,
    pub(crate) trail: &'r Trail,
}

/// Who asks to be granted: hands the guard over, or the error; nobody there is a cancellation.
pub(crate) type Reply = oneshot::Sender<Result<Guard, Error>>;

/// Runs an acquisition to its end, or until nobody waits for it any more.
pub(crate) async fn run(request: Request, mut reply: Reply) {
    let started = BootInstant::now();
    let turn = {
        let turn = std::pin::pin!(take_turn(&request, started));
        match select(turn, std::pin::pin!(reply.closed())).await {
            Either::Left((turn, _)) => turn,
            Either::Right(_) => return,
        }
    };
    match turn {
        Ok((turn, existing)) => run_in_turn(request, started, turn, existing, reply).await,
        Err(error) => {
            let _ = reply.send(Err(error));
        }
    }
}

async fn run_in_turn(
    request: Request,
    started: BootInstant,
    mut turn: Turn,
    existing: Option<Arc<Hold>>,
    mut reply: Reply,
) {
    let mode = request.terms.mode;
    let holds = existing
        .as_ref()
        .map_or(0, |hold| hold.state().count(mode))
        .saturating_add(1);
    let trail = Trail::of(existing.is_some());
    let lost = turn.upgrade().filter(|old| {
        existing.is_none() && old.owner == request.owner && !old.state().is_released()
    });
    if let Some(hold) = &existing {
        learn_tokens(hold).await;
    }
    let tokens = existing.as_ref().map(|hold| {
        let tokens = hold.suspend_tokens();
        request.core.renewal.watch(hold);
        tokens
    });
    let outcome = {
        let attempt = Attempt {
            request: &request,
            owner: request.owner.clone(),
            existing: existing.clone(),
            lost,
            known: tokens.as_deref().unwrap_or_default(),
            holds,
            started,
            trail: &trail,
        };
        let taking = std::pin::pin!(take_while_held(&attempt));
        match select(taking, std::pin::pin!(reply.closed())).await {
            Either::Left((outcome, _)) => Some(outcome),
            Either::Right(_) => None,
        }
    };
    let clean = trail.is_clean();
    note_unanswered(existing.as_deref(), &trail);
    // What the server has refused it has not leased.
    if let Some(hold) = &existing
        && (request.core.is_quorum() || !matches!(outcome, Some(Err(Error::Refused(_)))))
    {
        hold.state().note_lease(request.terms.lease);
    }
    match outcome {
        Some(Ok(grant)) => {
            trace::granted(&request.key, mode, grant.token, started.elapsed());
            let hold = settle(&request, existing, holds, grant);
            *turn = Arc::downgrade(&hold);
            let guard = Guard::new(hold, request.terms);
            // Nobody there to take it: the guard is dropped, which releases it, and who has the next turn sees that.
            let _ = reply.send(Ok(guard));
            drop(turn);
            return;
        }
        Some(Err(error)) => {
            trace::refused(&request.key, mode, &error);
            if clean && existing.is_none() {
                drop(turn);
                let _ = reply.send(Err(error));
                return;
            }
            let _ = reply.send(Err(error));
        }
        None => {}
    }
    let left = count_before(existing.as_deref(), mode);
    trail.undo(&request, left).await;
    if let (Some(hold), Some(tokens)) = (existing, tokens) {
        hold.resume_tokens(tokens, clean).await;
    }
    drop(turn);
}

/// Asks by what tokens the servers know a hold that granted it after the majority had: to enter it again, each counts by
/// its own.
async fn learn_tokens(hold: &Arc<Hold>) {
    let is_known = !hold.state().nodes.contains(&None);
    if is_known || !hold.core.is_quorum() {
        return;
    }
    if let Some(request) = renew::request(hold) {
        renew::renew(&hold.core, vec![request]).await;
    }
}

/// Takes it; the change of a hold ends where that is lost, and does not end as busy before it has asked whether it is.
async fn take_while_held(attempt: &Attempt<'_>) -> Result<Grant, Error> {
    let Some(hold) = attempt.existing.clone() else {
        return take(attempt).await;
    };
    let mode = attempt.request.terms.mode;
    let lost = Held { hold, mode }.lost();
    let taking = std::pin::pin!(async {
        let taken = take(attempt).await;
        match taken {
            Err(Error::Busy { .. }) => {
                attempt.check_hold().await?;
                taken
            }
            _ => taken,
        }
    });
    match select(taking, std::pin::pin!(lost)).await {
        Either::Left((taken, _)) => taken,
        Either::Right((loss, _)) => Err(Error::Lost(loss)),
    }
}

async fn take(attempt: &Attempt<'_>) -> Result<Grant, Error> {
    if attempt.request.core.is_quorum() {
        quorum::take(attempt).await
    } else {
        one::take(attempt).await
    }
}

fn settle(request: &Request, existing: Option<Arc<Hold>>, count: u32, grant: Grant) -> Arc<Hold> {
    let hold = match existing {
        Some(hold) => {
            hold.join(&request.terms, count, grant);
            hold
        }
        None => Arc::new(Hold::new(
            request.core.clone(),
            (request.key.clone(), grant.owner.clone()),
            request.slot.clone(),
            &request.terms,
            grant,
        )),
    };
    request.core.renewal.watch(&hold);
    hold
}

impl Wait {
    /// What is left of the wait, `None` if it has no limit.
    pub(crate) fn left(self, started: BootInstant) -> Option<Duration> {
        match self {
            Wait::No => Some(Duration::ZERO),
            Wait::Limit(limit) => Some(limit.saturating_sub(started.elapsed())),
            Wait::Forever => None,
        }
    }

    /// Ends when the wait is over.
    async fn over(self, started: BootInstant) {
        match self {
            Wait::No => {}
            Wait::Limit(limit) => sleep_until(started + limit).await,
            Wait::Forever => std::future::pending().await,
        }
    }
}

impl Attempt<'_> {
    pub(crate) fn who(&self) -> (&[u8], &[u8]) {
        (&self.request.key, &self.owner)
    }

    /// The connection on which a server has not answered yet, now or in an earlier attempt on the same hold.
    pub(crate) fn unanswered(&self, node: usize) -> Option<Link> {
        let earlier = self.existing.as_ref();
        self.trail
            .unanswered(node)
            .or_else(|| earlier.and_then(|hold| hold.state().unanswered[node].clone()))
    }

    /// The connection on which an earlier request for the same hold may still reach a server.
    pub(crate) fn unsettled(&self, node: usize) -> Option<Link> {
        self.existing.as_ref()?.state().unanswered[node].clone()
    }

    /// What is to become of a connection that is waited on in vain: what comes late there would hit what is asked for next
    /// under the same name, if anything is.
    pub(crate) fn closing(&self) -> Closing {
        let Request { core, slot, .. } = self.request;
        match slot.name_returns(core) || (self.existing.is_some() && !core.is_quorum()) {
            true => Closing::Resets,
            false => Closing::Delivers,
        }
    }

    /// A server is about to be asked.
    pub(crate) fn leave_trace(&self, node: usize, link: &Link, waits: bool) {
        self.trail.leave(node, &self.owner, link, waits);
    }

    /// Whether the wait has ended.
    pub(crate) fn is_over(&self) -> bool {
        let left = self.request.wait.left(self.started);
        left.is_some_and(|left| left.is_zero())
    }

    /// Asks whether the hold that is changed is still there: a request that waits is answered null as soon as it is not,
    /// as if its time were up.
    pub(crate) async fn check_hold(&self) -> Result<(), Error> {
        let Some(hold) = &self.existing else {
            return Ok(());
        };
        let requests = renew::request(hold).into_iter().collect();
        let outcome = renew::renew(&self.request.core, requests).await.pop();
        match (hold.loss(), outcome) {
            (Some(loss), _) => Err(Error::Lost(loss)),
            (None, Some((_, Outcome::Failed(error)))) if !self.is_over() => Err(error),
            (None, _) => Ok(()),
        }
    }

    /// The lease to ask for now: no longer than the hold may still last, so that the least is asked for where it is over.
    pub(crate) fn lease(&self) -> Lease {
        let cap = self.existing.as_ref().and_then(|hold| hold.state().cap);
        let lease = self.request.terms.asked_lease();
        lease.capped(cap).unwrap_or(Lease::SHORTEST)
    }

    pub(crate) fn busy(&self) -> Error {
        Error::Busy {
            waited: self.started.elapsed(),
        }
    }

    /// By what token the hold that is changed, if it is one, is held, and since when.
    pub(crate) fn old_vote(&self) -> Option<Vote> {
        let state = self.existing.as_ref()?.state();
        Some(Vote {
            token: state.token,
            sent: state.settled,
            made: state.settled,
        })
    }

    /// The token that a re-entry has to come back with: taking a lock again changes nothing for the outer guard.
    pub(crate) fn reentry_token(&self) -> Option<Token> {
        let state = self.existing.as_ref()?.state();
        let is_upgrade = self.request.terms.mode == Mode::Write && state.write == 0;
        (!is_upgrade).then_some(state.token)
    }
}

/// What a change of a hold that comes to nothing leaves of a mode: what there was, but nothing of a hold that is over. Who
/// has it still would have released it by a token that says nothing of what was granted since.
pub(crate) fn count_before(existing: Option<&Hold>, mode: Mode) -> u32 {
    let live = existing.filter(|hold| hold.loss().is_none());
    live.map_or(0, |hold| hold.state().count(mode))
}

/// Keeps the connections on which a change of a hold was not answered: what is released there has to go behind it.
pub(crate) fn note_unanswered(existing: Option<&Hold>, trail: &Trail) {
    let Some(hold) = existing else {
        return;
    };
    for node in 0..hold.core.nodes.len() {
        if let Some(link) = trail.unanswered(node) {
            hold.state().unanswered[node] = Some(link);
        }
    }
}

/// A slot for an owner made for one acquisition.
pub(crate) fn new_slot() -> Slot {
    Slot::default()
}
