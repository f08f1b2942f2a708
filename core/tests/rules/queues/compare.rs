//! Compares the queues with the model.

use std::collections::BTreeSet;

use mortise_core::{
    AcquireError, Decided, Grant, Instant, Lease, Queues, Stake, Verdict, Waiter, WaiterId,
};

use super::reference::{self, Decision, Hold, Kind, Reference};
use super::server::{KEYS, Server, key_id, key_number, owner};

pub(crate) fn kind_of(grant: Grant) -> (Kind, u64) {
    let kind = match grant {
        Grant::New(_) => Kind::New,
        Grant::Reentry(_) => Kind::Reentry,
        Grant::Upgrade(_) => Kind::Upgrade,
    };
    (kind, grant.token().get())
}

fn stake(stake: &Stake, hold: &Hold) {
    let counts = (u64::from(stake.write), u64::from(stake.read));
    assert_eq!(counts, (hold.write, hold.read), "{hold:?}");
    assert_eq!(stake.token.get(), hold.token, "{hold:?}");
    assert_eq!(stake.deadline.as_millis(), hold.ends, "{hold:?}");
    assert_eq!(stake.revoked, hold.revoked, "{hold:?}");
}

pub(crate) fn waiter(waiter: &Waiter, expected: &reference::Waiter) {
    let asked = expected.asked;
    assert_eq!(waiter.id.0, expected.id);
    assert_eq!(waiter.owner, owner(asked.owner));
    assert_eq!(waiter.terms, asked.terms());
    assert_eq!(waiter.since.as_millis(), expected.since);
    let until = expected.limit.map_or(Instant::NEVER, Instant::from_millis);
    assert_eq!(waiter.until, until);
}

pub(crate) fn decision(decided: &Decided, expected: &Decision) {
    waiter(&decided.waiter, &expected.waiter);
    match (decided.verdict, expected.verdict) {
        (
            Verdict::Granted {
                grant,
                before,
                alone,
            },
            reference::Verdict::Granted {
                kind,
                hold,
                before: held,
                alone: is_alone,
            },
        ) => {
            assert_eq!(kind_of(grant), (kind, hold.token));
            stake(&grant.stake(), &hold);
            assert_eq!(grant.stake().touched.client(), decided.waiter.terms.client);
            assert_eq!(before.is_some(), held.is_some());
            if let (Some(before), Some(held)) = (before, held) {
                stake(&before, &held);
                assert_ne!(before.touched, grant.stake().touched);
            }
            assert_eq!(alone, is_alone);
        }
        (
            Verdict::Denied,
            reference::Verdict::UpgradeLost
            | reference::Verdict::WaitOver
            | reference::Verdict::NoRoom,
        )
        | (Verdict::Refused(AcquireError::CountTooHigh), reference::Verdict::CountTooHigh)
        | (Verdict::Refused(AcquireError::Revoked), reference::Verdict::Revoked) => {}
        (actual, expected) => panic!("expected {expected:?}, got {actual:?}"),
    }
}

/// Checks that each grant went to the first of `queue` that was left, as it stood before. Only an owner
/// that holds already is decided ahead of others.
pub(crate) fn nobody_was_overtaken(queue: &[u64], decided: &[Decided]) {
    let mut left = queue.to_vec();
    for Decided {
        waiter, verdict, ..
    } in decided
    {
        if let Verdict::Granted {
            grant: Grant::New(_),
            before,
            ..
        } = verdict
        {
            assert!(before.is_none());
            assert_eq!(left.first(), Some(&waiter.id.0), "{left:?} was overtaken");
        }
        left.retain(|id| *id != waiter.id.0);
    }
}

/// Compares every lock, every queue, and what spans the queues.
pub(crate) fn states(server: &Server, model: &Reference) {
    assert_eq!(server.tokens.last(), model.last_token);
    for key in 0..KEYS {
        holds(server, model, key);
        queue(server, model, key);
    }
    let waiting = || model.keys.iter().flat_map(|key| &key.queue);
    assert_eq!(server.queues.len(), waiting().count());
    assert_eq!(server.queues.is_empty(), waiting().count() == 0);
    let limits = waiting().filter_map(|waiter| Some((waiter.limit?, waiter.id)));
    let first = limits.min();
    let next_limit = server.queues.next_limit().map(Instant::as_millis);
    assert_eq!(next_limit, first.map(|(limit, _)| limit));
    let longest = server.queues.longest_lease().map(Lease::as_millis);
    assert!(longest >= waiting().map(|waiter| waiter.asked.lease).max());
    let deadline = model.keys.iter().filter_map(|key| key.deadline).min();
    let next_deadline = server.queues.next_deadline().map(Instant::as_millis);
    assert_eq!(next_deadline, deadline);
    let over = first.filter(|(limit, _)| *limit <= model.now);
    let timed_out = server.queues.timed_out(server.now).map(|id| id.0);
    assert_eq!(timed_out, over.map(|(_, id)| id));
    listings(server, model);
    if server.queues.is_empty() {
        nothing_is_left(&server.queues);
    }
}

fn holds(server: &Server, model: &Reference, key: usize) {
    let mut expected = model.keys[key].holds.clone();
    expected.sort_by_key(|hold| hold.owner);
    let lock = server.lock(key);
    assert_eq!(
        lock.len(),
        expected.len(),
        "holders of key {key}: {expected:?}"
    );
    for ((holder, held), hold) in lock.holds().zip(&expected) {
        assert_eq!(holder, owner(hold.owner));
        stake(&held, hold);
    }
}

fn queue(server: &Server, model: &Reference, key: usize) {
    let id = key_id(key);
    let expected = &model.keys[key].queue;
    let Some(queue) = server.queues.get(id.as_ref()) else {
        assert!(
            expected.is_empty(),
            "key {key} has no queue, but {expected:?}"
        );
        return;
    };
    assert!(!queue.is_empty(), "an empty queue of key {key} is kept");
    assert_eq!(
        queue.len(),
        expected.len(),
        "queue of key {key}: {expected:?}"
    );
    let since = expected.iter().map(|waiter| waiter.since).min();
    assert_eq!(queue.oldest().map(Instant::as_millis), since);
    for (actual, expected) in queue.iter().zip(expected) {
        waiter(actual, expected);
        let found = server.queues.waiter(WaiterId(expected.id));
        let (at, found) = found.expect("each waiter is found");
        assert_eq!(key_number(at), key);
        waiter(found, expected);
        let asker = expected.asked.owner;
        let requests = server
            .queues
            .requests_of(id.as_ref(), owner(asker).as_ref());
        let own = model.keys[key]
            .queue
            .iter()
            .filter(|w| w.asked.owner == asker);
        assert!(requests.iter().map(|id| id.0).eq(own.map(|w| w.id)));
    }
}

fn listings(server: &Server, model: &Reference) {
    let expected: BTreeSet<(usize, usize)> = (0..KEYS)
        .map(|key| (key, model.keys[key].queue.len()))
        .filter(|(_, len)| *len > 0)
        .collect();
    let all = server.queues.iter();
    let all: Vec<(usize, usize)> = all
        .map(|(key, queue)| (key_number(key), queue.len()))
        .collect();
    assert_eq!(all.len(), expected.len());
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
}

/// Checks that queues without waiters report nothing.
pub(crate) fn nothing_is_left(queues: &Queues) {
    assert!(queues.is_empty());
    assert_eq!(queues.iter().count(), 0);
    assert_eq!((queues.next_limit(), queues.next_deadline()), (None, None));
    assert_eq!(queues.longest_lease(), None);
}
