//! A primary and two replicas, and an operator that promotes a replica.

use std::thread;
use std::time::Duration;

use mortise_harness::{Builder, Dice, Server, cmd};

use super::nodes::Nodes;
use super::{Diary, Entry, LEASE, Setup, View};
use crate::check::Promises;

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
    nodes: Nodes,
    spoiled: Spoiled,
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
        let nodes = Nodes::start(3, || builder(spoiled));
        let set_up = Replicated { nodes, spoiled };
        for server in 0..3 {
            set_up.configure(server);
        }
        set_up.nodes.await_writes();
        set_up
    }

    fn configure(&self, server: usize) {
        let (grace, min_replicas) = (self.spoiled.grace(), self.spoiled.min_replicas());
        configure(&self.nodes.servers[server], grace, min_replicas);
    }

    fn fail_over(&mut self, how: Failover, dice: &mut Dice) {
        let nodes = &mut self.nodes;
        let old = nodes.primary;
        let others = nodes.others();
        let (new, other) = (others[0], others[1]);
        match how {
            Failover::Dies => {
                nodes.doors[old].cut();
                thread::sleep(Duration::from_millis(dice.roll(400)));
                nodes.servers[old].sigkill();
            }
            Failover::CutOff => nodes.doors[old].cut(),
            Failover::Divided => nodes.divide(&[other]),
            Failover::Frozen => nodes.servers[old].stop_signal(),
            Failover::Late => {
                nodes.doors[old].delay_stream(Duration::from_millis(200 + dice.roll(1_500)));
                thread::sleep(Duration::from_millis(500 + dice.roll(2_000)));
                nodes.doors[old].cut();
            }
        }
        nodes.promote(new);
        // An operator may want writes before the other servers are back.
        if self.spoiled != Spoiled::Nothing || dice.roll(2) == 0 {
            configure(&nodes.servers[new], self.spoiled.grace(), 0);
        }
        // Until the operator attaches the others.
        thread::sleep(Duration::from_millis(500 + dice.roll(GRACE + 2_500)));
        match how {
            Failover::Dies => {
                nodes.revive(old);
                self.configure(old);
            }
            Failover::Frozen => nodes.servers[old].cont_signal(),
            _ => {}
        }
        thread::sleep(Duration::from_millis(dice.roll(2_000)));
        let nodes = &self.nodes;
        nodes.doors[old].delay_stream(Duration::ZERO);
        nodes.doors[old].mend();
        nodes.follow(other);
        nodes.follow(old);
        nodes.close_clients(old);
        for replica in [other, old] {
            nodes.await_replica(replica);
        }
        self.configure(new);
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
        Promises::with_losses(true)
    }

    fn lease(&self) -> u64 {
        self.spoiled.lease()
    }

    fn entry(&mut self) -> Entry {
        self.nodes.entry()
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
        self.nodes.await_writes();
    }

    fn servers(&self) -> Vec<&Server> {
        self.nodes.servers()
    }

    fn primaries(&self) -> Vec<&Server> {
        self.nodes.primaries()
    }

    fn view(&self) -> View {
        self.nodes.view()
    }
}
