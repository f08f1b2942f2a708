//! How late a replica takes its data to be. The test writes the primary's heartbeats itself, so nothing has to be late in fact.
//!
//! ```text
//!  promoted ──── TRYAGAIN ────┤ suspect, if data may have been late ├──── the grace is over
//!                                        key's lease is over ┤
//! ```

use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{Builder, Cluster, Effect, Server, cmd, wait_for_sync};

use crate::pair::{promote, renewal};

const MAX_LEASE: u64 = 6_000;
const LAG: u64 = 1_000;
/// Longest lease, lag, and 3 seconds.
const GRACE: u64 = MAX_LEASE + LAG + 3_000;
/// It ends after the time of TRYAGAIN, by two or three seconds, and within the grace.
const LEASE: u64 = LAG + 3_000 + 3_000;
const TOKEN: u64 = 7;
const HELD: Value = Value::Int(TOKEN as i64);

fn builder() -> Builder {
    Server::builder()
        .module_arg("max-lease", &MAX_LEASE.to_string())
        .config("min-replicas-max-lag", &(LAG / 1_000).to_string())
        .config("cluster-node-timeout", &LAG.to_string())
}

/// The primary has no grace, and so sends no heartbeats but those of the test.
fn prepare(primary: &Server, replica: &Server) {
    primary.load_actor();
    cmd!(replica.connect(), "CONFIG SET lock.grace {GRACE}");
}

/// A heartbeat that has been on its way for `late`. `acknowledged`: so old is the last one that all replicas have acknowledged.
fn beat(primary: &Server, late: Duration, acknowledged: Option<u64>) {
    primary.replicate_late("", Effect::Heartbeat { acknowledged }, late);
}

/// The reply to `a`'s renewal, by a replica that got its hold so late and was promoted at once.
fn renewal_after(
    primary: &Server,
    replica: &Server,
    late: Duration,
    promote: impl FnOnce(),
) -> Value {
    let hold = Effect::Hold {
        owner: "a",
        token: TOKEN,
        lease: LEASE,
    };
    primary.replicate_late("key", hold, late);
    wait_for_sync(primary, replica);
    promote();
    renewal(replica, "key", "a", MAX_LEASE)
}

#[test]
fn a_full_sync_that_came_sooner_than_the_stream_makes_no_hold_suspect() {
    const LATE: Duration = Duration::from_secs(5);
    let primary = builder().start();
    cmd!(primary.connect(), "LOCK.ACQUIRE synced s 6000");
    let replica = builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    prepare(&primary, &replica);
    beat(&primary, LATE, None);
    let reply = renewal_after(&primary, &replica, LATE, || promote(&replica));
    // Such a primary stops granting, so all of the stream being late is as good as none.
    assert_eq!(reply, HELD);
}

/// In a cluster a primary whose replicas are late does not stop. So its heartbeats say what they have acknowledged.
fn reply_of_a_cluster(acknowledged: &[u64]) -> Value {
    // Each heartbeat is written so long after the last one.
    const BETWEEN: u64 = 200;
    const LATE: u64 = 5_000;
    let cluster = Cluster::start_with_replicas(1, builder);
    let (primary, replica) = (&cluster.primaries[0], &cluster.replicas[0]);
    prepare(primary, replica);
    for (n, acknowledged) in acknowledged.iter().enumerate() {
        let late = LATE - BETWEEN * n as u64;
        beat(primary, Duration::from_millis(late), Some(*acknowledged));
    }
    renewal_after(primary, replica, Duration::from_millis(LATE), || {
        cmd!(replica.connect(), "CLUSTER FAILOVER TAKEOVER");
    })
}

#[test]
fn in_a_cluster_what_was_acknowledged_lately_came_lately() {
    assert_eq!(reply_of_a_cluster(&[60_000, 100]), HELD);
}

#[test]
fn in_a_cluster_what_was_acknowledged_before_the_first_heartbeat_came_says_nothing() {
    assert_eq!(reply_of_a_cluster(&[100, 60_000]), Value::Nil);
}
