//! The possible actions, and the properties that must hold.

use stateright::{Model, Property};

use crate::client::{Client, Phase};
use crate::server::Node;
use crate::state::State;
use crate::{NODES, TOKENS_PER_TICK};

/// The bounds of a check.
#[derive(Debug, Clone)]
pub(crate) struct Quorum {
    pub(crate) clients: usize,
    /// Acquisitions per client.
    pub(crate) rounds: u8,
    pub(crate) renewals: u8,
    pub(crate) restarts: u8,
    /// How many replies are lost.
    pub(crate) losses: u8,
    pub(crate) ticks: u8,
    /// How long a restarted server grants nothing.
    pub(crate) grace: u8,
    /// How far each server's clock is ahead, in tokens.
    pub(crate) ahead: [u8; NODES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    Tick,
    Ask(usize),
    /// A server runs the next request of a client; the reply arrives, or is lost.
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
            requests: Default::default(),
        };
        vec![State {
            now: 0,
            nodes: std::array::from_fn(|_| node.clone()),
            clients: vec![client; self.clients],
            restarts: 0,
            losses: 0,
            best: 0,
            token_went_back: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (n, node) in state.nodes.iter().enumerate() {
            // Restarting an empty server changes nothing.
            if state.restarts < self.restarts && node.last > 0 {
                actions.push(Action::Restart(n));
            }
        }
        for (c, client) in state.clients.iter().enumerate() {
            for (n, requests) in client.requests.iter().enumerate() {
                if let Some(request) = requests.first() {
                    actions.push(Action::Serve(n, c, true));
                    if state.losses < self.losses && client.listens_to(request) {
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
            // A client may release at any time, whatever it believes.
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
        let Some(request) = state.clients[c].requests[n].pop() else {
            return;
        };
        let answer = state.nodes[n].serve(c, request, now, clock);
        match answer {
            Some(token) if answered => state.receive(n, c, request, token),
            Some(_) => state.losses += 1,
            None => {}
        }
    }
}
