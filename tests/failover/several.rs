//! A primary that is killed while a request for several keys is granted: the promoted replica has the whole grant or nothing of it.
//!
//! ```text
//!  primary   ──h holds──h leaves, m is granted 8 keys──✝
//!  stream    … SET │ MULTI, LOCK.APPLY × 8 …, EXEC │ SET …     arrives byte by byte
//!  replica   ─────────0 or 8 keys of m─────────promoted──m and n ask again──▶ served
//! ```

use std::collections::BTreeSet;

use mortise_harness::{
    Conn, Link, LockInfo, Server, array, cmd, command, eventually, granted, is_nil, mail, queued,
    replicated_over_link, wait_for_sync_over, waiter,
};

const KEYS: [&str; 8] = [
    "{k}1", "{k}2", "{k}3", "{k}4", "{k}5", "{k}6", "{k}7", "{k}8",
];
/// So many bytes of the stream arrive at a time: less than an effect of one key takes.
const STEP: u64 = 40;

/// A primary and its replica, whose stream is held back from here on.
struct Pair {
    primary: Server,
    replica: Server,
    link: Link,
    /// How much of the stream the replica has read, and the primary has sent.
    read: u64,
}

impl Pair {
    fn start() -> Pair {
        let (primary, replica, link) = replicated_over_link(Server::builder);
        Pair {
            primary,
            replica,
            link,
            read: 0,
        }
    }

    fn hold_stream(&mut self) {
        wait_for_sync_over(&self.link, &self.primary, &self.replica);
        self.link.hold_stream();
        self.read = self.replica.replication_offset("slave_read_repl_offset");
    }

    /// The replica reads some bytes more. False if there are none.
    fn read_on(&mut self) -> bool {
        let sent = self.primary.replication_offset("master_repl_offset");
        let step = STEP.min(sent.saturating_sub(self.read));
        self.link.let_through(step);
        self.read += step;
        eventually("the replica has read that", || {
            self.replica.replication_offset("slave_read_repl_offset") >= self.read
        });
        step > 0
    }
}

/// How many of the keys `owner` holds on the server of `conn` at one moment.
fn held(conn: &mut Conn, owner: &str) -> usize {
    let mut look = vec![command!("MULTI")];
    look.extend(KEYS.map(|key| command!("LOCK.INFO", key)));
    look.push(command!("EXEC"));
    let replies = conn.pipeline(&look);
    let replies = array(replies.last().expect("EXEC is answered").as_ref().unwrap());
    let infos = replies.iter().filter(|info| !is_nil(info));
    let holds = infos.flat_map(|info| LockInfo::read(info).holds);
    holds.filter(|hold| hold.owner == owner.as_bytes()).count()
}

#[test]
fn no_byte_of_the_stream_shows_a_part_of_a_grant_of_eight_keys() {
    let mut pair = Pair::start();
    let mut conn = pair.primary.connect();
    let mut there = pair.replica.connect();
    pair.hold_stream();
    // One by one they are seen to arrive one by one.
    for key in KEYS {
        cmd!(conn, "LOCK.ACQUIRE", key, "h", 60_000);
    }
    let mut seen = BTreeSet::new();
    while pair.read_on() {
        seen.insert(held(&mut there, "h"));
    }
    assert!(seen.len() > 4, "{seen:?}");
    let ask = command!("LOCK.MACQUIRE", "m", 60_000, 8, &KEYS, "WAIT", 0);
    let mut m = pair.primary.waiter(&ask);
    for key in KEYS {
        cmd!(conn, "LOCK.RELEASE", key, "h");
        cmd!(conn, "SET", "other", key);
    }
    granted(&mut m);
    for key in KEYS {
        cmd!(conn, "SET", "other", key);
    }
    let mut seen = BTreeSet::new();
    while pair.read_on() {
        seen.insert(held(&mut there, "m"));
    }
    assert_eq!(seen, BTreeSet::from([0, 8]));
}

/// How many of the keys `m` holds when the replica is promoted after it has read so many steps of the stream.
fn promoted_after(steps: usize) -> usize {
    let mut pair = Pair::start();
    let mut conn = pair.primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", KEYS[3], "h", 60_000);
    pair.hold_stream();
    let ask = command!("LOCK.MACQUIRE", "m", 60_000, 8, &KEYS, "WAIT", 0);
    let mut m = pair.primary.waiter(&ask);
    let mut by_mail = command!("LOCK.MACQUIRE", "n", 60_000, 8, &KEYS, "WAIT", 0);
    by_mail.arg("MAIL").arg("{k}box");
    queued(&conn.run(&by_mail));
    cmd!(conn, "SET", "other", "before");
    cmd!(conn, "LOCK.RELEASE", KEYS[3], "h");
    let lost = granted(&mut m);
    cmd!(conn, "SET", "other", "behind");
    for _ in 0..steps {
        pair.read_on();
    }
    pair.primary.sigkill();
    let mut there = pair.replica.connect();
    cmd!(there, "REPLICAOF", "NO", "ONE");
    let there_already = held(&mut there, "m");
    let mut m = pair.replica.connect();
    m.submit(&ask);
    // It may hold still, as far as this server knows.
    cmd!(there, "LOCK.LEAVE", KEYS[3], "h");
    let token = granted(&mut m);
    match there_already {
        8 => assert_eq!(token, lost, "the same request again"),
        _ => assert!(token > lost, "{token} after {lost}"),
    }
    queued(&there.run(&by_mail));
    let (last, first) = (KEYS[7], KEYS[0]);
    let mut o = waiter!(
        pair.replica,
        "LOCK.MACQUIRE o 60000 2 {last} {first} WAIT 0"
    );
    for key in KEYS {
        cmd!(there, "LOCK.RELEASE", key, "m");
    }
    let letter = mail!(there, "{k}box", "WAIT", 2_000);
    let next = letter.only().token();
    assert!(next > token);
    for key in KEYS {
        cmd!(there, "LOCK.RELEASE", key, "n");
    }
    assert!(granted(&mut o) > next);
    for key in [last, first] {
        cmd!(there, "LOCK.RELEASE", key, "o");
    }
    assert_eq!(pair.replica.gauge("waiters"), 0);
    assert_eq!(pair.replica.gauge("locks"), 0);
    there_already
}

#[test]
fn a_replica_promoted_in_mid_grant_has_all_keys_or_none_and_serves_who_asks_again() {
    let mut seen = BTreeSet::new();
    for steps in [0, 2, 4, 7, 10, 100] {
        seen.insert(promoted_after(steps));
    }
    assert_eq!(seen, BTreeSet::from([0, 8]));
}
