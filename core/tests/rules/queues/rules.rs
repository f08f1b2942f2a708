//! Rules of the queue that no random program shows.

use std::collections::BTreeSet;
use std::rc::Rc;

use mortise_core::{
    AcquireError, Db, How, Instant, KeyId, Lock, Micros, Mode, PendingRequest, Queues, Stake,
    Token, TokenClock, Touched, Verdict, WaiterId, slot_of,
};

use super::compare::nothing_is_left;
use super::server::{Answer, Asked, Patience, Server, key_id, owner};
use crate::requests::{for_one, terms};

fn asked(owner: usize, write: bool) -> Asked {
    let mode = if write { Mode::Write } else { Mode::Read };
    Asked {
        client: owner as u64 + 1,
        ..Asked::plain(owner, mode, 1_000)
    }
}

fn takes(server: &mut Server, owner: usize, write: bool) {
    takes_for(server, owner, write, 1_000);
}

fn takes_for(server: &mut Server, owner: usize, write: bool, lease: u64) {
    let asked = Asked {
        lease,
        ..asked(owner, write)
    };
    let answer = server.ask(0, asked, Patience::None);
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
}

fn waits(server: &mut Server, owner: usize, write: bool) -> WaiterId {
    match server.ask(0, asked(owner, write), Patience::Endless) {
        Answer::Waits { id, .. } => id,
        answer => panic!("{answer:?}"),
    }
}

fn releases(server: &mut Server, owner: usize) -> Vec<(usize, Verdict)> {
    server.release(0, owner, How::All).expect("it holds");
    settle(server)
}

/// The waiters that were decided, by number, and the verdicts.
fn settle(server: &mut Server) -> Vec<(usize, Verdict)> {
    let settled = server.settle(0);
    let number = |client: u64| client as usize - 1;
    let decided = settled.decided.iter();
    decided
        .map(|decided| (number(decided.waiter.terms.client), decided.verdict))
        .collect()
}

fn owners(decided: &[(usize, Verdict)]) -> Vec<usize> {
    decided.iter().map(|(owner, _)| *owner).collect()
}

#[test]
fn a_lost_upgrade_is_denied_while_another_upgrade_still_waits_ahead() {
    let mut server = Server::default();
    server.ignore_cycles = true;
    for owner in [0, 1, 2] {
        takes(&mut server, owner, false);
    }
    waits(&mut server, 0, true);
    waits(&mut server, 1, true);
    waits(&mut server, 1, true);
    let lost = [(1, Verdict::Denied), (1, Verdict::Denied)];
    assert_eq!(releases(&mut server, 1), lost);
    assert_eq!(owners(&releases(&mut server, 2)), [0]);
}

#[test]
fn when_the_tokens_are_used_up_every_waiter_is_refused() {
    let mut server = Server::default();
    takes(&mut server, 0, true);
    waits(&mut server, 1, true);
    waits(&mut server, 2, false);
    server.tokens.raise(Token::MAX);
    let refused = Verdict::Refused(AcquireError::OutOfTokens);
    assert_eq!(releases(&mut server, 0), [(1, refused), (2, refused)]);
    nothing_is_left(&server.queues);
    assert!(server.locks.is_empty());
}

#[test]
fn where_a_lock_may_not_change_an_upgrade_is_answered_once_its_hold_is_over() {
    let mut server = Server::default();
    takes(&mut server, 0, false);
    takes_for(&mut server, 1, false, 9_000);
    let upgrade = waits(&mut server, 0, true);
    for (now, expected) in [(999, vec![]), (1_000, vec![upgrade]), (1_001, vec![])] {
        let lock = server.lock(0);
        let now = Instant::from_millis(now);
        let settled = server.queues.settle_lost(key_id(0).as_ref(), &lock, now, 9);
        let decided: Vec<_> = settled.decided.iter().map(|it| it.waiter.id).collect();
        assert_eq!(decided, expected, "{now:?}");
        assert_eq!(lock.len(), 2, "the hold that is over is not dropped");
    }
    nothing_is_left(&server.queues);
}

#[test]
fn an_owner_that_came_to_hold_and_holds_no_longer_stands_in_line_again() {
    let mut server = Server::default();
    takes(&mut server, 0, true);
    waits(&mut server, 1, true);
    waits(&mut server, 2, false);
    let key = key_id(0);
    server.queues.came_to_hold(key.as_ref(), owner(2).as_ref());
    assert_eq!(owners(&releases(&mut server, 0)), [1]);
}

/// As after a RESTORE: the holders came neither through the queue nor by a command.
#[test]
fn the_requests_of_a_crowd_that_came_to_hold_are_decided_wherever_they_stand() {
    const HOLDERS: usize = 200;
    for slice in [usize::MAX, 1, 7, HOLDERS] {
        let mut server = Server::default();
        server.slice = slice;
        takes(&mut server, 1_000, true);
        waits(&mut server, 1_001, true);
        for number in 0..HOLDERS + 100 {
            waits(&mut server, number, false);
        }
        let mut lock = Lock::free();
        for number in 0..HOLDERS {
            let stake = Stake {
                write: 0,
                read: 1,
                token: Token::MAX,
                deadline: Instant::from_millis(1_000),
                since: Instant::from_millis(0),
                touched: Touched::by(7),
                revoked: false,
            };
            lock.put(owner(number).as_ref(), stake);
        }
        server.replace(0, Some(lock));
        let mut decided = owners(&settle(&mut server));
        decided.sort_unstable();
        let holders: Vec<usize> = (0..HOLDERS).collect();
        assert_eq!(decided, holders, "{slice}");
        assert!(settle(&mut server).is_empty());
    }
}

#[test]
fn the_last_database_costs_no_more_than_the_first() {
    let mut queues = Queues::new();
    let key = KeyId {
        db: Db(u32::MAX),
        name: Rc::from(*b""),
    };
    let id = queues.push(&pending(&key));
    assert!(queues.get(key.as_ref()).is_some());
    let (found, _) = queues.waiter(id).expect("it waits");
    assert_eq!(*found, key);
    let mut lock = Lock::free();
    let settled = queues.settle(
        key.as_ref(),
        &mut lock.at(Instant::default(), |_, _| {}),
        &mut TokenClock::new(),
        Micros(0),
        usize::MAX,
    );
    assert_eq!(settled.decided.len(), 1);
    nothing_is_left(&queues);
}

fn pending(key: &KeyId) -> PendingRequest {
    let terms = terms(Mode::Write, 1);
    for_one(key, owner(0), terms, Lock::free(), Instant::default())
}

#[test]
fn a_walk_over_the_keys_continues_after_the_last_key() {
    let mut queues = Queues::new();
    for number in 0..100_u32 {
        queues.push(&pending(&KeyId {
            db: Db(number % 2),
            name: number.to_string().into_bytes().into(),
        }));
    }
    let next = |from| queues.waiting_keys().slot_from(from);
    let slots: Vec<u16> = std::iter::successors(next(0), |slot| next(slot + 1)).collect();
    assert!(slots.is_sorted_by(|one, other| one < other), "each once");
    let mut in_slots = 0;
    for slot in slots {
        let mut last = None;
        while let Some((visited, key)) = queues.waiting_keys().in_slot_after(slot, last) {
            assert_eq!(slot_of(&key.name), slot);
            last = Some(visited);
            in_slots += 1;
        }
    }
    assert_eq!(in_slots, 100);
    let (mut seen, mut last) = (BTreeSet::new(), None);
    while let Some((visited, key)) = queues.waiting_keys().after(last) {
        let key = key.clone();
        assert!(seen.insert(key.clone()), "each once");
        let found = queues.waiting_keys().find(key.as_ref());
        assert_eq!(found.map(|(_, key)| key), Some(&key));
        let queue = queues.get(key.as_ref());
        let id = queue.and_then(|queue| queue.iter().next()).map(|it| it.id);
        assert!(queues.remove(id.expect("somebody waits")).is_some());
        last = Some(visited);
    }
    assert_eq!(seen.len(), 100);
    assert_eq!(queues.waiting_keys().slot_from(0), None);
    nothing_is_left(&queues);
}

#[test]
fn a_key_with_waiters_is_due_in_the_millisecond_in_which_its_lease_ends_and_once() {
    let mut server = Server::default();
    takes(&mut server, 0, true);
    waits(&mut server, 1, true);
    let (just_before, end) = (server.now.after(999), server.now.after(1_000));
    assert_eq!(server.queues.next_deadline(), Some(end));
    assert_eq!(server.queues.due(just_before), None);
    assert_eq!(server.queues.due(end), Some(key_id(0)));
    assert_eq!(server.queues.due(end), None);
}
