//! Locks move to another server, of the same version or of another: by MIGRATE, or to a newer server attached as a
//! replica. The other versions are those that `scripts/servers` has fetched.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, Snapshot, assert_same_data, bytes, cmd, command, eventually, granted, hold_of,
    int, is_nil, lock_info, other_servers, text, waiter, wall_micros,
};

/// The newest format of files and payloads that both Redis and Valkey have.
const COMMON: u16 = 11;
const HALF_AN_HOUR: i64 = 1_800_000_000;
/// The locks that `take_locks` takes.
const KEYS: [&str; 4] = ["write", "both", "read", "brief"];

/// Locks of all kinds. `brief` has a lease that ends soon; the token of `both` is half an hour ahead.
fn take_locks(conn: &mut Conn) {
    cmd!(conn, "LOCK.ACQUIRE", "write", "a", 600_000);
    let ahead = wall_micros() + HALF_AN_HOUR;
    cmd!(conn, "LOCK.ACQUIRE both a 600000 HOLDS 7 FENCE {ahead}");
    cmd!(conn, "LOCK.RLOCK", "both", "a", 600_000, "HOLDS", i32::MAX);
    for n in 0..20 {
        let (owner, lease) = (format!("reader:{n}"), 600_000 + 1_000 * n);
        cmd!(conn, "LOCK.RLOCK", "read", owner, lease, "HOLDS", n + 1);
    }
    cmd!(conn, "LOCK.RLOCK", "read", vec![0xff_u8; 255], 600_000);
    cmd!(conn, "LOCK.REVOKE", "both", "a");
    cmd!(conn, "LOCK.REVOKE", "read", "reader:3");
    cmd!(conn, "LOCK.ACQUIRE", "brief", "a", 2_000);
}

/// `MIGRATE` of `keys` to database 0 of `to`.
fn migrate(to: &Server, options: &[&str], keys: &[&str]) -> Cmd {
    let mut command = command!("MIGRATE", "127.0.0.1", to.port(), "", 0, 10_000);
    command.arg(options).arg("KEYS").arg(keys);
    command
}

/// The version of the format in which `server` dumps.
fn format_of(server: &Server) -> u16 {
    let mut conn = server.connect();
    cmd!(conn, "SET", "format", "x");
    let dump = bytes(&cmd!(conn, "DUMP", "format"));
    cmd!(conn, "DEL", "format");
    let version = dump[dump.len() - 10..].first_chunk().expect("ten bytes");
    u16::from_le_bytes(*version)
}

/// Fails unless all of `KEYS` are on `to` as in `before`, with running leases, and the token clock exceeds their tokens.
#[track_caller]
fn assert_moved(to: &Server, before: &Snapshot) {
    // The brief lease ends by itself, so check it first.
    Snapshot::take(to).assert_keeps(before);
    let mut conn = to.connect();
    let token = hold_of(&mut conn, "both", "a").unwrap().token;
    let next = int(&cmd!(conn, "LOCK.ACQUIRE", "new", "a", 60_000));
    assert!(next > token, "{next} is not past {token}");
    cmd!(conn, "LOCK.RELEASE", "new", "a");
    for hold in lock_info(&mut conn, "read").unwrap().holds {
        assert!(hold.lease <= 620_000, "{hold:?}");
        assert_eq!(
            int(&cmd!(conn, "LOCK.RELEASE", "read", &hold.owner, "ALL")),
            0
        );
    }
    eventually("the brief lease ends there", || {
        int(&cmd!(conn, "EXISTS", "brief")) == 0
    });
    assert_eq!(int(&cmd!(conn, "EXISTS", "write", "both", "read")), 2);
}

#[test]
fn a_lock_that_moves_to_another_server_keeps_its_holds_their_leases_and_the_token_clock() {
    let (from, to) = (Server::start(), Server::start());
    let mut conn = from.connect();
    take_locks(&mut conn);
    let before = Snapshot::take(&from);
    assert_eq!(text(&conn.run(&migrate(&to, &[], &KEYS))), "OK");
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
    assert_moved(&to, &before);
    eventually("nothing is remembered of them", || {
        (from.gauge("locks"), from.gauge("holders")) == (0, 0)
    });
    // Its token clock is not lost with the locks.
    let last = before
        .facts()
        .values()
        .flat_map(|(_, holds)| holds)
        .map(|hold| hold.3)
        .max();
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE", "new", "a", 1_000)) > last.unwrap());
}

#[test]
fn migrate_copy_keeps_the_lock_and_both_are_then_independent() {
    let (from, to) = (Server::start(), Server::start());
    let mut conn = from.connect();
    take_locks(&mut conn);
    let before = Snapshot::take(&from);
    conn.run(&migrate(&to, &["COPY"], &KEYS));
    Snapshot::take(&from).assert_keeps(&before);
    assert_moved(&to, &before);
    assert_eq!(lock_info(&mut conn, "read").unwrap().holders, 21);
}

#[test]
fn a_lock_replaces_one_on_the_other_server_only_with_replace() {
    let (from, to) = (Server::start(), Server::start());
    let (mut conn, mut there) = (from.connect(), to.connect());
    cmd!(conn, "LOCK.RLOCK", "key", "a", 600_000, "HOLDS", 3);
    cmd!(there, "LOCK.ACQUIRE", "key", "b", 500);
    let facts = lock_info(&mut conn, "key").unwrap().facts();
    let error = conn.try_run(&migrate(&to, &[], &["key"])).unwrap_err();
    assert!(error.contains("BUSYKEY"), "{error}");
    assert_eq!(lock_info(&mut conn, "key").unwrap().facts(), facts);

    cmd!(there, "LOCK.RENEW", "key", "b", 500);
    let mut c = waiter!(to, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 0);
    conn.run(&migrate(&to, &["REPLACE"], &["key"]));
    assert_eq!(lock_info(&mut there, "key").unwrap().facts(), facts);
    // The lease of the replaced hold ends, and grants nobody.
    cmd!(there, "LOCK.ACQUIRE", "witness", "w", 600);
    eventually("its time is over", || {
        int(&cmd!(there, "EXISTS", "witness")) == 0
    });
    assert_eq!(lock_info(&mut there, "key").unwrap().facts(), facts);
    assert_eq!(int(&cmd!(there, "LOCK.RELEASE", "key", "a", "ALL")), 0);
    granted(&mut c);
}

#[test]
fn a_lock_that_has_moved_away_lets_the_next_waiter_in_at_its_old_place() {
    let (from, to) = (Server::start(), Server::start());
    let mut conn = from.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000));
    let mut b = waiter!(from, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    conn.run(&migrate(&to, &[], &["key"]));
    assert!(granted(&mut b) > token);
    assert!(hold_of(&mut to.connect(), "key", "a").is_some());
}

#[test]
fn a_lock_stays_when_the_other_server_cannot_take_it() {
    let from = Server::start();
    let mut conn = from.connect();
    take_locks(&mut conn);
    let before = Snapshot::take(&from);
    let mut to = Server::builder().without_module().start();
    let error = conn.try_run(&migrate(&to, &[], &KEYS)).unwrap_err();
    assert!(error.contains("Bad data format"), "{error}");
    Snapshot::take(&from).assert_keeps(&before);
    to.sigkill();
    let error = conn.try_run(&migrate(&to, &[], &KEYS)).unwrap_err();
    assert!(error.starts_with("IOERR "), "{error}");
    Snapshot::take(&from).assert_keeps(&before);
}

#[test]
fn a_lock_moves_to_and_from_every_other_version_or_stays_where_it_is() {
    let mut moved = 0;
    for (name, program) in other_servers() {
        let (one, other) = (Server::start(), Server::builder().program(program).start());
        for (from, to) in [(&one, &other), (&other, &one)] {
            let (have, take) = (format_of(from), format_of(to));
            println!("{} to {} ({name})", from.version(), to.version());
            let mut conn = from.connect();
            take_locks(&mut conn);
            let before = Snapshot::take(from);
            match conn.try_run(&migrate(to, &[], &KEYS)) {
                Ok(_) => {
                    moved += 1;
                    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
                    assert_moved(to, &before);
                }
                Err(error) => {
                    assert!(have > take.min(COMMON), "{error}");
                    assert!(
                        error.contains("Target instance replied with error"),
                        "{error}"
                    );
                    Snapshot::take(from).assert_keeps(&before);
                    assert_eq!(int(&cmd!(to.connect(), "DBSIZE")), 0);
                }
            }
            cmd!(conn, "FLUSHALL");
            cmd!(to.connect(), "FLUSHALL");
        }
    }
    println!("{moved} times");
}

#[test]
fn a_newer_server_attached_as_a_replica_has_every_hold_and_can_take_over() {
    for (name, program) in other_servers() {
        let mut primary = Server::start();
        let mut conn = primary.connect();
        take_locks(&mut conn);
        let replica = Server::builder().program(program).start();
        if format_of(&primary) > format_of(&replica).min(COMMON) {
            continue;
        }
        println!("{name} behind {}", primary.version());
        cmd!(replica.connect(), "REPLICAOF", "127.0.0.1", primary.port());
        cmd!(conn, "LOCK.ACQUIRE", "attached", "a", 600_000);
        cmd!(conn, "LOCK.RLOCK", "read", "late", 600_000);
        assert_same_data(&primary, &replica);
        let before = Snapshot::take(&primary);
        Snapshot::take(&replica).assert_keeps(&before);
        primary.sigkill();
        cmd!(replica.connect(), "REPLICAOF", "NO", "ONE");
        Snapshot::take(&replica).assert_keeps(&before);
        let refused = cmd!(replica.connect(), "LOCK.ACQUIRE", "attached", "b", 1_000);
        assert!(is_nil(&refused));
    }
}
