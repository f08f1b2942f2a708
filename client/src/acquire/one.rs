//! Taking a lock on one server: once over the shared connection, then waiting on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use redis::{Cmd, RedisResult, Value};

use crate::acquire::{Attempt, Wait};
use crate::clock::BootInstant;
use crate::error::{Error, Loss, is_passing};
use crate::hold::{Grant, Hold};
use crate::node::{NOT_SHARED, Node, WaitLink};
use crate::token::Token;
use crate::wire::{self, Queue};

/// How often an attempt is made again while a failover or a migration is going on, by who has set no limit to the wait;
/// who has goes on until then.
const FAILOVER_ATTEMPTS: u32 = 20;
const FAILOVER_PAUSE: Duration = Duration::from_millis(250);

/// What one try came to.
enum Try {
    Granted(Token, BootInstant),
    Busy,
}

pub(crate) async fn take(attempt: &Attempt<'_>) -> Result<Grant, Error> {
    let node = &attempt.request.core.nodes[0];
    let mut failures = 0;
    let mut lost = attempt.lost.clone();
    loop {
        let taken = async {
            if let Some(hold) = &lost {
                forget(attempt, hold).await?;
                lost = None;
            }
            try_and_wait(attempt, node).await
        };
        let error = match taken.await {
            Ok(Try::Granted(token, sent)) => return grant(attempt, token, sent),
            Ok(Try::Busy) => return Err(attempt.busy()),
            Err(error) => error,
        };
        failures += 1;
        let is_over = match attempt.request.wait {
            Wait::Forever => failures > FAILOVER_ATTEMPTS,
            Wait::No | Wait::Limit(_) => attempt.is_over(),
        };
        // What was sent to forget a hold by no token may still come.
        let is_settled = lost.is_none() || attempt.trail.is_clean();
        if is_over || !is_settled || !may_pass(node, &error) {
            return Err(error);
        }
        node.rediscover(Some(&attempt.request.key));
        tokio::time::sleep(FAILOVER_PAUSE).await;
    }
}

/// Takes from the server what may be left there of a hold that was lost, before its owner asks for the lock anew: of what it
/// is asked for then, a count of the other mode would become part.
async fn forget(attempt: &Attempt<'_>, hold: &Hold) -> Result<(), Error> {
    let node = &hold.core.nodes[0];
    let (late, token) = {
        let state = hold.state();
        (state.unanswered[0].clone(), state.nodes[0])
    };
    if let Some(link) = late {
        let left = attempt.request.wait.left(attempt.started);
        let patience = node.config().response_timeout;
        let limit = left.unwrap_or(Duration::MAX).max(patience);
        let settling = tokio::time::timeout(limit, link.settle(&hold.key));
        settling.await.map_err(|_| attempt.busy())?;
    }
    let cmd = wire::release_all(hold.who(), token);
    if token.is_some() {
        // Late it hits nothing else.
        return node.ask(&cmd).await.map(drop);
    }
    let (link, number) = node.link().await.map_err(|error| node.failure(error))?;
    attempt.leave_trace(0, &link, false);
    let answer = node.ask_on(&link, number, &cmd).await;
    match &answer {
        Ok(_) => attempt.trail.clear(0),
        Err(error) => attempt.trail.clear_if_answered(0, error),
    }
    answer.map(drop)
}

/// Whether another attempt may find another server, or this one in another state.
fn may_pass(node: &Node, error: &Error) -> bool {
    match error {
        Error::Refused(line) if line.starts_with("UNBLOCKED") => true,
        Error::Refused(line) => node.fails_over() && is_passing(line),
        Error::Connection { .. } => node.fails_over(),
        _ => false,
    }
}

fn grant(attempt: &Attempt<'_>, token: Token, sent: BootInstant) -> Result<Grant, Error> {
    if attempt.reentry_token().is_some_and(|known| known != token) {
        // The outer hold was over already, and this is another one.
        if let Some(outer) = &attempt.existing {
            outer.lose(Loss::Denied);
        }
        attempt.trail.made_anew(0);
        return Err(Error::NotHeld);
    }
    attempt.trail.clear(0);
    Ok(Grant {
        owner: attempt.owner.clone(),
        token,
        nodes: vec![Some(token)],
        unanswered: vec![None],
        sent,
    })
}

async fn try_and_wait(attempt: &Attempt<'_>, node: &Arc<Node>) -> Result<Try, Error> {
    if let Try::Granted(token, sent) = try_once(attempt, node).await? {
        return Ok(Try::Granted(token, sent));
    }
    if attempt.request.wait == Wait::No {
        return Ok(Try::Busy);
    }
    let mut fresh = false;
    loop {
        let Some(queue) = queue(attempt) else {
            return Ok(Try::Busy);
        };
        let wait = node
            .wait_link(&attempt.request.key, fresh, attempt.closing())
            .await?;
        let reused = wait.reused;
        match wait_once(attempt, node, wait, queue).await {
            Ok(Waited::Granted(token, sent)) => return Ok(Try::Granted(token, sent)),
            Ok(Waited::Busy) => return Ok(Try::Busy),
            Ok(Waited::LostAgain) => {}
            // It had died while nobody used it.
            Err(Error::Connection { error, .. }) if reused && !error.is_timeout() => fresh = true,
            Err(error) => return Err(error),
        }
    }
}

/// What is left of the wait as the server is told; `None` if nothing is.
pub(crate) fn queue(attempt: &Attempt<'_>) -> Option<Queue> {
    match attempt.request.wait.left(attempt.started) {
        None => Some(Queue::Millis(0)),
        Some(left) if left.is_zero() => None,
        // Rounded up: who waits less than asked to is told "busy" too soon.
        Some(left) => {
            let ms = u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
            Some(Queue::Millis(ms.min(1 << 53)))
        }
    }
}

fn command(attempt: &Attempt<'_>, queue: Queue) -> Cmd {
    let request = attempt.request;
    let terms = (request.terms.mode, attempt.lease());
    wire::acquire(attempt.who(), terms, attempt.holds, queue, None)
}

async fn try_once(attempt: &Attempt<'_>, node: &Arc<Node>) -> Result<Try, Error> {
    let cmd = command(attempt, Queue::No);
    // Behind a release of the same hold that has not been answered: it must not come after what is asked for now.
    let mut behind = attempt.unsettled(0);
    let mut again = true;
    loop {
        let (link, number) = match behind.take() {
            Some(link) => (link, NOT_SHARED),
            None => node.link().await.map_err(|error| node.failure(error))?,
        };
        let sent = BootInstant::now();
        attempt.leave_trace(0, &link, false);
        let reply = node.ask_on(&link, number, &cmd).await;
        match reply.and_then(|value| wire::token(Ok(value), node.name())) {
            Ok(Some(token)) => return confirm(attempt, node, token, sent).await,
            Ok(None) => {
                attempt.trail.clear(0);
                return Ok(Try::Busy);
            }
            Err(Error::Connection { error, .. }) if again && !error.is_timeout() => again = false,
            Err(error) => {
                attempt.trail.clear_if_answered(0, &error);
                return Err(error);
            }
        }
    }
}

/// A grant that took long to arrive has used up much of its lease: asks for the whole of it anew.
async fn confirm(
    attempt: &Attempt<'_>,
    node: &Arc<Node>,
    token: Token,
    sent: BootInstant,
) -> Result<Try, Error> {
    if sent.elapsed() <= attempt.lease().confirm_after() {
        return Ok(Try::Granted(token, sent));
    }
    let sent = BootInstant::now();
    let cmd = wire::renew(attempt.who(), attempt.lease(), Some(token));
    match wire::token(Ok(node.ask(&cmd).await?), node.name())? {
        Some(_) => Ok(Try::Granted(token, sent)),
        None => {
            attempt.trail.clear(0);
            Ok(Try::Busy)
        }
    }
}

enum Waited {
    Granted(Token, BootInstant),
    Busy,
    /// Granted, but the lease was over before that could be confirmed.
    LostAgain,
}

async fn wait_once(
    attempt: &Attempt<'_>,
    node: &Arc<Node>,
    wait: WaitLink,
    queue: Queue,
) -> Result<Waited, Error> {
    let request = attempt.request;
    attempt.leave_trace(0, &wait.link, true);
    let mut sent = BootInstant::now();
    let cmd = command(attempt, queue);
    let limit = request.wait.left(attempt.started);
    let reply = watched((node, &wait, &request.key), wait.link.send(&cmd), limit).await?;
    let token = match wire::token(reply, node.name()) {
        Ok(token) => token,
        Err(error) => {
            attempt.trail.clear_if_answered(0, &error);
            return Err(error);
        }
    };
    let Some(token) = token else {
        attempt.trail.clear(0);
        wait.keep();
        return Ok(Waited::Busy);
    };
    if sent.elapsed() > attempt.lease().confirm_after() {
        sent = BootInstant::now();
        let cmd = wire::renew(attempt.who(), attempt.lease(), Some(token));
        let reply = wait.link.ask(&cmd, node.config().response_timeout).await;
        if wire::token(reply, node.name())?.is_none() {
            attempt.trail.clear(0);
            wait.keep();
            return Ok(Waited::LostAgain);
        }
    }
    wait.keep();
    Ok(Waited::Granted(token, sent))
}

/// Waits for the reply to a blocked request, and looks meanwhile whether the server is still there: it may be long in
/// coming, and a server that has fallen silent never sends it.
pub(crate) async fn watched(
    (node, wait, key): (&Arc<Node>, &WaitLink, &[u8]),
    reply: impl Future<Output = RedisResult<Value>>,
    limit: Option<Duration>,
) -> Result<RedisResult<Value>, Error> {
    let patience = node.config().response_timeout;
    let started = BootInstant::now();
    let silence = async {
        loop {
            tokio::time::sleep(patience).await;
            if let Err(error) = wait.check_alive(key).await {
                return error;
            }
            if limit.is_some_and(|limit| started.elapsed() > limit.saturating_add(patience)) {
                return node.failure(crate::link::silence(started.elapsed()));
            }
        }
    };
    match select(std::pin::pin!(reply), std::pin::pin!(silence)).await {
        Either::Left((reply, _)) => Ok(reply),
        Either::Right((error, _)) => Err(error),
    }
}
