//! Many tasks that each hold a key, and wait for one or several others: the searches for cycles stay short.

use std::time::Duration;

use mortise_core::{Lock, Micros, Mode, Owner, Queues, Request, Sharing, TokenClock, Turn};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::server::{NOW, key_id, terms};
use crate::deadlock::crowd::processor_time;
use crate::requests::{for_several, named};

const KEYS: usize = 60;
const TASKS: usize = 200;
const REQUESTS: usize = 600;
/// Of all searches for one request, the last page included.
const MOST_STEPS: usize = 4_000 + 16;

#[derive(Debug)]
struct Ask {
    task: usize,
    /// One, or several at once.
    keys: Vec<usize>,
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let all: Vec<_> = (0..KEYS).collect();
    let keys = prop_oneof![subsequence(all.clone(), 1), subsequence(all, 2..=16)];
    let ask = (0..TASKS, keys).prop_map(|(task, keys)| Ask { task, keys });
    proptest::collection::vec(ask, REQUESTS)
}

fn name(task: usize, number: usize) -> Owner {
    named(&format!("task-{task}##{number}"))
}

/// Who holds each key: a task each.
fn holders() -> Vec<Lock> {
    let mut tokens = TokenClock::default();
    let mut hold = |task: usize| {
        let (mut lock, owner) = (Lock::free(), name(task, REQUESTS));
        let request = Request {
            owner: owner.as_ref(),
            terms: terms(Mode::Write.into()),
        };
        let mut live = lock.at(NOW, |_, _| {});
        let granted = live.acquire(&request, Turn::First, &mut tokens, Micros(1));
        granted.expect("it is free");
        lock.observe()
    };
    (0..KEYS).map(&mut hold).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, max_shrink_iters: 0, ..crate::queues::config() })]

    #[test]
    fn one_request_among_hundreds_of_tasks_in_cycles_takes_a_bounded_search(asks in asks()) {
        let (mut queues, held) = (Queues::default(), holders());
        let (mut longest, began) = (Duration::ZERO, processor_time());
        for (number, Ask { task, keys }) in asks.iter().enumerate() {
            let owner = name(*task, number);
            let before = processor_time();
            let sharing = match keys[..] {
                [_] => Mode::Write.into(),
                _ => Sharing::several(keys.len() as u8),
            };
            let pending = keys.iter().map(|key| (key_id(*key), held[*key].clone()));
            let request = for_several(pending, owner, terms(sharing), NOW);
            let steps = match queues.enqueue(&request) {
                Ok(enqueued) => enqueued.steps(),
                Err(deadlock) => deadlock.steps,
            };
            longest = longest.max(processor_time() - before);
            prop_assert!(steps <= MOST_STEPS, "{steps} steps for request {number}");
        }
        println!("{REQUESTS} requests in {:?}, the longest {longest:?}", processor_time() - began);
        prop_assert!(queues.len() > TASKS);
    }
}
