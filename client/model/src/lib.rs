//! The quorum protocol, checked in every interleaving: three servers, two or three clients, requests that arrive at any
//! time or are answered into the void, servers that restart empty, and clocks that differ. A client that crashes is one
//! that has given up and whose releases never arrive.
//!
//! Two things must hold. At most one client believes that it holds the lock; and the tokens of those who do grow. With
//! `lock.grace` both do. Without it the checker finds how each fails, so the model is able to see it.
//!
//! What the model leaves out: read mode, queueing (which only decides when a client asks), and clocks that run at
//! different speeds (which the drift is for).

#![forbid(unsafe_code)]
#![cfg(test)]

use stateright::{Checker, Model, Property};

const NODES: usize = 3;
const MAJORITY: usize = 2;
/// In ticks of time.
const LEASE: u8 = 2;
/// How far the servers' clocks move in a tick: they make tokens of that.
const TOKENS_PER_TICK: u8 = 2;

/// What is checked, and how far.
#[derive(Debug, Clone)]
struct Quorum {
    clients: usize,
    /// Acquisitions per client.
    rounds: u8,
    renewals: u8,
    restarts: u8,
    /// Answers that never arrive.
    losses: u8,
    ticks: u8,
    /// For how long a server that has restarted grants nothing.
    grace: u8,
    /// How far each server's clock is ahead, in tokens.
    ahead: [u8; NODES],
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State {
    now: u8,
    nodes: [Node; NODES],
    clients: Vec<Client>,
    restarts: u8,
    losses: u8,
    /// Acquisitions per client.
    rounds: u8,
    /// The largest token a client has held the lock with.
    best: u8,
    token_went_back: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Node {
    last: u8,
    hold: Option<Hold>,
    grants_from: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Hold {
    client: usize,
    round: u8,
    token: u8,
    ends: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    round: u8,
    renewals: u8,
    phase: Phase,
    /// A token that was seen, and when.
    seen: Option<(u8, u8)>,
    /// What is on its way to each server, in order: one connection each.
    requests: [Vec<Request>; NODES],
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Idle,
    Asking {
        sent: u8,
        tokens: [Option<u8>; NODES],
    },
    /// Writing a token back.
    Fencing {
        sent: u8,
        token: u8,
        tokens: [Option<u8>; NODES],
    },
    Holding {
        sent: u8,
        /// When a renewal was sent, and who has confirmed it.
        renewal: Option<(u8, [bool; NODES])>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    Acquire { round: u8, fence: u8 },
    Fence { round: u8, token: u8 },
    Renew { round: u8, sent: u8 },
    Release { round: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Action {
    Tick,
    Ask(usize),
    /// A server carries out the next request of a client; the answer arrives, or not.
    Serve(usize, usize, bool),
    GiveUp(usize),
    Renew(usize),
    Restart(usize),
}

impl Model for Quorum {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let node = Node {
            last: 0,
            hold: None,
            grants_from: 0,
        };
        let client = Client {
            round: 0,
            renewals: 0,
            phase: Phase::Idle,
            seen: None,
            requests: Default::default(),
        };
        vec![State {
            now: 0,
            nodes: std::array::from_fn(|_| node.clone()),
            clients: vec![client; self.clients],
            restarts: 0,
            losses: 0,
            rounds: self.rounds,
            best: 0,
            token_went_back: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (n, node) in state.nodes.iter().enumerate() {
            // One that knows nothing has nothing to forget.
            if state.restarts < self.restarts && node.last > 0 {
                actions.push(Action::Restart(n));
            }
        }
        for (c, client) in state.clients.iter().enumerate() {
            for (n, requests) in client.requests.iter().enumerate() {
                if let Some(request) = requests.first() {
                    actions.push(Action::Serve(n, c, true));
                    if state.losses < self.losses && client.listens_to(*request) {
                        actions.push(Action::Serve(n, c, false));
                    }
                }
            }
            match &client.phase {
                Phase::Idle if client.round < self.rounds && state.may_begin(c) => {
                    actions.push(Action::Ask(c));
                }
                Phase::Idle => {}
                Phase::Asking { .. } | Phase::Fencing { .. } => actions.push(Action::GiveUp(c)),
                Phase::Holding { renewal, .. } => {
                    actions.push(Action::GiveUp(c));
                    if renewal.is_none()
                        && client.renewals < self.renewals
                        && client.believes(state.now)
                    {
                        actions.push(Action::Renew(c));
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Ask(c) => state.ask(c),
            Action::Serve(n, c, answered) => self.serve(&mut state, n, c, answered),
            // Before or after the lock was taken: whatever is believed about it may be released.
            Action::GiveUp(c) => state.give_up(c),
            Action::Renew(c) => state.renew(c),
            Action::Restart(n) => {
                state.restarts += 1;
                state.nodes[n] = Node {
                    last: 0,
                    hold: None,
                    grants_from: state.now + self.grace,
                };
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holder", |_, state: &State| {
                let holders = state.clients.iter().filter(|it| it.believes(state.now));
                holders.count() <= 1
            }),
            Property::always("tokens grow", |_, state: &State| !state.token_went_back),
            Property::sometimes("a lock is handed on", |_, state: &State| {
                state.clients[1].believes(state.now) && state.clients[0].round > 0
            }),
            Property::sometimes("a token is written back", |_, state: &State| {
                let fencing = |client: &Client| matches!(client.phase, Phase::Fencing { .. });
                state.clients.iter().any(fencing)
            }),
        ]
    }
}

impl Quorum {
    fn clock(&self, node: usize, now: u8) -> u8 {
        1 + now * TOKENS_PER_TICK + self.ahead[node]
    }

    fn serve(&self, state: &mut State, n: usize, c: usize, answered: bool) {
        let (now, clock) = (state.now, self.clock(n, state.now));
        let request = state.clients[c].requests[n].remove(0);
        let answer = state.nodes[n].serve(c, request, now, clock);
        match answer {
            Some(token) if answered => state.hear(n, c, request, token),
            Some(_) => state.losses += 1,
            None => {}
        }
    }
}

impl Node {
    /// Carries out a request; the token of the hold, or null.
    fn serve(&mut self, client: usize, request: Request, now: u8, clock: u8) -> Option<u8> {
        match request {
            Request::Acquire { round, fence } => {
                if self.hold.is_some() || now < self.grants_from {
                    return None;
                }
                self.last = (self.last + 1).max(clock).max(fence);
                self.hold = Some(Hold {
                    client,
                    round,
                    token: self.last,
                    ends: now + LEASE,
                });
                Some(self.last)
            }
            Request::Fence { round, token } => {
                let hold = self.hold_of(client, round)?;
                hold.token = hold.token.max(token);
                let token = hold.token;
                self.last = self.last.max(token);
                Some(token)
            }
            Request::Renew { round, .. } => {
                let hold = self.hold_of(client, round)?;
                hold.ends = now + LEASE;
                Some(hold.token)
            }
            Request::Release { round } => {
                self.hold_of(client, round)?;
                self.hold = None;
                None
            }
        }
    }

    fn hold_of(&mut self, client: usize, round: u8) -> Option<&mut Hold> {
        let hold = self.hold.as_mut()?;
        (hold.client == client && hold.round == round).then_some(hold)
    }
}

impl Client {
    /// From when the request was sent, never from when it was answered.
    fn believes(&self, now: u8) -> bool {
        matches!(self.phase, Phase::Holding { sent, .. } if now < sent + LEASE)
    }

    /// Whether an answer to this request would change anything: only then it matters whether it arrives.
    fn listens_to(&self, request: Request) -> bool {
        match (request, &self.phase) {
            (Request::Acquire { round, .. }, Phase::Asking { .. })
            | (Request::Fence { round, .. }, Phase::Fencing { .. })
            | (Request::Renew { round, .. }, Phase::Holding { .. }) => round == self.round,
            _ => false,
        }
    }

    fn send(&mut self, request: Request) {
        for requests in &mut self.requests {
            requests.push(request);
        }
    }
}

impl State {
    /// Clients are alike, so that the first of them may begin.
    fn may_begin(&self, c: usize) -> bool {
        c == 0 || self.clients[c - 1].round > 0
    }

    /// The servers after the first are alike, too: of the states that differ in their order, one.
    fn representative(&self) -> State {
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
        other.min(self.clone())
    }

    fn tick(&mut self) {
        self.now += 1;
        for node in &mut self.nodes {
            node.hold = node.hold.filter(|hold| hold.ends > self.now);
        }
    }

    fn ask(&mut self, c: usize) {
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

    fn give_up(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let round = client.round;
        client.send(Request::Release { round });
        client.phase = Phase::Idle;
    }

    fn renew(&mut self, c: usize) {
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
    fn hear(&mut self, n: usize, c: usize, request: Request, token: u8) {
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
    fn fence(&mut self, c: usize, sent: u8, tokens: [Option<u8>; NODES]) {
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
    fn settle(&mut self, c: usize, sent: u8, token: u8) {
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

/// Two clients that take the lock and release it or crash, and a server that forgets.
fn forgetful(grace: u8) -> Quorum {
    Quorum {
        clients: 2,
        rounds: 1,
        renewals: 0,
        restarts: 1,
        losses: 0,
        ticks: 2,
        grace,
        ahead: [2, 0, 0],
    }
}

fn is_safe(model: Quorum) {
    let checker = model
        .checker()
        .threads(2)
        .symmetry_fn(State::representative)
        .spawn_dfs()
        .join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn two_clients_and_a_server_that_restarts_empty_are_safe_with_the_grace() {
    is_safe(forgetful(LEASE));
}

#[test]
fn two_clients_that_renew_late_release_and_crash_are_safe() {
    is_safe(Quorum {
        renewals: 1,
        restarts: 0,
        ..forgetful(LEASE)
    });
}

#[test]
fn answers_that_never_arrive_are_safe() {
    is_safe(Quorum {
        restarts: 0,
        losses: 1,
        ticks: 1,
        ..forgetful(LEASE)
    });
}

#[test]
fn three_clients_are_safe() {
    is_safe(Quorum {
        clients: 3,
        restarts: 0,
        ticks: 0,
        ..forgetful(LEASE)
    });
}

#[test]
fn without_the_grace_two_hold_the_lock_and_a_token_goes_back() {
    let checker = forgetful(0).checker().threads(2).spawn_bfs().join();
    for property in ["one holder", "tokens grow"] {
        let path = checker.discovery(property);
        let path = path.unwrap_or_else(|| panic!("no counterexample to {property:?}"));
        let actions = path.into_actions();
        let restarts = actions.iter().filter(|it| matches!(it, Action::Restart(_)));
        assert!(restarts.count() > 0, "{actions:?}");
    }
}
