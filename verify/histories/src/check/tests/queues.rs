//! Requests that overtake, or get no answer.

use super::*;

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

/// It leaves the queue, and asks again at its end.
#[test]
fn a_request_of_a_library_has_waited_as_long_as_the_last_look_before_its_grant_says() {
    let mut a = hold("a", Mode::Write, 9, (0, 20, 21));
    a[0] = ask("a", Way::Library, 0);
    let b = hold("b", Mode::Write, 8, (5, 10, 11));
    let shown = |at, waited| {
        let Record::Seen(mut seen) = seen(at, &[], &["a"]) else {
            unreachable!()
        };
        seen.queue[0].waited = waited;
        Record::Seen(seen)
    };
    let granted = seen(19, &[("a", Mode::Write, 9)], &[]);
    let found = |looks: Vec<Record>| found(vec![a.clone(), b.clone(), looks]);
    assert_eq!(
        found(vec![shown(15, 11), granted.clone()]),
        [Rule::Overtaken]
    );
    assert_eq!(
        found(vec![shown(4, 0), shown(15, 9), granted]),
        [],
        "it came again"
    );
    assert_eq!(
        found(vec![shown(15, 11), seen(17, &[], &[])]),
        [],
        "it has left"
    );
    let fault = fault((16, 17), false);
    assert_eq!(
        found(vec![shown(15, 11), fault]),
        [],
        "it may have lost its place"
    );
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
