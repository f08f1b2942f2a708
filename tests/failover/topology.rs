//! Servers that promote a replica by themselves when the primary fails: under Sentinel, or in a cluster. They are real processes on a network
//! that can be cut.

use std::time::Duration;

use mortise_harness::redis::{Cmd, RedisResult};
use mortise_harness::{Contenders, Network, Record, Role, Server, Stay};

/// Sentinels are slow to demote an old primary: only after it has claimed to be one for eight seconds. One that did not run for two seconds
/// does nothing for the next thirty (TILT), which happens several times in a row on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The settings on which the promise depends.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) max_lease: u64,
    pub(crate) grace: u64,
}

impl Settings {
    pub(crate) fn without_grace(self) -> Settings {
        Settings { grace: 0, ..self }
    }

    pub(crate) fn lease(self) -> Duration {
        Duration::from_millis(self.max_lease)
    }
}

/// Sends a command to the primary, and finds it before as clients do.
pub(crate) type Client = Box<dyn FnMut(&Cmd) -> RedisResult<Option<i64>> + Send>;

/// A primary, its replicas, and those that decide who the primary is.
pub(crate) trait Topology: Sized {
    /// What the grace has to last beyond the longest lease, in milliseconds.
    const BEYOND_LEASE: u64;
    /// Leases longer than a failover, in milliseconds.
    const LONG: u64;
    /// What a primary replies that is cut off from the others.
    const CUT_OFF: &str;
    /// What it replies once it is a replica.
    const DEMOTED: &str;

    fn start(settings: Settings) -> Self;
    fn primary(&self) -> &Server;
    fn primary_mut(&mut self) -> &mut Server;
    fn replicas(&self) -> Vec<&Server>;
    fn network(&self) -> &Network;

    /// A client that knows where to ask who the primary is.
    fn client(&self) -> Client;

    /// Cuts the primary off, with clients on its side.
    fn cut_off_primary(&self);

    /// Has a replica promoted in a planned failover.
    fn hand_over(&self) -> &Server;

    /// The replica that was promoted, once one was.
    fn successor(&self) -> &Server;

    /// Checks that nobody was promoted.
    fn assert_unnoticed(&self);

    /// An operator asks that this many replicas acknowledge writes, where that counts.
    fn demand(&self, _server: &Server, _replicas: u64) {}

    /// Waits until the first primary follows the new one.
    fn await_demotion(&self, new: &Server);

    /// The settings with a grace that is long enough.
    fn safe(max_lease: u64) -> Settings {
        let grace = max_lease + Self::BEYOND_LEASE;
        Settings { max_lease, grace }
    }
}

const ROLES: [Role; 4] = [Role::Mover, Role::Loyal, Role::Mover, Role::Loyal];

/// Starts clients that contend for the lock, and waits until they are served.
#[track_caller]
pub(crate) fn contenders(servers: &impl Topology, settings: Settings, stay: Stay) -> Contenders {
    let primary = servers.primary();
    let (port, lease) = (primary.port(), settings.lease());
    let clients = Contenders::start_staying(&ROLES, "key", port, lease, stay);
    let enough = if stay == Stay::Mixed { 5 } else { 1 };
    clients.await_grants(primary, enough, PATIENCE);
    clients
}

/// Checks that no two were inside, and that the old primary granted nothing after its successor had.
#[track_caller]
pub(crate) fn assert_clean(record: &Record, old: &Server, new: &Server) {
    record.assert_exclusive();
    let (old, new) = (old.port(), new.port());
    let first = record.stints.iter().position(|stint| stint.port == new);
    let last = record.stints.iter().rposition(|stint| stint.port == old);
    assert!(
        last < first,
        "the old primary granted after the new one had"
    );
}
