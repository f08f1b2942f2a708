//! A primary and two replicas, and three Sentinels that choose the primary.

use std::thread;
use std::time::Duration;

use mortise_harness::{
    Builder, Conn, Dice, Network, Server, array, as_map, cmd, eventually_within, text, try_cmd,
    wait_for_sync_at,
};

use super::network::make_late;
use super::{Diary, Entry, LONG_LEASE, Primary, Setup, View};
use crate::check::Promises;
use crate::client::{Confirming, Marker, PRIMARY, Place};

/// The grace that the contract requires: the longest lease, a lag of a second, and three seconds.
const GRACE: u64 = LONG_LEASE + 1_000 + 3_000;
/// Sentinels demote an old primary only after it has claimed to be one for eight seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// What protects the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// A grace, and the primary stops without its replicas.
    Whole,
    /// Clients confirm their holds, and a grace follows a start only.
    Confirmed,
    /// No grace.
    NoGrace,
    /// A grace, but the primary goes on granting without replicas.
    NoReplicas,
}

pub(crate) struct Watched {
    network: Network,
    sentinels: Vec<Server>,
    servers: Vec<Server>,
    protection: Protection,
    shown: Primary,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Dies,
    /// It is back before any Sentinel has noticed, with what it last saved, if anything, and its replicas follow it.
    Forgets,
    /// It is cut off from the Sentinels, its replicas and the clients.
    CutOff,
    /// The same, but clients reach it, too.
    Split,
    Frozen,
    /// What it sends and receives is late, also for clients, and then it is cut off, or not.
    Late,
    /// A Sentinel is asked for a failover.
    Asked,
}

const FAULTS: [Fault; 7] = [
    Fault::Dies,
    Fault::Forgets,
    Fault::CutOff,
    Fault::Split,
    Fault::Frozen,
    Fault::Late,
    Fault::Asked,
];

impl Watched {
    pub(crate) fn start(protection: Protection) -> Watched {
        let (grace, promotion_grace, replicas) = match protection {
            Protection::Whole => (GRACE, "-1", 2),
            Protection::Confirmed => (LONG_LEASE, "0", 0),
            Protection::NoGrace => (0, "-1", 2),
            Protection::NoReplicas => (GRACE, "-1", 0),
        };
        let builder = || -> Builder {
            Server::builder()
                .alone()
                .module_arg("max-lease", &LONG_LEASE.to_string())
                .module_arg("grace", &grace.to_string())
                .module_arg("promotion-grace", promotion_grace)
                .config("min-replicas-max-lag", "1")
                .config("min-replicas-to-write", &replicas.to_string())
        };
        let network = Network::new();
        let primary = network.start(builder());
        let port = network.port_of(&primary);
        let mut servers = vec![primary];
        for _ in 0..2 {
            servers.push(network.start(builder().replica_at(port)));
        }
        for replica in &servers[1..] {
            wait_for_sync_at(port, &servers[0], replica);
        }
        let sentinel = |_| {
            let sentinel = Server::builder().sentinel().watching(PRIMARY, port, 2);
            network.start(sentinel)
        };
        let sentinels: Vec<Server> = (0..3).map(sentinel).collect();
        let shown = Primary::at(servers[0].port());
        let set_up = Watched {
            network,
            sentinels,
            servers,
            protection,
            shown,
        };
        set_up.await_agreement();
        set_up
    }

    /// The address of the primary that a Sentinel names.
    fn primary(&self) -> Option<usize> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY];
        let address = self.sentinels[2].connect().cmd(&question);
        let port: u16 = text(&array(&address)[1]).parse().ok()?;
        let is_there = |server: &Server| self.network.port_of(server) == port;
        self.servers.iter().position(is_there)
    }

    fn await_successor(&self, old: usize) -> usize {
        eventually_within(PATIENCE, "a replica has been promoted", || {
            self.primary().filter(|now| *now != old)
        })
    }

    /// Waits until all Sentinels know each other and all servers, and two replicas follow the primary.
    fn await_agreement(&self) {
        for sentinel in &self.sentinels {
            eventually_within(PATIENCE, "the Sentinels know each other", || {
                let state = as_map(&cmd!(sentinel.connect(), "SENTINEL", "MASTER", PRIMARY));
                let seen =
                    ["num-slaves", "num-other-sentinels", "flags"].map(|it| text(&state[it]));
                if seen == ["2", "2", "master"] {
                    Ok(())
                } else {
                    Err(seen)
                }
            });
        }
        eventually_within(PATIENCE, "the primary has its replicas", || {
            let primary = self.primary().ok_or("none")?;
            self.shown.is_now(self.servers[primary].port());
            // Sentinels close all connections of a server that they reconfigure.
            let mut conn = Conn::to_port(self.servers[primary].port()).map_err(|_| "away")?;
            try_cmd!(conn, "SET", "healed", "yes")
                .map(drop)
                .map_err(|_| "too few")
        });
    }

    fn run(&mut self, fault: Fault, dice: &mut Dice) {
        let Some(old) = self.primary() else {
            return;
        };
        let some_time = Duration::from_millis(dice.roll(5_000));
        match fault {
            Fault::Dies => {
                self.servers[old].sigkill();
                let new = self.await_successor(old);
                thread::sleep(some_time);
                let port = self.network.port_of(&self.servers[new]);
                let server = &mut self.servers[old];
                server.set_config("replicaof", &format!("127.0.0.1 {port}"));
                server.start_again();
            }
            Fault::Forgets => {
                let server = &mut self.servers[old];
                // Whatever its role was at its first start.
                server.set_config("replicaof", "no one");
                server.sigkill();
                server.start_again();
            }
            Fault::CutOff | Fault::Split => {
                let cut_off = [&self.servers[old]];
                match fault {
                    Fault::Split => self.network.cut_off_from_servers(&cut_off),
                    _ => self.network.cut_off(&cut_off),
                }
                self.await_successor(old);
                thread::sleep(some_time);
                self.network.mend();
            }
            Fault::Frozen => {
                self.servers[old].stop_signal();
                thread::sleep(Duration::from_millis(300 + dice.roll(6_000)));
                self.servers[old].cont_signal();
            }
            Fault::Late => {
                make_late(&self.network, &self.servers[old], dice, || {
                    self.await_successor(old);
                    thread::sleep(some_time);
                });
            }
            Fault::Asked => {
                // Refused shortly after another failover.
                if try_cmd!(self.sentinels[0].connect(), "SENTINEL", "FAILOVER", PRIMARY).is_ok() {
                    self.await_successor(old);
                }
            }
        }
    }
}

impl Setup for Watched {
    fn promises(&self) -> Promises {
        Promises::with_losses(true)
    }

    fn lease(&self) -> u64 {
        LONG_LEASE
    }

    fn confirming(&self) -> Option<Confirming> {
        (self.protection == Protection::Confirmed).then_some(Confirming {
            replicas: 2,
            marker: Marker::Renewal,
        })
    }

    fn entry(&mut self) -> Entry {
        Entry {
            place: Place::Sentinels(self.sentinels.iter().map(Server::port).collect()),
            links: Vec::new(),
        }
    }

    fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let fault = *dice.pick(&FAULTS);
        diary.failover(|| {
            diary.fault(&format!("{fault:?}"), || self.run(fault, dice));
            diary.fault("until the Sentinels agree", || self.await_agreement());
        });
        // Until locks are granted again there is nothing to lose.
        thread::sleep(Duration::from_millis(dice.roll(4_000)));
    }

    fn heal(&mut self, _: &Diary) {
        self.await_agreement();
    }

    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    fn primaries(&self) -> Vec<&Server> {
        self.primary()
            .into_iter()
            .map(|it| &self.servers[it])
            .collect()
    }

    fn view(&self) -> View {
        View::Primary(self.shown.clone())
    }
}
