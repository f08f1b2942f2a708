//! Who holds: an owner made for each acquisition, or one that a task carries through many.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::core::Core;
use crate::error::Error;
use crate::hold::Hold;
use crate::sync::lock;

/// One task that acquires locks, under one name on the server.
///
/// Locks taken without an owner get a new one each, so that no two acquisitions are ever mistaken for one. Name an owner
/// to have deadlocks found between tasks that hold several locks, or to take a lock again that the task holds already
/// ([`Lock::reentrant`](crate::Lock::reentrant)). Clones are the same owner: give every task its own.
///
/// An owner that has given a lock back, or up, can ask for it again at once: the acquisition waits, within its limit, for
/// the release that is on its way, and one that does not wait, for as long as an answer may take. After an error of the
/// connection that release is tried again until the lease is over, and an acquisition may wait for so long;
/// [`Error::Busy`] is what it says if its limit is shorter.
///
/// An owner has one request for a key at a time. While one waits for others, as an upgrade does, what else the owner asks for
/// there waits for it, and so do its releases: give it a limit, or drop it.
///
/// What an owner holds is known for each client by itself. Used with two clients of one server, it has one hold there
/// that both take for theirs: neither is told [`Error::AlreadyHeld`], and the first release frees the lock for both.
/// Use an owner with one client of a server.
///
/// ```
/// use mortise_client::Owner;
///
/// let owner = Owner::new();
/// assert_ne!(owner, Owner::new());
/// assert_eq!(owner, owner.clone());
/// ```
#[derive(Clone)]
pub struct Owner {
    name: Arc<[u8]>,
    slots: Arc<Mutex<Slots>>,
}

/// What an owner has going on with one key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    /// Locked while a request for the key is on its way, or is undone.
    turn: Arc<tokio::sync::Mutex<Weak<Hold>>>,
    /// How many callers wait for an acquisition.
    asking: Arc<AtomicUsize>,
    /// Of an owner who may ask again, not of one made for one acquisition.
    named: bool,
}

/// A caller who waits for an acquisition.
#[derive(Debug)]
pub(crate) struct Asking(Arc<AtomicUsize>);

#[derive(Default)]
struct Slots {
    by_key: HashMap<(u64, Arc<[u8]>), Slot>,
    /// How many were left when the unused ones were last taken out.
    used: usize,
}

/// So many slots are kept, used or not.
const FEW: usize = 16;
pub(crate) type Turn = OwnedMutexGuard<Weak<Hold>>;

impl Owner {
    /// A new owner with a random name (a version 4 UUID).
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Owner;
    ///
    /// assert_eq!(Owner::new().name().len(), 36);
    /// ```
    pub fn new() -> Owner {
        Owner::with_name(Uuid::new_v4().to_string().into_bytes().into())
    }

    /// An owner with a name of your own, 1 to 255 bytes, that tells people who holds. It must be unique among all
    /// tasks of all processes: two tasks with one name hold each other's locks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is empty or too long.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Owner;
    ///
    /// let owner = Owner::named(format!("billing-{}", std::process::id()))?;
    /// assert!(Owner::named("").is_err());
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn named(name: impl Into<Vec<u8>>) -> Result<Owner, Error> {
        let name = name.into();
        if (1..=255).contains(&name.len()) {
            Ok(Owner::with_name(name.into()))
        } else {
            Err(Error::Invalid(format!(
                "an owner's name is 1 to 255 bytes long, not {}",
                name.len()
            )))
        }
    }

    /// The name as it is on the wire.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Owner;
    ///
    /// assert_eq!(Owner::named("worker-7")?.name(), b"worker-7");
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn with_name(name: Arc<[u8]>) -> Owner {
        Owner {
            name,
            slots: Arc::default(),
        }
    }

    pub(crate) fn shared_name(&self) -> Arc<[u8]> {
        self.name.clone()
    }

    /// This owner's slot for a key on one client.
    pub(crate) fn slot(&self, core: u64, key: &Arc<[u8]>) -> Slot {
        let mut slots = lock(&self.slots);
        if slots.by_key.len() >= 2 * slots.used.max(FEW) {
            // One that nobody else knows has nothing going on.
            slots.by_key.retain(|_, slot| slot.is_used());
            slots.used = slots.by_key.len();
        }
        let slot = slots.by_key.entry((core, key.clone()));
        let new = || Slot {
            named: true,
            ..Slot::default()
        };
        slot.or_insert_with(new).clone()
    }
}

impl Slot {
    /// Whether the owner may ask for the key again, and will under the same name: over a quorum each request has its own.
    pub(crate) fn name_returns(&self, core: &Core) -> bool {
        self.named && !core.is_quorum()
    }

    /// Waits until nothing else of the owner is going on with the key.
    pub(crate) async fn turn(&self) -> Turn {
        self.turn.clone().lock_owned().await
    }

    /// Takes note that somebody asks for the lock; `None` if somebody does already, and is not to be joined.
    pub(crate) fn ask(&self, joins: bool) -> Option<Asking> {
        let more = |asking| (joins || asking == 0).then_some(asking + 1);
        let asked = self
            .asking
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        asked.ok().map(|_| Asking(self.asking.clone()))
    }

    /// Whether anybody else than the owner knows it, or there is a hold.
    fn is_used(&self) -> bool {
        let is_live = || {
            let hold = self.turn.try_lock();
            hold.map_or(true, |hold| hold.strong_count() > 0)
        };
        Arc::strong_count(&self.turn) > 1 || is_live()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Owner {
    fn default() -> Owner {
        Owner::new()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.name == other.name
    }
}

impl Eq for Owner {}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner")
            .field(&String::from_utf8_lossy(&self.name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_255_bytes_long() {
        assert!(Owner::named("").is_err());
        assert!(Owner::named(vec![b'x'; 256]).is_err());
        assert_eq!(Owner::named(vec![0xff; 255]).unwrap().name().len(), 255);
    }

    /// A slot for the key with this number, and how many slots the owner has then.
    fn slot(owner: &Owner, key: u32) -> (Slot, usize) {
        let slot = owner.slot(0, &key.to_be_bytes().as_slice().into());
        (slot, owner.slots.lock().unwrap().by_key.len())
    }

    #[test]
    fn unused_slots_are_looked_for_only_where_there_are_twice_as_many_as_the_last_time() {
        let owner = Owner::new();
        let used: Vec<Slot> = (0..1000).map(|key| slot(&owner, key).0).collect();
        let (_, before) = slot(&owner, 1000);
        // The first is not looked at again for every further one.
        let (_, after) = slot(&owner, 1001);
        assert_eq!((before, after), (1001, 1002));
        // And yet they do not pile up.
        let most = (1002..50_000).map(|key| slot(&owner, key).1).max();
        assert!(most <= Some(2100), "{most:?}");
        drop(used);
        let most = (50_000..60_000).map(|key| slot(&owner, key).1).min();
        assert!(most <= Some(2 * FEW), "{most:?}");
    }
}
