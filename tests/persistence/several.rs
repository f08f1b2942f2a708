//! A grant of several keys is in the append-only file completely, or not at all.

use std::fs;
use std::path::PathBuf;

use mortise_harness::{Bundles, Server, cmd, command, eventually, hold_of, int};

const KEYS: [&str; 3] = ["{k}a", "{k}b", "{k}c"];

fn appending() -> Server {
    Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-load-truncated", "yes")
        .start()
}

/// The file to which the server appends.
fn file(server: &Server) -> PathBuf {
    let names = fs::read_dir(server.dir().join("appendonlydir")).expect("a folder");
    let mut names = names.map(|name| name.expect("a name").path());
    names
        .find(|name| name.to_string_lossy().ends_with(".incr.aof"))
        .expect("a file that grows")
}

/// The keys that `owner` holds, and the tokens.
fn held(server: &Server, owner: &str) -> Vec<i64> {
    let mut conn = server.connect();
    let holds = KEYS.iter().filter_map(|key| hold_of(&mut conn, key, owner));
    holds.map(|hold| hold.token).collect()
}

/// Cuts the file every few bytes after the first `from`, and restarts the server. Checks that `owner` holds none of the
/// keys or all.
#[track_caller]
fn none_or_all(server: &mut Server, from: usize, owner: &str, token: i64) {
    server.sigkill();
    let file = file(server);
    let whole = fs::read(&file).unwrap();
    assert!(whole.len() > from, "nothing was written");
    let mut cuts: Vec<usize> = (from..whole.len()).step_by(11).collect();
    cuts.extend([whole.len() - 2, whole.len() - 1, whole.len()]);
    let mut all = 0;
    for cut in cuts {
        fs::write(&file, &whole[..cut]).unwrap();
        server.start_again();
        let held = held(server, owner);
        match held.len() {
            0 => assert!(cut < whole.len(), "the grant is lost"),
            _ => {
                assert_eq!(held, [token; 3], "of {} bytes {cut}", whole.len());
                all += 1;
            }
        }
        server.sigkill();
    }
    assert!(all > 0);
}

#[test]
fn an_immediate_grant_that_is_cut_anywhere_is_lost_completely() {
    let mut server = appending();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "{k}other", "x", 600_000);
    let from = fs::metadata(file(&server)).unwrap().len();
    let token = int(&cmd!(conn, "LOCK.MACQUIRE", "m", 600_000, 3, &KEYS));
    none_or_all(&mut server, from as usize, "m", token);
}

#[test]
fn a_grant_from_the_queues_that_is_cut_anywhere_is_lost_completely() {
    let mut server = appending();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", KEYS[1], "h", 600_000);
    let ask = command!("LOCK.MACQUIRE", "m", 600_000, 3, &KEYS, "WAIT", 0);
    let mut waiter = server.waiter(&ask);
    let from = fs::metadata(file(&server)).unwrap().len();
    cmd!(conn, "LOCK.RELEASE", KEYS[1], "h");
    let token = int(&waiter.recv());
    none_or_all(&mut server, from as usize, "m", token);
}

#[test]
fn a_server_killed_while_clients_contend_restores_no_part_of_a_grant() {
    let mut server = appending();
    for _ in 0..3 {
        let bundles = Bundles::start(server.port(), 16);
        eventually("the clients are at work", || bundles.grants() > 100);
        server.sigkill();
        drop(bundles);
        server.start_again();
        let mut conn = server.connect();
        Bundles::assert_whole(&mut conn);
        cmd!(conn, "FLUSHALL");
    }
}
