//! Names: one for each acquisition, never used twice, so that nothing late can be taken for another's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::value::random;

/// The longest name that the wire takes.
const LONGEST: usize = 255;
/// What `##`, a random part and a counter may take of it.
const SUFFIX: usize = 25;
/// The longest name of a client.
pub(crate) const LONGEST_CLIENT: usize = 100;
/// The longest name of a task.
pub(crate) const LONGEST_TASK: usize = LONGEST - SUFFIX;

/// What ends a task's name.
const MARK: &[u8] = b"##";

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Makes names, in each process its own: a fork copies them, and the child never repeats a name of its parent's.
#[derive(Debug)]
pub(crate) struct Names {
    whose: Whose,
    series: Series,
}

#[derive(Debug)]
enum Whose {
    Client(Option<Box<str>>),
    UniqueTask,
    Task(Box<[u8]>),
}

/// The names of one process: they begin alike and end in a counter.
#[derive(Debug)]
struct Series {
    process: u32,
    prefix: Box<[u8]>,
    next: AtomicU64,
    /// Those of a process that was forked from this one.
    child: OnceLock<Box<Series>>,
}

impl Names {
    /// Of a client: `<uuid>:<counter>`, each an owner by itself; `<name>:<uuid>:<counter>` if it has a name.
    pub(crate) fn of_client(name: Option<&str>) -> Names {
        Names::of(Whose::Client(name.map(Box::from)))
    }

    /// Of a task that nobody has named: `<uuid>##<counter>`. The server takes them for one when it looks for deadlocks.
    pub(crate) fn of_unique_task() -> Names {
        Names::of(Whose::UniqueTask)
    }

    /// Of a task that may have run before, in another process, under the same name: `<name>##<random>.<counter>`.
    pub(crate) fn of_task(name: &[u8]) -> Names {
        Names::of(Whose::Task(name.into()))
    }

    fn of(whose: Whose) -> Names {
        let series = Series::new(&whose, std::process::id());
        Names { whose, series }
    }

    /// A name that nobody has had.
    pub(crate) fn next(&self) -> Arc<[u8]> {
        let series = self.here();
        let (mut name, mut end) = ([0; LONGEST], series.prefix.len());
        name[..end].copy_from_slice(&series.prefix);
        for digit in base62(series.next.fetch_add(1, Ordering::Relaxed)) {
            name[end] = digit;
            end += 1;
        }
        name[..end].into()
    }

    /// The task's own name: its acquisitions' up to their last `##`.
    pub(crate) fn task(&self) -> &[u8] {
        let prefix = &self.here().prefix;
        let mark = prefix.windows(2).rposition(|pair| pair == MARK);
        &prefix[..mark.unwrap_or(prefix.len())]
    }

    /// Those of this process. Its id may have been an ancestor's, so only the last ones can be its own.
    fn here(&self) -> &Series {
        let process = std::process::id();
        let mut series = &self.series;
        loop {
            let child = || Box::new(Series::new(&self.whose, process));
            series = match series.child.get() {
                Some(child) => child,
                None if series.process == process => return series,
                None => series.child.get_or_init(child),
            };
        }
    }
}

impl Series {
    fn new(whose: &Whose, process: u32) -> Series {
        let uuid = random::uuid();
        let prefix = match whose {
            Whose::Client(None) => format!("{uuid}:").into_bytes(),
            Whose::Client(Some(name)) => format!("{name}:{uuid}:").into_bytes(),
            Whose::UniqueTask => [uuid.to_string().as_bytes(), MARK].concat(),
            Whose::Task(name) => {
                let mut prefix = [name, MARK].concat();
                prefix.extend(base62(uuid.as_u128() as u64 % 62_u64.pow(8)));
                prefix.push(b'.');
                prefix
            }
        };
        Series {
            process,
            prefix: prefix.into(),
            next: AtomicU64::new(0),
            child: OnceLock::new(),
        }
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
        names.series.next.store(u64::MAX, Ordering::Relaxed);
        assert!(names.next().len() <= LONGEST);
    }

    #[test]
    fn the_names_of_a_task_are_the_same_up_to_their_last_double_hash() {
        for names in [Names::of_task(b"a##b"), Names::of_unique_task()] {
            let name = String::from_utf8(names.next().to_vec()).unwrap();
            let (task, _) = name.rsplit_once("##").unwrap();
            assert_eq!(task.as_bytes(), names.task());
        }
        assert_eq!(Names::of_task(b"a##b").task(), b"a##b");
        assert_ne!(Names::of_task(b"a").next(), Names::of_task(b"a").next());
    }
}
