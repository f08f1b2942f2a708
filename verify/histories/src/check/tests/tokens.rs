//! Tokens grow.

use super::*;

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
