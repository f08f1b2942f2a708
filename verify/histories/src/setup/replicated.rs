//! A primary and two replicas, and an operator that promotes a replica.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_harness::{
    Builder, Dice, Link, Server, cmd, eventually, try_cmd, wait_for_sync, wait_for_sync_over,
};

use super::{Diary, Entry, LEASE, Primary, Setup, View};
use crate::check::Promises;
use crate::client::Place;

/// Seconds.
const LAG: u64 = 1;
/// The grace that the contract requires: the longest lease, the lag, and three seconds.
const GRACE: u64 = LEASE + LAG * 1_000 + 3_000;
/// One for shorter leases than there are.
const SHORT_GRACE: u64 = 2_000;

/// Which setting is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoiled {
    Nothing,
    /// No server waits for lost leases to end.
    Grace,
    /// One replica is enough, so an old primary with one replica left goes on granting.
    MinReplicas,
    /// A replica may be silent for a minute, so an old primary goes on granting without any.
    MaxLag,
    /// Leases may be longer than the grace.
    MaxLease,
}

impl Spoiled {
    fn grace(self) -> u64 {
        match self {
            Spoiled::Grace => 0,
            Spoiled::MaxLease => SHORT_GRACE,
            _ => GRACE,
        }
    }

    fn min_replicas(self) -> u64 {
        if self == Spoiled::MinReplicas { 1 } else { 2 }
    }

    /// Seconds.
    fn max_lag(self) -> u64 {
        if self == Spoiled::MaxLag { 60 } else { LAG }
    }

    fn lease(self) -> u64 {
        if self == Spoiled::MaxLease {
            5 * SHORT_GRACE
        } else {
            LEASE
        }
    }
}

pub(crate) struct Replicated {
    servers: Vec<Server>,
    /// How its replicas reach each server.
    doors: Vec<Link>,
    primary: usize,
    spoiled: Spoiled,
    clients: Vec<Arc<Link>>,
    shown: Primary,
}

#[derive(Debug, Clone, Copy)]
enum Failover {
    /// The primary dies, with its pending writes.
    Dies,
    /// It is cut off from both replicas, and keeps its clients.
    CutOff,
    /// It is cut off from the promoted one only; the other replica stays with it.
    Divided,
    /// It is frozen during the failover, and then continues.
    Frozen,
    /// Its data is late.
    Late,
}

const FAILOVERS: [Failover; 5] = [
    Failover::Dies,
    Failover::CutOff,
    Failover::Divided,
    Failover::Frozen,
    Failover::Late,
];

impl Replicated {
    pub(crate) fn start(spoiled: Spoiled) -> Replicated {
        let primary = builder(spoiled).start();
        let mut doors = vec![Link::to(&primary)];
        let mut servers = vec![primary];
        for _ in 0..2 {
            let replica = builder(spoiled).replica_over(&doors[0]).start();
            wait_for_sync_over(&doors[0], &servers[0], &replica);
            doors.push(Link::to(&replica));
            servers.push(replica);
        }
        let shown = Primary::at(servers[0].port());
        let set_up = Replicated {
            servers,
            doors,
            primary: 0,
            spoiled,
            clients: Vec::new(),
            shown,
        };
        for server in &set_up.servers {
            configure(server, spoiled.grace(), spoiled.min_replicas());
        }
        set_up.await_writes();
        set_up
    }

    fn await_writes(&self) {
        eventually("the primary takes writes", || {
            let mut conn = self.servers[self.primary].connect();
            try_cmd!(conn, "SET", "healed", "yes")
        });
    }

    fn others(&self) -> [usize; 2] {
        [(self.primary + 1) % 3, (self.primary + 2) % 3]
    }

    fn follow(&self, server: usize, primary: usize) {
        let port = self.doors[primary].port();
        cmd!(self.servers[server].connect(), "REPLICAOF 127.0.0.1 {port}");
    }

    /// Leads new connections of clients to the new primary. Existing ones stay until the old primary refuses them.
    fn promote(&mut self, server: usize) {
        cmd!(self.servers[server].connect(), "REPLICAOF", "NO", "ONE");
        for link in &self.clients {
            link.lead_to(&self.servers[server]);
        }
        self.shown.is_now(self.servers[server].port());
    }

    fn fail_over(&mut self, how: Failover, dice: &mut Dice) {
        let old = self.primary;
        let [new, other] = self.others();
        match how {
            Failover::Dies => {
                self.doors[old].cut();
                thread::sleep(Duration::from_millis(dice.roll(400)));
                self.servers[old].sigkill();
            }
            Failover::CutOff => self.doors[old].cut(),
            // Both replicas come over one proxy, so the one that stays gets a connection of its own for that time.
            Failover::Divided => self.divide(old, other),
            Failover::Frozen => self.servers[old].stop_signal(),
            Failover::Late => {
                self.doors[old].delay_stream(Duration::from_millis(200 + dice.roll(1_500)));
                thread::sleep(Duration::from_millis(500 + dice.roll(2_000)));
                self.doors[old].cut();
            }
        }
        self.promote(new);
        self.primary = new;
        // An operator may want writes before the other servers are back.
        if self.spoiled != Spoiled::Nothing || dice.roll(2) == 0 {
            configure(&self.servers[new], self.spoiled.grace(), 0);
        }
        // Until the operator attaches the others.
        thread::sleep(Duration::from_millis(500 + dice.roll(GRACE + 2_500)));
        match how {
            Failover::Dies => self.revive(old, new),
            Failover::Frozen => self.servers[old].cont_signal(),
            _ => {}
        }
        thread::sleep(Duration::from_millis(dice.roll(2_000)));
        self.doors[old].delay_stream(Duration::ZERO);
        self.doors[old].mend();
        self.follow(other, new);
        self.follow(old, new);
        // Moving an address closes the connections to the old server.
        cmd!(
            self.servers[old].connect(),
            "CLIENT KILL TYPE normal SKIPME yes"
        );
        for replica in [other, old] {
            wait_for_sync_over(&self.doors[new], &self.servers[new], &self.servers[replica]);
        }
        configure(
            &self.servers[new],
            self.spoiled.grace(),
            self.spoiled.min_replicas(),
        );
    }

    fn divide(&self, old: usize, other: usize) {
        let port = self.servers[old].port();
        cmd!(self.servers[other].connect(), "REPLICAOF 127.0.0.1 {port}");
        wait_for_sync(&self.servers[old], &self.servers[other]);
        self.doors[old].cut();
    }

    fn revive(&mut self, old: usize, new: usize) {
        let port = self.doors[new].port();
        let server = &mut self.servers[old];
        server.set_config("replicaof", &format!("127.0.0.1 {port}"));
        server.start_again();
        configure(
            &self.servers[old],
            self.spoiled.grace(),
            self.spoiled.min_replicas(),
        );
    }
}

fn builder(spoiled: Spoiled) -> Builder {
    Server::builder()
        .alone()
        .module_arg("max-lease", &spoiled.lease().to_string())
        .config("min-replicas-max-lag", &spoiled.max_lag().to_string())
}

fn configure(server: &Server, grace: u64, min_replicas: u64) {
    let mut conn = server.connect();
    cmd!(conn, "CONFIG", "SET", "lock.grace", grace);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", min_replicas);
}

impl Setup for Replicated {
    fn promises(&self) -> Promises {
        Promises {
            one_token_clock: true,
            loses_nothing: false,
            grants_at_once: false,
        }
    }

    fn lease(&self) -> u64 {
        self.spoiled.lease()
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
        let how = match self.spoiled {
            // This fault needs a replica that stays with the old primary.
            Spoiled::MinReplicas => Failover::Divided,
            // This one loses most.
            Spoiled::MaxLease => Failover::Late,
            _ => *dice.pick(&FAILOVERS),
        };
        diary.failover(|| {
            diary.fault(&format!("failover, the primary: {how:?}"), || {
                self.fail_over(how, dice);
            });
        });
        // During a grace there is nothing to lose.
        thread::sleep(Duration::from_millis(dice.roll(3_000)));
    }

    fn heal(&mut self, _: &Diary) {
        self.await_writes();
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
