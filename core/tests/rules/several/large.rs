//! Requests for sixteen keys that come and go in any order.

use std::collections::BTreeSet;

use mortise_core::{Instant, Member, Queues, Sharing, Waiter, WaiterId};

use super::server::{NOW, key_id, owner_of, terms};

const KEYS: u64 = 40;
const AT_ONCE: usize = 16;
const OWNERS: usize = 30;

#[test]
fn requests_for_sixteen_keys_come_and_go_in_any_order() {
    for seed in 1..100 {
        come_and_go(seed);
    }
}

fn come_and_go(seed: u64) {
    let (mut draw, mut queues) = (Draw(seed), Queues::default());
    let mut waiting = [None; OWNERS];
    for _ in 0..300 {
        let number = draw.below(OWNERS as u64) as usize;
        waiting[number] = match waiting[number] {
            None => Some(push(&mut queues, number, &draw.keys())),
            Some(id) => {
                queues.remove(id).expect("it waits");
                None
            }
        };
    }
    for id in waiting.into_iter().flatten() {
        queues.remove(id).expect("it waits");
    }
    assert!(queues.is_empty());
}

fn push(queues: &mut Queues, number: usize, keys: &BTreeSet<u64>) -> WaiterId {
    let ids: Vec<_> = keys.iter().map(|key| key_id(*key as usize)).collect();
    let members: Vec<_> = ids
        .iter()
        .map(|id| Member {
            key: id.as_ref(),
            ready: false,
        })
        .collect();
    let waiter = Waiter {
        id: queues.next_id(),
        owner: owner_of(number),
        terms: terms(Sharing::several(AT_ONCE as u8)),
        since: NOW,
        until: Instant::NEVER,
    };
    queues.push_several(&members, &waiter);
    waiter.id
}

/// Pseudo-random numbers (Marsaglia, "Xorshift RNGs", 2003).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn keys(&mut self) -> BTreeSet<u64> {
        let mut keys = BTreeSet::new();
        while keys.len() < AT_ONCE {
            keys.insert(self.below(KEYS));
        }
        keys
    }
}
