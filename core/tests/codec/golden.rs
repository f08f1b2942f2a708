//! The bytes of version 1, as files and replicas have them. **They are kept for ever**: a change
//! that breaks one of these tests needs a new version beside the old one, not new constants.

use mortise_core::codec::{
    Arrival, Effect, Fact, decode_effect, decode_lock, encode_effect, encode_lock,
};

use super::spelling::{self, READER, Spelled, WRITTEN, holds_of, lock_of, owner};

const LAST: u64 = 1_700_000_000_000_123;

/// Three readers; the owner of the second is 48 bytes long.
const READERS: &str = "\
    01 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 fb80f9c0c1c48203 03 \
    01 00 00 ffffffff07 ffffffffffffff0f 00 c0843d \
    30 616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161 \
       00 02 ac02 80b89929 7f \
    06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05";

/// One owner that holds both modes.
const WRITER: &str = "\
    01 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 fb80f9c0c1c48203 01 \
    02 77ff 02 03 fa80f9c0c1c48203 01 00";

const PUT: &str = "\
    01 fb80f9c0c1c48203 50 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 \
    06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05";
const SOLE: &str = "\
    01 fb80f9c0c1c48203 53 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 \
    06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05";
const DROP: &str = "01 fb80f9c0c1c48203 44 06 726561646572";
const FREE: &str = "01 fb80f9c0c1c48203 46";
const CLOCK: &str = "01 fb80f9c0c1c48203 43";
const CLOCK_BEFORE_ANY_TOKEN: &str = "01 00 43";

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

fn assert_golden_lock(text: &str, holds: &[Spelled<'_>]) {
    let golden = hex(text);
    assert_eq!(golden, spelling::lock(LAST, holds));
    let holds: Vec<_> = holds
        .iter()
        .map(|hold| (hold.owner.to_vec(), hold.stake()))
        .collect();
    let mut written = Vec::new();
    encode_lock(&lock_of(&holds), LAST, &WRITTEN, &mut written);
    assert_eq!(written, golden);
    let (lock, last) = decode_lock(&golden, Arrival::Live, &WRITTEN).expect("version 1");
    assert_eq!((holds_of(&lock), last), (holds, LAST));
}

#[test]
fn locks_of_version_1_keep_their_bytes() {
    assert_golden_lock(READERS, &readers());
    assert_golden_lock(WRITER, &[WRITES_AND_READS]);
}

#[test]
fn effects_of_version_1_keep_their_bytes() {
    let reader = owner(READER.owner);
    let stake = READER.stake();
    let hold = [spelling::stamp(), READER.bytes()].concat();
    let name = [&[6], READER.owner].concat();
    let samples = [
        (
            PUT,
            LAST,
            Effect::Put(reader, stake),
            Fact::Put(reader, stake),
            spelling::effect(LAST, b'P', &[&hold]),
        ),
        (
            SOLE,
            LAST,
            Effect::Sole(reader, stake),
            Fact::Sole(reader, stake),
            spelling::effect(LAST, b'S', &[&hold]),
        ),
        (
            DROP,
            LAST,
            Effect::Drop(reader),
            Fact::Drop(reader),
            spelling::effect(LAST, b'D', &[&name]),
        ),
        (
            FREE,
            LAST,
            Effect::Free,
            Fact::Free,
            spelling::effect(LAST, b'F', &[]),
        ),
        (
            CLOCK,
            LAST,
            Effect::Clock,
            Fact::Clock,
            spelling::effect(LAST, b'C', &[]),
        ),
        (
            CLOCK_BEFORE_ANY_TOKEN,
            0,
            Effect::Clock,
            Fact::Clock,
            spelling::effect(0, b'C', &[]),
        ),
    ];
    for (text, last, effect, fact, spelled) in samples {
        let golden = hex(text);
        assert_eq!(golden, spelled);
        let mut written = Vec::new();
        encode_effect(&effect, last, &WRITTEN, &mut written);
        assert_eq!(written, golden);
        assert_eq!(
            decode_effect(&golden, Arrival::Live, &WRITTEN),
            Ok((fact, last))
        );
    }
}

#[test]
fn bytes_are_appended_to_what_is_there() {
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
