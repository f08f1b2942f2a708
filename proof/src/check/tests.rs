//! For each rule a bad history, and a similar one that is good.

use super::*;
use crate::history::{
    Answer, Ask, Break, Granted, Mode, Outcome, Record, Seen, SeenHold, Way, Write,
};

const PROMISES: Promises = Promises {
    one_token_clock: true,
    loses_nothing: true,
    grants_at_once: true,
};

/// One acquisition, and its result.
fn hold(owner: &str, mode: Mode, token: u64, time: (u64, u64, u64)) -> Vec<Record> {
    let (asked, from, until) = time;
    vec![
        ask(owner, Way::Blocked, asked),
        Record::Granted(grant(owner, mode, token, (from, until))),
        answer(owner, from),
    ]
}

fn ask(owner: &str, way: Way, at: u64) -> Record {
    Record::Ask(Ask {
        ask: owner.to_owned(),
        owner: owner.to_owned(),
        key: "k".to_owned(),
        way,
        at,
    })
}

fn answer(owner: &str, at: u64) -> Record {
    answered(owner, Outcome::Granted, at)
}

fn answered(owner: &str, outcome: Outcome, at: u64) -> Record {
    Record::Answer(Answer {
        ask: owner.to_owned(),
        outcome,
        text: String::new(),
        at,
    })
}

fn grant(owner: &str, mode: Mode, token: u64, (from, until): (u64, u64)) -> Granted {
    Granted {
        ask: owner.to_owned(),
        owner: owner.to_owned(),
        key: "k".to_owned(),
        mode,
        weight: 1,
        limit: 0,
        token,
        from,
        until,
        together: Vec::new(),
    }
}

fn found(files: Vec<Vec<Record>>) -> Vec<Rule> {
    let found = all(&History::new(files), PROMISES);
    found.into_iter().map(|violation| violation.rule).collect()
}

fn left(owner: &str, token: u64, at: u64) -> Record {
    let (owner, key) = (owner.to_owned(), "k".to_owned());
    Record::Left {
        owner,
        key,
        token,
        at,
    }
}

fn kept(owner: &str, token: u64, until: u64) -> Record {
    let (owner, key) = (owner.to_owned(), "k".to_owned());
    Record::Kept {
        owner,
        key,
        token,
        until,
    }
}

fn released(owner: &str, token: u64, at: u64) -> Record {
    let (owner, key) = (owner.to_owned(), "k".to_owned());
    Record::Released {
        owner,
        key,
        token,
        at,
    }
}

fn wrote(owner: &str, mode: Mode, token: u64, sent: u64) -> Record {
    Record::Write(Write {
        owner: owner.to_owned(),
        key: "k".to_owned(),
        mode,
        token,
        sent,
        at: sent + 1,
        done: Some(true),
    })
}

fn seen(at: u64, holds: &[(&str, Mode, u64)], queue: &[&str]) -> Record {
    let hold = |(owner, mode, token): &(&str, Mode, u64)| SeenHold {
        owner: (*owner).to_owned(),
        mode: *mode,
        weight: 1,
        token: *token,
    };
    Record::Seen(Seen {
        key: "k".to_owned(),
        sent: at - 1,
        at,
        holds: holds.iter().map(hold).collect(),
        queue: queue.iter().map(|owner| (*owner).to_owned()).collect(),
    })
}

#[test]
fn two_writers_may_be_inside_one_after_the_other_but_not_together() {
    let a = hold("a", Mode::Write, 1, (0, 1, 10));
    let b = |from| hold("b", Mode::Write, 2, (0, from, 20));
    assert_eq!(found(vec![a.clone(), b(10)]), []);
    assert_eq!(found(vec![a, b(9)]), [Rule::TwoInside]);
}

#[test]
fn readers_may_be_inside_together_but_not_with_a_writer() {
    let a = hold("a", Mode::Read, 1, (0, 1, 10));
    let b = |mode| hold("b", mode, 2, (0, 5, 20));
    assert_eq!(found(vec![a.clone(), b(Mode::Read)]), []);
    assert_eq!(found(vec![a, b(Mode::Write)]), [Rule::TwoInside]);
}

#[test]
fn a_belief_lasts_as_long_as_it_is_renewed_or_until_its_end() {
    let a = hold("a", Mode::Write, 1, (0, 1, 10));
    let b = hold("b", Mode::Write, 2, (0, 15, 20));
    let with = |more: Record| vec![[a.clone(), vec![more]].concat(), b.clone()];
    assert_eq!(found(with(kept("a", 1, 16))), [Rule::TwoInside]);
    assert_eq!(found(with(left("a", 1, 5))), []);
    let ended = vec![kept("a", 1, 30), left("a", 1, 15)];
    assert_eq!(found(vec![[a, ended].concat(), b]), []);
}

#[test]
fn a_long_belief_conflicts_with_every_belief_that_begins_during_it() {
    let a = hold("a", Mode::Write, 1, (0, 1, 100));
    let b = hold("b", Mode::Write, 2, (0, 10, 11));
    let c = hold("c", Mode::Write, 3, (12, 50, 51));
    assert_eq!(found(vec![a, b, c]), [Rule::TwoInside, Rule::TwoInside]);
}

#[test]
fn a_belief_in_a_broken_hold_is_no_fault() {
    let a = hold("a", Mode::Write, 1, (0, 1, 100));
    let b = hold("b", Mode::Write, 2, (0, 10, 20));
    let broken = |token| {
        vec![Record::Break(Break {
            token,
            from: 5,
            to: 6,
            may_return: false,
        })]
    };
    assert_eq!(found(vec![a.clone(), b.clone(), broken(1)]), []);
    assert_eq!(found(vec![a, b, broken(0)]), [Rule::TwoInside]);
}

#[test]
fn the_permits_inside_may_not_exceed_the_limit() {
    let pool = |owner: &str, token, weight, from| {
        let mut granted = grant(owner, Mode::Read, token, (from, 20));
        (granted.weight, granted.limit) = (weight, 5);
        vec![
            ask(owner, Way::Blocked, 0),
            Record::Granted(granted),
            answer(owner, from),
        ]
    };
    let (a, b) = (pool("a", 1, 2, 1), pool("b", 2, 3, 2));
    assert_eq!(found(vec![a.clone(), b.clone(), pool("c", 3, 1, 20)]), []);
    assert_eq!(found(vec![a, b, pool("c", 3, 1, 19)]), [Rule::OverLimit]);
}

#[test]
fn a_token_must_exceed_those_known_when_its_request_was_sent() {
    let a = hold("a", Mode::Write, 7, (0, 1, 2));
    let later = |token, asked| hold("b", Mode::Write, token, (asked, 10, 11));
    assert_eq!(found(vec![a.clone(), later(8, 5)]), []);
    assert_eq!(found(vec![a.clone(), later(7, 5)]), [Rule::TokenWentBack]);
    assert_eq!(found(vec![a.clone(), later(6, 5)]), [Rule::TokenWentBack]);
    // Both were pending.
    assert_eq!(found(vec![a, later(6, 1)]), []);
}

#[test]
fn tokens_must_grow_across_keys_if_one_server_grants_them() {
    let a = hold("a", Mode::Write, 7, (0, 1, 2));
    let mut other = grant("b", Mode::Write, 6, (10, 11));
    other.key = "another".to_owned();
    let b = vec![
        ask("b", Way::Now, 5),
        Record::Granted(other),
        answer("b", 10),
    ];
    let history = History::new(vec![a, b]);
    assert_eq!(all(&history, PROMISES).len(), 1);
    let promises = Promises {
        one_token_clock: false,
        ..PROMISES
    };
    assert_eq!(all(&history, promises), []);
}

#[test]
fn a_queued_request_must_be_granted_before_later_ones() {
    let first = |queued: u64| {
        let mut records = hold("a", Mode::Write, 9, (0, 20, 21));
        records[0] = ask("a", Way::Mail, 0);
        let ask = "a".to_owned();
        records.insert(1, Record::Queued { ask, at: queued });
        records
    };
    let second = hold("b", Mode::Write, 8, (5, 10, 11));
    assert_eq!(found(vec![first(6), second.clone()]), []);
    assert_eq!(found(vec![first(4), second.clone()]), [Rule::Overtaken]);
    let failover = |from, to| vec![Record::Failover { from, to }];
    let found = |from, to| found(vec![first(4), second.clone(), failover(from, to)]);
    assert_eq!(found(3, 6), [], "they may have come to two primaries");
    assert_eq!(found(5, 6), [Rule::Overtaken]);
    assert_eq!(found(3, 5), [Rule::Overtaken]);
}

#[test]
fn a_request_that_had_to_be_repeated_has_lost_its_place() {
    let mut first = hold("a", Mode::Write, 9, (0, 20, 21));
    first[0] = ask("a", Way::Mail, 0);
    for at in [4, u64::MAX] {
        let ask = "a".to_owned();
        first.insert(first.len() - 2, Record::Queued { ask, at });
    }
    assert_eq!(
        found(vec![first, hold("b", Mode::Write, 8, (5, 10, 11))]),
        []
    );
}

#[test]
fn a_blocked_request_has_its_place_from_when_the_queue_showed_it() {
    let a = hold("a", Mode::Write, 9, (0, 20, 21));
    let b = hold("b", Mode::Write, 8, (5, 10, 11));
    let shown = |at| vec![seen(at, &[], &["a"])];
    assert_eq!(found(vec![a.clone(), b.clone(), shown(6)]), []);
    assert_eq!(found(vec![a, b, shown(4)]), [Rule::Overtaken]);
}

#[test]
fn passing_a_hold_on_overtakes_nobody() {
    let a = hold("a", Mode::Write, 9, (0, 20, 21));
    let mut passed = hold("b", Mode::Write, 8, (5, 10, 11));
    passed[0] = ask("b", Way::Pass, 5);
    assert_eq!(found(vec![a, passed, vec![seen(4, &[], &["a"])]]), []);
}

#[test]
fn every_request_of_a_client_that_ended_properly_needs_an_answer() {
    let mut records = vec![ask("a", Way::Mail, 0)];
    assert_eq!(found(vec![records.clone()]), [], "it was killed");
    records.push(Record::Closed { at: 9 });
    assert_eq!(found(vec![records.clone()]), [Rule::NeverServed]);
    records.insert(1, answer("a", 3));
    assert_eq!(found(vec![records]), []);
}

#[test]
fn a_guarded_write_after_another_grant_is_wrong() {
    let a = hold("a", Mode::Write, 1, (0, 1, 5));
    let b = |mode| hold("b", mode, 2, (0, 10, 20));
    let write = |sent| vec![wrote("a", Mode::Write, 1, sent)];
    assert_eq!(found(vec![a.clone(), b(Mode::Write), write(9)]), []);
    for mode in [Mode::Write, Mode::Read] {
        let found = found(vec![a.clone(), b(mode), write(11)]);
        assert_eq!(found, [Rule::WriteFromOutside]);
    }
}

#[test]
fn readers_may_write_after_grants_of_other_readers() {
    let a = hold("a", Mode::Read, 1, (0, 1, 5));
    let b = |mode| hold("b", mode, 2, (0, 10, 20));
    let write = vec![wrote("a", Mode::Read, 1, 11)];
    assert_eq!(found(vec![a.clone(), b(Mode::Read), write.clone()]), []);
    let wrong = found(vec![a, b(Mode::Write), write]);
    assert_eq!(wrong, [Rule::WriteFromOutside]);
}

#[test]
fn a_guarded_write_after_its_own_release_is_wrong() {
    let mut a = hold("a", Mode::Write, 1, (0, 1, 5));
    a.extend([released("a", 1, 7), wrote("a", Mode::Write, 1, 6)]);
    assert_eq!(found(vec![a.clone()]), []);
    a.push(wrote("a", Mode::Write, 1, 8));
    assert_eq!(found(vec![a]), [Rule::WriteFromOutside]);
}

#[test]
fn a_guarded_write_by_a_broken_hold_is_wrong_unless_the_hold_may_be_back() {
    let mut a = hold("a", Mode::Write, 1, (0, 1, 5));
    a.push(wrote("a", Mode::Write, 1, 8));
    let broken = |may_return| {
        vec![Record::Break(Break {
            token: 1,
            from: 6,
            to: 7,
            may_return,
        })]
    };
    assert_eq!(found(vec![a.clone(), broken(true)]), []);
    assert_eq!(found(vec![a, broken(false)]), [Rule::WriteFromOutside]);
}

#[test]
fn the_server_must_not_show_two_holds_that_exclude_each_other() {
    let (r, w) = (Mode::Read, Mode::Write);
    let shown = |one, two| found(vec![vec![seen(1, &[("a", one, 1), ("b", two, 2)], &[])]]);
    assert_eq!(shown(r, r), []);
    assert_eq!(shown(r, w), [Rule::TwoInside]);
    assert_eq!(shown(w, w), [Rule::TwoInside]);
}

#[test]
fn a_released_hold_must_not_be_shown_again() {
    let mut a = hold("a", Mode::Write, 1, (0, 1, 2));
    a.push(released("a", 1, 4));
    let shown = |at, token| vec![seen(at, &[("a", Mode::Write, token)], &[])];
    assert_eq!(found(vec![a.clone(), shown(5, 1), shown(9, 2)]), []);
    assert_eq!(found(vec![a.clone(), shown(6, 1)]), [Rule::CameBack]);
    let failover = |from, to| vec![Record::Failover { from, to }];
    let found = |from, to| found(vec![a.clone(), shown(6, 1), failover(from, to)]);
    assert_eq!(
        found(2, 4),
        [],
        "the primary that released it is none any more"
    );
    assert_eq!(found(6, 9), []);
    assert_eq!(found(2, 3), [Rule::CameBack]);
    assert_eq!(found(7, 9), [Rule::CameBack]);
}

#[test]
fn a_request_that_was_denied_must_hold_nothing() {
    let denied = |outcome| vec![ask("a", Way::Now, 0), answered("a", outcome, 3)];
    let shown = |at| vec![seen(at, &[("a", Mode::Write, 1)], &[])];
    assert_eq!(found(vec![denied(Outcome::Denied), shown(4)]), []);
    assert_eq!(found(vec![denied(Outcome::Unknown), shown(5)]), []);
    let wrong = found(vec![denied(Outcome::Denied), shown(5)]);
    assert_eq!(wrong, [Rule::HeldThoughDenied]);
}

#[test]
fn a_free_lock_must_be_granted_to_the_first_who_waits() {
    const MS: u64 = 1_000_000;
    let free = |at, first| seen(at * MS, &[], &[first, "z"]);
    let held = seen(300 * MS, &[("h", Mode::Write, 1)], &["a", "z"]);
    let fault = |from, to, is_of_client| Record::Fault {
        what: "a fault".to_owned(),
        is_of_client,
        from: from * MS,
        to: to * MS,
    };
    let looks = vec![free(1, "a"), free(450, "a")];
    let with = |more: Record| found(vec![looks.clone(), vec![more]]);
    assert_eq!(found(vec![looks.clone()]), [Rule::LeftWaiting]);
    assert_eq!(with(fault(100, 101, true)), [Rule::LeftWaiting]);
    assert_eq!(with(fault(100, 101, false)), []);
    assert_eq!(with(held), [], "it was held meanwhile");
    assert_eq!(found(vec![vec![free(1, "a"), free(450, "b")]]), []);
    assert_eq!(found(vec![vec![free(1, "a"), free(400, "a")]]), []);
    let Record::Seen(mut elsewhere) = free(2, "a") else {
        unreachable!()
    };
    elsewhere.key = "another".to_owned();
    assert_eq!(with(Record::Seen(elsewhere)), [], "it asks for both");
}

#[test]
fn a_believed_hold_must_be_shown() {
    let a = hold("a", Mode::Write, 7, (0, 5, 10));
    let shown = |at, token| vec![seen(at, &[("a", Mode::Write, token)], &[])];
    assert_eq!(
        found(vec![a.clone(), shown(7, 7), shown(5, 6), shown(10, 6)]),
        []
    );
    assert_eq!(found(vec![a.clone(), shown(7, 6)]), [Rule::Vanished]);
    assert_eq!(found(vec![a, vec![seen(7, &[], &[])]]), [Rule::Vanished]);
}

#[test]
fn several_keys_must_be_granted_together_or_not_at_all() {
    let part = |key: &str| {
        let mut granted = grant("a", Mode::Write, 3, (1, 2));
        granted.key = key.to_owned();
        granted.together = vec!["k".to_owned(), "l".to_owned()];
        Record::Granted(granted)
    };
    let taken = |parts: &[&str]| {
        let parts = parts.iter().map(|key| part(key));
        let records = [ask("a", Way::Now, 0)].into_iter().chain(parts);
        found(vec![records.chain([answer("a", 1)]).collect()])
    };
    assert_eq!(taken(&["k", "l"]), []);
    assert_eq!(taken(&["l"]), [Rule::NotAllOrNone]);
}

#[test]
fn the_list_of_writes_must_be_in_the_order_of_tokens() {
    let wrong = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        ledger("k", &lines).len()
    };
    assert_eq!(
        wrong(&["write:1:a", "read:2:b", "read:3:c", "read:2:b", "write:4:d"]),
        0
    );
    assert_eq!(wrong(&["write:2:b", "write:1:a"]), 1);
    assert_eq!(wrong(&["read:2:b", "write:1:a"]), 1);
    assert_eq!(wrong(&["write:2:b", "read:1:a"]), 1);
    assert_eq!(wrong(&["something else"]), 1);
}
