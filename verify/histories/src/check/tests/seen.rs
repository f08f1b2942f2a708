//! What LOCK.INFO showed.

use super::*;

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
    a.push(Record::Released(mark("a", 1, 4)));
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
    let broken = |may_return| broken(1, (1, 2), may_return);
    let wrong = |cut| found(vec![denied(Outcome::Denied), shown(5), cut]);
    assert_eq!(wrong(vec![]), [Rule::HeldThoughDenied]);
    assert_eq!(wrong(broken(false)), [Rule::HeldThoughDenied]);
    assert_eq!(
        wrong(broken(true)),
        [],
        "it was swapped away, and came back"
    );
    let failover = |from, to| wrong(vec![Record::Failover { from, to }]);
    assert_eq!(failover(1, 2), [], "the grant's letter may be lost");
    assert_eq!(failover(3, 4), [Rule::HeldThoughDenied]);
}

#[test]
fn a_free_lock_must_be_granted_to_the_first_who_waits() {
    const MS: u64 = 1_000_000;
    let free = |at, first| seen(at * MS, &[], &[first, "z"]);
    let held = seen(300 * MS, &[("h", Mode::Write, 1)], &["a", "z"]);
    let fault = |from, to, of_client| fault((from * MS, to * MS), of_client);
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
fn where_faults_may_lose_a_hold_one_must_be_shown_that_none_may_have_lost() {
    const MS: u64 = 1_000_000;
    let a = hold("a", Mode::Write, 7, (500 * MS, 510 * MS, 600 * MS));
    let failover = |from: u64, to: u64| Record::Failover {
        from: from * MS,
        to: to * MS,
    };
    let promises = Promises {
        loses_nothing: false,
        ..PROMISES
    };
    let found = |failover| {
        let history = History::new(vec![a.clone(), vec![seen(550 * MS, &[], &[]), failover]]);
        let found = all(&history, promises);
        found.into_iter().map(|it| it.rule).collect::<Vec<_>>()
    };
    assert_eq!(found(failover(0, 299)), [Rule::Vanished]);
    assert_eq!(found(failover(0, 301)), []);
    assert_eq!(found(failover(520, 530)), []);
    assert_eq!(found(failover(551, 560)), [Rule::Vanished]);
}
