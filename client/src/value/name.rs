//! Names: one for each acquisition, never used twice, so that nothing late can be taken for another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::value::random;

/// The longest name that the wire takes.
const LONGEST: usize = 255;
/// What `##`, a random part and a counter may take of it.
const SUFFIX: usize = 25;
/// The longest name of a task.
pub(crate) const LONGEST_TASK: usize = LONGEST - SUFFIX;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Makes names that begin alike and end in a counter.
#[derive(Debug)]
pub(crate) struct Names {
    prefix: Box<[u8]>,
    next: AtomicU64,
}

impl Names {
    /// Of a client: `<uuid>:<counter>`, each an owner by itself.
    pub(crate) fn of_client() -> Names {
        Names::beginning(format!("{}:", random::uuid()).into_bytes())
    }

    /// Of a task whose own name is unique: `<name>##<counter>`. The server takes them for one when it looks for deadlocks.
    pub(crate) fn of_unique_task(name: &[u8]) -> Names {
        Names::beginning([name, b"##"].concat())
    }

    /// Of a task that may have run before, in another process, under the same name: `<name>##<random>.<counter>`.
    pub(crate) fn of_task(name: &[u8]) -> Names {
        let mut prefix = [name, b"##"].concat();
        let random = random::uuid().as_u128() as u64;
        prefix.extend(base62(random % 62_u64.pow(8)));
        prefix.push(b'.');
        Names::beginning(prefix)
    }

    fn beginning(prefix: Vec<u8>) -> Names {
        Names {
            prefix: prefix.into(),
            next: AtomicU64::new(0),
        }
    }

    /// A name that nobody has had.
    pub(crate) fn next(&self) -> Arc<[u8]> {
        let (mut name, mut end) = ([0; LONGEST], self.prefix.len());
        name[..end].copy_from_slice(&self.prefix);
        for digit in base62(self.next.fetch_add(1, Ordering::Relaxed)) {
            name[end] = digit;
            end += 1;
        }
        name[..end].into()
    }
}

/// The digits of a number, at least one, the last one first.
fn base62(number: u64) -> impl Iterator<Item = u8> {
    let higher = |number: &u64| Some(number / 62).filter(|it| *it > 0);
    std::iter::successors(Some(number), higher).map(|number| DIGITS[(number % 62) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_are_alike_and_all_fit_on_the_wire() {
        let names = Names::of_task(&[b'x'; LONGEST_TASK]);
        let made: std::collections::HashSet<_> = (0..10_000).map(|_| names.next()).collect();
        assert_eq!(made.len(), 10_000);
        names.next.store(u64::MAX, Ordering::Relaxed);
        assert!(names.next().len() <= LONGEST);
    }

    #[test]
    fn the_names_of_a_task_are_the_same_up_to_their_last_double_hash() {
        for names in [Names::of_task(b"a##b"), Names::of_unique_task(b"a##b")] {
            let name = String::from_utf8(names.next().to_vec()).unwrap();
            assert_eq!(name.rsplit_once("##").unwrap().0, "a##b");
        }
        assert_ne!(Names::of_task(b"a").next(), Names::of_task(b"a").next());
    }
}
