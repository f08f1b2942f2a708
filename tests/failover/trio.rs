//! A primary and two replicas whose settings may be wrong, which `INFO lock` has to report.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Builder, Contenders, Hold, Link, Role, Server, cmd, eventually, int, lock_info, try_cmd,
    wait_for_sync_over,
};

pub(crate) const MAX_LEASE: u64 = 1_000;
pub(crate) const LEASE: Duration = Duration::from_millis(MAX_LEASE);
pub(crate) const LAG: u64 = 1;
/// The grace that the contract requires: the longest lease, the lag, and 3 seconds.
pub(crate) const GRACE: u64 = MAX_LEASE + LAG * 1_000 + 3_000;
pub(crate) const ROLES: [Role; 5] = [
    Role::Mover,
    Role::Loyal,
    Role::Mover,
    Role::Loyal,
    Role::Mover,
];
/// A wrong setting must show within this many runs. Mostly it does in the first.
pub(crate) const ATTEMPTS: u32 = 12;

/// The settings of one run.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) grace: u64,
    /// On the replicas: the longest lease for the grace of a promotion.
    pub(crate) max_lease: u64,
    /// `lock.grace` of the first primary; 0 switches its stall guard off.
    pub(crate) guard: u64,
    pub(crate) min_replicas: u64,
}

pub(crate) const SAFE: Settings = Settings {
    grace: GRACE,
    max_lease: MAX_LEASE,
    guard: GRACE,
    min_replicas: 2,
};

/// A primary and two replicas, each attached over a link of its own.
pub(crate) struct Trio {
    pub(crate) primary: Server,
    pub(crate) replicas: [Server; 2],
    pub(crate) links: [Link; 2],
}

impl Trio {
    pub(crate) fn start(settings: Settings) -> Trio {
        Trio::start_with(settings, |primary| primary)
    }

    /// The same, with a primary that is configured further.
    pub(crate) fn start_with(settings: Settings, primary: impl FnOnce(Builder) -> Builder) -> Trio {
        let builder = || {
            Server::builder()
                .module_arg("max-lease", &MAX_LEASE.to_string())
                .config("min-replicas-max-lag", &LAG.to_string())
        };
        let primary = primary(builder()).start();
        let links = [Link::to(&primary), Link::to(&primary)];
        let replicas = [0, 1].map(|n| builder().replica_over(&links[n]).start());
        for (replica, link) in replicas.iter().zip(&links) {
            wait_for_sync_over(link, &primary, replica);
        }
        // The graces of the starts do not matter here, so they are configured only now.
        set(&primary, "lock.grace", settings.guard);
        for server in replicas.iter().chain([&primary]) {
            set(server, "min-replicas-to-write", settings.min_replicas);
        }
        for replica in &replicas {
            set(replica, "lock.grace", settings.grace);
            set(replica, "lock.max-lease", settings.max_lease);
        }
        eventually("the primary counts both", || {
            let mut conn = primary.connect();
            try_cmd!(conn, "SET", "written", "yes").is_ok()
        });
        let trio = Trio {
            primary,
            replicas,
            links,
        };
        trio.assert_truth(settings);
        trio
    }

    /// Checks that `INFO lock` names the wrong setting on the server that has it, and none elsewhere.
    #[track_caller]
    fn assert_truth(&self, settings: Settings) {
        let primary = verdict(&self.primary);
        let wrong = if settings.guard < GRACE {
            Some("lock.grace")
        } else if settings.min_replicas < 2 {
            Some("min-replicas-to-write")
        } else {
            None
        };
        assert_verdict(&primary, wrong);
        let wrong = if settings.grace < settings.max_lease + LAG * 1_000 + 3_000 {
            Some("lock.grace")
        } else {
            None
        };
        for replica in &self.replicas {
            assert_verdict(&verdict(replica), wrong);
        }
    }

    /// Waits until both replicas have just acknowledged, so that they count for another second.
    pub(crate) fn refresh(&self) {
        let mut conn = self.primary.connect();
        cmd!(conn, "SET", "written", "again");
        assert_eq!(int(&cmd!(conn, "WAIT", 2, 10_000)), 2);
    }

    /// Promotes the first replica.
    pub(crate) fn promote(&self) {
        let promoted = &self.replicas[0];
        cmd!(promoted.connect(), "REPLICAOF", "NO", "ONE");
    }

    /// Makes the promoted server require `count` replicas, as many as it will have.
    pub(crate) fn expect_replicas(&self, count: u64) {
        set(&self.replicas[0], "min-replicas-to-write", count);
    }

    pub(crate) fn follow_promoted(&self, server: &Server) {
        let port = self.replicas[0].port();
        cmd!(server.connect(), "REPLICAOF", "127.0.0.1", port);
    }
}

pub(crate) fn set(server: &Server, name: &str, value: u64) {
    cmd!(server.connect(), "CONFIG", "SET", name, value);
}

/// `lock_failover_safe` and `lock_failover_missing`.
pub(crate) fn verdict(server: &Server) -> (String, String) {
    let mut lines = server.info("lock");
    let mut take = |name| lines.remove(name).expect("a field of INFO lock");
    (take("lock_failover_safe"), take("lock_failover_missing"))
}

#[track_caller]
pub(crate) fn assert_verdict((safe, missing): &(String, String), wrong: Option<&str>) {
    match wrong {
        None => assert_eq!((safe.as_str(), missing.as_str()), ("1", "")),
        Some(setting) => assert!(
            safe == "0" && missing.contains(setting),
            "safe: {safe}, missing: {missing}, expected {setting}"
        ),
    }
}

/// Waits until the server has granted this often; long enough for a grace.
#[track_caller]
pub(crate) fn await_grants(clients: &Contenders, server: &Server, count: usize) {
    clients.await_grants(server, count, Duration::from_millis(GRACE + 20_000));
}

/// Reads the hold until it is as wanted, but gives up after a while: a run without a result does no harm.
pub(crate) fn look_for_hold(server: &Server, wanted: impl Fn(&Hold) -> bool) -> Option<Hold> {
    let mut conn = server.connect();
    let since = Instant::now();
    while since.elapsed() < 10 * LEASE {
        let holder = lock_info(&mut conn, "key").and_then(|info| info.holds.into_iter().next());
        if let Some(hold) = holder.filter(&wanted) {
            return Some(hold);
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}
