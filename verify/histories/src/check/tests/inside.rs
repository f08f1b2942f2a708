//! Beliefs that overlap.

use super::*;

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
    assert_eq!(
        found(with(Record::Kept(mark("a", 1, 16)))),
        [Rule::TwoInside]
    );
    assert_eq!(found(with(Record::Left(mark("a", 1, 5)))), []);
    let ended = vec![
        Record::Kept(mark("a", 1, 30)),
        Record::Left(mark("a", 1, 15)),
    ];
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
    let broken = |token| broken(token, (5, 6), false);
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
