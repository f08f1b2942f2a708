//! The ledgers of the workers in other languages (`helpers/README.md`): times at which they proved to be inside.

use std::collections::HashMap;

use super::clock::Offset;
use super::record::{Granted, Mode, Record};

/// How many permits the workers' semaphore has.
const LIMIT: u64 = 5;

/// The records of one ledger, whose times are those of the monotonic clock.
pub(crate) fn records(text: &str, key: &str, offset: Offset) -> Result<Vec<Record>, String> {
    let mut grants: Vec<Granted> = Vec::new();
    let mut known: HashMap<(String, u64), usize> = HashMap::new();
    for line in text.lines() {
        let fault = || format!("no line of a ledger: {line}");
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or_else(fault);
        let (word, token, at, who) = (next()?, next()?, next()?, next()?);
        let permits: u64 = match words.next() {
            Some(permits) => permits.parse().map_err(|_| fault())?,
            None => 0,
        };
        let token: u64 = token.parse().map_err(|_| fault())?;
        let at: u64 = at.parse().map_err(|_| fault())?;
        let name = (who.to_owned(), token);
        match (word, known.get(&name)) {
            ("enter", None) => {
                known.insert(name, grants.len());
                grants.push(entered(who, key, token, permits, offset.latest(at)));
            }
            ("leave", Some(place)) => grants[*place].until = offset.earliest(at),
            // Tasks that share permits have different tokens, so a name and a token occur once.
            _ => return Err(fault()),
        }
    }
    Ok(grants.into_iter().map(Record::Granted).collect())
}

/// Before it leaves, it has proved only this moment.
fn entered(who: &str, key: &str, token: u64, permits: u64, at: u64) -> Granted {
    let owner = format!("{who}#{token}");
    let is_lock = permits == 0;
    Granted {
        ask: owner.clone(),
        owner,
        key: if is_lock {
            key.to_owned()
        } else {
            format!("{key}:permits")
        },
        mode: if is_lock { Mode::Write } else { Mode::Read },
        weight: permits.max(1),
        limit: if is_lock { 0 } else { LIMIT },
        token,
        from: at,
        until: at,
        together: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_lasts_as_long_as_the_ledger_proves_it() {
        let offset = Offset {
            low: 100,
            high: 102,
        };
        let text = "enter 7 10 a:1\nenter 8 11 b:2 3\nleave 7 15 a:1\n";
        let records = records(text, "k", offset).unwrap();
        let [Record::Granted(lock), Record::Granted(permits)] = &records[..] else {
            panic!("{records:?}");
        };
        assert_eq!((lock.from, lock.until, &*lock.key), (112, 115, "k"));
        let of_permits = (permits.from, permits.until, permits.weight, &*permits.key);
        assert_eq!(of_permits, (113, 113, 3, "k:permits"));
    }

    #[test]
    fn a_malformed_line_of_a_ledger_is_an_error() {
        let offset = Offset { low: 0, high: 0 };
        for text in ["leave 7 10 a:1", "enter x 10 a:1", "enter 7"] {
            assert!(records(text, "k", offset).is_err(), "{text}");
        }
    }
}
