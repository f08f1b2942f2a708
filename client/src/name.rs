//! Names: one for each acquisition, never used twice, so that nothing late can be taken for another's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::error::Error;

/// The longest name that the wire takes.
const LONGEST: usize = 255;
/// What `##`, a UUID, a mark and a counter may take of it: 2, 36, 1 and 11 bytes.
const SUFFIX: usize = 50;
/// The longest name of a client.
const LONGEST_CLIENT: usize = 100;
/// The longest name of a task.
const LONGEST_TASK: usize = LONGEST - SUFFIX;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key, or an owner on the wire.
pub(crate) type Bytes = Arc<[u8]>;

/// A UUID; in the simulation one that the seed decides.
pub(crate) fn random_uuid() -> Uuid {
    #[cfg(simulated)]
    let uuid = crate::simulated::uuid();
    #[cfg(not(simulated))]
    let uuid = Uuid::new_v4();
    uuid
}

/// A task that takes several locks: the server then finds deadlocks between tasks, and shows the task's name.
///
/// Every acquisition has a name of its own on the server all the same: the task's name, `##`, and an ending.
/// Two tasks, or two processes, may have the same name: they count as one only in the search for deadlocks. A task that acquires
/// a key that it holds already waits for itself: use [`Guard::reenter`](crate::Guard::reenter).
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Owner;
///
/// let task = Owner::named("nightly")?;
/// let guard = client.lock("a").owner(&task).acquire().await?;
/// assert!(guard.owner().starts_with(b"nightly##"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Owner {
    /// The task's name; empty for the names of a client.
    task: Bytes,
    prefix: Bytes,
    /// Another one in each process, because a fork copies this value: the process id, read when a name is made, is mixed in.
    uuid: u128,
    mark: &'static [u8],
    next: Arc<AtomicU64>,
}

impl Owner {
    /// Makes a task with a name that nobody else has.
    ///
    /// ```
    /// use mortise_client::Owner;
    ///
    /// assert_ne!(Owner::new().name(), Owner::new().name());
    /// ```
    #[allow(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Owner {
        let owner = Owner::making(b"", b"##");
        let task = owner.uuid().to_string().into_bytes().into();
        Owner { task, ..owner }
    }

    /// Makes a task with this name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is empty or longer than 205 bytes.
    ///
    /// ```
    /// use mortise_client::Owner;
    ///
    /// assert_eq!(Owner::named("billing-7")?.name(), b"billing-7");
    /// assert!(Owner::named("").is_err());
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn named(name: impl Into<Vec<u8>>) -> Result<Owner, Error> {
        let name = name.into();
        if !(1..=LONGEST_TASK).contains(&name.len()) {
            return Err(Error::Invalid(format!(
                "an owner's name is 1 to {LONGEST_TASK} bytes long, not {}",
                name.len()
            )));
        }
        let owner = Owner::making(&[&name, b"##".as_slice()].concat(), b".");
        let task = name.into();
        Ok(Owner { task, ..owner })
    }

    /// Returns the task's name.
    ///
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// assert_eq!(mortise_client::Owner::named("nightly")?.name(), b"nightly");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &[u8] {
        &self.task
    }

    /// Makes the names of a client: `<uuid>:<counter>`, each an owner by itself; `<name>:<uuid>:<counter>` if it has a name.
    pub(crate) fn of_client(name: Option<&str>) -> Result<Owner, Error> {
        let is_printable = |it: &str| it.bytes().all(|byte| byte.is_ascii_graphic());
        match name {
            Some(name) if !(1..=LONGEST_CLIENT).contains(&name.len()) || !is_printable(name) => {
                Err(Error::Invalid(format!(
                    "a client's name is 1 to {LONGEST_CLIENT} printable characters without spaces, not {name:?}"
                )))
            }
            Some(name) => Ok(Owner::making(format!("{name}:").as_bytes(), b":")),
            None => Ok(Owner::making(b"", b":")),
        }
    }

    /// Makes names of `prefix`, a UUID, `mark` and a counter.
    fn making(prefix: &[u8], mark: &'static [u8]) -> Owner {
        Owner {
            task: [].into(),
            prefix: prefix.into(),
            uuid: random_uuid().as_u128(),
            mark,
            next: Arc::default(),
        }
    }

    /// Makes a name that nobody has had.
    pub(crate) fn next(&self) -> Bytes {
        let mut name = Vec::with_capacity(self.prefix.len() + SUFFIX);
        name.extend_from_slice(&self.prefix);
        let mut text = Uuid::encode_buffer();
        let uuid = self.uuid();
        name.extend_from_slice(uuid.hyphenated().encode_lower(&mut text).as_bytes());
        name.extend_from_slice(self.mark);
        let mut number = self.next.fetch_add(1, Ordering::Relaxed);
        loop {
            name.push(DIGITS[(number % 62) as usize]);
            number /= 62;
            if number == 0 {
                return name.into();
            }
        }
    }

    fn uuid(&self) -> Uuid {
        Uuid::from_u128(self.uuid ^ u128::from(std::process::id()))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&text(self.name())).finish()
    }
}

/// How a lock is held.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Mode;
///
/// let guard = client.lock("report").read().await?;
/// assert_eq!(guard.mode(), Mode::Read);
/// assert_eq!(guard.mode().to_string(), "read");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Write,
    /// Together with other readers.
    Read,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Write => "write",
            Mode::Read => "read",
        })
    }
}

/// Bytes for people to read.
pub(crate) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_are_alike_and_all_fit_on_the_wire() {
        let owner = Owner::named(vec![b'x'; LONGEST_TASK]).unwrap();
        let made: std::collections::HashSet<_> = (0..10_000).map(|_| owner.next()).collect();
        assert_eq!(made.len(), 10_000);
        owner.next.store(u64::MAX, Ordering::Relaxed);
        assert!(owner.next().len() <= LONGEST);
    }

    #[test]
    fn the_names_of_a_task_are_the_same_up_to_their_last_double_hash() {
        for owner in [Owner::named("a##b").unwrap(), Owner::new()] {
            let name = owner.next();
            let name = std::str::from_utf8(&name).unwrap();
            let (task, _) = name.rsplit_once("##").unwrap();
            assert_eq!(task.as_bytes(), owner.name());
        }
        let named = || Owner::named("a").unwrap().next();
        assert_ne!(named(), named(), "another process may have the same name");
    }

    #[test]
    fn the_name_of_a_client_is_readable() {
        let name = Owner::of_client(Some("billing-7")).unwrap().next();
        assert!(name.starts_with(b"billing-7:"), "{}", text(&name));
        for name in ["", "a b", "ü", &"x".repeat(LONGEST_CLIENT + 1)] {
            assert!(Owner::of_client(Some(name)).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_names_of_clients_and_tasks_without_a_name_are_a_uuid_and_at_most_six_bytes() {
        for owner in [Owner::of_client(None).unwrap(), Owner::new()] {
            owner.next.store(62_u64.pow(4) - 1, Ordering::Relaxed);
            assert!(
                owner.next().len() <= 36 + 6,
                "the server keeps these in few bytes"
            );
        }
    }
}
