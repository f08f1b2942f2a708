//! Several keys at once.

use super::*;

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
