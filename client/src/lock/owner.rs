//! Owners: tasks that take several locks, or one lock several times, under a name of their own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use crate::lock::Hold;
use crate::value::{Error, LONGEST_TASK, Names, lock};

/// One task that acquires locks.
///
/// Locks taken without an owner are each an owner's of its own, so that no two acquisitions are ever mistaken for one. Name
/// an owner to have deadlocks found between tasks that hold several locks, or to take a lock again that the task holds
/// already ([`Lock::reentrant`](crate::Lock::reentrant)). Clones are the same owner: give every task its own.
///
/// On the wire each acquisition has a name of its own, `<owner>##<counter>`, which is never used again; the server takes
/// those that are the same up to `##` for one when it looks for deadlocks. So an owner that has given a lock back, or up, can
/// ask for it again at once, whatever has become of the connection: it waits for what is left of it as for anybody else's.
///
/// What an owner holds is known for each client by itself. In a process that was forked after it was made, an owner is another
/// task, with another random name; one that you have named keeps its name, so name another in the child.
///
/// ```
/// use mortise_client::Owner;
///
/// let owner = Owner::new();
/// assert_ne!(owner, Owner::new());
/// assert_eq!(owner, owner.clone());
/// ```
#[derive(Clone)]
pub struct Owner(Arc<Task>);

struct Task {
    names: Names,
    keys: Mutex<Keys>,
}

/// What an owner does with one key: locked while it asks for the key; the hold that it has.
pub(crate) type OwnedKey = tokio::sync::Mutex<Option<Weak<dyn Hold>>>;

#[derive(Default)]
struct Keys {
    /// By the address of the client, and by key.
    by_key: HashMap<(usize, Arc<[u8]>), Arc<OwnedKey>>,
    /// How many were left when the unused ones were last removed.
    used: usize,
}

/// So many keys are kept, used or not.
const FEW: usize = 16;

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
        Owner::with(Names::of_unique_task())
    }

    /// An owner with a name of your own, 1 to 230 bytes, which shows people who holds. It should be
    /// unique among all tasks of all processes: between two tasks with one name no deadlock is
    /// found.
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
        match (1..=LONGEST_TASK).contains(&name.len()) {
            true => Ok(Owner::with(Names::of_task(&name))),
            false => Err(Error::Invalid(format!(
                "an owner's name is 1 to {LONGEST_TASK} bytes long, not {}",
                name.len()
            ))),
        }
    }

    /// The owner's name; on the wire something is appended to it for each acquisition.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Owner;
    ///
    /// assert_eq!(Owner::named("worker-7")?.name(), b"worker-7");
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn name(&self) -> &[u8] {
        self.0.names.task()
    }

    fn with(names: Names) -> Owner {
        let keys = Mutex::default();
        Owner(Arc::new(Task { names, keys }))
    }

    pub(crate) fn names(&self) -> &Names {
        &self.0.names
    }

    /// What this owner does with a key, through the client that is at this address.
    pub(crate) fn key(&self, client: usize, key: &Arc<[u8]>) -> Arc<OwnedKey> {
        let mut keys = lock(&self.0.keys);
        if keys.by_key.len() >= 2 * keys.used.max(FEW) {
            keys.by_key.retain(|_, key| is_used(key));
            keys.used = keys.by_key.len();
        }
        let key = keys.by_key.entry((client, key.clone()));
        key.or_default().clone()
    }
}

/// Whether somebody asks for it, or there is a hold.
fn is_used(key: &Arc<OwnedKey>) -> bool {
    let is_held = || match key.try_lock() {
        Ok(hold) => hold.as_ref().is_some_and(|hold| hold.strong_count() > 0),
        Err(_) => true,
    };
    Arc::strong_count(key) > 1 || is_held()
}

impl Default for Owner {
    fn default() -> Owner {
        Owner::new()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Owner {}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner")
            .field(&String::from_utf8_lossy(self.name()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::ServerHold;

    #[test]
    fn a_name_leaves_space_for_its_suffix() {
        assert!(Owner::named("").is_err());
        assert!(Owner::named(vec![b'x'; LONGEST_TASK + 1]).is_err());
        assert!(Owner::named(vec![0xff; LONGEST_TASK]).is_ok());
    }

    #[test]
    fn owners_are_equal_and_shown_by_their_names() {
        let owner = Owner::named("billing").expect("short");
        assert_eq!(owner.name(), b"billing");
        assert_eq!(format!("{owner:?}"), "Owner(\"billing\")");
        assert!(owner == owner.clone() && owner != Owner::named("shipping").expect("short"));
    }

    /// The key with this number, whose hold has ended, and how many keys the owner has then.
    fn key(owner: &Owner, number: u32) -> (Arc<OwnedKey>, usize) {
        let key = owner.key(0, &number.to_be_bytes().as_slice().into());
        let ended: Weak<dyn Hold> = Weak::<ServerHold>::new();
        *key.try_lock().expect("nobody asks for it") = Some(ended);
        (key, lock(&owner.0.keys).by_key.len())
    }

    #[test]
    fn keys_without_requests_are_forgotten() {
        let owner = Owner::new();
        let used: Vec<_> = (0..1000).map(|number| key(&owner, number).0).collect();
        let most = (1000..50_000).map(|number| key(&owner, number).1).max();
        assert!(most <= Some(2100), "{most:?}");
        for (number, used) in (0..).zip(&used) {
            assert!(Arc::ptr_eq(used, &key(&owner, number).0), "{number}");
        }
        drop(used);
        let most = (50_000..60_000).map(|number| key(&owner, number).1).min();
        assert!(most <= Some(2 * FEW), "{most:?}");
    }
}
