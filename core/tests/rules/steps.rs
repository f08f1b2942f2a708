//! Collections that clients can fill grow in steps: no call allocates much memory at once, as copying a full table would.
//! The size of an allocation stands for the time that it takes.

use allocation_counter::measure;
use mortise_core::mail::{BoxId, Letter, Outcome};
use mortise_core::{
    Db, Homes, Instant, KeyId, KeyList, KeyRef, Left, Mail, Mode, OwnerRef, WaiterId,
};

/// A table of this many entries of 16 bytes would double to 8 MB.
const CROWD: u64 = 300_000;
/// In bytes.
const MOST: u64 = 1_000_000;
const NOW: Instant = Instant::from_millis(0);

/// Calls `step` for each of the crowd. Returns the most that a call allocated.
fn most_at_once(mut step: impl FnMut(u64)) -> u64 {
    let bytes = |number| measure(|| step(number)).bytes_total;
    (1..=CROWD).map(bytes).max().unwrap_or(0)
}

fn name(number: u64) -> Vec<u8> {
    format!("name {number}").into_bytes()
}

#[test]
fn boxes_requests_and_letters_come_and_go_in_steps() {
    let mut mail = Mail::new();
    let boxes = most_at_once(|number| {
        mail.make(&name(number), b"user", number, NOW);
    });
    let requests = most_at_once(|number| mail.expect(WaiterId(number), BoxId(1), 1));
    let letters = most_at_once(|number| {
        let text = name(number);
        let letter = Letter {
            waiter: WaiterId(number),
            keys: KeyList::One(KeyId {
                db: Db(0),
                name: b"key"[..].into(),
            }),
            owner: OwnerRef::new(&text).expect("1 to 255 bytes").to_owner(),
            mode: Mode::Write,
            outcome: Outcome::Denied,
        };
        mail.post(WaiterId(number), CROWD + number, letter, &Homes::default());
    });
    let closed = most_at_once(|number| mail.close(BoxId(number)));
    let left = most_at_once(|_| {
        mail.next_leaving();
    });
    for (what, most) in [
        ("boxes", boxes),
        ("requests", requests),
        ("letters", letters),
        ("boxes that are closed", closed),
        ("letters that leave", left),
    ] {
        assert!(most < MOST, "{what}: {most} bytes");
    }
}

#[test]
fn owners_leave_in_steps() {
    let mut left = Left::new();
    let key = KeyRef {
        db: Db(0),
        name: b"key",
    };
    let most = most_at_once(|number| {
        let text = name(number);
        let owner = OwnerRef::new(&text).expect("1 to 255 bytes");
        left.leave(key, owner, Instant::from_millis(number));
    });
    assert!(most < MOST, "{most} bytes");
    assert_eq!(left.len(), Left::ROOM);
}
