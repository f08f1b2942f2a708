//! Giving a hold back: on all servers, whatever is believed about it, and again where no answer came.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::Cmd;
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::core::Core;
use crate::error::{Error, Loss, NodeFailure, NodeReason};
use crate::hold::Hold;
use crate::link::Link;
use crate::mode::Mode;
use crate::node::{NOT_SHARED, Node};
use crate::trace;
use crate::wire;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a release found.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Released;
///
/// let guard = client.lock("a").acquire().await?;
/// match guard.release().await? {
///     Released::Held => {}
///     Released::Lost => eprintln!("others may have been at it too: check what was written"),
///     other => eprintln!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
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
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(guard.release().await?.was_held());
    /// # Ok(())
    /// # }
    /// ```
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
    hold: Arc<Hold>,
    server: usize,
    mode: Mode,
    cmd: Cmd,
    is_last: bool,
}

/// Starts giving a part back; the answer may be waited for or not.
pub(crate) fn start(part: Part) -> oneshot::Receiver<Result<Released, Error>> {
    part.hold.state().leaving += 1;
    let (reply, answer) = oneshot::channel();
    let runtime = part.hold.core.runtime.clone();
    // Not waited for, so it never blocks; on a runtime that is gone it comes to nothing, and never panics.
    runtime.spawn(run(part, reply));
    answer
}

async fn run(part: Part, reply: oneshot::Sender<Result<Released, Error>>) {
    let hold = &part.hold;
    let core = &hold.core;
    let turn = hold.slot.turn().await;
    if is_superseded(hold, turn.upgrade()) {
        let _ = reply.send(Ok(Released::Lost));
        return;
    }
    let (deliveries, is_last) = leave(&part);
    let until = leased_until(hold);
    let mut answers: FuturesUnordered<_> = deliveries.into_iter().map(deliver).collect();
    // Sent, so that the owner's next acquisition comes behind it.
    let mut answer = answers.next().now_or_never();
    // Over a quorum that has another name, and nothing more to wait for.
    let mut turn = (!(is_last && core.is_quorum())).then_some(turn);
    let mut tally = Tally::default();
    let mut reply = Some(reply);
    loop {
        let answered = match answer.take() {
            Some(answered) => answered,
            None => answers.next().await,
        };
        let Some(answered) = answered else { break };
        tally.count(answered);
        if let Some(result) = tally.result(core)
            && let Some(reply) = reply.take()
        {
            turn = None;
            if result == Released::Lost {
                // Whatever other guards share it.
                hold.lose(Loss::Denied);
            }
            let _ = reply.send(Ok(result));
        }
    }
    drop(answers);
    if !is_last {
        turn = None;
    }
    if let Some(reply) = reply {
        let _ = reply.send(Err(tally.error(core)));
    }
    let undelivered = tally.failed.into_iter().map(|(delivery, _)| delivery);
    futures_util::future::join_all(undelivered.map(|it| insist(it, until))).await;
    let returns = is_last && hold.slot.name_returns(core);
    let late = hold.state().unanswered[0].clone();
    if let Some(link) = late.filter(|_| returns) {
        // A change of the hold that was given up, whose undoing would hit what the owner asks for next.
        link.settle(&hold.key).await;
        let _ = core.nodes[0]
            .ask(&wire::release_all(hold.who(), None))
            .await;
    }
    // Only now may the owner ask again: the server would take that for the hold that is to end.
    drop(turn);
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
    let is_last = {
        let mut state = hold.state();
        let left = state.count(part.mode).saturating_sub(1);
        state.set_count(part.mode, left);
        state.leaving = state.leaving.saturating_sub(1);
        state.renewing -= u32::from(part.renews).min(state.renewing);
        state.write == 0 && state.read == 0
    };
    if is_last {
        hold.lose(Loss::Released);
    }
    let deliveries = (0..hold.core.nodes.len())
        .map(|server| Delivery {
            hold: hold.clone(),
            server,
            mode: part.mode,
            cmd: command(hold, server, part.mode, is_last),
            is_last,
        })
        .collect();
    (deliveries, is_last)
}

/// When the servers hold it no longer, whatever becomes of its release: a renewal by its own lease may be on its way now,
/// a longer one may have been sent earlier.
fn leased_until(hold: &Hold) -> BootInstant {
    let mut state = hold.state();
    let lease = state.lease;
    state.note_lease(lease);
    state.leased_until
}

/// Leaves the count of a mode where it is to be now; with the last part the whole hold goes, and with it whatever a request
/// has added of which nobody heard.
fn command(hold: &Hold, server: usize, mode: Mode, is_last: bool) -> Cmd {
    let (left, token) = {
        let state = hold.state();
        (state.count(mode), state.nodes[server])
    };
    if is_last {
        return wire::release_all(hold.who(), token);
    }
    wire::release(hold.who(), mode, left, token)
}

struct Answer {
    delivery: Delivery,
    /// Holds left, or null.
    left: Result<Option<u64>, Error>,
    /// An earlier attempt may have been carried out.
    repeated: bool,
}

/// One attempt; a second one if the connection turns out to be dead.
async fn deliver(delivery: Delivery) -> Answer {
    // Behind the acquire that has not been answered, so that it cannot come after its own release.
    let behind = delivery.hold.state().unanswered[delivery.server].clone();
    let mut left = delivery.attempt(behind).await;
    let repeated = matches!(&left, Err(Error::Connection { error, .. }) if !error.is_timeout());
    if repeated {
        left = delivery.attempt(None).await;
    }
    Answer {
        delivery,
        left,
        repeated,
    }
}

impl Delivery {
    fn node(&self) -> &Arc<Node> {
        &self.hold.core.nodes[self.server]
    }

    async fn attempt(&self, behind: Option<Link>) -> Result<Option<u64>, Error> {
        let node = self.node();
        let (link, number) = match behind {
            Some(link) => (link, NOT_SHARED),
            None => node.link().await.map_err(|error| node.failure(error))?,
        };
        self.say(&link, number).await
    }

    async fn say(&self, link: &Link, number: u64) -> Result<Option<u64>, Error> {
        let (hold, node) = (&self.hold, self.node());
        let (epoch, keeps) = {
            let mut state = hold.state();
            // Something may still be late on another connection than this. Over a quorum one server is not waited for.
            let keeps = number != NOT_SHARED
                && !hold.core.is_quorum()
                && state.unanswered[self.server].is_some();
            if !self.is_last && !keeps {
                // The owner may ask for more of the same hold before this is answered: then behind it.
                state.unanswered[self.server] = Some(link.clone());
            }
            (state.epoch, keeps)
        };
        let reply = node.ask_on(link, number, &self.cmd).await;
        if !matches!(&reply, Err(Error::Connection { error, .. }) if error.is_timeout()) {
            let mut state = hold.state();
            // Otherwise it is the answer to a later request that is missing.
            if state.epoch == epoch && !keeps {
                state.unanswered[self.server] = None;
            }
        }
        wire::integer(Ok(reply?), node.name())
    }

    /// Says again what is to be left, unless there is nothing more to say.
    ///
    /// Over a quorum the owner's turn is kept no longer than it takes to write that: what the owner asks for meanwhile
    /// goes behind it, and must not wait for a server that hangs.
    async fn attempt_again(&mut self) -> Result<(), Error> {
        let hold = self.hold.clone();
        let node = self.node().clone();
        let (link, number) = node.link().await.map_err(|error| node.failure(error))?;
        // The last part still has its turn, over a quorum it needs none.
        let mut turn = match self.is_last {
            true => None,
            false => Some(hold.slot.turn().await),
        };
        if is_superseded(&hold, turn.as_ref().and_then(|turn| turn.upgrade())) {
            return Ok(());
        }
        // The owner may have taken more of the hold since: that is not to be undone.
        self.cmd = command(&hold, self.server, self.mode, self.is_last);
        let mut said = std::pin::pin!(self.say(&link, number));
        let first = poll_fn(|cx| Poll::Ready(said.as_mut().poll(cx))).await;
        if hold.core.is_quorum() {
            turn = None;
        }
        let said = match first {
            Poll::Ready(said) => said,
            Poll::Pending => said.await,
        };
        drop(turn);
        said.map(drop)
    }
}

/// Tries again until the lease is over and there is nothing left to release; for part of a hold, as long as the hold lives.
async fn insist(mut delivery: Delivery, until: BootInstant) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let hold = delivery.hold.clone();
        match delivery.attempt_again().await {
            Ok(()) => return,
            Err(error) if BootInstant::now() >= until && hold.loss().is_some() => {
                trace::abandoned(delivery.node().name(), &hold.key, &error);
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
            server: delivery.node().name().to_owned(),
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
