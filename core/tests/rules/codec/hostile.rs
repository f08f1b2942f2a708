//! Damaged and forged bytes: decoding refuses them or returns a possible lock, and never panics.

use mortise_core::codec::{
    Arrival, BootId, DecodeError, Effect, Stamp, decode_effect, decode_lock, encode_lock,
};
use mortise_core::{Instant, Lock};
use proptest::prelude::*;

use super::spelling::{self, READER, Spelled, WRITTEN, assert_possible, holds_of, owner};

const LAST: u64 = 1_700_000_000_000_123;

/// Where bytes arrive: on the machine that wrote them, and on others at the ends of time.
const PLACES: [Stamp; 3] = [
    WRITTEN,
    Stamp {
        boot_id: BootId([9; 16]),
        machine: WRITTEN.machine,
        boot: Instant::from_millis(0),
        wall_ms: u64::MAX,
    },
    Stamp {
        boot_id: WRITTEN.boot_id,
        machine: None,
        boot: Instant::from_millis(u64::MAX),
        wall_ms: 0,
    },
];

fn named<'a>(owner: &'a [u8]) -> Spelled<'a> {
    Spelled { owner, ..READER }
}

fn samples_of_locks() -> Vec<Vec<u8>> {
    let long = [b'z'; 255];
    let writer = Spelled {
        write: 3,
        read: 200,
        ..named(b"w")
    };
    let readers = [named(b"a"), named(b"b"), named(&long)];
    vec![
        spelling::lock(LAST, &[writer]),
        spelling::lock(LAST, &[revoked(writer)]),
        spelling::lock(LAST, &[READER]),
        spelling::lock(LAST, &[readers[0], revoked(readers[1]), readers[2]]),
    ]
}

fn changed(change: impl Fn(&mut Spelled<'_>)) -> Spelled<'static> {
    let mut hold = READER;
    change(&mut hold);
    hold
}

fn revoked(hold: Spelled<'_>) -> Spelled<'_> {
    Spelled {
        revoked: true,
        ..hold
    }
}

fn samples_of_effects() -> Vec<Vec<u8>> {
    let hold = |hold: Spelled<'_>| [spelling::stamp(), hold.bytes()].concat();
    vec![
        spelling::effect(LAST, b'P', &[&hold(READER)]),
        spelling::effect(LAST, b'S', &[&hold(READER)]),
        spelling::effect(LAST, b'P', &[&hold(revoked(READER))]),
        spelling::effect(LAST, b'D', &[b"\x05owner"]),
        spelling::effect(LAST, b'F', &[]),
        spelling::effect(LAST, b'C', &[]),
    ]
}

/// Decodes `bytes` as a lock everywhere. True if they are one; then it must be possible, and survive encoding.
fn probe_lock(bytes: &[u8]) -> bool {
    let mut valid = false;
    for here in &PLACES {
        for arrival in [Arrival::Live, Arrival::File, Arrival::ReplicaFile] {
            let Ok((lock, last)) = decode_lock(bytes, arrival, here) else {
                continue;
            };
            valid = true;
            assert!(last < 1 << 53);
            assert_possible(&lock);
            if *here == WRITTEN && arrival == Arrival::Live {
                assert_comes_back(&lock, last);
            }
        }
    }
    valid
}

fn assert_comes_back(lock: &Lock, last: u64) {
    let mut bytes = Vec::new();
    encode_lock(lock, last, &WRITTEN, &mut bytes);
    let (back, seen) = decode_lock(&bytes, Arrival::Live, &WRITTEN).expect("bytes of a lock");
    assert_eq!((holds_of(&back), seen), (holds_of(lock), last));
}

/// Decodes `bytes` as an effect everywhere, and applies it to a lock that others hold.
fn probe_effect(bytes: &[u8]) -> bool {
    let mut valid = false;
    for here in &PLACES {
        for arrival in [Arrival::Live, Arrival::File, Arrival::ReplicaFile] {
            let Ok((fact, last)) = decode_effect(bytes, arrival, here) else {
                continue;
            };
            valid = true;
            assert!(last < 1 << 53);
            if let Effect::Put(owner, stake) | Effect::Sole(owner, stake) = fact {
                for others in [&[][..], &[b"a"], &[b"a", b"b"]] {
                    let mut lock = Lock::free();
                    for other in others {
                        lock.put(spelling::owner(*other), READER.stake());
                    }
                    lock.put(owner, stake);
                    assert_possible(&lock);
                }
            }
        }
    }
    valid
}

#[test]
fn bytes_cut_short_anywhere_are_refused() {
    for sample in samples_of_locks() {
        assert!(probe_lock(&sample));
        for len in 0..sample.len() {
            let refused = decode_lock(&sample[..len], Arrival::Live, &WRITTEN);
            assert_eq!(refused.map(|_| ()), Err(DecodeError::Short), "{len}");
        }
    }
    for sample in samples_of_effects() {
        assert!(probe_effect(&sample));
        for len in 0..sample.len() {
            let refused = decode_effect(&sample[..len], Arrival::Live, &WRITTEN);
            assert_eq!(refused, Err(DecodeError::Short), "{len}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    for mut sample in samples_of_locks() {
        sample.push(0);
        let refused = decode_lock(&sample, Arrival::Live, &WRITTEN);
        assert_eq!(refused.map(|_| ()), Err(DecodeError::Long));
    }
    for mut sample in samples_of_effects() {
        sample.push(0);
        let refused = decode_effect(&sample, Arrival::Live, &WRITTEN);
        assert_eq!(refused, Err(DecodeError::Long));
    }
}

#[test]
fn one_flipped_bit_anywhere_is_possible_or_refused() {
    let flips = |sample: &[u8], probe: fn(&[u8]) -> bool| {
        let mut sample = sample.to_vec();
        let mut valid = 0;
        for bit in 0..sample.len() * 8 {
            sample[bit / 8] ^= 1 << (bit % 8);
            valid += usize::from(probe(&sample));
            sample[bit / 8] ^= 1 << (bit % 8);
        }
        valid
    };
    for sample in samples_of_locks() {
        let valid = flips(&sample, probe_lock);
        assert!(0 < valid && valid < sample.len() * 8);
    }
    for sample in samples_of_effects() {
        flips(&sample, probe_effect);
    }
}

/// Damage: bytes set, cut out, doubled, or swapped with those of another sample.
fn damaged(samples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let other = proptest::sample::select(samples.clone());
    let edits = prop::collection::vec((0..5_u8, any::<usize>(), any::<u8>()), 1..6);
    (proptest::sample::select(samples), other, edits).prop_map(|(mut bytes, other, edits)| {
        for (kind, place, byte) in edits {
            let at = place % bytes.len().max(1);
            match kind {
                _ if bytes.is_empty() => bytes.push(byte),
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.drain(at..(at + usize::from(byte % 8)).min(bytes.len()))),
                3 => bytes.extend_from_within(at..(at + usize::from(byte)).min(bytes.len())),
                _ => bytes
                    .splice(at.., other.get(at..).unwrap_or(&[]).to_vec())
                    .for_each(drop),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(crate::random::config(5_000))]

    #[test]
    fn damaged_locks_are_possible_or_refused(bytes in damaged(samples_of_locks())) {
        probe_lock(&bytes);
    }

    #[test]
    fn damaged_effects_are_possible_or_refused(bytes in damaged(samples_of_effects())) {
        probe_effect(&bytes);
    }

    #[test]
    fn noise_is_possible_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        probe_lock(&bytes);
        probe_effect(&bytes);
        if let Some(format) = bytes.first_mut() {
            *format = 1;
        }
        probe_lock(&bytes);
        probe_effect(&bytes);
    }
}

fn refusal(bytes: &[u8]) -> Option<DecodeError> {
    decode_lock(bytes, Arrival::Live, &WRITTEN).err()
}

/// The refusal of one hold, alone in a lock and in an effect.
fn refusal_of_hold(hold: Spelled<'_>) -> Option<DecodeError> {
    let lock = refusal(&spelling::lock(LAST, &[hold]));
    let bytes = spelling::effect(LAST, b'P', &[&spelling::stamp(), &hold.bytes()]);
    let effect = decode_effect(&bytes, Arrival::Live, &WRITTEN).err();
    assert_eq!(lock, effect);
    lock
}

#[test]
fn a_lock_that_nobody_holds_is_impossible() {
    assert_eq!(
        refusal(&spelling::lock(LAST, &[])),
        Some(DecodeError::Impossible)
    );
}

#[test]
fn a_writer_together_with_others_is_impossible() {
    let writer = Spelled {
        write: 1,
        read: 0,
        ..named(b"m")
    };
    for holds in [
        [writer, named(b"z")],
        [named(b"a"), writer],
        [
            writer,
            Spelled {
                owner: b"n",
                ..writer
            },
        ],
    ] {
        assert_eq!(
            refusal(&spelling::lock(LAST, &holds)),
            Some(DecodeError::Impossible)
        );
    }
    assert_eq!(refusal(&spelling::lock(LAST, &[writer])), None);
}

#[test]
fn a_repeated_or_unordered_owner_is_impossible() {
    for owners in [[b"a", b"a"], [b"b", b"a"]] {
        let holds = owners.map(|owner| named(owner));
        assert_eq!(
            refusal(&spelling::lock(LAST, &holds)),
            Some(DecodeError::Impossible)
        );
    }
}

#[test]
fn a_hold_of_nothing_is_impossible() {
    let hold = changed(|hold| (hold.write, hold.read) = (0, 0));
    assert_eq!(refusal_of_hold(hold), Some(DecodeError::Impossible));
}

#[test]
fn numbers_at_their_bounds_are_accepted_and_those_beyond_refused() {
    let out_of_bounds = |hold| assert_eq!(refusal_of_hold(hold), Some(DecodeError::OutOfBounds));
    let fine = |hold| assert_eq!(refusal_of_hold(hold), None);
    for token in [0, 1 << 53, u64::MAX] {
        out_of_bounds(Spelled { token, ..READER });
    }
    for token in [1, (1 << 53) - 1] {
        fine(Spelled { token, ..READER });
    }
    for count in [1 << 31, 1 << 32, (1 << 32) + 1, u64::MAX] {
        out_of_bounds(changed(|hold| hold.read = count));
        out_of_bounds(changed(|hold| hold.write = count));
    }
    let most = (1 << 31) - 1;
    fine(changed(|hold| (hold.read, hold.write) = (most, most)));
    for millis in [(1 << 53) + 1, u64::MAX] {
        out_of_bounds(changed(|hold| hold.remaining = millis));
        out_of_bounds(changed(|hold| hold.held = millis));
    }
    let longest = 1 << 53;
    fine(changed(|hold| {
        (hold.remaining, hold.held) = (longest, longest)
    }));
    assert_eq!(
        refusal(&spelling::lock(1 << 53, &[READER])),
        Some(DecodeError::OutOfBounds)
    );
    assert_eq!(refusal(&spelling::lock((1 << 53) - 1, &[READER])), None);
}

#[test]
fn owners_of_0_and_of_256_bytes_are_refused() {
    for len in [0, 256, 300] {
        let owner = vec![b'o'; len];
        assert_eq!(
            refusal_of_hold(named(&owner)),
            Some(DecodeError::OutOfBounds)
        );
        let bytes = spelling::effect(LAST, b'D', &[&spelling::number(len as u64), &owner]);
        let refused = decode_effect(&bytes, Arrival::Live, &WRITTEN);
        assert_eq!(refused, Err(DecodeError::OutOfBounds));
    }
    let longest = [b'o'; 255];
    assert_eq!(refusal_of_hold(named(&longest)), None);
    assert_eq!(owner(&longest).text().len(), 255);
}

#[test]
fn a_newer_format_is_refused_whole_and_named_and_format_0_does_not_exist() {
    let mut bytes = spelling::lock(LAST, &[READER]);
    for format in [2, 3, 255] {
        bytes[0] = format;
        assert_eq!(refusal(&bytes), Some(DecodeError::Newer(format)));
        let refused = decode_effect(&bytes, Arrival::Live, &WRITTEN);
        assert_eq!(refused, Err(DecodeError::Newer(format)));
        let text = DecodeError::Newer(format).to_string();
        assert!(text.contains(&format!("format {format}")), "{text}");
    }
    bytes[0] = 0;
    assert_eq!(refusal(&bytes), Some(DecodeError::OutOfBounds));
}

#[test]
fn the_mark_of_a_revocation_is_0_or_1() {
    for (mark, is_revoked) in [(0, Some(false)), (1, Some(true)), (2, None), (255, None)] {
        let mut bytes = spelling::lock(LAST, &[READER]);
        *bytes.last_mut().expect("a mark") = mark;
        let read = decode_lock(&bytes, Arrival::Live, &WRITTEN);
        let read = read.map(|(lock, _)| holds_of(&lock)[0].1.revoked);
        assert_eq!(read, is_revoked.ok_or(DecodeError::OutOfBounds));
    }
}

#[test]
fn a_number_has_one_spelling() {
    // 1 as two bytes, and a number of eleven bytes.
    for last in [&[0x81, 0x00][..], &[0x80; 11], &[0xff; 10]] {
        let bytes = [&[1], last, b"C"].concat();
        let refused = decode_effect(&bytes, Arrival::Live, &WRITTEN);
        assert_eq!(refused, Err(DecodeError::OutOfBounds));
    }
}

#[test]
fn an_unknown_kind_of_effect_is_refused() {
    for kind in (0..=255).filter(|kind| !b"PSDFCH".contains(kind)) {
        let refused = decode_effect(&spelling::effect(LAST, kind, &[]), Arrival::Live, &WRITTEN)
            .map(|(fact, _)| format!("{fact:?}"));
        assert_eq!(refused, Err(DecodeError::OutOfBounds), "{kind}");
    }
}

#[test]
fn a_count_of_holds_beyond_the_bytes_allocates_nothing() {
    let mut bytes = spelling::lock(LAST, &[]);
    bytes.pop();
    bytes.extend(spelling::number(u64::from(u32::MAX)));
    assert_eq!(refusal(&bytes), Some(DecodeError::Short));
    bytes.truncate(bytes.len() - 5);
    bytes.extend(spelling::number(1 << 32));
    assert_eq!(refusal(&bytes), Some(DecodeError::OutOfBounds));
}
