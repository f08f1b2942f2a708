//! A request that moves ahead to end a cycle makes others wait for its task.

use mortise_core::{
    Instant, Lock, Member, Micros, Mode, Observed, OwnerRef, Queues, Rank, Request, Sharing,
    TokenClock, Turn, Wait, Waiter,
};

use super::Op;
use super::check::Run;
use super::server::{NOW, key_id, terms};

fn read(owner: usize, key: usize) -> Op {
    let write = false;
    Op::Ask { owner, key, write }
}

fn write(owner: usize, key: usize) -> Op {
    let write = true;
    Op::Ask { owner, key, write }
}

fn several(owner: usize, keys: u8) -> Op {
    Op::Several { owner, keys }
}

fn waiter(queues: &mut Queues, owner: &str, sharing: Sharing) -> Waiter {
    Waiter {
        id: queues.next_id(),
        owner: OwnerRef::new(owner.as_bytes()).expect("short").to_owner(),
        terms: terms(sharing),
        since: NOW,
        until: Instant::NEVER,
    }
}

fn push_both(queues: &mut Queues, owner: &str) {
    let waiter = waiter(queues, owner, Sharing::several(2));
    let keys = [key_id(0), key_id(1)];
    let members = keys.each_ref().map(|key| Member {
        key: key.as_ref(),
        ready: false,
    });
    queues.push_several(&members, &waiter);
}

#[test]
fn a_queue_shows_its_first_request_for_several_keys_its_holders_and_its_oldest_request() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    assert!(!queues.any_several());
    push_both(&mut queues, "both");
    for (name, since) in [("young", 20), ("moved", 15), ("old", 10)] {
        let mut single = waiter(&mut queues, name, Mode::Write.into());
        single.since = NOW.after(since);
        let rank = if name == "young" {
            Rank::Line
        } else {
            Rank::Head
        };
        queues.push(first.as_ref(), single, rank);
    }
    assert!(queues.any_several());
    let queue = queues.get(first.as_ref()).expect("four wait there");
    assert_eq!((queue.len(), queue.is_empty()), (4, false));
    assert_eq!(queue.oldest(), Some(NOW), "the one for both keys");
    let several = queue.first_several().map(|it| it.owner.text().to_vec());
    assert_eq!(several.as_deref(), Some(&b"both"[..]));
    let both = queue.first_several().expect("it waits").id;
    assert!(queues.remove(both).is_some());
    assert!(!queues.any_several() && queues.get(second.as_ref()).is_none());

    let mut lock = Lock::free();
    let reader = waiter(&mut queues, "reader", Mode::Read.into());
    let request = Request {
        owner: reader.owner.as_ref(),
        terms: reader.terms,
    };
    let granted =
        lock.at(NOW, |_, _| {})
            .acquire(&request, Turn::First, &mut TokenClock::new(), Micros(0));
    assert!(granted.is_ok());
    queues.observe(first.as_ref(), lock.observe());
    let queue = queues.get(first.as_ref()).expect("three wait there");
    assert!(queue.first_several().is_none());
    assert_eq!(queue.held().mode(NOW), Some(Mode::Read));
    assert_eq!(
        queue.oldest(),
        Some(NOW.after(10)),
        "though it stands between"
    );
}

#[test]
fn when_a_request_moves_ahead_its_task_also_passes_the_overtaken_requests_elsewhere() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "ahead");
    let of_task = waiter(&mut queues, "task##0", Mode::Write.into());
    queues.push(first.as_ref(), of_task.clone(), Rank::Line);
    push_both(&mut queues, "behind");
    // The task waits for "behind" at the second key, and "behind" for the task at the first one.
    let mut wait = Wait {
        key: second,
        owner: OwnerRef::new(b"task##1").expect("short").to_owner(),
        terms: terms(Mode::Write.into()),
        rank: Rank::Line,
    };
    let ended = queues.end_cycles(&mut wait, &Observed::default(), NOW);
    assert_eq!((ended.deadlock, wait.rank), (None, Rank::Head));
    // "ahead" waits for the task at the second key now, so the task may not wait for it at the first one.
    let queue = queues.get(first.as_ref()).expect("three wait there");
    let foremost = queue.iter().next().map(|waiter| waiter.id);
    assert_eq!(foremost, Some(of_task.id));
    assert_eq!(ended.moved, [first]);
}

// Below, the owners 5 and 6 are one task, 7 and 8 another one, and 9, 10 and 11 a third.

#[test]
fn requests_for_several_keys_do_not_overtake_each_other_until_the_search_gives_up() {
    let program = [
        several(3, 0b1100),
        several(5, 0b1100),
        several(9, 0b0100),
        several(10, 0b1001),
        read(11, 1),
        several(6, 0b0011),
    ];
    Run::new(true).check(&program);
}

#[test]
fn a_request_stands_ahead_again_of_one_that_overtook_it_into_a_deadlock() {
    // The task of 7 and 8 waits for 5, which is to wait behind 8 at another key.
    let program = [
        read(3, 0),
        several(6, 0b0111),
        several(9, 0b1001),
        read(7, 0),
        read(8, 3),
        write(5, 3),
    ];
    Run::new(true).check(&program);
    let program = [
        several(5, 0b1000),
        read(4, 1),
        write(5, 1),
        several(7, 0b1010),
        read(9, 1),
        several(3, 0b1010),
        read(10, 3),
    ];
    Run::new(true).check(&program);
    // 10 came later than 8, but stood ahead of it.
    let program = [
        several(4, 0b1101),
        Op::Del { key: 2 },
        read(8, 3),
        read(9, 0),
        several(3, 0b1001),
        read(10, 2),
        several(10, 0b1000),
        several(7, 0b0101),
    ];
    Run::new(true).check(&program);
}

#[test]
fn a_request_stands_ahead_again_before_others_move_in_turns() {
    let program = [
        read(4, 1),
        several(7, 0b0110),
        read(6, 1),
        several(3, 0b0111),
        read(8, 0),
        several(5, 0b1001),
        several(8, 0b1000),
    ];
    Run::new(true).check(&program);
}

#[test]
fn a_request_that_comes_ends_the_cycles_that_moves_of_others_close_through_it() {
    let program = [
        read(4, 2),
        several(7, 0b1100),
        several(3, 0b1101),
        write(9, 0),
        read(3, 0),
        read(10, 2),
        read(8, 0),
    ];
    Run::new(true).check(&program);
}

#[test]
fn an_owner_that_is_passed_a_hold_waits_for_nobody_that_waits_for_it() {
    let pass = |new_owner| Op::Pass {
        owner: 3,
        new_owner,
        key: 0,
    };
    // 4 wants both keys. 7 waits for the free one behind it, and gets the other one.
    let before = [several(3, 0b1001), several(4, 0b1011), read(7, 1)];
    for new_owner in [7, 8] {
        let program: Vec<_> = before.into_iter().chain([pass(new_owner)]).collect();
        Run::new(true).check(&program);
    }
}
