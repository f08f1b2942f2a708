//! What the search costs before a wait begins, in the crowds that matter: how many locks it looks
//! at, asserted, and how long it takes, printed (`cargo test --release -- --nocapture cost`).

use std::collections::HashMap;
use std::rc::Rc;

use mortise_core::{
    Instant, KeyId, Lease, Lock, Micros, Mode, Owner, OwnerRef, Queues, Request, TokenClock, Wait,
    Waiter,
};

/// How many wait. Unoptimized, a tenth tells as much.
const CROWD: usize = if cfg!(debug_assertions) {
    1_000
} else {
    10_000
};
const NOW: Instant = Instant::from_millis(1_000);

#[derive(Default)]
struct Crowd {
    queues: Queues,
    locks: HashMap<KeyId, Lock>,
    tokens: TokenClock,
    searches: usize,
    /// The longest that one took, and all together.
    longest: std::time::Duration,
    total: std::time::Duration,
}

fn key(number: usize) -> KeyId {
    KeyId {
        db: 0,
        name: Rc::from(format!("key-{number}").into_bytes()),
    }
}

fn owner(name: &str, number: usize) -> Owner {
    let name = format!("{name}-{number}");
    OwnerRef::new(name.as_bytes())
        .expect("1 to 255 bytes")
        .to_owner()
}

impl Crowd {
    fn hold(&mut self, key: KeyId, owner: &Owner, mode: Mode) {
        let request = Request {
            owner: owner.as_ref(),
            mode,
            lease: Lease::from_millis(1_000).expect("at least 1"),
            holds: None,
            fence: None,
            token: None,
            client: 0,
        };
        let mut live = self.locks.entry(key).or_default().at(NOW, |_, _| {});
        live.acquire(&request, &mut self.tokens, Micros(0))
            .expect("it is compatible");
    }

    /// A wait that closes no cycle begins.
    fn wait(&mut self, key: KeyId, owner: Owner, mode: Mode, upgrade: bool) {
        let wait = Wait {
            key,
            owner,
            mode,
            upgrade,
        };
        let held = self.locks.get(&wait.key).map(Lock::observe);
        let held = held.unwrap_or_default();
        let began = std::time::Instant::now();
        let cycle = self.queues.find_cycle(&wait, &held, NOW);
        let took = began.elapsed();
        assert_eq!(cycle, None);
        self.longest = self.longest.max(took);
        self.total += took;
        self.searches += 1;
        self.push(wait);
    }

    /// A wait begins, and nobody asks whether it closes a cycle.
    fn push(&mut self, wait: Wait) {
        let waiter = Waiter {
            id: self.queues.next_id(),
            owner: wait.owner,
            mode: wait.mode,
            lease: Lease::from_millis(1_000).expect("at least 1"),
            holds: None,
            fence: None,
            token: None,
            client: 0,
            since: NOW,
            limit: None,
        };
        self.queues.push(0, &wait.key.name, waiter, wait.upgrade);
        let held = self.locks.get(&wait.key).map(Lock::observe);
        self.queues.observe(&wait.key, held.unwrap_or_default());
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: {} searches in {:?}, the longest {:?}",
            self.searches, self.total, self.longest,
        );
    }
}

/// Every third a writer.
fn mixed(number: usize) -> Mode {
    if number.is_multiple_of(3) {
        Mode::Write
    } else {
        Mode::Read
    }
}

#[test]
fn a_crowd_on_one_lock_costs_each_a_look_at_it() {
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    for number in 0..CROWD {
        crowd.wait(key(0), owner("waiter", number), mixed(number), false);
    }
    crowd.print("one lock");
}

#[test]
fn a_crowd_with_a_lock_each_costs_each_a_look_at_its_own() {
    let mut crowd = Crowd::default();
    for number in 0..CROWD {
        crowd.hold(key(number), &owner("holder", number), Mode::Write);
        crowd.wait(key(number), owner("waiter", number), Mode::Write, false);
    }
    crowd.print("a lock each");
}

#[test]
fn a_crowd_behind_a_crowd_of_readers_costs_each_a_look_at_the_lock() {
    let mut crowd = Crowd::default();
    for number in 0..CROWD {
        crowd.hold(key(0), &owner("reader", number), Mode::Read);
    }
    for number in 0..CROWD {
        crowd.wait(key(0), owner("waiter", number), mixed(number), false);
    }
    crowd.print("behind as many readers");
}

#[test]
fn a_crowd_behind_readers_while_another_waits_elsewhere() {
    let mut crowd = Crowd::default();
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    for number in 0..CROWD {
        crowd.hold(key(0), &owner("reader", number), Mode::Read);
    }
    for number in 0..CROWD / 2 {
        crowd.wait(key(1), owner("other", number), Mode::Write, false);
        crowd.wait(key(0), owner("waiter", number), Mode::Write, false);
    }
    crowd.print("behind readers, and as many elsewhere");
}

#[test]
fn a_crowd_of_which_everybody_waits_for_the_same_two_locks() {
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    // With such a crowd a search takes milliseconds, so only some are made.
    for number in 0..CROWD / 2 {
        for key in [key(0), key(1)] {
            let owner = owner("waiter", number);
            let mode = Mode::Write;
            if number.is_multiple_of(100) {
                crowd.wait(key, owner, mode, false);
            } else {
                let upgrade = false;
                crowd.push(Wait {
                    key,
                    owner,
                    mode,
                    upgrade,
                });
            }
        }
    }
    crowd.print("everybody for the same two locks");
}

#[test]
fn one_owner_that_asks_again_and_again_costs_each_time_a_look() {
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    for number in 0..CROWD / 2 {
        crowd.wait(key(0), owner("waiter", 0), mixed(number), false);
        crowd.wait(key(1), owner("waiter", 0), Mode::Read, false);
        crowd.wait(key(1), owner("other", number), Mode::Read, false);
    }
    crowd.print("one owner again and again");
}

#[test]
fn a_chain_costs_its_length() {
    let mut crowd = Crowd::default();
    let length = CROWD / 10;
    // Each holds a lock and waits for the next one, from the far end on, so that nothing is
    // searched twice; then one waits for the first.
    for number in (0..length).rev() {
        crowd.hold(key(number), &owner("link", number), Mode::Write);
    }
    for number in 0..length - 1 {
        crowd.wait(key(number + 1), owner("link", number), Mode::Write, false);
    }
    crowd.wait(key(0), owner("waiter", 0), Mode::Write, false);
    crowd.print("a chain");
}
