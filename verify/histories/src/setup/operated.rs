//! A primary and its replicas, which reach one another over links, clients that follow the primary, and an operator that promotes a
//! replica.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_harness::{
    Builder, Dice, Link, Server, cmd, eventually, try_cmd, wait_for_sync, wait_for_sync_over,
};

use super::{Diary, Entry, LEASE, LONG_LEASE, Primary, Setup, View};
use crate::check::Promises;
use crate::client::{Confirming, Marker, Place};

/// What the servers and their clients are told, and what happens to them. A control changes one thing.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How many there are, all of which may become the primary.
    pub(crate) servers: usize,
    /// Milliseconds.
    pub(crate) lease: u64,
    pub(crate) grace: u64,
    /// That after a promotion, or -1 for the same.
    pub(crate) promotion_grace: i64,
    pub(crate) min_replicas: u64,
    /// Seconds.
    pub(crate) max_lag: u64,
    /// Whether the operator always wants writes before the other servers are back; otherwise every other time.
    pub(crate) is_hasty: bool,
    pub(crate) confirming: Option<Confirming>,
    pub(crate) failovers: &'static [Failover],
    /// How long the other replicas stay with the old primary, in milliseconds.
    pub(crate) loyal: Range<u64>,
}

impl Settings {
    /// No two inside by a grace: the longest lease, a lag of a second, and three seconds.
    pub(crate) const fn replicated() -> Settings {
        const GRACE: u64 = LEASE + 1_000 + 3_000;
        Settings {
            servers: 3,
            lease: LEASE,
            grace: GRACE,
            promotion_grace: -1,
            min_replicas: 2,
            max_lag: 1,
            is_hasty: false,
            confirming: None,
            failovers: &[
                Failover::Dies,
                Failover::CutOff,
                Failover::Divided,
                Failover::Frozen,
                Failover::Late,
            ],
            loyal: 500..GRACE + 3_000,
        }
    }

    /// Clients confirm their holds with all other servers, and no grace follows a promotion.
    pub(crate) fn confirmed(servers: usize) -> Settings {
        Settings {
            servers,
            grace: LEASE,
            promotion_grace: 0,
            min_replicas: 0,
            confirming: Some(Confirming {
                replicas: servers as i64 - 1,
                marker: Marker::Renewal,
            }),
            failovers: &[
                Failover::Dies,
                Failover::CutOff,
                Failover::Divided,
                Failover::Frozen,
                Failover::Late,
                Failover::Stalled,
                Failover::RestartedReplica,
                Failover::Restarted,
                Failover::Restarted,
            ],
            loyal: 0..600,
            ..Settings::replicated()
        }
    }

    /// The same where clients do not confirm as they should. The primary does not restart.
    pub(crate) fn unconfirmed(confirming: Option<Confirming>) -> Settings {
        let settings = Settings::confirmed(2);
        Settings {
            confirming,
            failovers: &settings.failovers[..7],
            ..settings
        }
    }

    /// The same where clients count on one replica of two, and the old primary keeps the other one.
    pub(crate) fn confirmed_by_one() -> Settings {
        let settings = Settings::confirmed(3);
        Settings {
            confirming: settings
                .confirming
                .map(|how| Confirming { replicas: 1, ..how }),
            failovers: &[Failover::Divided],
            ..settings
        }
    }

    /// The same where a server grants at once after it has started. A replica may need a second until it follows a primary that has
    /// restarted.
    pub(crate) fn confirmed_without_grace() -> Settings {
        Settings {
            lease: LONG_LEASE,
            grace: 0,
            failovers: &[Failover::Restarted],
            ..Settings::confirmed(2)
        }
    }

    fn builder(&self) -> Builder {
        Server::builder()
            .alone()
            .config("repl-diskless-sync-delay", "0")
            .config("min-replicas-max-lag", &self.max_lag.to_string())
            .module_arg("max-lease", &self.lease.to_string())
            .module_arg("promotion-grace", &self.promotion_grace.to_string())
    }
}

/// What happens to the primary when a replica is promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failover {
    /// It dies, with its pending writes.
    Dies,
    /// It is cut off from its replicas, and keeps its clients.
    CutOff,
    /// It is cut off from the promoted replica only.
    Divided,
    /// It is frozen during the failover, and then continues.
    Frozen,
    /// Its data is late.
    Late,
    /// Its stream stalls.
    Stalled,
    /// Nothing: the replica restarts with older data, attaches, and is promoted.
    RestartedReplica,
    /// It restarts before anybody notices, with what it has last saved or with nothing, and its replicas take that over.
    Restarted,
}

pub(crate) struct Operated {
    settings: Settings,
    servers: Vec<Server>,
    /// How its replicas reach each server.
    doors: Vec<Link>,
    primary: usize,
    clients: Vec<Arc<Link>>,
    shown: Primary,
}

impl Operated {
    /// The first server is the primary.
    pub(crate) fn start(settings: Settings) -> Operated {
        let primary = settings.builder().start();
        let mut operated = Operated {
            doors: vec![Link::to(&primary)],
            shown: Primary::at(primary.port()),
            servers: vec![primary],
            primary: 0,
            clients: Vec::new(),
            settings,
        };
        for _ in 1..operated.settings.servers {
            let replica = operated.settings.builder().replica_over(&operated.doors[0]);
            let replica = replica.start();
            wait_for_sync_over(&operated.doors[0], &operated.servers[0], &replica);
            operated.doors.push(Link::to(&replica));
            operated.servers.push(replica);
        }
        let grace = operated.settings.grace.to_string();
        for server in &mut operated.servers {
            // The grace of the first start does not matter.
            server.set_module_arg("grace", &grace);
            cmd!(server.connect(), "CONFIG SET lock.grace {grace}");
            require(server, operated.settings.min_replicas);
        }
        operated.await_writes();
        operated
    }

    /// The servers other than the primary, the next one first.
    fn others(&self) -> Vec<usize> {
        let count = self.servers.len();
        (1..count).map(|n| (self.primary + n) % count).collect()
    }

    /// Makes a server follow the primary.
    fn follow(&self, server: usize) {
        let port = self.doors[self.primary].port();
        cmd!(self.servers[server].connect(), "REPLICAOF 127.0.0.1 {port}");
    }

    /// Leads new connections of clients to the new primary. Existing ones stay.
    fn promote(&mut self, server: usize) {
        cmd!(self.servers[server].connect(), "REPLICAOF", "NO", "ONE");
        for link in &self.clients {
            link.lead_to(&self.servers[server]);
        }
        self.primary = server;
        self.shown.is_now(self.servers[server].port());
    }

    /// Cuts the primary off from all but `rest`. All replicas come over one link, so those get connections of their own.
    fn divide(&self, rest: &[usize]) {
        let primary = &self.servers[self.primary];
        let port = primary.port();
        for other in rest {
            let other = &self.servers[*other];
            cmd!(other.connect(), "REPLICAOF 127.0.0.1 {port}");
            wait_for_sync(primary, other);
        }
        self.doors[self.primary].cut();
    }

    /// Starts a server that was killed as a replica of the primary.
    fn revive(&mut self, server: usize) {
        let port = self.doors[self.primary].port();
        let server = &mut self.servers[server];
        server.set_config("replicaof", &format!("127.0.0.1 {port}"));
        server.start_again();
        require(server, self.settings.min_replicas);
    }

    /// Waits until every replica has what the primary has: only such a one may be promoted.
    fn await_replicas(&self) {
        let (door, primary) = (&self.doors[self.primary], &self.servers[self.primary]);
        for replica in self.others() {
            wait_for_sync_over(door, primary, &self.servers[replica]);
        }
    }

    fn await_writes(&self) {
        eventually("the primary takes writes", || {
            let mut conn = self.servers[self.primary].connect();
            try_cmd!(conn, "SET", "healed", "yes")
        });
    }

    fn fail_over(&mut self, how: Failover, dice: &mut Dice) {
        let old = self.primary;
        let others = self.others();
        let (new, rest) = (others[0], &others[1..]);
        self.break_primary(how, dice);
        self.promote(new);
        if self.settings.is_hasty || dice.roll(2) == 0 {
            require(&self.servers[new], 0);
        }
        // One that stays with the old primary for a while acknowledges what that one writes.
        let loyal = &self.settings.loyal;
        thread::sleep(Duration::from_millis(loyal.start));
        pause(dice, loyal.end - loyal.start);
        for other in rest {
            self.follow(*other);
        }
        pause(dice, 2_000);
        match how {
            Failover::Dies => self.revive(old),
            Failover::Frozen => self.servers[old].cont_signal(),
            _ => {}
        }
        pause(dice, 800);
        let door = &self.doors[old];
        door.release_stream();
        door.delay_stream(Duration::ZERO);
        door.mend();
        self.follow(old);
        // As moving an address does.
        let mut conn = self.servers[old].connect();
        cmd!(conn, "CLIENT KILL TYPE normal SKIPME yes");
        self.await_replicas();
        require(&self.servers[new], self.settings.min_replicas);
    }

    fn break_primary(&mut self, how: Failover, dice: &mut Dice) {
        let (old, others) = (self.primary, self.others());
        let door = &self.doors[old];
        match how {
            Failover::Dies => {
                door.cut();
                pause(dice, 400);
                self.servers[old].sigkill();
            }
            Failover::CutOff => door.cut(),
            Failover::Divided => {
                self.divide(&others[1..]);
                pause(dice, 1_500);
            }
            Failover::Frozen => self.servers[old].stop_signal(),
            Failover::Late => {
                door.delay_stream(Duration::from_millis(200 + dice.roll(1_500)));
                pause(dice, 2_500);
                door.cut();
            }
            Failover::Stalled => {
                door.hold_stream();
                pause(dice, 1_000);
            }
            Failover::RestartedReplica => {
                self.servers[others[0]].sigkill();
                pause(dice, 300);
                self.revive(others[0]);
                self.await_replicas();
            }
            Failover::Restarted => unreachable!("nobody is promoted"),
        }
    }

    fn restart_primary(&mut self, dice: &mut Dice) {
        let server = &mut self.servers[self.primary];
        server.sigkill();
        if dice.roll(2) == 0 {
            let _ = fs::remove_file(server.dir().join("dump.rdb"));
        }
        server.set_config("replicaof", "no one");
        server.start_again();
        self.await_replicas();
    }
}

/// How many replicas have to acknowledge a server's writes.
fn require(server: &Server, replicas: u64) {
    let mut conn = server.connect();
    cmd!(conn, "CONFIG SET min-replicas-to-write {replicas}");
}

fn pause(dice: &mut Dice, up_to: u64) {
    thread::sleep(Duration::from_millis(dice.roll(up_to)));
}

impl Setup for Operated {
    fn promises(&self) -> Promises {
        Promises::with_losses(true)
    }

    fn lease(&self) -> u64 {
        self.settings.lease
    }

    fn confirming(&self) -> Option<Confirming> {
        self.settings.confirming
    }

    fn entry(&mut self) -> Entry {
        let link = Arc::new(Link::to(&self.servers[self.primary]));
        self.clients.push(link.clone());
        Entry {
            place: Place::One(link.port()),
            links: vec![link],
        }
    }

    fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let how = *dice.pick(self.settings.failovers);
        diary.failover(|| {
            diary.fault(&format!("failover, the primary: {how:?}"), || match how {
                Failover::Restarted => self.restart_primary(dice),
                how => self.fail_over(how, dice),
            });
        });
        // During a grace there is nothing to lose.
        pause(dice, 3_000);
    }

    fn heal(&mut self, _: &Diary) {
        self.await_writes();
        self.await_replicas();
    }

    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    fn primaries(&self) -> Vec<&Server> {
        vec![&self.servers[self.primary]]
    }

    fn view(&self) -> View {
        View::Primary(self.shown.clone())
    }
}
