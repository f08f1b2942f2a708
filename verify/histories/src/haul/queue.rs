//! Waiters by mail that hand a few locks to one another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{Conn, array, as_map, cmd, command, int, text};

use super::load::{Counts, Load};
use super::scheme::Tag;

pub(crate) const WAITERS: usize = 8;
/// At each server they compete for this many locks.
const LOCKS: usize = 2;
const LEASE: u64 = 10_000;
const THINK: Duration = Duration::from_millis(5);

/// Runs one waiter until the end.
///
/// # Panics
/// If a server does not answer.
pub(crate) fn run(number: usize, load: &Load, tags: &[Tag], over: &AtomicBool) {
    let tag = &tags[number % tags.len()];
    let connect = || Conn::to_port(tag.port).expect("a server that listens");
    let (mut asks, mut listens) = (connect(), connect());
    let name = format!("{{{}}}:box:{number}", tag.text);
    let key = format!("{{{}}}:hot:{}", tag.text, number / tags.len() % LOCKS);
    let (mut since, mut read) = (0, 0);
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let owner = format!("{number}:{round}");
        let ask = command!("LOCK.ACQUIRE {key} {owner} {LEASE} WAIT 0 MAIL {name} HOLDS 1");
        let reply = asks.run(&ask);
        if let Value::Array(words) = &reply {
            if since != int(&words[1]) {
                (since, read) = (int(&words[1]), 0);
            }
            while !collect(&mut listens, &name, &owner, (since, &mut read)) {}
            Counts::add(&load.counts.letters);
        }
        Counts::add(&load.counts.grants);
        let left = cmd!(asks, "LOCK.RELEASE", &key, &owner);
        let counter = match left {
            Value::Int(0) => &load.counts.releases,
            _ => &load.counts.odd,
        };
        Counts::add(counter);
        thread::sleep(THINK);
    }
}

/// Whether a letter of this box has granted the lock.
fn collect(conn: &mut Conn, name: &str, owner: &str, (since, read): (i64, &mut i64)) -> bool {
    let after = *read;
    let reply = cmd!(conn, "LOCK.MAIL {name} AFTER {since} {after} WAIT 1000");
    let mut is_granted = false;
    for letter in array(&array(&reply)[2]) {
        let letter = as_map(letter);
        *read = int(&letter["number"]).max(*read);
        is_granted |= text(&letter["owner"]) == owner && text(&letter["result"]) == "granted";
    }
    is_granted
}
