//! A cluster of three primaries, with a replica each.

use std::thread;
use std::time::Duration;

use mortise_harness::{
    Builder, Cluster, Dice, Network, Server, array, cmd, eventually_within, node_id, text, try_cmd,
};

use super::network::make_late;
use super::{Diary, Entry, LONG_LEASE, Setup, View};
use crate::check::Promises;
use crate::client::{Confirming, Marker, Place};

const NODE_TIMEOUT: u64 = 2_000;
/// The grace that the contract requires: the longest lease, the node time-out, and three seconds.
const GRACE: u64 = LONG_LEASE + NODE_TIMEOUT + 3_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// How long until all nodes know.
const GOSSIP: Duration = Duration::from_millis(1_500);

/// What keeps out others when a replica is promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promotion {
    /// The grace that the contract requires.
    Grace,
    /// Clients confirm their holds, and a grace follows a start only.
    Confirmed,
    Nothing,
}

pub(crate) struct Clustered {
    cluster: Cluster,
    promotion: Promotion,
    /// The locks whose slots move.
    keys: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A primary dies, and comes back when its replica has taken over.
    Dies,
    /// It dies and is back before any node has noticed, with what it last saved, if anything.
    Forgets,
    /// It is cut off from all others and from the clients.
    CutOff,
    /// It is cut off from all others, and clients reach both sides.
    Split,
    /// It is frozen until its replica has taken over, or for a short time.
    Frozen,
    /// What it sends and receives is late, also for clients, and then it is cut off, or not.
    Late,
    /// Its replica takes over in a planned failover.
    HandsOver,
    /// A slot with a lock in it moves to another primary.
    Move,
}

const FAULTS: [Fault; 10] = [
    Fault::Dies,
    Fault::Forgets,
    Fault::CutOff,
    Fault::Split,
    Fault::Frozen,
    Fault::Late,
    Fault::HandsOver,
    Fault::Move,
    Fault::Move,
    Fault::Move,
];

impl Clustered {
    pub(crate) fn start(promotion: Promotion, keys: &[String]) -> Clustered {
        let (grace, promotion_grace) = match promotion {
            Promotion::Grace => (GRACE, "-1"),
            Promotion::Confirmed => (LONG_LEASE, "0"),
            Promotion::Nothing => (0, "-1"),
        };
        let node = || -> Builder {
            Server::builder()
                .config("cluster-node-timeout", &NODE_TIMEOUT.to_string())
                .module_arg("max-lease", &LONG_LEASE.to_string())
                .module_arg("grace", &grace.to_string())
                .module_arg("promotion-grace", promotion_grace)
        };
        Clustered {
            cluster: Cluster::start_over_network(3, node),
            promotion,
            keys: keys.to_owned(),
        }
    }

    fn network(&self) -> &Network {
        self.cluster
            .network
            .as_ref()
            .expect("it was started over one")
    }

    /// Where clients find the nodes.
    fn ports(&self) -> Vec<u16> {
        let nodes = self.cluster.nodes();
        nodes.map(|node| self.network().port_of(node)).collect()
    }

    /// The primary of a shard, and its replica.
    fn pair(&self, part: usize) -> (&Server, &Server) {
        let (one, two) = (&self.cluster.primaries[part], &self.cluster.replicas[part]);
        if is_primary(one) {
            (one, two)
        } else {
            (two, one)
        }
    }

    fn primary_mut(&mut self, part: usize) -> &mut Server {
        let first = is_primary(&self.cluster.primaries[part]);
        let nodes = if first {
            &mut self.cluster.primaries
        } else {
            &mut self.cluster.replicas
        };
        &mut nodes[part]
    }

    fn run(&mut self, fault: Fault, dice: &mut Dice) {
        let part = usize::try_from(dice.roll(3)).expect("less than three");
        let some_time = Duration::from_millis(dice.roll(4_000));
        match fault {
            Fault::Dies => {
                let port = self.pair(part).0.port();
                self.primary_mut(part).sigkill();
                let (one, two) = (&self.cluster.primaries[part], &self.cluster.replicas[part]);
                let (old, new) = if one.port() == port {
                    (one, two)
                } else {
                    (two, one)
                };
                await_role(new, "master");
                thread::sleep(some_time);
                let is_first = old.port() == one.port();
                let nodes = if is_first {
                    &mut self.cluster.primaries
                } else {
                    &mut self.cluster.replicas
                };
                nodes[part].start_again();
                await_role(&nodes[part], "slave");
            }
            Fault::Forgets => {
                let node = self.primary_mut(part);
                node.sigkill();
                node.start_again();
            }
            Fault::CutOff | Fault::Split => {
                let (old, new) = self.pair(part);
                match fault {
                    Fault::Split => self.network().cut_off_from_servers(&[old]),
                    _ => self.network().cut_off(&[old]),
                }
                await_role(new, "master");
                thread::sleep(some_time);
                self.network().mend();
                await_role(old, "slave");
            }
            Fault::Frozen => {
                let (old, _) = self.pair(part);
                old.stop_signal();
                thread::sleep(Duration::from_millis(300 + dice.roll(6_000)));
                old.cont_signal();
                thread::sleep(GOSSIP);
            }
            Fault::Late => {
                let (old, new) = self.pair(part);
                make_late(self.network(), old, dice, || {
                    await_role(new, "master");
                    thread::sleep(some_time);
                });
            }
            Fault::HandsOver => {
                let (old, new) = self.pair(part);
                // Refused while the replica is not attached.
                if try_cmd!(new.connect(), "CLUSTER", "FAILOVER").is_ok() {
                    await_role(new, "master");
                    await_role(old, "slave");
                }
            }
            Fault::Move => self.move_slot(part, dice),
        }
    }

    /// Moves a slot key by key from the node that has it.
    fn move_slot(&self, part: usize, dice: &mut Dice) {
        let key: &String = dice.pick(&self.keys);
        let slot = self.cluster.slot_of(key);
        let primaries = [0, 1, 2].map(|part| self.pair(part).0);
        let owner = primaries.iter().find(|node| owns(node, slot));
        let to = primaries[part];
        let Some(from) = owner.filter(|from| from.port() != to.port()) else {
            return;
        };
        mortise_harness::begin_migration(slot, from, to);
        thread::sleep(Duration::from_millis(dice.roll(500)));
        loop {
            let keys = keys_in(slot, from);
            if keys.is_empty() {
                break;
            }
            for key in keys {
                mortise_harness::migrate(&key, from, to);
            }
        }
        thread::sleep(Duration::from_millis(dice.roll(500)));
        mortise_harness::end_migration(slot, from, to);
        // A promoted replica claims only the slots that it knows its primary to own.
        let owner = node_id(to);
        for node in self.cluster.nodes() {
            eventually_within(PATIENCE, "each node knows who has the slot", || {
                owner_of(node, slot).is_some_and(|it| it == owner)
            });
        }
    }

    /// As an operator does where a primary has keys of slots that had moved away: it has restarted with older data, or took over before it
    /// had heard that they were gone. No client reads these keys there, but they are in the way when the slot moves back. A
    /// primary that finds such keys as it starts marks the slot as one that it imports. Then it takes note of no later owner, and
    /// after a failover of the owner the slot would be nobody's.
    fn forget_strays(&self, node: &Server) {
        for key in &self.keys {
            let slot = self.cluster.slot_of(key);
            let owner = owner_of(node, slot).filter(|owner| *owner != node_id(node));
            let Some(owner) = owner else {
                continue;
            };
            let mut conn = node.connect();
            for key in keys_in(slot, node) {
                let mut delete = mortise_harness::redis::cmd("DEL");
                // All this is refused if the node is a replica by now, which has no slots.
                let _ = try_cmd!(conn, "CLUSTER", "SETSLOT", slot, "IMPORTING", &owner);
                let _ = mortise_harness::asking(&mut conn, delete.arg(key));
            }
            let _ = try_cmd!(conn, "CLUSTER", "SETSLOT", slot, "STABLE");
        }
    }

    /// Waits until the cluster is whole again, and repairs what it does not repair itself.
    fn recover(&self) {
        for node in self.cluster.nodes() {
            eventually_within(
                PATIENCE,
                "the cluster serves, and each replica is attached",
                || {
                    let mut conn = node.connect();
                    let state = mortise_harness::info(&cmd!(conn, "CLUSTER", "INFO"));
                    let replication = node.info("replication");
                    let attached = replication["role"] == "master"
                        || replication
                            .get("master_link_status")
                            .is_some_and(|it| it == "up");
                    if state["cluster_state"] == "ok" && attached {
                        Ok(())
                    } else {
                        Err((state, replication))
                    }
                },
            );
        }
        for node in self.primaries() {
            self.forget_strays(node);
        }
    }
}

fn is_primary(node: &Server) -> bool {
    node.info("replication")["role"] == "master"
}

/// At most a hundred.
fn keys_in(slot: u16, node: &Server) -> Vec<String> {
    let keys = cmd!(node.connect(), "CLUSTER", "GETKEYSINSLOT", slot, 100);
    array(&keys).iter().map(text).collect()
}

fn owns(node: &Server, slot: u16) -> bool {
    owner_of(node, slot).is_some_and(|owner| owner == node_id(node))
}

/// The id of the node that has a slot, as far as `node` knows.
fn owner_of(node: &Server, slot: u16) -> Option<String> {
    let nodes = text(&cmd!(node.connect(), "CLUSTER", "NODES"));
    let has_slot = |line: &&str| {
        let ranges = line.split(' ').skip(8);
        ranges.filter(|it| !it.starts_with('[')).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse().ok());
            bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
        })
    };
    let line = nodes.lines().find(has_slot)?;
    line.split(' ').next().map(str::to_owned)
}

fn await_role(node: &Server, role: &str) {
    eventually_within(PATIENCE, "a node has its role", || {
        let seen = node.info("replication")["role"].clone();
        if seen == role { Ok(()) } else { Err(seen) }
    });
}

impl Setup for Clustered {
    fn promises(&self) -> Promises {
        Promises::with_losses(false)
    }

    fn lease(&self) -> u64 {
        LONG_LEASE
    }

    /// Each node has one replica.
    fn confirming(&self) -> Option<Confirming> {
        (self.promotion == Promotion::Confirmed).then_some(Confirming {
            replicas: 1,
            marker: Marker::Renewal,
        })
    }

    /// Clients find the nodes by themselves.
    fn entry(&mut self) -> Entry {
        Entry {
            place: Place::Cluster(self.ports()),
            links: Vec::new(),
        }
    }

    fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let fault = *dice.pick(&FAULTS);
        if fault == Fault::Move {
            diary.fault(&format!("{fault:?}"), || self.run(fault, dice));
            self.recover();
            if self.promotion == Promotion::Confirmed {
                // A hold is confirmed at its new node only once it has been renewed there.
                thread::sleep(Duration::from_millis(LONG_LEASE));
            }
            return;
        }
        diary.failover(|| {
            diary.fault(&format!("{fault:?}"), || self.run(fault, dice));
            self.recover();
        });
        // Until locks are granted again there is nothing to lose.
        thread::sleep(Duration::from_millis(dice.roll(4_000)));
    }

    fn heal(&mut self, _: &Diary) {
        self.recover();
    }

    fn servers(&self) -> Vec<&Server> {
        self.cluster.nodes().collect()
    }

    fn primaries(&self) -> Vec<&Server> {
        (0..3).map(|part| self.pair(part).0).collect()
    }

    fn view(&self) -> View {
        View::Cluster(self.ports())
    }
}
