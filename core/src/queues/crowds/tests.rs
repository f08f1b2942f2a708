//! The crowds, compared with a check of every reader, after each step of random programs.

use super::super::Queues;
use super::*;
use crate::admission::Turn;
use crate::key::{Db, KeyRef};
use crate::owner::Owner;
use crate::queues::Rank;
use crate::queues::{Waiter, WaiterId};
use crate::request::{How, Pass, Release, Request, Terms};
use crate::token::TokenClock;
use crate::types::{Instant, Lease, Micros, Mode};

const OWNERS: u64 = 400;
/// As many steps as it takes to become a crowd and to disperse, several times.
const STEPS: usize = 6_000;

/// A third by themselves, a third in tasks of three, and a third in two tasks, one of which is named like a part of the other.
fn owner(number: u64) -> Owner {
    let name = match number % 3 {
        0 => format!("owner-{number}"),
        1 => format!("task-{}##{number}", number / 9),
        _ if number.is_multiple_of(2) => format!("many##{number}"),
        _ => format!("many##more##{number}"),
    };
    OwnerRef::new(name.as_bytes())
        .expect("1 to 255 bytes")
        .to_owner()
}

/// A generator of Marsaglia's ("Xorshift RNGs", 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct World {
    chance: Chance,
    queues: Queues,
    waiting: Vec<WaiterId>,
    lock: Lock,
    tokens: TokenClock,
    now: Instant,
}

fn terms(mode: Mode, lease: u64) -> Terms {
    Terms {
        sharing: mode.into(),
        lease: Lease::from_millis(lease).expect("at least 1"),
        holds: None,
        fence: None,
        token: None,
        client: 0,
    }
}

impl World {
    fn owner(&mut self) -> Owner {
        owner(self.chance.below(OWNERS))
    }

    fn read(&mut self, owner: &Owner, lease: u64) {
        let request = Request {
            owner: owner.as_ref(),
            terms: terms(Mode::Read, lease),
        };
        let mut live = self.lock.at(self.now, |_, _| {});
        let granted = live.acquire(&request, Turn::First, &mut self.tokens, Micros(0));
        assert!(granted.is_ok());
        self.queues.has_holder(&self.lock, owner.as_ref());
    }

    fn release(&mut self, owner: &Owner) {
        let release = Release {
            owner: owner.as_ref(),
            how: How::All,
            token: None,
        };
        let _ = self.lock.at(self.now, |_, _| {}).release(&release);
    }

    fn pass(&mut self, from: &Owner, to: &Owner) {
        let pass = Pass {
            owner: from.as_ref(),
            new_owner: to.as_ref(),
            lease: Lease::from_millis(50).expect("at least 1"),
            token: None,
            client: 0,
        };
        let mut live = self.lock.at(self.now, |_, _| {});
        if live.pass(&pass, &mut self.tokens, Micros(0)).is_ok() {
            self.queues.has_holder(&self.lock, to.as_ref());
        }
    }

    fn wait(&mut self, owner: Owner) {
        let waiter = Waiter {
            id: self.queues.next_id(),
            owner,
            terms: terms(Mode::Write, 1),
            since: self.now,
            until: Instant::NEVER,
        };
        self.waiting.push(waiter.id);
        let name = [b'a' + self.chance.below(3) as u8];
        let key = KeyRef {
            db: Db(0),
            name: &name,
        };
        self.queues.push(key, waiter, Rank::Line);
    }

    fn leave(&mut self) {
        if !self.waiting.is_empty() {
            let at = self.chance.below(self.waiting.len() as u64) as usize;
            let gone = self.queues.remove(self.waiting.swap_remove(at));
            assert!(gone.is_some());
        }
    }

    /// Most come for long while the lock fills up, and for a moment while it empties.
    fn step(&mut self, fills: bool) {
        let (one, other) = (self.owner(), self.owner());
        match self.chance.below(20) {
            0..8 if fills => self.read(&one, 5_000),
            0..3 => self.read(&one, 20),
            3..10 if !fills => self.release(&one),
            8..10 => self.release(&one),
            10..12 => self.pass(&one, &other),
            12..16 => self.wait(one),
            16..19 => self.leave(),
            _ => self.now = self.now.after(self.chance.below(30)),
        }
        match self.chance.below(1_000) {
            0 => {
                self.lock = self.lock.clone();
                self.queues.has_holders(&self.lock);
            }
            1 if !fills => self.now = self.now.after(6_000),
            2 if !fills => drop(self.lock.clear()),
            _ => {}
        }
    }

    /// True if it is a crowd.
    fn check(&self) -> bool {
        let Some(readers) = self.lock.several() else {
            return false;
        };
        let (all, known) = readers.with(|readers| {
            let all: Vec<Owner> = readers.iter().map(|(owner, _)| owner.clone()).collect();
            (all, readers.waiting.tasks().cloned())
        });
        let Some(known) = known else {
            assert!(all.len() <= CROWD, "{} readers are no crowd", all.len());
            return false;
        };
        let waits = |owner: &&Owner| self.queues.waiters.waits(owner.as_ref());
        let waiting = all
            .iter()
            .filter(waits)
            .map(|owner| owner.as_ref().task_owner().to_owner());
        assert_eq!(known, waiting.collect());
        true
    }
}

#[test]
fn the_waiters_of_a_crowd_are_known_after_any_change() {
    let mut world = World {
        chance: Chance(0x2545_f491_4f6c_dd1d),
        queues: Queues::new(),
        waiting: Vec::new(),
        lock: Lock::free(),
        tokens: TokenClock::default(),
        now: Instant::from_millis(1),
    };
    let mut crowded = 0;
    for step in 0..STEPS {
        world.step(step % 1_500 < 1_000);
        crowded += usize::from(world.check());
    }
    assert!(crowded > STEPS / 5, "it was a crowd after {crowded} steps");
    while !world.waiting.is_empty() {
        world.leave();
        world.check();
    }
}

#[test]
fn a_crowd_is_forgotten_with_its_lock_and_a_dispersed_one_frees_its_place() {
    let mut queues = Queues::new();
    let crowd = |queues: &mut Queues| {
        let mut lock = Lock::free();
        let mut tokens = TokenClock::default();
        for number in 0..CROWD as u64 {
            let name = format!("{number}");
            let owner = OwnerRef::new(name.as_bytes()).expect("1 to 255 bytes");
            let request = Request {
                owner,
                terms: terms(Mode::Read, 1_000),
            };
            let mut live = lock.at(Instant::default(), |_, _| {});
            let granted = live.acquire(&request, Turn::First, &mut tokens, Micros(0));
            assert!(granted.is_ok());
            queues.has_holder(&lock, owner);
        }
        lock
    };
    let mut locks: Vec<Lock> = (0..=MOST_CROWDS).map(|_| crowd(&mut queues)).collect();
    assert_eq!(queues.crowds.0.len(), MOST_CROWDS);
    // The last one found no room. Of the others one is gone, and one has few readers left.
    locks.swap_remove(0);
    for number in 10..CROWD as u64 {
        let name = format!("{number}");
        let owner = OwnerRef::new(name.as_bytes()).expect("1 to 255 bytes");
        let release = Release {
            owner,
            how: How::All,
            token: None,
        };
        let released = locks[5].at(Instant::default(), |_, _| {}).release(&release);
        assert!(released.is_ok());
    }
    let more = crowd(&mut queues);
    assert_eq!(queues.crowds.0.len(), MOST_CROWDS - 1);
    drop((locks, more));
    queues.crowds.begin_wait(owner(0).as_ref());
    assert_eq!(queues.crowds.0.capacity(), 0);
}
