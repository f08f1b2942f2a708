//! The bounds within which the model checker visits every state.

use stateright::{Checker, HasDiscoveries, Model, Path, UniformChooser};

use crate::quorum::{Action, Quorum};
use crate::state::State;
use crate::{LEASE, TOKENS_PER_TICK};

/// Two clients acquire the lock, renew it late, and release it or crash; a server restarts empty. One server's clock is ahead by
/// almost the length of the grace.
fn forgetful(grace: u8) -> Quorum {
    Quorum {
        clients: 2,
        rounds: 1,
        renewals: 1,
        restarts: 1,
        losses: 0,
        ticks: 2,
        grace,
        ahead: [LEASE * TOKENS_PER_TICK - 1, 0, 0],
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

/// The shortest run that breaks a property.
#[track_caller]
fn counterexample(model: Quorum, property: &'static str) -> Vec<Action> {
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AllOf([property].into()))
        .spawn_bfs()
        .join();
    let path = checker.discovery(property);
    let actions = path.map(Path::into_actions);
    actions.unwrap_or_else(|| panic!("no counterexample to {property:?}"))
}

/// Over the length of a lease without renewals 1.6 million states, over half of it with renewals 1.5 million; with `MORTISE_LONG=1` both
/// together, 8.8 million. States that differ only in the order of the two identical servers count as one.
#[test]
fn with_the_grace_two_clients_and_a_server_that_restarts_empty_are_safe() {
    let whole = forgetful(LEASE);
    if std::env::var_os("MORTISE_LONG").is_some() {
        return is_safe(whole);
    }
    is_safe(Quorum {
        renewals: 0,
        ..whole.clone()
    });
    is_safe(Quorum { ticks: 1, ..whole });
}

/// 0.2 million states.
#[test]
fn lost_replies_are_safe() {
    is_safe(Quorum {
        renewals: 0,
        restarts: 0,
        losses: 1,
        ticks: 1,
        ..forgetful(LEASE)
    });
}

/// 2.7 million states: all interleavings of three clients within a lease.
#[test]
fn three_clients_are_safe() {
    is_safe(Quorum {
        clients: 3,
        renewals: 0,
        restarts: 0,
        ticks: 0,
        ..forgetful(LEASE)
    });
}

/// Five million states of random runs, within bounds far too large to visit every state.
#[test]
fn random_runs_of_three_clients_that_acquire_repeatedly_are_safe() {
    let model = Quorum {
        clients: 3,
        rounds: 3,
        renewals: 2,
        restarts: 2,
        losses: 2,
        ticks: 8,
        ..forgetful(LEASE)
    };
    let checker = model
        .checker()
        .threads(2)
        .target_state_count(5_000_000)
        .spawn_simulation(1, UniformChooser)
        .join();
    checker.assert_no_discovery("one holder");
    checker.assert_no_discovery("tokens grow");
}

#[test]
fn without_the_grace_two_hold_the_lock_and_a_token_goes_back() {
    for property in ["one holder", "tokens grow"] {
        let forgetful = Quorum {
            renewals: 0,
            ..forgetful(0)
        };
        let actions = counterexample(forgetful, property);
        let restarts = actions.iter().filter(|it| matches!(it, Action::Restart(_)));
        assert!(restarts.count() > 0, "{actions:?}");
    }
}

#[test]
fn with_clocks_as_far_apart_as_the_grace_lasts_a_token_goes_back() {
    let apart = Quorum {
        renewals: 0,
        ahead: [LEASE * TOKENS_PER_TICK, 0, 0],
        ..forgetful(LEASE)
    };
    let actions = counterexample(apart, "tokens grow");
    let restarts = actions.iter().filter(|it| matches!(it, Action::Restart(_)));
    assert!(restarts.count() > 0, "{actions:?}");
}
