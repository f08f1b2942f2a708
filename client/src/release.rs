//! Giving a hold back: on all servers, whatever is believed about it, and again where no answer came.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Cmd;
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::core::Core;
use crate::error::{Error, Loss, NodeFailure, NodeReason};
use crate::hold::Hold;
use crate::link::Link;
use crate::mode::Mode;
use crate::node::Node;
use crate::trace;
use crate::wire;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until this release.
    Held,
    /// The lock was not held any more: others may have had it meanwhile.
    Lost,
    /// Released, but the answer to the first attempt was lost, so nobody knows whether it was held until then.
    Unknown,
}

impl Released {
    /// Whether the lock is known to have been held until the release.
    pub fn was_held(self) -> bool {
        self == Released::Held
    }
}

/// One guard's part of a hold to be given back.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) hold: Arc<Hold>,
    pub(crate) mode: Mode,
    pub(crate) renews: bool,
}

/// What to tell one server.
struct Delivery {
    node: Arc<Node>,
    cmd: Cmd,
    link: Option<Link>,
}

/// Starts giving a part back; the answer may be waited for or not.
pub(crate) fn start(part: Part) -> oneshot::Receiver<Result<Released, Error>> {
    let (reply, answer) = oneshot::channel();
    let runtime = part.hold.core.runtime.clone();
    // Not waited for, so it never blocks; on a runtime that is gone it comes to nothing, and never panics.
    runtime.spawn(run(part, reply));
    answer
}

async fn run(part: Part, reply: oneshot::Sender<Result<Released, Error>>) {
    let hold = &part.hold;
    let core = &hold.core;
    let until = BootInstant::now() + hold.state().lease.duration();
    let turn = hold.slot.clone().lock_owned().await;
    if is_superseded(hold, turn.upgrade()) {
        let _ = reply.send(Ok(Released::Lost));
        return;
    }
    let (deliveries, is_last) = leave(&part);
    // Another acquisition by the same owner has another name over a quorum, and nothing to wait for.
    let mut turn = (!(is_last && core.is_quorum())).then_some(turn);
    let mut answers: FuturesUnordered<_> = deliveries.into_iter().map(deliver).collect();
    let mut tally = Tally::default();
    let mut reply = Some(reply);
    while let Some(answer) = answers.next().await {
        tally.count(answer);
        if let Some(result) = tally.result(core)
            && let Some(reply) = reply.take()
        {
            turn = None;
            let _ = reply.send(Ok(result));
        }
    }
    drop(answers);
    drop(turn);
    if let Some(reply) = reply {
        let _ = reply.send(Err(tally.error(core)));
    }
    let undelivered = tally.failed.into_iter().map(|(delivery, _)| delivery);
    futures_util::future::join_all(undelivered.map(|it| insist(hold, it, until))).await;
}

/// Whether the owner has taken the lock anew since this hold was lost: then nothing of it may be released.
fn is_superseded(hold: &Arc<Hold>, current: Option<Arc<Hold>>) -> bool {
    current.is_some_and(|current| {
        !Arc::ptr_eq(&current, hold) && current.owner == hold.owner && current.loss().is_none()
    })
}

/// Takes a part out of the hold, and says what to tell the servers, and whether it was the last part.
fn leave(part: &Part) -> (Vec<Delivery>, bool) {
    let hold = &part.hold;
    let (left, nodes, links) = {
        let mut state = hold.state();
        let left = state.count(part.mode).saturating_sub(1);
        state.set_count(part.mode, left);
        state.renewing -= u32::from(part.renews).min(state.renewing);
        (left, state.nodes.clone(), state.unanswered.clone())
    };
    let is_last = {
        let state = hold.state();
        state.write == 0 && state.read == 0
    };
    if is_last {
        hold.lose(Loss::Released);
    }
    let deliveries = hold
        .core
        .nodes
        .iter()
        .zip(nodes)
        .zip(links)
        .map(|((node, token), link)| Delivery {
            node: node.clone(),
            cmd: wire::release(hold.who(), part.mode, left, token),
            link,
        })
        .collect();
    (deliveries, is_last)
}

struct Answer {
    delivery: Delivery,
    /// Holds left, or null.
    left: Result<Option<u64>, Error>,
    /// An earlier attempt may have been carried out.
    repeated: bool,
}

/// One attempt; a second one if the shared connection turns out to be dead.
async fn deliver(mut delivery: Delivery) -> Answer {
    let name = delivery.node.name().to_owned();
    let limit = delivery.node.config().response_timeout;
    // Behind the acquire that has not been answered, so that it cannot come after its own release.
    if let Some(link) = delivery.link.take() {
        let reply = link.ask(&delivery.cmd, limit).await;
        let left = wire::integer(reply, &name);
        return Answer {
            delivery,
            left,
            repeated: false,
        };
    }
    let mut left = delivery.node.ask_once(&delivery.cmd).await;
    let repeated = matches!(&left, Err(Error::Connection(error)) if !error.is_timeout());
    if repeated {
        left = delivery.node.ask_once(&delivery.cmd).await;
    }
    Answer {
        left: left.and_then(|value| wire::integer(Ok(value), &name)),
        delivery,
        repeated,
    }
}

/// Tries again until the lease is over and there is nothing left to release.
async fn insist(hold: &Arc<Hold>, delivery: Delivery, until: BootInstant) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let turn = hold.slot.clone().lock_owned().await;
        if is_superseded(hold, turn.upgrade()) {
            return;
        }
        match delivery.node.ask_once(&delivery.cmd).await {
            Ok(_) => return,
            Err(error) if BootInstant::now() >= until => {
                trace::abandoned(delivery.node.name(), &hold.key, &error);
                return;
            }
            Err(_) => {}
        }
    }
}

#[derive(Default)]
struct Tally {
    held: usize,
    lost: usize,
    unknown: usize,
    failed: Vec<(Delivery, Error)>,
}

impl Tally {
    fn count(&mut self, answer: Answer) {
        match answer.left {
            Ok(Some(_)) => self.held += 1,
            Ok(None) if answer.repeated => self.unknown += 1,
            Ok(None) => self.lost += 1,
            Err(error) => self.failed.push((answer.delivery, error)),
        }
    }

    fn result(&self, core: &Core) -> Option<Released> {
        let (all, majority) = (core.nodes.len(), core.majority());
        if self.held >= majority {
            Some(Released::Held)
        } else if self.lost > all - majority {
            Some(Released::Lost)
        } else if self.held + self.lost + self.unknown >= majority
            && self.held + self.lost + self.unknown + self.failed.len() == all
        {
            Some(Released::Unknown)
        } else {
            None
        }
    }

    fn error(&self, core: &Core) -> Error {
        let failure = |(delivery, error): &(Delivery, Error)| NodeFailure {
            server: delivery.node.name().to_owned(),
            reason: NodeReason::Failed(Box::new(error.clone())),
        };
        match self.failed.first() {
            Some((_, error)) if !core.is_quorum() => error.clone(),
            _ => Error::NoQuorum {
                needed: core.majority(),
                granted: self.held,
                nodes: self.failed.iter().map(failure).collect(),
            },
        }
    }
}
