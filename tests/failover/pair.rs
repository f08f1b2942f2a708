//! A primary and its replica behind a link that can delay data, and what the tests of late data ask the two.

use std::thread;
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{
    Builder, Conn, Link, Server, cmd, command, eventually_within, hold_of, is_nil, lock_info,
    queue_of, replicated_over_link, try_cmd, wait_for_sync_over,
};

pub(crate) const MAX_LEASE: u64 = 12_000;
pub(crate) const LAG: u64 = 1;
/// Longest lease, lag, and 3 seconds.
pub(crate) const GRACE: u64 = MAX_LEASE + LAG * 1_000 + 3_000;
/// How late data is: later than a promoted server waits before it renews, but early enough for the old primary to end the lease.
pub(crate) const LATE: Duration = Duration::from_millis(8_500);
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A primary, and its replica behind a link.
pub(crate) struct Pair {
    pub(crate) primary: Server,
    pub(crate) replica: Server,
    pub(crate) link: Link,
}

pub(crate) fn builder() -> Builder {
    Server::builder()
        .module_arg("max-lease", &MAX_LEASE.to_string())
        .config("min-replicas-max-lag", &LAG.to_string())
}

pub(crate) fn configure(server: &Server, grace: u64, replicas: u64) {
    let mut conn = server.connect();
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", replicas);
    // The graces of the starts do not matter here.
    cmd!(conn, "CONFIG", "SET", "lock.grace", grace);
}

impl Pair {
    pub(crate) fn start(grace: u64) -> Pair {
        let (primary, replica, link) = replicated_over_link(builder);
        configure(&replica, grace, 1);
        configure(&primary, grace, 1);
        let pair = Pair {
            primary,
            replica,
            link,
        };
        pair.await_prompt();
        for server in [&pair.primary, &pair.replica] {
            let safe = &server.info("lock")["lock_failover_safe"];
            assert_eq!(safe == "1", grace >= GRACE);
        }
        pair
    }

    /// Waits until the primary grants because its replica has acknowledged a heartbeat.
    pub(crate) fn await_prompt(&self) {
        let mut conn = self.primary.connect();
        let mut heard = self.replica.connect();
        // Each attempt lengthens the lease, so that on a busy machine the replica receives the hold before it ends.
        eventually_within(
            PATIENCE,
            "the primary grants, and its replica receives it",
            || {
                let reply = try_cmd!(conn, "LOCK.ACQUIRE", "warm", "w", 1_000);
                let token = matches!(reply, Ok(Value::Int(_)));
                let is_heard = token && hold_of(&mut heard, "warm", "w").is_some();
                if is_heard { Ok(()) } else { Err(reply) }
            },
        );
        await_on_time(&self.primary);
    }

    /// Waits until the replica has received a heartbeat. If it has none when it is promoted, all its holds are suspect.
    pub(crate) fn await_heartbeat(&self) {
        // So that only a heartbeat is left to send.
        cmd!(self.primary.connect(), "LOCK.RELEASE", "warm", "w");
        let sent = || self.primary.replication_offset("master_repl_offset");
        let before = sent();
        eventually_within(PATIENCE, "the primary sends a heartbeat", || {
            sent() > before
        });
        wait_for_sync_over(&self.link, &self.primary, &self.replica);
    }

    /// Cuts the primary off and promotes the replica.
    pub(crate) fn fail_over(&self) {
        self.link.cut();
        promote(&self.replica);
    }

    /// The same when the lease has nearly run out, so that the old primary ends it and grants its waiter.
    pub(crate) fn fail_over_at_the_end_of_the_lease(&self) -> Conn {
        let mut conn = self.primary.connect();
        eventually_within(PATIENCE, "the lease is nearly over", || {
            let info = lock_info(&mut conn, "key");
            let left = info.and_then(|info| info.holds.first().map(|hold| hold.lease));
            left.is_none_or(|left| left < 800)
        });
        self.link.cut();
        let (next, _) = ask_for_b(&self.primary, MAX_LEASE);
        promote(&self.replica);
        next
    }
}

/// Requests `key` for `b`. Returns once the request waits, or with its answer: the lease of `a` may be over by now, or the
/// server refuses because it counts its replicas only once a second.
pub(crate) fn ask_for_b(server: &Server, lease: u64) -> (Conn, Option<Result<Value, String>>) {
    let (mut b, mut observer) = (server.connect(), server.connect());
    b.submit(&command!("LOCK.ACQUIRE", "key", "b", lease, "WAIT", 0));
    let answer = eventually_within(PATIENCE, "b waits, or is answered", || {
        let answer = b.recv_within(Duration::from_millis(20));
        let mut waits = || queue_of(&mut observer, "key") == ["b"];
        (answer.is_some() || waits()).then_some(answer)
    });
    (b, answer)
}

/// Promotes the replica, and the operator wants writes at once: only its own grace stops the new primary.
pub(crate) fn promote(server: &Server) {
    let mut conn = server.connect();
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
}

pub(crate) fn await_hold(server: &Server, key: &str, owner: &str) {
    let mut conn = server.connect();
    eventually_within(PATIENCE, "the replica has the hold", || {
        hold_of(&mut conn, key, owner).is_some()
    });
}

/// Waits until enough replicas have acknowledged recent data.
pub(crate) fn await_on_time(primary: &Server) {
    eventually_within(PATIENCE, "the replicas are on time", || {
        primary.gauge("replicas_late") == 0
    });
}

/// The reply to a renewal after the TRYAGAINs. A Sentinel may close the connections of the server that it has promoted.
pub(crate) fn renewal(server: &Server, key: &str, owner: &str, lease: u64) -> Value {
    eventually_within(PATIENCE, "the server knows who holds", || {
        match try_cmd!(server.connect(), "LOCK.RENEW", key, owner, lease) {
            Err(error) => {
                let passes = ["TRYAGAIN ", "CLUSTERDOWN ", "connection closed"];
                assert!(passes.iter().any(|it| error.starts_with(it)), "{error}");
                Err(error)
            }
            Ok(reply) => Ok(reply),
        }
    })
}

/// Another owner than `a` that now holds `key` at the old primary.
fn other_holder(old: &Server) -> Option<Vec<u8>> {
    let info = lock_info(&mut old.connect(), "key")?;
    let mut owners = info.holds.into_iter().map(|hold| hold.owner);
    owners.find(|owner| owner != b"a")
}

/// `a` renews at the new primary while `b` acquires at the old one. True if both hold.
pub(crate) fn two_inside(old: &Server, new: &Server) -> bool {
    let renewed = !is_nil(&renewal(new, "key", "a", MAX_LEASE));
    if renewed && hold_of(&mut old.connect(), "key", "a").is_some() {
        // Without TRYAGAINs the reply comes early. The old primary grants b when a's lease is over.
        let mut conn = old.connect();
        eventually_within(PATIENCE, "a's lease is over", || {
            hold_of(&mut conn, "key", "a").is_none()
        });
        thread::sleep(Duration::from_millis(300));
    }
    renewed && other_holder(old).is_some() && hold_of(&mut new.connect(), "key", "a").is_some()
}

/// The hold exists and blocks others, and its owner gets null.
#[track_caller]
pub(crate) fn assert_suspect(conn: &mut Conn, key: &str, owner: &str, token: i64) {
    let hold = hold_of(conn, key, owner).expect("it keeps others out");
    assert_eq!(hold.token, token);
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", key, owner, MAX_LEASE)));
    let renewal = cmd!(conn, "LOCK.RENEW", key, owner, MAX_LEASE, "TOKEN", token);
    assert!(is_nil(&renewal));
    assert!(is_nil(&cmd!(conn, "LOCK.FENCE", key, owner, token + 1)));
    let passed = cmd!(conn, "LOCK.PASS", key, owner, "new", MAX_LEASE);
    assert!(is_nil(&passed));
    for inside in [&[][..], &["SET", "data", "late"]] {
        let mut guard = command!("LOCK.GUARD", key, owner, token);
        guard.arg(inside);
        let error = conn.try_run(&guard).unwrap_err();
        assert!(error.starts_with("NOTHELD "), "{error}");
    }
    for command in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        let entered = cmd!(conn, command, key, owner, MAX_LEASE, "HOLDS", 1);
        assert!(is_nil(&entered), "re-entry");
    }
    let after = hold_of(conn, key, owner).expect("it keeps others out");
    assert_eq!((after.token, after.counts()), (token, hold.counts()));
    assert!(after.lease <= hold.lease);
}
