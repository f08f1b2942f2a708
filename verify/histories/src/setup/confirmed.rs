//! A primary and its replicas whose clients confirm their holds, and an operator that promotes a replica. No grace follows a promotion.

use std::fs;
use std::thread;
use std::time::Duration;

use mortise_harness::{Dice, Server};

use super::nodes::Nodes;
use super::{Diary, Entry, LEASE, LONG_LEASE, Setup, View};
use crate::check::Promises;
use crate::client::{Confirming, Marker};

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
    nodes: Nodes,
    omitted: Omitted,
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
        let nodes = Nodes::start(servers, builder);
        Confirmed { nodes, omitted }
    }

    /// Waits until every replica has what the primary has: only such a one may be promoted.
    fn await_replicas(&self) {
        for replica in self.nodes.others() {
            self.nodes.await_replica(replica);
        }
    }

    fn fail_over(&mut self, how: Failover, dice: &mut Dice) {
        let old = self.nodes.primary;
        let others = self.nodes.others();
        let (new, rest) = (others[0], &others[1..]);
        self.break_primary(how, dice);
        self.nodes.promote(new);
        // One that stays with the old primary for a while acknowledges what that one writes.
        pause(dice, 600);
        for other in rest {
            self.nodes.follow(*other);
        }
        pause(dice, 2_000);
        match how {
            Failover::Dies => self.nodes.revive(old),
            Failover::Frozen => self.nodes.servers[old].cont_signal(),
            _ => {}
        }
        pause(dice, 800);
        let door = &self.nodes.doors[old];
        door.release_stream();
        door.delay_stream(Duration::ZERO);
        door.mend();
        self.nodes.follow(old);
        self.nodes.close_clients(old);
        self.await_replicas();
    }

    fn break_primary(&mut self, how: Failover, dice: &mut Dice) {
        let (old, others) = (self.nodes.primary, self.nodes.others());
        let door = &self.nodes.doors[old];
        match how {
            Failover::Dies => {
                door.cut();
                pause(dice, 400);
                self.nodes.servers[old].sigkill();
            }
            Failover::CutOff => door.cut(),
            Failover::Divided => {
                self.nodes.divide(&others[1..]);
                pause(dice, 1_500);
            }
            Failover::Frozen => self.nodes.servers[old].stop_signal(),
            Failover::Late => {
                door.delay_stream(Duration::from_millis(200 + dice.roll(1_500)));
                pause(dice, 2_000);
                door.cut();
            }
            Failover::Stalled => {
                door.hold_stream();
                pause(dice, 1_000);
            }
            Failover::RestartedReplica => {
                self.nodes.servers[others[0]].sigkill();
                pause(dice, 300);
                self.nodes.revive(others[0]);
                self.await_replicas();
            }
        }
    }

    /// The primary restarts before anybody notices, with what it has last saved or with nothing, and its replicas take that over.
    fn restart_primary(&mut self, dice: &mut Dice) {
        let server = &mut self.nodes.servers[self.nodes.primary];
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
        Promises::with_losses(true)
    }

    fn lease(&self) -> u64 {
        self.omitted.lease()
    }

    fn confirming(&self) -> Option<Confirming> {
        let all = i64::try_from(self.nodes.servers.len() - 1).expect("a few servers");
        let confirming = |replicas, marker| Some(Confirming { replicas, marker });
        match self.omitted {
            Omitted::Confirmation => None,
            Omitted::Renewal => confirming(all, Marker::Ping),
            Omitted::Replica => confirming(all - 1, Marker::Renewal),
            Omitted::Nothing | Omitted::Grace => confirming(all, Marker::Renewal),
        }
    }

    fn entry(&mut self) -> Entry {
        self.nodes.entry()
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
        self.nodes.await_writes();
        self.await_replicas();
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
