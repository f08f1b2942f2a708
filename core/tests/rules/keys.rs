//! The keys of a request.

use mortise_core::{Db, KeyId, KeyList};

fn key(name: &str) -> KeyId {
    KeyId {
        db: Db(0),
        name: name.as_bytes().into(),
    }
}

#[test]
fn keys_are_the_same_in_whatever_order_they_are_named() {
    let several = KeyList::Several([key("a"), key("b")].into());
    assert!(several.are(&[key("b"), key("a")]));
    assert!(!several.are(&[key("a"), key("c")]) && !several.are(&[key("a")]));
    assert!(!several.are(&[key("a"), key("b"), key("c")]));
}

#[test]
fn one_key_is_not_taken_together_with_others() {
    let keys = [key("a"), key("b")];
    let several = KeyList::Several(keys.clone().into());
    assert_eq!(several.several(), Some(&keys[..]));
    assert_eq!(KeyList::One(key("a")).several(), None);
}
