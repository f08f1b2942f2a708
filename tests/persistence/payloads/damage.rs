//! Four thousand randomly cut, flipped and spliced payloads, a hundred thousand with `MORTISE_LONG=1`: RESTORE refuses each
//! completely, or makes a valid lock.
//!
//! The test corrects the checksum each time, so that the damage reaches the module.

use std::env;

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Dice, Envelope, LockInfo, bytes, cmd, int, lock_info, text, wall_micros,
};

use super::{HOUR, Scene};

/// How many payloads the test tries for each kind of damage.
fn rounds() -> u64 {
    if env::var_os("MORTISE_LONG").is_some() {
        200_000
    } else {
        4_000
    }
}

#[test]
fn thousands_of_damaged_payloads_are_refused_or_valid() {
    let mut scene = Scene::set_up();
    let dumps = dumps(&mut scene);
    let bodies: Vec<_> = dumps.iter().map(|dump| Envelope::open(dump)).collect();
    let inners: Vec<_> = dumps
        .iter()
        .map(|dump| Envelope::inner(dump).to_vec())
        .collect();
    let mut dice = Dice::new(1);
    let mut restored = 0;
    for round in 0..rounds() {
        let dump = match round % 2 {
            0 => scene.envelope.around(&damaged(&bodies, &mut dice)),
            _ => scene.envelope.around_all(&damaged(&inners, &mut dice)),
        };
        restored += u64::from(scene.is_refused_or_sound(&dump));
        // Sometimes checks everything.
        if round % 50 == 0 {
            assert_eq!(scene.digest_now(), scene.digest, "{}", dump.escape_ascii());
        }
    }
    assert_eq!(scene.digest_now(), scene.digest);
    println!("{restored} of {} were sound", rounds());
    let some = rounds() / 100..rounds() / 2;
    assert!(some.contains(&restored), "{restored}");
    assert_nothing_is_left(&mut scene);
}

impl Scene {
    fn digest_now(&mut self) -> String {
        text(&cmd!(self.conn, "DEBUG", "DIGEST"))
    }

    /// Fails unless RESTORE refuses the dump and makes no key, or makes a valid lock. True in the second case; the lock is
    /// deleted.
    #[track_caller]
    fn is_refused_or_sound(&mut self, dump: &[u8]) -> bool {
        let what = || dump.escape_ascii().to_string();
        match self.conn.try_cmd(&[&b"RESTORE"[..], b"new", b"0", dump]) {
            Ok(_) => {
                assert_sound(&mut self.conn);
                true
            }
            Err(error) => {
                assert!(error.starts_with("ERR "), "{error}: {}", what());
                assert_eq!(int(&cmd!(self.conn, "EXISTS", "new")), 0, "{}", what());
                false
            }
        }
    }
}

/// Fails unless `new` is a valid lock, and so is a restored dump of it; deletes it.
#[track_caller]
fn assert_sound(conn: &mut Conn) {
    let Some(lock) = lock_info(conn, "new") else {
        // Its leases had ended.
        cmd!(conn, "DEL", "new");
        return;
    };
    assert_possible(&lock);
    let again = cmd!(conn, "DUMP", "new");
    if let Value::BulkString(again) = again {
        cmd!(conn, "RESTORE", "again", 0, again, "REPLACE");
        // Damage may have left a lease of a few milliseconds, which ends meanwhile.
        let facts = lock_info(conn, "again").map_or(Vec::new(), |lock| lock.facts());
        let known = facts.iter().all(|hold| lock.facts().contains(hold));
        assert!(known, "{facts:?} of {lock:?}");
        cmd!(conn, "DEL", "again");
    }
    for hold in &lock.holds {
        let released = cmd!(conn, "LOCK.RELEASE", "new", &hold.owner, "ALL");
        // Null if its lease has ended meanwhile.
        assert!(released == Value::Int(0) || hold.lease < 20_000, "{lock:?}");
    }
    // A hold whose lease had ended may stay until a command finds it.
    cmd!(conn, "DEL", "new");
}

#[track_caller]
fn assert_possible(lock: &LockInfo) {
    let writers = lock.holds.iter().filter(|hold| hold.write > 0).count();
    assert!(writers == 0 || lock.holds.len() == 1, "{lock:?}");
    assert_eq!(lock.holders as usize, lock.holds.len());
    let bound = wall_micros() + HOUR;
    for hold in &lock.holds {
        assert!(hold.write + hold.read > 0, "{lock:?}");
        assert!((1..=bound).contains(&hold.token), "{lock:?}");
        assert!((1..=255).contains(&hold.owner.len()), "{lock:?}");
        assert!(hold.lease > 0, "{lock:?}");
    }
    let mut owners: Vec<_> = lock.holds.iter().map(|hold| &hold.owner).collect();
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), lock.holds.len(), "an owner twice: {lock:?}");
}

/// Fails unless the scene's own lock is the only one, and the server still grants locks.
#[track_caller]
fn assert_nothing_is_left(scene: &mut Scene) {
    assert_eq!(int(&cmd!(scene.conn, "DBSIZE")), 1);
    let left = ["locks", "holders"].map(|name| scene.server.gauge(name));
    assert_eq!(left, [1, 2]);
    let token = int(&cmd!(scene.conn, "LOCK.ACQUIRE", "new", "a", 60_000));
    assert!(token <= wall_micros() + HOUR + 1, "{token}");
    assert_eq!(int(&cmd!(scene.conn, "LOCK.RELEASE", "new", "a")), 0);
}

/// The server's dumps of locks of all kinds.
fn dumps(scene: &mut Scene) -> Vec<Vec<u8>> {
    let conn = &mut scene.conn;
    cmd!(conn, "LOCK.ACQUIRE", "write", "a", 60_000);
    let most = i32::MAX;
    cmd!(
        conn,
        "LOCK.ACQUIRE both an_owner_of_some_length 60000 HOLDS 70000"
    );
    cmd!(
        conn,
        "LOCK.RLOCK both an_owner_of_some_length 60000 HOLDS {most}"
    );
    cmd!(conn, "LOCK.ACQUIRE", "long", vec![0xff_u8; 255], 60_000);
    for n in 0..40 {
        let (holds, lease) = (n + 1, 60_000 + n);
        if n < 3 {
            cmd!(conn, "LOCK.RLOCK few r{n} {lease}");
        }
        cmd!(conn, "LOCK.RLOCK many r{n} 60000 HOLDS {holds}");
    }
    for (key, owner) in [("write", "a"), ("few", "r1")] {
        cmd!(conn, "LOCK.REVOKE", key, owner);
    }
    ["write", "both", "long", "few", "many"]
        .map(|key| {
            let dump = bytes(&cmd!(conn, "DUMP", key));
            cmd!(conn, "DEL", key);
            dump
        })
        .to_vec()
}

/// One of `good`, damaged in one to three places.
fn damaged(good: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = dice.pick(good).clone();
    for _ in 0..=dice.roll(3) {
        let len = bytes.len() as u64;
        if len == 0 {
            return bytes;
        }
        let at = dice.roll(len) as usize;
        let end = at + dice.roll((len - at as u64).min(12)) as usize;
        match dice.roll(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes[at] = dice.roll(256) as u8,
            3 => bytes[at] = *dice.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            4 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            5 => {
                let other = dice.pick(good);
                bytes.truncate(at);
                bytes.extend(&other[at.min(other.len())..]);
            }
            _ => bytes[at] ^= 1 << dice.roll(8),
        }
    }
    bytes
}
