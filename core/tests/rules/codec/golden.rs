//! The bytes of versions 1 to 3, as files and replicas have them. **They are kept for ever**: a change
//! that breaks one of these tests needs an additional version, not new constants.

use mortise_core::codec::{
    Arrival, Effect, Fact, decode_effect, decode_lock, encode_effect, encode_lock,
};

use super::spelling::{self, READER, Spelled, WRITTEN, as_version_1, holds_of, lock_of, owner};

const LAST: u64 = 1_700_000_000_000_123;

/// The bytes of one version.
struct Golden {
    version: u8,
    /// Three readers; the owner of the second is 48 bytes long.
    readers: &'static str,
    /// One owner that holds both modes.
    writer: &'static str,
    put: &'static str,
    sole: &'static str,
    drop: &'static str,
    free: &'static str,
    clock: &'static str,
    clock_before_any_token: &'static str,
}

const VERSION_1: Golden = Golden {
    version: 1,
    readers: "\
        01 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 fb80f9c0c1c48203 03 \
        01 00 00 ffffffff07 ffffffffffffff0f 00 c0843d \
        30 616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161 \
           00 02 ac02 80b89929 7f \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05",
    writer: "\
        01 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 fb80f9c0c1c48203 01 \
        02 77ff 02 03 fa80f9c0c1c48203 01 00",
    put: "\
        01 fb80f9c0c1c48203 50 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05",
    sole: "\
        01 fb80f9c0c1c48203 53 000102030405060708090a0b0c0d0e0f c0843d 80d095ffbc31 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05",
    drop: "01 fb80f9c0c1c48203 44 06 726561646572",
    free: "01 fb80f9c0c1c48203 46",
    clock: "01 fb80f9c0c1c48203 43",
    clock_before_any_token: "01 00 43",
};

const VERSION_2: Golden = Golden {
    version: 2,
    readers: "\
        02 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 fb80f9c0c1c48203 03 \
        01 00 00 ffffffff07 ffffffffffffff0f 00 c0843d \
        30 616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161 \
           00 02 ac02 80b89929 7f \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05",
    writer: "\
        02 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 fb80f9c0c1c48203 01 \
        02 77ff 02 03 fa80f9c0c1c48203 01 00",
    put: "\
        02 fb80f9c0c1c48203 50 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05",
    sole: "\
        02 fb80f9c0c1c48203 53 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05",
    drop: "02 fb80f9c0c1c48203 44 06 726561646572",
    free: "02 fb80f9c0c1c48203 46",
    clock: "02 fb80f9c0c1c48203 43",
    clock_before_any_token: "02 00 43",
};

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

/// Turns `bytes` of version 2 into those of `golden`'s version.
fn of_version(golden: &Golden, bytes: &[u8]) -> Vec<u8> {
    match golden.version {
        1 => as_version_1(bytes),
        _ => bytes.to_vec(),
    }
}

fn assert_golden_lock(golden: &Golden, text: &str, holds: &[Spelled<'_>]) {
    let spelled = spelling::lock(LAST, holds);
    let bytes = hex(text);
    assert_eq!(bytes, of_version(golden, &spelled));
    let holds: Vec<_> = holds
        .iter()
        .map(|hold| (hold.owner.to_vec(), hold.stake()))
        .collect();
    let mut written = Vec::new();
    encode_lock(&lock_of(&holds), LAST, &WRITTEN, &mut written);
    assert_eq!(written, spelled, "version 2 is written");
    let (lock, last) = decode_lock(&bytes, Arrival::Live, &WRITTEN).expect("a known version");
    assert_eq!((holds_of(&lock), last), (holds, LAST));
}

#[test]
fn locks_of_every_version_keep_their_bytes() {
    for golden in [VERSION_1, VERSION_2] {
        assert_golden_lock(&golden, golden.readers, &readers());
        assert_golden_lock(&golden, golden.writer, &[WRITES_AND_READS]);
    }
}

/// For each: bytes, the last token, the effect, and the kind and rest of its spelling.
type Sample<'a> = (&'a str, u64, &'a (Effect<'a>, Fact<'a>), u8, &'a [u8]);

#[test]
fn effects_of_every_version_keep_their_bytes() {
    let reader = owner(READER.owner);
    let stake = READER.stake();
    let hold = [spelling::stamp(), READER.bytes()].concat();
    let name = [&[6], READER.owner].concat();
    let put = (Effect::Put(reader, stake), Fact::Put(reader, stake));
    let sole = (Effect::Sole(reader, stake), Fact::Sole(reader, stake));
    let drop = (Effect::Drop(reader), Fact::Drop(reader));
    let (free, clock) = ((Effect::Free, Fact::Free), (Effect::Clock, Fact::Clock));
    for golden in [VERSION_1, VERSION_2] {
        let samples: [Sample<'_>; 6] = [
            (golden.put, LAST, &put, b'P', &hold),
            (golden.sole, LAST, &sole, b'S', &hold),
            (golden.drop, LAST, &drop, b'D', &name),
            (golden.free, LAST, &free, b'F', &[]),
            (golden.clock, LAST, &clock, b'C', &[]),
            (golden.clock_before_any_token, 0, &clock, b'C', &[]),
        ];
        for (text, last, (effect, fact), kind, rest) in samples {
            let spelled = spelling::effect(last, kind, &[rest]);
            let bytes = hex(text);
            assert_eq!(bytes, of_version(&golden, &spelled));
            let mut written = Vec::new();
            encode_effect(effect, last, &WRITTEN, &mut written);
            assert_eq!(written, spelled, "version 2 is written");
            let read = decode_effect(&bytes, Arrival::Live, &WRITTEN);
            assert_eq!(read, Ok((fact.clone(), last)));
        }
    }
}

/// A revoked hold takes version 3, which has one more byte after each hold than version 2.
#[test]
fn locks_and_effects_with_a_revoked_hold_keep_their_bytes() {
    const LOCK: &str = "\
        03 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 fb80f9c0c1c48203 02 \
        05 6f74686572 00 01 8180f9c0c1c48203 b0ea01 05 00 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05 01";
    const PUT: &str = "\
        03 fb80f9c0c1c48203 50 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05 01";
    const SOLE: &str = "\
        03 fb80f9c0c1c48203 53 000102030405060708090a0b0c0d0e0f 0a0b0c0d0e0f1011 c0843d 80d095ffbc31 \
        06 726561646572 00 01 8180f9c0c1c48203 b0ea01 05 01";
    let other = Spelled {
        owner: b"other",
        ..READER
    };
    let revoked = Spelled {
        revoked: true,
        ..READER
    };
    let spelled = [other, revoked];
    assert_eq!(hex(LOCK), spelling::marked_lock(LAST, &spelled));
    let holds = spelled.map(|hold| (hold.owner.to_vec(), hold.stake()));
    let mut written = Vec::new();
    encode_lock(&lock_of(&holds), LAST, &WRITTEN, &mut written);
    assert_eq!(written, hex(LOCK));
    let (lock, last) = decode_lock(&hex(LOCK), Arrival::Live, &WRITTEN).expect("version 3");
    assert_eq!((holds_of(&lock), last), (holds.to_vec(), LAST));

    let (reader, stake) = (owner(revoked.owner), revoked.stake());
    let hold = [spelling::stamp(), revoked.marked_bytes()].concat();
    for (text, kind, effect, fact) in [
        (
            PUT,
            b'P',
            Effect::Put(reader, stake),
            Fact::Put(reader, stake),
        ),
        (
            SOLE,
            b'S',
            Effect::Sole(reader, stake),
            Fact::Sole(reader, stake),
        ),
    ] {
        assert_eq!(hex(text), spelling::marked_effect(LAST, kind, &[&hold]));
        let mut written = Vec::new();
        encode_effect(&effect, LAST, &WRITTEN, &mut written);
        assert_eq!(written, hex(text));
        let read = decode_effect(&written, Arrival::Live, &WRITTEN);
        assert_eq!(read, Ok((fact, LAST)));
    }
}

#[test]
fn encoding_appends_to_the_buffer() {
    let mut out = b"before".to_vec();
    encode_effect(&Effect::Free, LAST, &WRITTEN, &mut out);
    assert_eq!(out, [&b"before"[..], &hex(VERSION_2.free)].concat());
    out.truncate(6);
    let holds = [(READER.owner.to_vec(), READER.stake())];
    encode_lock(&lock_of(&holds), LAST, &WRITTEN, &mut out);
    assert_eq!(
        out,
        [&b"before"[..], &spelling::lock(LAST, &[READER])].concat()
    );
}
