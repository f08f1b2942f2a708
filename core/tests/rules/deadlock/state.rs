//! Random states of a few keys, reachable by requests or not, and every wait that could begin
//! in them.

use std::ops::Range;
use std::rc::Rc;

use proptest::prelude::*;

use mortise_core::{
    Busy, Count, Db, Instant, KeyId, Lock, Mode, Owner, OwnerRef, PendingRequest, Sharing, Stake,
    Terms, Token, Touched,
};

use super::graph::{Ask, Scene, Wait, check_answer};
use crate::queues::server::{KEYS, Server, key_id, owner};
use crate::requests::{self, for_one};

/// The last four are two tasks.
const OWNERS: [usize; 6] = [0, 1, 4, 5, 6, 7];

fn any_owner() -> impl Strategy<Value = usize> {
    prop::sample::select(&OWNERS[..])
}
const NOW: Instant = Instant::from_millis(1_000);

#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Owners may wait for a key that they hold.
    pub(crate) in_grace: bool,
    pub(crate) keys: Vec<KeyState>,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyState {
    /// One writer, or readers.
    holders: Vec<Holder>,
    write: bool,
    asks: Vec<Queued>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    owner: usize,
    count: u32,
    /// Its lease is over.
    is_over: bool,
}

/// How a request wants to hold.
#[derive(Clone, Copy, Debug)]
enum How {
    Write,
    Read,
    /// This many permits, of this many.
    Permits(u32, u32),
}

const HOWS: [How; 6] = [
    How::Write,
    How::Read,
    How::Permits(1, 1),
    How::Permits(1, 2),
    How::Permits(2, 3),
    How::Permits(1, 4),
];

fn how() -> impl Strategy<Value = How> {
    // Half of them are without a limit.
    prop_oneof![
        prop::sample::select(&HOWS[..2]),
        prop::sample::select(&HOWS[2..]),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    owner: usize,
    how: How,
    /// It has left the queue again.
    gone: bool,
}

pub(crate) fn states() -> impl Strategy<Value = State> {
    let keys = prop::collection::vec(key(), 1..=KEYS);
    (prop::bool::weighted(0.2), keys).prop_map(|(in_grace, keys)| State { in_grace, keys })
}

pub(crate) fn key() -> impl Strategy<Value = KeyState> {
    let holder = (any_owner(), 1..=3_u32, prop::bool::weighted(0.15));
    let holder = holder.prop_map(|(owner, count, is_over)| Holder {
        owner,
        count,
        is_over,
    });
    let ask = (any_owner(), how(), prop::bool::weighted(0.2));
    let ask = ask.prop_map(|(owner, how, gone)| Queued { owner, how, gone });
    (
        prop::collection::vec(holder, 0..4),
        any::<bool>(),
        prop::collection::vec(ask, 0..6),
    )
        .prop_map(|(mut holders, write, asks)| {
            holders.truncate(if write { 1 } else { 4 });
            KeyState {
                holders,
                write,
                asks,
            }
        })
}

/// States in which the search once gave a wrong answer.
pub(crate) fn found() -> [State; 1] {
    let key = |holders: &[usize], write, asks: &[(usize, bool)]| KeyState {
        holders: (holders.iter())
            .map(|&owner| Holder {
                owner,
                count: 1,
                is_over: false,
            })
            .collect(),
        write,
        asks: asks
            .iter()
            .map(|&(owner, write)| Queued {
                owner,
                how: if write { How::Write } else { How::Read },
                gone: false,
            })
            .collect(),
    };
    [State {
        in_grace: false,
        keys: vec![
            key(&[0], true, &[(1, false)]),
            key(&[4], false, &[(1, false), (5, true), (1, false)]),
            key(&[0, 1], false, &[(0, true), (1, true)]),
        ],
    }]
}

/// A state as the server has it and as the graph sees it.
struct World {
    server: Server,
    scenes: Vec<Scene>,
}

pub(crate) fn check_every_wait(state: &State) {
    World::of(state).check_all(state);
}

/// The same with crowds: each read lock has many more readers, some of which wait elsewhere, and many wait for each owner. None of them is
/// in a cycle, so the answers stay the same.
pub(crate) fn check_every_wait_in_a_crowd(state: &State, all: &Crowd) {
    let mut world = World::of(state);
    world.add_readers(all, 0..all.readers / 2);
    world.add_others(all);
    world.add_readers(all, all.readers / 2..all.readers);
    world.add_blocked(all);
    world.check_all(state);
}

impl World {
    fn check_all(&mut self, state: &State) {
        for key in 0..state.keys.len() {
            for owner in OWNERS {
                for how in HOWS {
                    self.check(key, owner, how);
                }
            }
        }
    }

    fn add_readers(&mut self, all: &Crowd, numbers: Range<usize>) {
        for (key, scene) in self.scenes.iter_mut().enumerate() {
            if scene.holds.is_empty() || scene.holds.iter().any(|(_, write)| *write) {
                continue;
            }
            let (server, key) = (&mut *self.server, key_id(key));
            let lock = server.locks.get_mut(&key).expect("it is held");
            for number in numbers.clone() {
                let reader = crowd(number);
                lock.put(reader.as_ref(), stake(false, 1, false));
            }
            if numbers.start == 0 {
                scene.holds.push((READER, false));
                scene.reads.push(all.readers as u64);
            }
            server.queues.observe(key.as_ref(), lock.observe());
        }
    }

    /// Adds a crowd that waits at another key, some of them readers of the read locks.
    fn add_others(&mut self, all: &Crowd) {
        let others = (0..all.others).map(|number| crowd(all.readers - all.waiting + number));
        let holder = crowd(all.readers + all.others);
        self.add_queue("elsewhere", holder.as_ref(), others);
    }

    /// Adds a crowd that waits for each owner, at a key of its own.
    fn add_blocked(&mut self, all: &Crowd) {
        for holder in OWNERS {
            let blocked = (0..all.blocked).map(|number| crowd(10_000 * (holder + 1) + number));
            self.add_queue(&format!("of-{holder}"), owner(holder).as_ref(), blocked);
        }
    }

    fn add_queue(
        &mut self,
        name: &str,
        holder: OwnerRef<'_>,
        waiters: impl Iterator<Item = Owner>,
    ) {
        let key = KeyId {
            db: Db(0),
            name: Rc::from(name.as_bytes()),
        };
        let mut lock = Lock::free();
        lock.put(holder, stake(true, 1, false));
        for waiter in waiters {
            let request = for_one(&key, waiter, terms(How::Write), lock.observe(), NOW);
            self.server.queues.push(&request);
        }
    }
}

/// How many there are besides the owners of a state.
pub(crate) struct Crowd {
    readers: usize,
    /// Those that wait for another lock, of which `waiting` are also among the readers.
    others: usize,
    waiting: usize,
    /// Those that wait for each owner.
    blocked: usize,
}

/// As many as a search gets past.
pub(crate) const CROWD: Crowd = Crowd {
    readers: 300,
    others: 100,
    waiting: 30,
    blocked: 100,
};
/// In the graph, one of them represents all.
const READER: usize = 10;

fn crowd(number: usize) -> Owner {
    requests::named(&format!("crowd-{number}"))
}

fn stake(write: bool, count: u32, is_over: bool) -> Stake {
    Stake {
        write: if write { count } else { 0 },
        read: if write { 0 } else { count },
        token: Token::new(1).expect("a token"),
        deadline: if is_over { NOW } else { NOW.after(1) },
        since: NOW,
        touched: Touched::by(0),
        revoked: false,
    }
}

impl World {
    fn of(all: &State) -> Self {
        let mut world = Self {
            server: Server::default(),
            scenes: vec![Scene::default(); all.keys.len()],
        };
        world.server.now = NOW;
        for (key, state) in all.keys.iter().enumerate() {
            for &holder in &state.holders {
                world.put(key, holder, state.write);
            }
        }
        let mut gone = Vec::new();
        // Alternately, so that an owner comes and goes at several keys.
        for turn in 0..6 {
            for (key, state) in all.keys.iter().enumerate() {
                let Some(queued) = state.asks.get(turn) else {
                    continue;
                };
                let ask = world.ask(key, queued.owner, queued.how);
                if all.in_grace || !world.reenters(key, ask) {
                    let request = pending(key, ask, queued.how, Lock::free());
                    let id = world.server.queues.push(&request);
                    if queued.gone {
                        gone.push(id);
                    } else {
                        world.scenes[key].push(ask);
                    }
                }
            }
        }
        for id in gone {
            assert!(world.server.queues.remove(id).is_some());
        }
        let server = &mut *world.server;
        for (key, lock) in &server.locks {
            server.queues.observe(key.as_ref(), lock.observe());
        }
        world
    }

    fn put(&mut self, key: usize, holder: Holder, write: bool) {
        let lock = self.server.locks.entry(key_id(key)).or_default();
        let Holder {
            owner: number,
            count,
            is_over,
        } = holder;
        let is_new = lock.hold(owner(number).as_ref()).is_none();
        if is_new {
            let stake = stake(write, count, is_over);
            lock.put(owner(number).as_ref(), stake);
            if !is_over {
                self.scenes[key].holds.push((number, write));
                self.scenes[key].reads.push(u64::from(stake.read));
            }
        }
    }

    /// A reader's write request is an upgrade.
    fn ask(&self, key: usize, asker: usize, how: How) -> Ask {
        let write = matches!(how, How::Write);
        let (permits, limit) = match how {
            How::Write | How::Read => (1, None),
            How::Permits(permits, limit) => (permits, Some(limit)),
        };
        Ask {
            owner: asker,
            write,
            upgrade: write && self.scenes[key].holds.contains(&(asker, false)),
            permits,
            limit,
        }
    }

    fn reenters(&self, key: usize, ask: Ask) -> bool {
        let mut holds = self.scenes[key].holds.iter();
        !ask.upgrade && holds.any(|(holder, _)| *holder == ask.owner)
    }

    /// Checks the answer for a wait that would begin now, and for the same wait after it has begun.
    fn check(&mut self, key: usize, asker: usize, how: How) {
        let ask = self.ask(key, asker, how);
        let mut wait = Wait {
            key,
            ask,
            is_queued: false,
        };
        let held = self.server.locks.get(&key_id(key)).map(Lock::observe);
        let request = pending(key, ask, how, held.unwrap_or_default());
        let keys = self.server.find_cycle(&request);
        check_answer(&self.scenes, wait, keys.as_deref());

        let id = self.server.queues.push(&request);
        wait.is_queued = true;
        let keys = self.server.cycle_of(id);
        let mut scenes = self.scenes.clone();
        scenes[key].push(ask);
        check_answer(&scenes, wait, keys.as_deref());
        assert!(self.server.queues.remove(id).is_some());
    }
}

fn terms(how: How) -> Terms {
    let count = |count| Count::new(count).expect("at least 1");
    let (sharing, holds): (Sharing, _) = match how {
        How::Write => (Mode::Write.into(), None),
        How::Read => (Mode::Read.into(), None),
        How::Permits(permits, limit) => (Sharing::within(count(limit)), Some(count(permits))),
    };
    Terms {
        holds,
        ..requests::terms(sharing, 1)
    }
}

fn pending(key: usize, ask: Ask, how: How, held: Lock) -> PendingRequest {
    PendingRequest {
        busy: match ask.upgrade {
            true => Busy::Upgrade,
            false => Busy::Held,
        },
        ..for_one(&key_id(key), owner(ask.owner), terms(how), held, NOW)
    }
}
