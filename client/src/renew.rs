//! Asking the servers to keep holds: on a majority, within the validity.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, RedisResult, Value};
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::core::Core;
use crate::error::{Error, Loss, NodeFailure, NodeReason};
use crate::hold::Hold;
use crate::lease::Lease;
use crate::token::Token;
use crate::trace;
use crate::wire;

/// The least time that a server is given to answer, if it is ever given so much: any less, and a distant one never could.
const SHORTEST: Duration = Duration::from_millis(500);

/// A renewal to ask for.
pub(crate) struct Request {
    hold: Arc<Hold>,
    lease: Lease,
    /// What the hold's token is when it is asked for: an upgrade may be granted before it is answered.
    token: Token,
    nodes: Vec<Option<Token>>,
    epoch: u64,
    /// Until when the servers may have held it before this was asked for, and may if they do what it asks.
    leased: (BootInstant, BootInstant),
}

/// What came of it; the hold knows it by then.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// A majority has confirmed it.
    Renewed,
    /// So many servers deny the hold that no majority is left.
    Denied,
    /// Neither is known.
    Failed(Error),
}

/// The renewal of a hold by its own lease; `None` if it is over.
pub(crate) fn request(hold: &Arc<Hold>) -> Option<Request> {
    let lease = hold.state().lease;
    request_for(hold, lease)
}

/// The renewal of a hold by `lease`, but not past its cap; `None` if it is over.
pub(crate) fn request_for(hold: &Arc<Hold>, lease: Lease) -> Option<Request> {
    let mut state = hold.state();
    if state.loss.is_some() {
        return None;
    }
    let lease = lease.capped(state.cap)?;
    let before = state.leased_until;
    state.note_lease(lease);
    Some(Request {
        hold: hold.clone(),
        lease,
        token: state.token,
        nodes: state.nodes.clone(),
        epoch: state.epoch,
        leased: (before, state.leased_until),
    })
}

/// Answers to one request so far.
#[derive(Default)]
struct Tally {
    confirmed: usize,
    denied: usize,
    refused: usize,
    failures: Vec<NodeFailure>,
    outcome: Option<Outcome>,
}

/// Renews holds of one client, all servers asked at the same time. Who has not answered when all is decided is not waited
/// for; it goes on by itself.
pub(crate) async fn renew(core: &Arc<Core>, requests: Vec<Request>) -> Vec<(Arc<Hold>, Outcome)> {
    renew_in_time(core, requests, Duration::MAX).await
}

/// The same, where the first hold has so much time left: it is given up early enough to be tried again over another
/// connection, because this one may be dead.
pub(crate) async fn renew_in_time(
    core: &Arc<Core>,
    requests: Vec<Request>,
    left: Duration,
) -> Vec<(Arc<Hold>, Outcome)> {
    if requests.is_empty() {
        return Vec::new();
    }
    let (reply, outcomes) = oneshot::channel();
    core.runtime.spawn(ask(core.clone(), requests, left, reply));
    outcomes.await.unwrap_or_default()
}

/// How long a server may take to answer a renewal where so much time is left.
fn limit(left: Duration, usual: Duration) -> Duration {
    (left / 2).max(SHORTEST).min(usual)
}

async fn ask(
    core: Arc<Core>,
    requests: Vec<Request>,
    left: Duration,
    reply: oneshot::Sender<Vec<(Arc<Hold>, Outcome)>>,
) {
    let sent = BootInstant::now();
    let mut tallies: Vec<Tally> = requests.iter().map(|_| Tally::default()).collect();
    let mut answers: FuturesUnordered<_> = (0..core.nodes.len())
        .map(|index| {
            let node = &core.nodes[index];
            let mut cmds = Pipeline::with_capacity(requests.len());
            for Request {
                hold, lease, nodes, ..
            } in &requests
            {
                cmds.add_command(wire::renew(hold.who(), *lease, nodes[index]));
            }
            let limit = limit(left, node.config().response_timeout);
            async move { (index, node.ask_all(&cmds, limit).await) }
        })
        .collect();
    let mut reply = Some(reply);
    while let Some((index, answer)) = answers.next().await {
        if let Err(error) = &answer {
            trace::renewal_failed(core.nodes[index].name(), requests.len(), error);
        }
        let mut replies = answer.map(Vec::into_iter);
        for (request, tally) in requests.iter().zip(&mut tallies) {
            let reply = match &mut replies {
                Ok(replies) => replies.next().ok_or(Error::Closed),
                Err(error) => Err(error.clone()),
            };
            tally.count(&core, request, index, reply);
            tally.decide(&core, request, sent);
        }
        let is_over = answers.is_empty() || tallies.iter().all(|tally| tally.outcome.is_some());
        if is_over && let Some(reply) = reply.take() {
            let outcomes = requests.iter().zip(&tallies);
            let outcomes = outcomes.map(|(it, tally)| (it.hold.clone(), tally.settle(&core)));
            let _ = reply.send(outcomes.collect());
        }
    }
}

impl Tally {
    fn count(
        &mut self,
        core: &Core,
        request: &Request,
        index: usize,
        reply: Result<RedisResult<Value>, Error>,
    ) {
        let server = core.nodes[index].name();
        let hold = &request.hold;
        let known = request.nodes[index];
        match reply.and_then(|reply| wire::token(reply, server)) {
            Ok(Some(token)) => {
                let lowest = known.or((!core.is_quorum()).then_some(request.token));
                if lowest.is_some_and(|lowest| token < lowest) {
                    self.denied += 1;
                } else {
                    self.confirmed += 1;
                    hold.learn(index, token, request.epoch);
                }
            }
            // Asked by a token that has changed meanwhile, as in an upgrade: says nothing.
            Ok(None) if hold.state().epoch != request.epoch => {
                self.fail(server, NodeReason::Failed(Box::new(Error::NotHeld)));
            }
            Ok(None) => self.denied += 1,
            Err(error @ Error::Refused(_)) => {
                self.refused += 1;
                self.fail(server, NodeReason::Failed(Box::new(error)));
                if self.refused == core.nodes.len() {
                    hold.forget_lease(request.leased);
                }
            }
            Err(error) => self.fail(server, NodeReason::Failed(Box::new(error))),
        }
    }

    fn fail(&mut self, server: &str, reason: NodeReason) {
        self.failures.push(NodeFailure {
            server: server.to_owned(),
            reason,
        });
    }

    fn decide(&mut self, core: &Core, request: &Request, sent: BootInstant) {
        if self.outcome.is_some() {
            return;
        }
        if self.confirmed >= core.majority() {
            request.hold.extend(sent, request.lease);
            self.outcome = Some(Outcome::Renewed);
        } else if self.denied > core.nodes.len() - core.majority() {
            request.hold.lose(Loss::Denied);
            self.outcome = Some(Outcome::Denied);
        }
    }

    fn settle(&self, core: &Core) -> Outcome {
        self.outcome.clone().unwrap_or_else(|| {
            Outcome::Failed(match self.failures.last().map(|failure| &failure.reason) {
                _ if core.is_quorum() => Error::NoQuorum {
                    needed: core.majority(),
                    granted: self.confirmed,
                    nodes: self.failures.clone(),
                },
                Some(NodeReason::Failed(error)) => (**error).clone(),
                _ => Error::Closed,
            })
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::acquire::new_slot;
    use crate::builder::IntoServer;
    use crate::config::Config;
    use crate::hold::{Grant, Terms};
    use crate::mode::Mode;
    use crate::node::Node;

    /// A hold with this token, which its only server is not known to know it by.
    pub(crate) fn hold(token: u64) -> Arc<Hold> {
        let server = "redis://127.0.0.1:1/".into_server().unwrap();
        let node = Node::new(
            server.name,
            server.connector,
            Config::for_one_server(),
            None,
        );
        let core = Core::new(vec![node], tokio::runtime::Handle::current());
        let owner: Arc<[u8]> = b"owner".as_slice().into();
        let terms = Terms {
            mode: Mode::Write,
            lease: Lease::new(Duration::from_secs(60)).unwrap(),
            renew: false,
            max_hold: None,
        };
        let grant = Grant {
            owner: owner.clone(),
            token: Token::new(token),
            nodes: vec![None],
            unanswered: vec![None],
            sent: BootInstant::now(),
        };
        let key = b"key".as_slice().into();
        Arc::new(Hold::new(core, (key, owner), new_slot(), &terms, grant))
    }

    /// What becomes of a hold with token 10 when a renewal is answered.
    fn answered(reply: Value) -> Option<Loss> {
        let hold = hold(10);
        let request = request(&hold).unwrap();
        let mut tally = Tally::default();
        tally.count(&hold.core, &request, 0, Ok(Ok(reply)));
        tally.decide(&hold.core, &request, BootInstant::now());
        hold.loss()
    }

    #[test]
    fn a_renewal_leaves_time_for_another() {
        let ms = Duration::from_millis;
        assert_eq!(limit(ms(1_500), ms(2_000)), ms(750));
        assert_eq!(limit(ms(60_000), ms(2_000)), ms(2_000));
        assert_eq!(limit(ms(0), ms(2_000)), SHORTEST);
        assert_eq!(limit(ms(0), ms(50)), ms(50));
    }

    #[tokio::test]
    async fn a_renewed_token_lower_than_the_guards_is_a_loss() {
        assert_eq!(answered(Value::Int(10)), None);
        assert_eq!(answered(Value::Int(11)), None);
        assert_eq!(answered(Value::Int(9)), Some(Loss::Denied));
        assert_eq!(answered(Value::Nil), Some(Loss::Denied));
    }

    #[tokio::test]
    async fn an_upgrade_heard_of_before_a_renewal_that_was_answered_earlier_is_no_loss() {
        let hold = hold(10);
        hold.suspend_tokens();
        let request = request(&hold).unwrap();
        let upgrade = Terms {
            mode: Mode::Write,
            lease: request.lease,
            renew: false,
            max_hold: None,
        };
        let granted = Grant {
            owner: hold.owner.clone(),
            token: Token::new(11),
            nodes: vec![Some(Token::new(11))],
            unanswered: vec![None],
            sent: BootInstant::now(),
        };
        hold.join(&upgrade, 1, granted);
        let mut tally = Tally::default();
        tally.count(&hold.core, &request, 0, Ok(Ok(Value::Int(10))));
        tally.decide(&hold.core, &request, BootInstant::now());
        assert_eq!(hold.loss(), None);
        assert!(matches!(tally.outcome, Some(Outcome::Renewed)));
        assert_eq!(hold.state().token, Token::new(11));
    }
}
