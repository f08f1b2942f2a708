//! Randomly damaged RDB files, five thousand with `MORTISE_LONG=1`: the server logs that it cannot read one and ends, or has valid
//! locks. (With a checksum the server itself refuses each.)

use std::env;
use std::fs;
use std::path::PathBuf;

use mortise_harness::{
    Conn, Dice, Server, Snapshot, boot_id, cmd, eventually, int, is_nil, lock_info, wall_micros,
};

/// How many damaged files the test tries.
fn rounds() -> u64 {
    if env::var_os("MORTISE_LONG").is_some() {
        5_000
    } else {
        120
    }
}

/// A stopped server, and its file.
///
/// The file is the base of an append-only file. A server that cannot read its `dump.rdb` checks the file again before it
/// ends, and Redis 7.0 loops for ever in that check if the file ends within a module's value.
struct Scene {
    server: Server,
    locks: Snapshot,
    file: PathBuf,
    good: Vec<u8>,
}

impl Scene {
    fn set_up() -> Scene {
        let mut server = Server::builder()
            .config("rdbchecksum", "no")
            .config("rdbcompression", "no")
            .config("appendonly", "yes")
            .config("aof-load-truncated", "no")
            .start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "released", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "released", "a");
        // It is the only key, so that its bytes are the last ones in the file.
        for (owner, count) in [("a", 1), ("bb", 300), ("an owner of some length", i32::MAX)] {
            cmd!(conn, "LOCK.RLOCK", "key", owner, 600_000, "HOLDS", count);
        }
        cmd!(conn, "BGREWRITEAOF");
        eventually("the rewrite is done", || {
            let state = server.info("persistence");
            state["aof_rewrite_in_progress"] == "0" && state["aof_rewrite_scheduled"] == "0"
        });
        let locks = Snapshot::take(&server);
        server.sigkill();
        let file = server.dir().join("appendonlydir/appendonly.aof.2.base.rdb");
        let good = fs::read(&file).expect("the base of the second file");
        Scene {
            server,
            locks,
            file,
            good,
        }
    }

    /// Whether the server starts with `bytes` as its file. If not, checks that its log names the reason.
    #[track_caller]
    fn starts_with(&mut self, bytes: &[u8]) -> bool {
        fs::write(&self.file, bytes).unwrap();
        // Left by the attempt before.
        let tail = self
            .server
            .dir()
            .join("appendonlydir/appendonly.aof.2.incr.aof");
        fs::write(tail, "").unwrap();
        match self.server.try_start_again() {
            Ok(()) => true,
            Err(error) => {
                // A crash would have ended it by a signal.
                assert!(error.reason.contains("exit status: 1"), "{error}");
                false
            }
        }
    }

    /// Checks that the undamaged file still loads.
    fn ends(mut self) {
        let good = self.good.clone();
        assert!(self.starts_with(&good));
        Snapshot::take(&self.server).assert_continues(&self.locks);
    }
}

#[test]
fn a_file_without_a_checksum_is_refused_or_its_lock_is_valid() {
    let mut scene = Scene::set_up();
    // From the version before the boot id to the end of the value. The end of the file without a checksum follows.
    let boot_id = boot_id();
    let found = scene.good.windows(16).rposition(|bytes| bytes == boot_id);
    let region = found.expect("a boot id") - 1..scene.good.len() - 10;
    let mut dice = Dice::new(3);
    let (mut started, mut refused) = (0, 0);
    for round in 0..rounds() {
        let mut bad = scene.good.clone();
        for _ in 0..=round % 2 {
            let at = region.start + dice.roll(region.len() as u64) as usize;
            match dice.roll(3) {
                0 => bad[at] = dice.roll(256) as u8,
                _ => bad[at] ^= 1 << dice.roll(8),
            }
        }
        if scene.starts_with(&bad) {
            started += 1;
            assert_sound(&mut scene.server.connect(), &bad);
            scene.server.sigkill();
        } else {
            refused += 1;
        }
    }
    println!("{started} started, {refused} refused");
    assert!(
        started > 5 && refused > 5,
        "{started} started, {refused} refused"
    );
    assert!(
        scene.server.log().contains("refused: a lock"),
        "the log says why"
    );
    scene.ends();
}

/// Fails unless the only lock, if there is one, is valid and can be released.
#[track_caller]
fn assert_sound(conn: &mut Conn, file: &[u8]) {
    let file = file.escape_ascii();
    if let Some(lock) = lock_info(conn, "key") {
        let writers = lock.holds.iter().filter(|hold| hold.write > 0).count();
        assert!(writers == 0 || lock.holds.len() == 1, "{lock:?} of {file}");
        assert!(!is_nil(&cmd!(conn, "DUMP", "key")));
        for hold in &lock.holds {
            assert!(hold.write + hold.read > 0, "{lock:?} of {file}");
            assert!((1..1 << 53).contains(&hold.token), "{lock:?} of {file}");
            assert!((1..=255).contains(&hold.owner.len()), "{lock:?} of {file}");
            cmd!(conn, "LOCK.RELEASE", "key", &hold.owner, "ALL");
        }
    }
    cmd!(conn, "DEL", "key");
    assert_eq!(
        int(&cmd!(conn, "DBSIZE")),
        0,
        "{:?} {file}",
        cmd!(conn, "KEYS", "*")
    );
    // The server trusts its own file: the token clock may be anything up to the last number but one.
    if let Ok(token) = conn.try_cmd(&["LOCK.ACQUIRE", "new", "a", "1000"]) {
        assert!(
            int(&token) > wall_micros() - 1_000_000,
            "{token:?} of {file}"
        );
    }
}
