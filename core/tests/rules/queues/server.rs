//! What a server does around the locks and the queues, as briefly as possible. [`Server::ask`] is
//! the rule by which a request is granted, refused or queued.

use std::collections::BTreeMap;
use std::rc::Rc;

use mortise_core::{
    AcquireError, Busy, Count, Db, Deadlock, Decided, Grant, How, Instant, KeyId, Lease, Live,
    Lock, Micros, Mode, Owner, OwnerRef, Pass, PassError, Passed, PendingRequest, Queues, Release,
    ReleaseError, Released, Request, Settled, Sharing, Terms, Token, TokenClock, Touched, Turn,
    Verdict, WaiterId,
};

use crate::pending::for_one;

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
    let name = match task(number) {
        task if task < 4 => format!("owner-{number}"),
        task => format!("task-{task}##{number}"),
    };
    OwnerRef::new(name.as_bytes())
        .expect("1 to 255 bytes")
        .to_owner()
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
    pub(crate) fn mode(self) -> Mode {
        if self.write { Mode::Write } else { Mode::Read }
    }

    pub(crate) fn terms(self) -> Terms {
        let limit = self.limit.and_then(Count::new);
        Terms {
            sharing: limit.map_or(self.mode().into(), Sharing::within),
            lease: Lease::from_millis(self.lease).expect("at least 1"),
            holds: self.holds.and_then(Count::new),
            fence: self.fence.and_then(Token::new),
            token: None,
            client: self.client,
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

/// A grant to a waiter, remembered until its reply is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) touched: Touched,
    pub(crate) before: Option<mortise_core::Stake>,
}

impl Handed {
    pub(crate) fn of(decided: &Decided) -> Option<Self> {
        match decided.verdict {
            Verdict::Granted { grant, before, .. } => Some(Self {
                touched: grant.stake().touched,
                before,
            }),
            Verdict::Denied | Verdict::Refused(_) => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) locks: BTreeMap<usize, Lock>,
    pub(crate) queues: Queues,
    pub(crate) tokens: TokenClock,
    pub(crate) now: Instant,
    pub(crate) wall: Micros,
    /// In a grace nothing is granted.
    pub(crate) grace: bool,
    /// Accepts waits that close a cycle.
    pub(crate) ignore_cycles: bool,
    /// How many waiters a settle decides in one step, if not all.
    pub(crate) slice: Option<usize>,
}

impl Server {
    /// A request, once its key has been settled. "It is granted at once only if it is compatible
    /// with every hold and nobody is queued, or its owner holds the lock already." Otherwise it waits, unless it has no wait limit or
    /// closes a cycle.
    pub(crate) fn ask(&mut self, key: usize, asked: Asked, patience: Patience) -> Answer {
        let id = key_id(key);
        let asker = owner(asked.owner);
        let request = Request {
            owner: asker.as_ref(),
            terms: asked.terms(),
        };
        let (now, wall) = (self.now, self.wall);
        let is_queue_empty = self.queues.get(id.as_ref()).is_none();
        let lock = self.locks.entry(key).or_default();
        let mut live = lock.at(now, |_, _| {});
        let turn = if is_queue_empty {
            Turn::First
        } else {
            Turn::Behind
        };
        let answer = if self.grace {
            // In the model nothing is an upgrade while nothing is granted.
            Err(match live.refuse_in_grace(&request) {
                AcquireError::Busy(_) => AcquireError::Busy(Busy::Held),
                error => error,
            })
        } else {
            live.acquire(&request, turn, &mut self.tokens, wall)
        };
        let busy = match answer {
            Ok(grant) => return Answer::Granted(grant),
            Err(AcquireError::Busy(busy)) => busy,
            Err(error) => return Answer::Refused(error),
        };
        let limit = match patience {
            Patience::None => return Answer::Denied,
            Patience::Millis(ms) => Some(now.after(ms)),
            Patience::Endless => None,
        };
        let held = live.lock().observe();
        let pending = PendingRequest {
            busy,
            until: limit.unwrap_or(Instant::NEVER),
            ..for_one(&id, asker.clone(), request.terms, held, now)
        };
        let (waiter_id, cycle) = match self.queues.enqueue(&pending) {
            Ok(enqueued) => (enqueued.id, None),
            Err(deadlock) => {
                let keys = numbers(&deadlock);
                if !self.ignore_cycles {
                    return Answer::Deadlock(keys);
                }
                (self.queues.push(&pending), Some(keys))
            }
        };
        if self.grace {
            // A holder's request that would be decided at once is decided when the grace ends.
            self.queues.recheck_holders(id.as_ref());
        }
        Answer::Waits {
            id: waiter_id,
            upgrade: pending.busy == Busy::Upgrade,
            cycle,
        }
    }

    /// The keys of a cycle that the request would close, by number.
    pub(crate) fn find_cycle(&mut self, request: &PendingRequest) -> Option<Vec<usize>> {
        match self.queues.enqueue(request) {
            Ok(enqueued) => {
                self.queues.withdraw(enqueued);
                None
            }
            Err(deadlock) => Some(numbers(&deadlock)),
        }
    }

    /// Grants the waiters that the lock of `key` admits.
    pub(crate) fn settle(&mut self, key: usize) -> Settled {
        let id = key_id(key);
        let lock = self.locks.entry(key).or_default();
        let mut live = lock.at(self.now, |_, _| {});
        let most = self.slice.unwrap_or(usize::MAX);
        let mut all = Settled::default();
        loop {
            let settled = if self.grace {
                self.queues
                    .settle_lost(id.as_ref(), live.lock(), self.now, most)
            } else {
                let (tokens, wall) = (&mut self.tokens, self.wall);
                self.queues
                    .settle(id.as_ref(), &mut live, tokens, wall, most)
            };
            assert!(settled.decided.len() + settled.upgrading.len() <= most);
            all.decided.extend(settled.decided);
            all.upgrading.extend(settled.upgrading);
            if !settled.more {
                break;
            }
        }
        if lock.is_free() {
            self.locks.remove(&key);
        }
        all
    }

    /// Removes or replaces the lock of `key`: callbacks notify the queues at once.
    pub(crate) fn replace(&mut self, key: usize, lock: Option<Lock>) {
        let id = key_id(key);
        self.queues.forget_holders(id.as_ref());
        self.locks.remove(&key);
        self.locks.extend(lock.map(|lock| (key, lock)));
    }

    /// The keys of the cycle that a waiter closes, which was moved or has become an upgrade.
    pub(crate) fn cycle_of(&mut self, id: WaiterId) -> Option<Vec<usize>> {
        let ended = self.queues.end_cycles(id, self.now);
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
        self.with(key, |live| live.release(&release))
    }

    pub(crate) fn renew(&mut self, key: usize, holder: usize, lease: u64) -> bool {
        let lease = Lease::from_millis(lease).expect("at least 1");
        self.with(key, |live| {
            live.renew(owner(holder).as_ref(), lease, None).is_some()
        })
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
        let mut live = self.locks.entry(key).or_default().at(self.now, |_, _| {});
        let passed = live.pass(&pass, &mut self.tokens, self.wall)?;
        let id = key_id(key);
        self.queues.came_to_hold(id.as_ref(), pass.new_owner);
        Ok(passed)
    }

    /// Revokes the owner's hold. Returns its requests, which have to be refused; `None` if it holds nothing.
    pub(crate) fn revoke(&mut self, key: usize, holder: usize) -> Option<Vec<u64>> {
        let (id, holder) = (key_id(key), owner(holder));
        self.with(key, |live| live.revoke(holder.as_ref(), None))?;
        let requests = self.queues.requests_of(id.as_ref(), holder.as_ref());
        Some(requests.into_iter().map(|id| id.0).collect())
    }

    /// A grant could not be delivered.
    pub(crate) fn undo(&mut self, key: usize, holder: usize, handed: Handed) -> bool {
        self.with(key, |live| {
            live.undo(owner(holder).as_ref(), handed.touched, handed.before)
        })
    }

    fn with<R>(&mut self, key: usize, step: impl FnOnce(&mut Live<'_>) -> R) -> R {
        step(&mut self.locks.entry(key).or_default().at(self.now, |_, _| {}))
    }
}
