//! Decoding returns what was encoded.

use mortise_core::codec::{
    Arrival, Effect, Heartbeat, decode_effect, decode_lock, encode_effect, encode_lock,
    stamp_of_effect, stamp_of_lock,
};
use mortise_core::{Instant, Stake, Token, Touched};
use proptest::collection::btree_map;
use proptest::prelude::*;

use super::spelling::{READER, WRITTEN, assert_possible, holds_of, lock_of, owner};

type Held = Vec<(Vec<u8>, Stake)>;

fn owners() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..=255),
        prop::collection::vec(0..3_u8, 1..=3),
        prop::collection::vec(any::<u8>(), 21..=24),
        (any::<u128>(), prop::collection::vec(any::<u8>(), 0..=7)).prop_map(uuid),
    ]
}

/// A UUID as text, with a suffix.
fn uuid((number, suffix): (u128, Vec<u8>)) -> Vec<u8> {
    let digits = format!("{number:032x}");
    let groups = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    [groups.join("-").as_bytes(), &suffix].concat()
}

fn counts() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), 1..1_000_u32, Just((1 << 31) - 1)]
}

fn stakes(
    write: impl Strategy<Value = u32>,
    read: impl Strategy<Value = u32>,
) -> impl Strategy<Value = Stake> {
    let tokens = prop_oneof![1..1_u64 << 53, Just(1), Just((1 << 53) - 1)];
    let leases = prop_oneof![0..200_u64, 0..86_400_000_u64, 0..1_u64 << 41];
    let since = 0..=WRITTEN.boot.as_millis();
    let revoked = prop::bool::weighted(0.02);
    (write, read, tokens, leases, since, revoked).prop_map(
        |(write, read, token, lease, since, revoked)| Stake {
            write,
            read,
            token: Token::new(token).expect("within the bounds"),
            deadline: WRITTEN.boot.after(lease),
            since: Instant::from_millis(since),
            touched: Touched::of_loaded(),
            revoked,
        },
    )
}

/// Up to 100 readers, or one owner that writes and perhaps reads.
fn held() -> impl Strategy<Value = Held> {
    let readers = btree_map(owners(), stakes(Just(0), counts()), 1..=100);
    let writer = (owners(), stakes(counts(), prop_oneof![Just(0), counts()]));
    prop_oneof![
        readers.prop_map(|readers| readers.into_iter().collect()),
        writer.prop_map(|writer| vec![writer]),
    ]
}

proptest! {
    #![proptest_config(crate::random::config(256))]

    #[test]
    fn decoding_a_lock_returns_what_was_encoded(held in held(), last in 0..1_u64 << 53) {
        let lock = lock_of(&held);
        prop_assert_eq!(&holds_of(&lock), &held);
        let mut bytes = Vec::new();
        encode_lock(&lock, last, &WRITTEN, &mut bytes);
        for arrival in [Arrival::Live, Arrival::File] {
            let (back, seen) = decode_lock(&bytes, arrival, &WRITTEN).expect("bytes of a lock");
            assert_possible(&back);
            prop_assert_eq!((&holds_of(&back), seen), (&held, last));
        }
    }

    #[test]
    fn decoding_an_effect_returns_what_was_encoded(held in held(), last in 0..1_u64 << 53) {
        for (name, stake) in &held {
            let name = owner(name);
            for (effect, fact) in [
                (Effect::Put(name, *stake), Effect::Put(name, *stake)),
                (Effect::Sole(name, *stake), Effect::Sole(name, *stake)),
                (Effect::Drop(name), Effect::Drop(name)),
                (Effect::Free, Effect::Free),
                (Effect::Clock, Effect::Clock),
            ] {
                let mut bytes = Vec::new();
                encode_effect(&effect, last, &WRITTEN, &mut bytes);
                let back = decode_effect(&bytes, Arrival::Live, &WRITTEN);
                prop_assert_eq!(back, Ok((fact, last)));
            }
        }
    }
}

#[test]
fn decoding_a_heartbeat_returns_what_was_encoded() {
    for suspect_ms in [0, 1, 1 << 53] {
        for acknowledged_ms in [None, Some(0), Some(1), Some((1 << 53) - 1)] {
            let heartbeat = Heartbeat {
                suspect_ms,
                acknowledged_ms,
            };
            let mut bytes = Vec::new();
            encode_effect(&Effect::Heartbeat(heartbeat), 7, &WRITTEN, &mut bytes);
            let back = decode_effect(&bytes, Arrival::Live, &WRITTEN);
            assert_eq!(back, Ok((Effect::Heartbeat(heartbeat), 7)));
            for len in 0..bytes.len() {
                assert!(decode_effect(&bytes[..len], Arrival::Live, &WRITTEN).is_err());
            }
        }
    }
}

#[test]
fn decoding_returns_when_and_where_it_was_written() {
    let (name, stake) = (owner(READER.owner), READER.stake());
    let heartbeat = Heartbeat {
        suspect_ms: 0,
        acknowledged_ms: None,
    };
    for (effect, tells) in [
        (Effect::Put(name, stake), true),
        (Effect::Sole(name, stake), true),
        (Effect::Heartbeat(heartbeat), true),
        (Effect::Drop(name), false),
        (Effect::Free, false),
        (Effect::Clock, false),
    ] {
        let mut bytes = Vec::new();
        encode_effect(&effect, 7, &WRITTEN, &mut bytes);
        assert_eq!(stamp_of_effect(&bytes), tells.then_some(WRITTEN));
    }
    let mut bytes = Vec::new();
    let holds = [(READER.owner.to_vec(), stake)];
    encode_lock(&lock_of(&holds), 7, &WRITTEN, &mut bytes);
    assert_eq!(stamp_of_lock(&bytes), Some(WRITTEN));
    assert_eq!(stamp_of_lock(&bytes[..9]), None);
}

#[test]
fn owners_of_every_length_and_every_byte_come_back() {
    let lengths = (1..=255).map(|len| vec![b'x'; len]);
    let bytes = (0..=255).map(|byte| vec![byte, 0, byte]);
    let mut held: Held = lengths
        .chain(bytes)
        .map(|owner| (owner, READER.stake()))
        .collect();
    held.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut bytes = Vec::new();
    encode_lock(&lock_of(&held), 7, &WRITTEN, &mut bytes);
    let (back, _) = decode_lock(&bytes, Arrival::Live, &WRITTEN).expect("bytes of a lock");
    assert_eq!(holds_of(&back), held);
}

#[test]
fn the_connection_id_is_not_encoded() {
    let mut stake = READER.stake();
    stake.touched = Touched::by(42).again(Some(43));
    let mut bytes = Vec::new();
    encode_effect(&Effect::Put(owner(b"a"), stake), 7, &WRITTEN, &mut bytes);
    let back = decode_effect(&bytes, Arrival::Live, &WRITTEN).expect("bytes of an effect");
    assert_eq!(back.0, Effect::Put(owner(b"a"), READER.stake()));
}

#[test]
fn a_loaded_hold_is_not_taken_for_one_that_was_just_granted() {
    let mut loaded = Touched::of_loaded();
    for changes in 0..65_536 {
        assert_ne!(loaded, Touched::by(loaded.client()), "{changes} changes");
        loaded = loaded.again(None);
    }
}
