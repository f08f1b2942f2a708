//! The bytes of the format, as files and replicas have them. **Once released they are kept for ever**: a change that breaks one
//! of these tests then needs a new format, not new constants.

use mortise_core::Stake;
use mortise_core::codec::{
    Arrival, Effect, Heartbeat, decode_effect, decode_lock, encode_effect, encode_lock,
};

use super::spelling::{self, READER, Spelled, WRITTEN, holds_of, lock_of, owner};

const LAST: u64 = 1_700_000_000_000_123;

/// Three readers; the owner of the second is 48 bytes long.
const READERS: &str = "\
    01 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 fb80f9c0c1c48203 03 \
    01 00 00 ffffffff07 ffffffffffffff0f 00 c0843d 00 \
    30 616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161 \
       00 02 ac02 80b89929 7f 01 \
    06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05 00";
/// One owner that holds both modes.
const WRITER: &str = "\
    01 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 fb80f9c0c1c48203 01 \
    02 77ff 02 03 fa80f9c0c1c48203 01 00 00";
const PUT: &str = "\
    01 fb80f9c0c1c48203 50 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 \
    06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05 00";
/// The hold is revoked.
const SOLE: &str = "\
    01 fb80f9c0c1c48203 53 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 \
    06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05 01";
const DROP: &str = "01 fb80f9c0c1c48203 44 06 726561646572";
const FREE: &str = "01 fb80f9c0c1c48203 46";
const CLOCK: &str = "01 fb80f9c0c1c48203 43";
const CLOCK_BEFORE_ANY_TOKEN: &str = "01 00 43";
const HEARTBEAT: &str = "\
    01 fb80f9c0c1c48203 48 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 ac02 80b89929";

fn readers() -> [Spelled<'static>; 3] {
    [
        Spelled {
            owner: &[0],
            read: (1 << 31) - 1,
            token: (1 << 53) - 1,
            remaining: 0,
            held: 1_000_000,
            ..READER
        },
        Spelled {
            owner: &[b'a'; 48],
            read: 2,
            token: 300,
            remaining: 86_400_000,
            held: 127,
            revoked: true,
            ..READER
        },
        READER,
    ]
}

const WRITES_AND_READS: Spelled<'_> = Spelled {
    owner: b"w\xff",
    write: 2,
    read: 3,
    token: LAST - 1,
    remaining: 1,
    held: 0,
    revoked: false,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("two hexadecimal digits")
        })
        .collect()
}

#[track_caller]
fn assert_golden_lock(text: &str, holds: &[Spelled<'_>]) {
    let bytes = hex(text);
    assert_eq!(bytes, spelling::lock(LAST, holds));
    let holds: Vec<_> = holds
        .iter()
        .map(|hold| (hold.owner.to_vec(), hold.stake()))
        .collect();
    let mut written = Vec::new();
    encode_lock(&lock_of(&holds), LAST, &WRITTEN, &mut written);
    assert_eq!(written, bytes);
    let (lock, last) = decode_lock(&bytes, Arrival::Live, &WRITTEN).expect("the bytes of a lock");
    assert_eq!((holds_of(&lock), last), (holds, LAST));
}

#[test]
fn locks_keep_their_bytes() {
    assert_golden_lock(READERS, &readers());
    assert_golden_lock(WRITER, &[WRITES_AND_READS]);
}

#[track_caller]
fn assert_golden_effect(text: &str, last: u64, effect: &Effect<'_>, fact: Effect<'_>) {
    let bytes = hex(text);
    let mut written = Vec::new();
    encode_effect(effect, last, &WRITTEN, &mut written);
    assert_eq!(written, bytes, "{effect:?}");
    let read = decode_effect(&bytes, Arrival::Live, &WRITTEN);
    assert_eq!(read, Ok((fact, last)));
}

#[test]
fn effects_keep_their_bytes() {
    let reader = owner(READER.owner);
    let stake = READER.stake();
    let revoked = Stake {
        revoked: true,
        ..stake
    };
    let heartbeat = Heartbeat {
        suspect_ms: 300,
        acknowledged_ms: Some(86_399_999),
    };
    for (text, last, effect, fact) in [
        (
            PUT,
            LAST,
            Effect::Put(reader, stake),
            Effect::Put(reader, stake),
        ),
        (
            SOLE,
            LAST,
            Effect::Sole(reader, revoked),
            Effect::Sole(reader, revoked),
        ),
        (
            HEARTBEAT,
            LAST,
            Effect::Heartbeat(heartbeat),
            Effect::Heartbeat(heartbeat),
        ),
        (DROP, LAST, Effect::Drop(reader), Effect::Drop(reader)),
        (FREE, LAST, Effect::Free, Effect::Free),
        (CLOCK, LAST, Effect::Clock, Effect::Clock),
        (CLOCK_BEFORE_ANY_TOKEN, 0, Effect::Clock, Effect::Clock),
    ] {
        assert_golden_effect(text, last, &effect, fact);
    }
}

#[test]
fn encoding_appends_to_the_buffer() {
    let mut out = b"before".to_vec();
    encode_effect(&Effect::Free, LAST, &WRITTEN, &mut out);
    assert_eq!(out, [&b"before"[..], &hex(FREE)].concat());
    out.truncate(6);
    let holds = [(READER.owner.to_vec(), READER.stake())];
    encode_lock(&lock_of(&holds), LAST, &WRITTEN, &mut out);
    assert_eq!(
        out,
        [&b"before"[..], &spelling::lock(LAST, &[READER])].concat()
    );
}
