//! The ledgers of the workers in other languages (`helpers/README.md`): times at which they proved to be inside.

use std::collections::HashMap;
use std::ops::Range;

use super::clock::Offset;
use super::record::{Granted, Mode, Record};

/// How many permits the workers' semaphore has.
const LIMIT: u64 = 5;

/// What a worker is inside by.
enum Share {
    Lock,
    Reading,
    Permits(u64),
    /// Several locks at once, by one token.
    Locks(Vec<String>),
}

impl Share {
    /// `word` ends the line, if it is not the lock `key` alone: for writing: `read`, a number of permits, or numbers of locks, of which 0 is for `key`.
    fn read(word: Option<&str>, key: &str) -> Option<Self> {
        let lock = |number: &str| match number {
            "0" => Some(key.to_owned()),
            "1" | "2" => Some(format!("{key}:{number}")),
            _ => None,
        };
        match word {
            None => Some(Self::Lock),
            Some("read") => Some(Self::Reading),
            Some(word) if word.contains(',') => word
                .split(',')
                .map(lock)
                .collect::<Option<_>>()
                .map(Self::Locks),
            Some(word) => word.parse().ok().map(Self::Permits),
        }
    }
}

/// The records of one ledger, whose times are those of the monotonic clock.
pub(crate) fn records(text: &str, key: &str, offset: Offset) -> Result<Vec<Record>, String> {
    let mut grants: Vec<Granted> = Vec::new();
    let mut known: HashMap<(String, u64), Range<usize>> = HashMap::new();
    for line in text.lines() {
        let fault = || format!("no line of a ledger: {line}");
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or_else(fault);
        let (word, token, at, who) = (next()?, next()?, next()?, next()?);
        let share = Share::read(words.next(), key).ok_or_else(fault)?;
        let token: u64 = token.parse().map_err(|_| fault())?;
        let at: u64 = at.parse().map_err(|_| fault())?;
        let name = (who.to_owned(), token);
        match (word, known.get(&name)) {
            ("enter", None) => {
                let first = grants.len();
                grants.extend(entered(who, key, token, share, offset.latest(at)));
                known.insert(name, first..grants.len());
            }
            ("leave", Some(places)) => {
                for grant in &mut grants[places.clone()] {
                    grant.until = offset.earliest(at);
                }
            }
            // Tasks that share permits have different tokens, so a name and a token occur once.
            _ => return Err(fault()),
        }
    }
    Ok(grants.into_iter().map(Record::Granted).collect())
}

/// A grant for each key. Before the worker leaves, it has proved only this moment.
fn entered(who: &str, key: &str, token: u64, share: Share, at: u64) -> Vec<Granted> {
    let owner = format!("{who}#{token}");
    let lock = |key: String, together: &[String]| Granted {
        ask: owner.clone(),
        owner: owner.clone(),
        key,
        mode: Mode::Write,
        weight: 1,
        limit: 0,
        token,
        from: at,
        until: at,
        together: together.to_owned(),
    };
    match share {
        Share::Lock => vec![lock(key.to_owned(), &[])],
        Share::Reading => vec![Granted {
            mode: Mode::Read,
            ..lock(key.to_owned(), &[])
        }],
        Share::Permits(weight) => vec![Granted {
            mode: Mode::Read,
            weight,
            limit: LIMIT,
            ..lock(format!("{key}:permits"), &[])
        }],
        Share::Locks(keys) => keys.iter().map(|it| lock(it.clone(), &keys)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The grants of a ledger, whose clock is the monotonic clock between `low` and `high` ago.
    fn grants<const N: usize>(text: &str, low: u64, high: u64) -> [Granted; N] {
        let records = records(text, "k", Offset { low, high }).unwrap();
        let granted = records.into_iter().map(|record| match record {
            Record::Granted(granted) => granted,
            other => panic!("{other:?}"),
        });
        let granted: Vec<_> = granted.collect();
        granted.try_into().unwrap()
    }

    #[test]
    fn a_belief_lasts_as_long_as_the_ledger_proves_it() {
        let text = "enter 7 10 a:1\nenter 8 11 b:2 3\nleave 7 15 a:1\n";
        let [lock, permits] = grants(text, 100, 102);
        assert_eq!((lock.from, lock.until, &*lock.key), (112, 115, "k"));
        let of_permits = (permits.from, permits.until, permits.weight, &*permits.key);
        assert_eq!(of_permits, (113, 113, 3, "k:permits"));
    }

    #[test]
    fn a_reader_lets_others_read() {
        let text = "enter 7 10 a:1 read\nleave 7 15 a:1 read\nenter 8 20 a:1\n";
        let [reader, writer] = grants(text, 0, 0);
        assert_eq!((&*reader.key, &*writer.key), ("k", "k"));
        let of_reader = (reader.mode, reader.weight, reader.limit);
        assert_eq!(of_reader, (Mode::Read, 1, 0));
        assert_eq!(writer.mode, Mode::Write);
    }

    #[test]
    fn a_worker_is_inside_each_of_several_locks_by_one_token() {
        let text = "enter 7 10 a:1 2,0\nleave 7 15 a:1 2,0\n";
        let [one, other] = grants(text, 0, 0);
        assert_eq!((&*one.key, &*other.key), ("k:2", "k"));
        for grant in [one, other] {
            assert_eq!((grant.from, grant.until, grant.token), (10, 15, 7));
            assert_eq!(grant.together, ["k:2", "k"]);
        }
    }

    #[test]
    fn a_malformed_line_of_a_ledger_is_an_error() {
        let offset = Offset { low: 0, high: 0 };
        for text in [
            "leave 7 10 a:1",
            "enter x 10 a:1",
            "enter 7",
            "enter 7 10 a:1 3,0",
        ] {
            assert!(records(text, "k", offset).is_err(), "{text}");
        }
    }
}
