//! The targets of the fuzzer, one function each: `src/bin` has a program for each, and `verify/scripts/fuzz` runs them.
//!
//! Every function takes any bytes and panics if something is wrong. The whole programs are those of `core/tests/rules`, compared with
//! the same naive models; the bytes choose the steps, instead of a random generator.

#![forbid(unsafe_code)]

mod arguments;
mod bytes;

// The tests' own code, most of which is unused here.
#[allow(dead_code, unused_imports)]
#[path = "../../../core/tests/rules/deadlock/mod.rs"]
mod deadlock;
#[allow(dead_code, unused_imports)]
#[path = "../../../core/tests/rules/locks/mod.rs"]
mod locks;
#[allow(dead_code, unused_imports)]
#[path = "../../../core/tests/rules/mail/mod.rs"]
mod mail;
#[allow(dead_code, unused_imports)]
#[path = "../../../core/tests/rules/queues/mod.rs"]
mod queues;
#[allow(dead_code)]
#[path = "../../../core/tests/rules/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../../../core/tests/rules/requests.rs"]
mod requests;

// The module's own code.
#[allow(dead_code)]
mod config;
#[allow(dead_code)]
#[path = "../../../src/decimal.rs"]
mod decimal;
#[allow(dead_code)]
#[path = "../../../src/error.rs"]
mod error;
#[allow(dead_code)]
mod ffi;
#[allow(dead_code)]
#[path = "../../../src/command/parse.rs"]
mod parse;
#[allow(dead_code)]
mod time;

pub use arguments::arguments;
pub use bytes::{effects, locks as saved_locks};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Holds on locks, and on their replicas.
pub fn programs(bytes: &[u8]) {
    let (shape, steps) = split(bytes);
    let mut program = one(&locks::program::programs(), shape);
    program.steps = each(&locks::program::steps(), steps);
    locks::run::run(&program);
}

/// Waiters.
pub fn waiters(bytes: &[u8]) {
    let (shape, ops) = split(bytes);
    let mut program = one(&queues::program::programs(), shape);
    program.ops = each(&queues::program::op(queues::server::KEYS), ops);
    queues::run::run(&program);
}

/// Boxes and letters.
pub fn letters(bytes: &[u8]) {
    mail::program::run(each(&mail::program::op(), bytes));
}

/// Random states with waiters, and the waits that close a cycle.
pub fn circles(bytes: &[u8]) {
    let (shape, keys) = split(bytes);
    let mut state = one(&deadlock::state::states(), shape);
    let all = queues::server::KEYS;
    state.keys = each(&deadlock::state::key(), keys);
    state.keys.truncate(all);
    if !state.keys.is_empty() {
        deadlock::state::check_every_wait(&state);
    }
}

/// The bytes of a step. With a fixed size the fuzzer can insert, remove or change one step and keep the others.
const STEP: usize = 3;
/// No program is longer.
const MOST: usize = 200;

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(STEP))
}

fn each<S: Strategy>(strategy: &S, bytes: &[u8]) -> Vec<S::Value> {
    let steps = bytes.chunks(STEP).take(MOST);
    steps.map(|step| one(strategy, step)).collect()
}

/// The value that the strategy draws with these bytes as its random numbers.
fn one<S: Strategy>(strategy: &S, bytes: &[u8]) -> S::Value {
    let mut seed = [1; 16];
    seed[..bytes.len().min(STEP)].copy_from_slice(&bytes[..bytes.len().min(STEP)]);
    let chance = TestRng::from_seed(RngAlgorithm::XorShift, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), chance);
    let tree = strategy.new_tree(&mut runner);
    tree.expect("nothing is refused").current()
}
