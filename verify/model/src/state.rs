//! The whole state at one moment, and how clients change it.

use crate::client::{Client, Phase, Request, Share, at, tally};
use crate::server::Node;
use crate::votes::Outcome;
use crate::{MAJORITY, NODES};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) now: u8,
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: Vec<Client>,
    pub(crate) restarts: u8,
    pub(crate) losses: u8,
    /// The largest token by which a client has held the lock.
    pub(crate) best: u8,
    pub(crate) token_went_back: bool,
}

impl State {
    /// Clients are identical, so they begin in order.
    pub(crate) fn may_begin(&self, c: usize) -> bool {
        c == 0 || self.clients[c - 1].round > 0
    }

    /// The servers after the first are identical, too. Picks one of the states that differ only in their order.
    pub(crate) fn representative(&self) -> State {
        let mut other = self.clone();
        other.nodes.swap(1, 2);
        for client in &mut other.clients {
            client.requests.swap(1, 2);
            match &mut client.phase {
                Phase::Asking { tokens, .. } | Phase::Fencing { tokens, .. } => tokens.swap(1, 2),
                Phase::Holding { shares, .. } => shares.swap(1, 2),
                Phase::Idle => {}
            }
        }
        if other < *self { other } else { self.clone() }
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
        for node in &mut self.nodes {
            node.hold = node.hold.filter(|hold| hold.ends > self.now);
        }
        for c in 0..self.clients.len() {
            let believes = self.clients[c].believes(self.now);
            if let Phase::Holding { is_lost, .. } = &mut self.clients[c].phase {
                *is_lost |= !believes;
            }
        }
    }

    pub(crate) fn ask(&mut self, c: usize) {
        let now = self.now;
        let client = &mut self.clients[c];
        client.round += 1;
        let round = client.round;
        client.send(Request::Acquire { round });
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
            *renewal = Some(now);
        }
    }

    /// A reply other than null arrives.
    pub(crate) fn receive(&mut self, n: usize, c: usize, request: Request, token: u8) {
        let client = &mut self.clients[c];
        let of_this_round = client.round;
        match (request, &mut client.phase) {
            (Request::Acquire { round, .. }, Phase::Asking { sent, tokens })
                if round == of_this_round =>
            {
                tokens[n] = Some(token);
                let (sent, tokens) = (*sent, *tokens);
                self.decide(c, sent, tokens);
            }
            (Request::Fence { round, .. }, Phase::Fencing { sent, tokens, .. })
                if round == of_this_round =>
            {
                tokens[n] = Some(token);
                let (sent, tokens) = (*sent, *tokens);
                self.decide(c, sent, tokens);
            }
            // A late reply: one more server has granted.
            (Request::Acquire { round, .. }, Phase::Holding { shares, .. })
                if round == of_this_round && shares[n] == Share::Unknown =>
            {
                // The client no longer knows when it sent the request, so this share counts only after a renewal.
                let sent = 0;
                shares[n] = Share::Held { token, sent };
            }
            (
                Request::Renew { round, sent },
                Phase::Holding {
                    shares,
                    is_lost: false,
                    renewal,
                    ..
                },
            ) if round == of_this_round => {
                let before = match shares[n] {
                    Share::Held { sent, .. } => sent,
                    Share::Unknown => 0,
                };
                let sent = sent.max(before);
                shares[n] = Share::Held { token, sent };
                let is_renewed = |share: &&Share| matches!(share, Share::Held { sent, .. } if *renewal == Some(*sent));
                if shares.iter().filter(is_renewed).count() >= MAJORITY {
                    *renewal = None;
                }
            }
            _ => {}
        }
    }

    /// Lets the client's code count the votes.
    fn decide(&mut self, c: usize, sent: u8, tokens: [Option<u8>; NODES]) {
        match tally(sent, &tokens).outcome(at(self.now)) {
            Outcome::Open => {}
            Outcome::Lost => self.give_up(c),
            Outcome::Won(token) => self.settle(c, sent, token.get() as u8, tokens),
            Outcome::Raise(token, below) => {
                let token = token.get() as u8;
                let client = &mut self.clients[c];
                let round = client.round;
                if !matches!(client.phase, Phase::Fencing { token: wanted, .. } if wanted == token)
                {
                    for n in below {
                        client.requests[n].push(Request::Fence { round, token });
                    }
                }
                client.phase = Phase::Fencing {
                    sent,
                    token,
                    tokens,
                };
            }
        }
    }

    /// The lock is taken.
    fn settle(&mut self, c: usize, sent: u8, token: u8, tokens: [Option<u8>; NODES]) {
        let share = |granted: Option<u8>| match granted {
            Some(token) => Share::Held { token, sent },
            None => Share::Unknown,
        };
        self.clients[c].phase = Phase::Holding {
            token,
            shares: tokens.map(share),
            renewal: None,
            is_lost: false,
        };
        self.token_went_back |= token <= self.best;
        self.best = self.best.max(token);
    }
}
