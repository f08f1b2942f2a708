//! Many tasks that each hold a key, and wait for one or several others: the searches for cycles stay short.

use std::time::Duration;

use mortise_core::{
    Instant, Lock, Member, Micros, Mode, Observed, Owner, OwnerRef, Queues, Rank, Request, Sharing,
    Terms, TokenClock, Turn, Wait, Waiter,
};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::server::{NOW, key_id, terms};
use crate::deadlock::cost::processor_time;

const KEYS: usize = 60;
const TASKS: usize = 200;
const REQUESTS: usize = 600;
/// Of all searches for one request, and what the last step of the last one costs.
const MOST_STEPS: usize = 4_000;

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
    let name = format!("task-{task}##{number}");
    OwnerRef::new(name.as_bytes()).expect("short").to_owner()
}

/// Who holds each key: a task each.
fn holders() -> Vec<Observed> {
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
            let steps = match keys[..] {
                [key] => ask(&mut queues, &held, owner, key),
                _ => ask_several(&mut queues, &held, owner, keys),
            };
            longest = longest.max(processor_time() - before);
            prop_assert!(steps <= MOST_STEPS, "{steps} steps for request {number}");
        }
        println!("{REQUESTS} requests in {:?}, the longest {longest:?}", processor_time() - began);
        prop_assert!(queues.len() > TASKS);
    }
}

fn ask(queues: &mut Queues, held: &[Observed], owner: Owner, key: usize) -> usize {
    let (id, terms) = (key_id(key), terms(Mode::Write.into()));
    let wait = Wait {
        key: id.clone(),
        owner: owner.clone(),
        terms,
        rank: Rank::Last,
    };
    let plan = queues.plan_wait(wait, &held[key], NOW);
    if plan.deadlock.is_none() {
        let waiter = waiter(queues, owner, terms);
        let _ = queues.make_moves(&plan);
        queues.push(id.as_ref(), waiter, plan.rank);
        queues.observe(id.as_ref(), held[key].clone());
    }
    plan.steps
}

fn ask_several(queues: &mut Queues, held: &[Observed], owner: Owner, keys: &[usize]) -> usize {
    let ids: Vec<_> = keys.iter().map(|key| key_id(*key)).collect();
    let member = |id| Member {
        key: id,
        ready: false,
    };
    let members: Vec<_> = ids.iter().map(|id| member(id.as_ref())).collect();
    let waiter = waiter(queues, owner, terms(Sharing::several(keys.len() as u8)));
    queues.push_several(&members, &waiter);
    for (id, key) in ids.iter().zip(keys) {
        queues.observe(id.as_ref(), held[*key].clone());
    }
    let plan = queues.plan_several(waiter.id, NOW);
    if plan.deadlock.is_some() {
        queues.remove(waiter.id).expect("it waits");
    } else {
        let _ = queues.make_moves(&plan);
    }
    plan.steps
}

fn waiter(queues: &mut Queues, owner: Owner, terms: Terms) -> Waiter {
    Waiter {
        id: queues.next_id(),
        owner,
        terms,
        since: NOW,
        until: Instant::NEVER,
    }
}
