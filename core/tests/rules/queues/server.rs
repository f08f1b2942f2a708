//! The server in memory with numbers for keys and owners.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use mortise_core::{
    AcquireError, Count, Db, Deadlock, Grant, How, KeyId, Lease, Lock, Mode, Owner, Pass,
    PassError, Passed, PendingRequest, Release, ReleaseError, Released, Request, Settled, Sharing,
    Stake, Terms, Token, Undo, WaiterId,
};
use mortise_memory_server::{self as memory, Ask, Ended};

use crate::requests::{named, terms};

/// The keys: [`PER_DB`] names in each of [`DBS`] databases.
pub(crate) const KEYS: usize = DBS * PER_DB;
pub(crate) const DBS: usize = 2;
pub(crate) const PER_DB: usize = 3;

/// The key numbered `key`. Its name is a new copy each time, as it is in a command.
pub(crate) fn key_id(key: usize) -> KeyId {
    let name = format!("key-{}", key % PER_DB);
    KeyId {
        db: Db((key / PER_DB) as u32),
        name: Rc::from(name.into_bytes()),
    }
}

/// The number of the key `id`.
pub(crate) fn key_number(id: &KeyId) -> usize {
    (0..KEYS)
        .find(|key| key_id(*key) == *id)
        .expect("a key of the tests")
}

/// The first owner of the task of owner `number`: from 4 on, two owners are one task.
pub(crate) fn task(number: usize) -> usize {
    if number < 4 { number } else { number / 2 * 2 }
}

pub(crate) fn owner(number: usize) -> Owner {
    named(&match task(number) {
        task if task < 4 => format!("owner-{number}"),
        task => format!("task-{task}##{number}"),
    })
}

fn numbers(deadlock: &Deadlock) -> Vec<usize> {
    deadlock.keys.iter().map(key_number).collect()
}

/// A request as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) owner: usize,
    pub(crate) write: bool,
    pub(crate) lease: u64,
    pub(crate) holds: Option<u32>,
    /// Of a reader, no less than `holds`.
    pub(crate) limit: Option<u32>,
    pub(crate) fence: Option<u64>,
    pub(crate) client: u64,
}

impl Asked {
    /// For one more hold, without a limit.
    pub(crate) fn plain(owner: usize, mode: Mode, lease: u64) -> Self {
        Self {
            owner,
            write: mode == Mode::Write,
            lease,
            holds: None,
            limit: None,
            fence: None,
            client: 0,
        }
    }

    pub(crate) fn terms(self) -> Terms {
        let mode = if self.write { Mode::Write } else { Mode::Read };
        let limit = self.limit.and_then(Count::new);
        Terms {
            holds: self.holds.and_then(Count::new),
            fence: self.fence.and_then(Token::new),
            client: self.client,
            ..terms(limit.map_or(mode.into(), Sharing::within), self.lease)
        }
    }
}

/// Whether a request that cannot be granted at once waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Up to this many milliseconds.
    Millis(u64),
    /// Without limit.
    Endless,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(Grant),
    /// Null.
    Denied,
    /// The keys of the cycle.
    Deadlock(Vec<usize>),
    /// Queued, as an upgrade or behind all. A cycle that it closes was to be ignored.
    Waits {
        id: WaiterId,
        upgrade: bool,
        cycle: Option<Vec<usize>>,
    },
    Refused(AcquireError),
}

#[derive(Debug)]
pub(crate) struct Server(memory::Server);

impl Default for Server {
    fn default() -> Self {
        Self(memory::Server {
            slice: usize::MAX,
            ..memory::Server::default()
        })
    }
}

impl Deref for Server {
    type Target = memory::Server;

    fn deref(&self) -> &memory::Server {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut memory::Server {
        &mut self.0
    }
}

impl Server {
    /// A request, once its key has been settled.
    pub(crate) fn ask(&mut self, key: usize, asked: Asked, patience: Patience) -> Answer {
        let owner = owner(asked.owner);
        let answer = self.0.ask(&Ask {
            keys: &[key_id(key)],
            request: Request {
                owner: owner.as_ref(),
                terms: asked.terms(),
            },
            until: match patience {
                Patience::None => None,
                Patience::Millis(ms) => Some(self.now.after(ms)),
                Patience::Endless => Some(mortise_core::Instant::NEVER),
            },
            repeats: None,
        });
        match answer {
            memory::Answer::Granted(grant) => Answer::Granted(grant),
            memory::Answer::Denied => Answer::Denied,
            memory::Answer::Refused(error) => Answer::Refused(error),
            memory::Answer::Deadlock(deadlock) => Answer::Deadlock(numbers(&deadlock)),
            memory::Answer::Waits {
                id,
                is_upgrade,
                cycle,
            } => Answer::Waits {
                id,
                upgrade: is_upgrade,
                cycle: cycle.as_ref().map(numbers),
            },
            answer => panic!("no request is for several keys: {answer:?}"),
        }
    }

    /// The keys of a cycle that the request would close, by number.
    pub(crate) fn find_cycle(&mut self, request: &PendingRequest) -> Option<Vec<usize>> {
        self.0.find_cycle(request).as_ref().map(numbers)
    }

    /// Grants the waiters that the lock of `key` admits, without a look at what became an upgrade.
    pub(crate) fn settle(&mut self, key: usize) -> Settled {
        let mut all = Settled::default();
        loop {
            let settled = self.settle_step(&key_id(key));
            all.decided.extend(settled.decided);
            all.upgrading.extend(settled.upgrading);
            if !settled.more {
                return all;
            }
        }
    }

    /// The lock of `key`, which is free if the key is not there.
    pub(crate) fn lock(&self, key: usize) -> Lock {
        self.locks.get(&key_id(key)).cloned().unwrap_or_default()
    }

    pub(crate) fn hold_of(&self, key: usize, holder: usize) -> Option<Stake> {
        self.hold(&key_id(key), owner(holder).as_ref())
    }

    /// Removes or replaces the lock of `key`: callbacks notify the queues at once.
    pub(crate) fn replace(&mut self, key: usize, lock: Option<Lock>) {
        let id = key_id(key);
        self.queues.forget_holders(id.as_ref());
        self.locks.remove(&id);
        self.locks.extend(lock.map(|lock| (id, lock)));
    }

    /// The keys of the cycle that a waiter closes, which was moved or has become an upgrade.
    pub(crate) fn cycle_of(&mut self, id: WaiterId) -> Option<Vec<usize>> {
        let ended = self.check_upgrade(id);
        ended.err().map(|deadlock| numbers(&deadlock))
    }

    pub(crate) fn release(
        &mut self,
        key: usize,
        holder: usize,
        how: How,
    ) -> Result<Released, ReleaseError> {
        let holder = owner(holder);
        let release = Release {
            owner: holder.as_ref(),
            how,
            token: None,
        };
        self.0.release(&key_id(key), &release)
    }

    pub(crate) fn renew(&mut self, key: usize, holder: usize, lease: u64) -> bool {
        let lease = Lease::from_millis(lease).expect("at least 1");
        let renewed = (self.0).renew(&key_id(key), owner(holder).as_ref(), lease, None);
        renewed.is_some()
    }

    pub(crate) fn pass(
        &mut self,
        key: usize,
        owners: [usize; 2],
        lease: u64,
        client: u64,
    ) -> Result<Passed, PassError> {
        let [old, new] = owners.map(owner);
        let pass = Pass {
            owner: old.as_ref(),
            new_owner: new.as_ref(),
            lease: Lease::from_millis(lease).expect("at least 1"),
            token: None,
            client,
        };
        self.0.pass(&key_id(key), &pass)
    }

    /// Revokes the owner's hold. Returns its requests, which are refused; `None` if it holds nothing.
    pub(crate) fn revoke(&mut self, key: usize, holder: usize) -> Option<Vec<u64>> {
        self.0.revoke(&key_id(key), owner(holder).as_ref())?;
        let ended = std::mem::take(&mut self.ended).into_iter();
        let refused = ended.map(|ended| match ended {
            Ended::Decided(decided) => decided.waiter.id.0,
            Ended::Deadlock(removed) => panic!("{removed:?}"),
        });
        Some(refused.collect())
    }

    /// A grant could not be delivered.
    pub(crate) fn undo(&mut self, key: usize, undo: &Undo) -> bool {
        self.0.undo(&key_id(key), undo)
    }
}
