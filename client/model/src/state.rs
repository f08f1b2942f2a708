//! Everything at one moment, and what a client does with it.

use crate::client::{Client, Phase, Request};
use crate::server::Node;
use crate::{LEASE, MAJORITY, NODES, TOKENS_PER_TICK};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) now: u8,
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: Vec<Client>,
    pub(crate) restarts: u8,
    pub(crate) losses: u8,
    /// Acquisitions per client.
    pub(crate) rounds: u8,
    /// The largest token a client has held the lock with.
    pub(crate) best: u8,
    pub(crate) token_went_back: bool,
}

impl State {
    /// Clients are alike, so that the first of them may begin.
    pub(crate) fn may_begin(&self, c: usize) -> bool {
        c == 0 || self.clients[c - 1].round > 0
    }

    /// The servers after the first are alike, too: of the states that differ in their order, one.
    pub(crate) fn representative(&self) -> State {
        let mut other = self.clone();
        other.nodes.swap(1, 2);
        for client in &mut other.clients {
            client.requests.swap(1, 2);
            match &mut client.phase {
                Phase::Asking { tokens, .. } | Phase::Fencing { tokens, .. } => tokens.swap(1, 2),
                Phase::Holding {
                    renewal: Some((_, confirmed)),
                    ..
                } => confirmed.swap(1, 2),
                Phase::Idle | Phase::Holding { .. } => {}
            }
        }
        if other < *self { other } else { self.clone() }
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
        for node in &mut self.nodes {
            node.hold = node.hold.filter(|hold| hold.ends > self.now);
        }
    }

    pub(crate) fn ask(&mut self, c: usize) {
        let now = self.now;
        let client = &mut self.clients[c];
        client.round += 1;
        let since = |at: u8| (now - at) * TOKENS_PER_TICK;
        let fence = client
            .seen
            .map_or(0, |(token, at)| token + since(at).max(1));
        let round = client.round;
        client.send(Request::Acquire { round, fence });
        client.phase = Phase::Asking {
            sent: now,
            tokens: [None; NODES],
        };
    }

    pub(crate) fn give_up(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let round = client.round;
        client.send(Request::Release { round });
        client.phase = Phase::Idle;
    }

    pub(crate) fn renew(&mut self, c: usize) {
        let now = self.now;
        let client = &mut self.clients[c];
        client.renewals += 1;
        let round = client.round;
        client.send(Request::Renew { round, sent: now });
        if let Phase::Holding { renewal, .. } = &mut client.phase {
            *renewal = Some((now, [false; NODES]));
        }
    }

    /// An answer that is no null has arrived.
    pub(crate) fn hear(&mut self, n: usize, c: usize, request: Request, token: u8) {
        let now = self.now;
        let client = &mut self.clients[c];
        match (request, &mut client.phase) {
            (Request::Acquire { round, .. }, Phase::Asking { sent, tokens })
                if round == client.round =>
            {
                tokens[n] = Some(token);
                let (sent, tokens) = (*sent, *tokens);
                if tokens.iter().flatten().count() == MAJORITY {
                    self.fence(c, sent, tokens);
                }
            }
            (
                Request::Fence { round, .. },
                Phase::Fencing {
                    sent,
                    token: wanted,
                    tokens,
                },
            ) if round == client.round => {
                tokens[n] = Some(token);
                let (sent, wanted) = (*sent, *wanted);
                let met = tokens.iter().flatten().filter(|it| **it >= wanted).count();
                if met >= MAJORITY {
                    self.settle(c, sent, wanted);
                }
            }
            (Request::Renew { round, sent: asked }, Phase::Holding { sent, renewal })
                if round == client.round =>
            {
                let Some((_, confirmed)) = renewal.as_mut().filter(|(at, _)| *at == asked) else {
                    return;
                };
                confirmed[n] = true;
                let confirmed = confirmed.iter().filter(|it| **it).count();
                if confirmed >= MAJORITY {
                    *renewal = None;
                    // Belief that has ended stays ended.
                    if now < *sent + LEASE {
                        *sent = asked;
                    }
                }
            }
            _ => {}
        }
    }

    /// A majority has granted: with one token, or the largest is written back.
    pub(crate) fn fence(&mut self, c: usize, sent: u8, tokens: [Option<u8>; NODES]) {
        let wanted = tokens.iter().flatten().copied().max().unwrap_or(0);
        let client = &mut self.clients[c];
        let round = client.round;
        let mut met = 0;
        for (n, token) in tokens.iter().enumerate() {
            match token {
                Some(token) if *token >= wanted => met += 1,
                Some(_) => client.requests[n].push(Request::Fence {
                    round,
                    token: wanted,
                }),
                None => {}
            }
        }
        if met >= MAJORITY {
            self.settle(c, sent, wanted);
        } else {
            client.phase = Phase::Fencing {
                sent,
                token: wanted,
                tokens,
            };
        }
    }

    /// The lock is taken, unless its validity is over.
    pub(crate) fn settle(&mut self, c: usize, sent: u8, token: u8) {
        if self.clients[c].round < self.rounds {
            self.clients[c].seen = Some((token, self.now));
        }
        if self.now >= sent + LEASE {
            self.give_up(c);
            return;
        }
        self.clients[c].phase = Phase::Holding {
            sent,
            renewal: None,
        };
        self.token_went_back |= token <= self.best;
        self.best = self.best.max(token);
    }
}
