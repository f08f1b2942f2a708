//! Requests for sixteen keys that come and go in any order.

use mortise_core::{Lock, Queues, Sharing, WaiterId};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::server::{NOW, key_id, owner_of, terms};
use crate::queues::config;
use crate::requests::for_several;

const KEYS: usize = 40;
const AT_ONCE: usize = 16;
const OWNERS: usize = 30;
const STEPS: usize = 300;

/// An owner, and the keys that it asks for, unless it waits already: then its request goes.
type Step = (usize, Vec<usize>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = subsequence((0..KEYS).collect::<Vec<_>>(), AT_ONCE);
    proptest::collection::vec((0..OWNERS, keys), STEPS)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: config().cases / 10, ..config() })]

    #[test]
    fn requests_for_sixteen_keys_come_and_go_in_any_order(steps in steps()) {
        let mut queues = Queues::default();
        let mut waiting = [None; OWNERS];
        for (number, keys) in steps {
            waiting[number] = match waiting[number] {
                None => Some(push(&mut queues, number, &keys)),
                Some(id) => {
                    queues.remove(id).expect("it waits");
                    None
                }
            };
        }
        for id in waiting.into_iter().flatten() {
            queues.remove(id).expect("it waits");
        }
        prop_assert!(queues.is_empty());
    }
}

fn push(queues: &mut Queues, number: usize, keys: &[usize]) -> WaiterId {
    let keys = keys.iter().map(|key| (key_id(*key), Lock::free()));
    let terms = terms(Sharing::several(AT_ONCE as u8));
    queues.push(&for_several(keys, owner_of(number), terms, NOW))
}
