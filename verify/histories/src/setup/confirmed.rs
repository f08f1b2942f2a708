//! A primary and its replicas whose clients confirm their holds, and an operator that promotes a replica. No grace follows a promotion.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_harness::{
    Dice, Link, Server, cmd, eventually, try_cmd, wait_for_sync, wait_for_sync_over,
};

use super::{Diary, Entry, LEASE, LONG_LEASE, Primary, Setup, View};
use crate::check::Promises;
use crate::client::{Confirming, Marker, Place};

/// What the set-up or its clients omit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Omitted {
    Nothing,
    /// Clients do not confirm.
    Confirmation,
    /// Clients write PING before WAIT.
    Renewal,
    /// Clients count on one replica of two.
    Replica,
    /// A server grants at once after it has started.
    Grace,
}

impl Omitted {
    fn lease(self) -> u64 {
        match self {
            // A replica may need a second until it follows a primary that has restarted.
            Omitted::Grace => LONG_LEASE,
            _ => LEASE,
        }
    }
}

pub(crate) struct Confirmed {
    servers: Vec<Server>,
    /// How its replicas reach each server.
    doors: Vec<Link>,
    primary: usize,
    omitted: Omitted,
    clients: Vec<Arc<Link>>,
    shown: Primary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failover {
    /// The primary dies, with its pending writes.
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
    /// The replica restarts with older data, attaches, and is promoted.
    RestartedReplica,
}

const FAILOVERS: [Failover; 7] = [
    Failover::Dies,
    Failover::CutOff,
    Failover::Divided,
    Failover::Frozen,
    Failover::Late,
    Failover::Stalled,
    Failover::RestartedReplica,
];

impl Confirmed {
    /// With so many servers, all of which may become the primary.
    pub(crate) fn start(servers: usize, omitted: Omitted) -> Confirmed {
        let lease = omitted.lease();
        let grace = if omitted == Omitted::Grace { 0 } else { lease };
        let builder = || {
            Server::builder()
                .alone()
                .config("repl-diskless-sync-delay", "0")
                .module_arg("max-lease", &lease.to_string())
                .module_arg("grace", &grace.to_string())
                .module_arg("promotion-grace", "0")
        };
        let primary = builder().start();
        let mut set_up = Confirmed {
            doors: vec![Link::to(&primary)],
            shown: Primary::at(primary.port()),
            servers: vec![primary],
            primary: 0,
            omitted,
            clients: Vec::new(),
        };
        for _ in 1..servers {
            let replica = builder().replica_over(&set_up.doors[0]).start();
            set_up.doors.push(Link::to(&replica));
            set_up.servers.push(replica);
        }
        set_up.await_replicas();
        set_up
    }

    fn others(&self) -> Vec<usize> {
        let count = self.servers.len();
        (1..count).map(|n| (self.primary + n) % count).collect()
    }

    fn follow(&self, server: usize, primary: usize) {
        let port = self.doors[primary].port();
        cmd!(self.servers[server].connect(), "REPLICAOF 127.0.0.1 {port}");
    }

    /// Waits until every replica has what the primary has: only such a one may be promoted.
    fn await_replicas(&self) {
        let primary = &self.servers[self.primary];
        for replica in self.others() {
            wait_for_sync_over(&self.doors[self.primary], primary, &self.servers[replica]);
        }
    }

    /// Leads new connections of clients to the new primary. Existing ones stay until the operator closes them.
    fn promote(&mut self, server: usize) {
        cmd!(self.servers[server].connect(), "REPLICAOF", "NO", "ONE");
        for link in &self.clients {
            link.lead_to(&self.servers[server]);
        }
        self.primary = server;
        self.shown.is_now(self.servers[server].port());
    }

    fn fail_over(&mut self, how: Failover, dice: &mut Dice) {
        let old = self.primary;
        let others = self.others();
        let (new, rest) = (others[0], &others[1..]);
        self.break_primary(how, old, new, rest, dice);
        self.promote(new);
        // One that stays with the old primary for a while acknowledges what that one writes.
        pause(dice, 600);
        for other in rest {
            self.follow(*other, new);
        }
        pause(dice, 2_000);
        match how {
            Failover::Dies => self.revive(old, new),
            Failover::Frozen => self.servers[old].cont_signal(),
            _ => {}
        }
        pause(dice, 800);
        self.doors[old].release_stream();
        self.doors[old].delay_stream(Duration::ZERO);
        self.doors[old].mend();
        self.follow(old, new);
        // Moving an address closes the connections to the old server.
        cmd!(
            self.servers[old].connect(),
            "CLIENT KILL TYPE normal SKIPME yes"
        );
        self.await_replicas();
    }

    fn break_primary(
        &mut self,
        how: Failover,
        old: usize,
        new: usize,
        rest: &[usize],
        dice: &mut Dice,
    ) {
        match how {
            Failover::Dies => {
                self.doors[old].cut();
                pause(dice, 400);
                self.servers[old].sigkill();
            }
            Failover::CutOff => self.doors[old].cut(),
            Failover::Divided => self.divide(old, rest, dice),
            Failover::Frozen => self.servers[old].stop_signal(),
            Failover::Late => {
                self.doors[old].delay_stream(Duration::from_millis(200 + dice.roll(1_500)));
                pause(dice, 2_000);
                self.doors[old].cut();
            }
            Failover::Stalled => {
                self.doors[old].hold_stream();
                pause(dice, 1_000);
            }
            Failover::RestartedReplica => self.restart_replica(old, new, dice),
        }
    }

    /// All replicas come over one proxy, so those that stay get a connection of their own for that time.
    fn divide(&self, old: usize, rest: &[usize], dice: &mut Dice) {
        let port = self.servers[old].port();
        for other in rest {
            cmd!(self.servers[*other].connect(), "REPLICAOF 127.0.0.1 {port}");
            wait_for_sync(&self.servers[old], &self.servers[*other]);
        }
        self.doors[old].cut();
        pause(dice, 1_500);
    }

    fn revive(&mut self, server: usize, primary: usize) {
        let port = self.doors[primary].port();
        let server = &mut self.servers[server];
        server.set_config("replicaof", &format!("127.0.0.1 {port}"));
        server.start_again();
    }

    fn restart_replica(&mut self, primary: usize, replica: usize, dice: &mut Dice) {
        self.servers[replica].sigkill();
        pause(dice, 300);
        self.revive(replica, primary);
        self.await_replicas();
    }

    /// The primary restarts before anybody notices, with what it has last saved or with nothing, and its replicas take that over.
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

fn pause(dice: &mut Dice, up_to: u64) {
    thread::sleep(Duration::from_millis(dice.roll(up_to)));
}

impl Setup for Confirmed {
    fn promises(&self) -> Promises {
        Promises {
            one_token_clock: true,
            loses_nothing: false,
            grants_at_once: false,
        }
    }

    fn lease(&self) -> u64 {
        self.omitted.lease()
    }

    fn confirming(&self) -> Option<Confirming> {
        let all = i64::try_from(self.servers.len() - 1).expect("a few servers");
        let confirming = |replicas, marker| Some(Confirming { replicas, marker });
        match self.omitted {
            Omitted::Confirmation => None,
            Omitted::Renewal => confirming(all, Marker::Ping),
            Omitted::Replica => confirming(all - 1, Marker::Renewal),
            Omitted::Nothing | Omitted::Grace => confirming(all, Marker::Renewal),
        }
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
        let restarts = match self.omitted {
            Omitted::Grace => true,
            Omitted::Nothing => dice.roll(4) == 0,
            _ => false,
        };
        let how = match self.omitted {
            Omitted::Replica => Failover::Divided,
            _ => *dice.pick(&FAILOVERS),
        };
        diary.failover(|| {
            if restarts {
                diary.fault("the primary restarts without its data", || {
                    self.restart_primary(dice);
                });
            } else {
                diary.fault(&format!("failover, the primary: {how:?}"), || {
                    self.fail_over(how, dice);
                });
            }
        });
        pause(dice, 3_000);
    }

    fn heal(&mut self, _: &Diary) {
        eventually("the primary takes writes", || {
            let mut conn = self.servers[self.primary].connect();
            try_cmd!(conn, "SET", "healed", "yes")
        });
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
