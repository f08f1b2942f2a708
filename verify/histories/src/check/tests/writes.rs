//! Guarded writes.

use super::*;

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
    a.extend([
        Record::Released(mark("a", 1, 7)),
        wrote("a", Mode::Write, 1, 6),
    ]);
    assert_eq!(found(vec![a.clone()]), []);
    a.push(wrote("a", Mode::Write, 1, 8));
    assert_eq!(found(vec![a]), [Rule::WriteFromOutside]);
}

#[test]
fn a_guarded_write_by_a_hold_that_was_not_shown_any_more_is_wrong() {
    let mut a = hold("a", Mode::Write, 1, (0, 1, 5));
    a.push(wrote("a", Mode::Write, 1, 20));
    let gone = |at| seen(at, &[("b", Mode::Write, 2)], &[]);
    let found = |more: Vec<Record>| found(vec![a.clone(), more]);
    assert_eq!(found(vec![gone(19)]), [Rule::WriteFromOutside]);
    assert_eq!(
        found(vec![gone(20)]),
        [],
        "it may have been there until then"
    );
    assert_eq!(
        found(vec![gone(1)]),
        [],
        "it may have been granted only then"
    );
    let failover = |from, to| Record::Failover { from, to };
    assert_eq!(
        found(vec![gone(19), failover(20, 30)]),
        [],
        "its end may be lost"
    );
    assert_eq!(
        found(vec![gone(19), failover(1, 18)]),
        [Rule::WriteFromOutside]
    );
}

#[test]
fn a_guarded_write_by_a_broken_hold_is_wrong_unless_the_hold_may_be_back() {
    let mut a = hold("a", Mode::Write, 1, (0, 1, 5));
    a.push(wrote("a", Mode::Write, 1, 8));
    let broken = |may_return| broken(1, (6, 7), may_return);
    assert_eq!(found(vec![a.clone(), broken(true)]), []);
    assert_eq!(found(vec![a, broken(false)]), [Rule::WriteFromOutside]);
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
