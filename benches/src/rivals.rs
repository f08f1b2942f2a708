//! Ways to wait for a lock: this module's, and those that people build today, written for the comparison.

use std::time::Duration;

use mortise_harness::{Conn, Server, array, cmd, int, is_nil, text};

/// The lease of every lock, in milliseconds. It never runs out in a run.
const LEASE: u64 = 30_000;
/// The list that wakes waiters, or that holds the only token.
const SIGNAL: &str = "signal";
const CHANNEL: &str = "released";
pub(crate) const KEY: &str = "contended";

/// How a client waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    /// `LOCK.ACQUIRE … WAIT 0`.
    Mortise,
    /// `SET NX PX`, repeated after a pause.
    Poll(Duration),
    /// `SET NX PX`, and again when a message announces a release.
    PubSub,
    /// `SET NX PX`, and again when a release has pushed onto a list.
    Signal,
    /// One token in a list: first come, first served, but no owner, no lease and no safety.
    BareToken,
}

impl Rival {
    pub(crate) const ALL: &[Rival] = &[
        Rival::Mortise,
        Rival::Poll(Duration::from_millis(100)),
        Rival::Poll(Duration::from_millis(10)),
        Rival::PubSub,
        Rival::Signal,
        Rival::BareToken,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Rival::Mortise => "LOCK.ACQUIRE WAIT".into(),
            Rival::Poll(pause) => format!("SET NX every {} ms", pause.as_millis()),
            Rival::PubSub => "SET NX + pub/sub".into(),
            Rival::Signal => "SET NX + BLPOP signal".into(),
            Rival::BareToken => "BLPOP token (no lease)".into(),
        }
    }

    /// Prepares the server for the first client.
    pub(crate) fn prepare(self, server: &Server) {
        let mut conn = server.connect();
        cmd!(conn, "FLUSHALL");
        if self == Rival::BareToken {
            cmd!(conn, "RPUSH", SIGNAL, "token");
        }
    }
}

const RELEASE: &str = "
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])";

const RELEASE_AND_PUBLISH: &str = "
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
return redis.call('publish', ARGV[2], 'free')";

const RELEASE_AND_SIGNAL: &str = "
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
if redis.call('llen', KEYS[2]) == 0 then redis.call('rpush', KEYS[2], 'free') end
return redis.call('pexpire', KEYS[2], ARGV[2])";

/// One client of a rival.
#[derive(Debug)]
pub(crate) struct Client {
    rival: Rival,
    conn: Conn,
    /// For messages.
    subscriber: Option<Conn>,
    owner: String,
    script: String,
    lease: String,
    /// How many commands it has sent.
    pub(crate) commands: u64,
}

impl Client {
    pub(crate) fn connect(rival: Rival, server: &Server, number: usize) -> Client {
        let mut conn = server.connect();
        let script = match rival {
            Rival::PubSub => RELEASE_AND_PUBLISH,
            Rival::Signal => RELEASE_AND_SIGNAL,
            Rival::Mortise | Rival::Poll(_) | Rival::BareToken => RELEASE,
        };
        let script = text(&cmd!(conn, "SCRIPT", "LOAD", script.trim()));
        Client {
            rival,
            conn,
            subscriber: (rival == Rival::PubSub).then(|| server.connect()),
            owner: format!("client-{number}"),
            script,
            lease: LEASE.to_string(),
            commands: 0,
        }
    }

    pub(crate) fn acquire(&mut self) {
        match self.rival {
            Rival::Mortise => {
                self.commands += 1;
                let (owner, lease) = (&self.owner, &self.lease);
                cmd!(self.conn, "LOCK.ACQUIRE", KEY, owner, lease, "WAIT", 0);
            }
            Rival::Poll(pause) => {
                while !self.try_set() {
                    std::thread::sleep(pause);
                }
            }
            Rival::PubSub => self.acquire_by_messages(),
            Rival::Signal => {
                while !self.try_set() {
                    self.commands += 1;
                    cmd!(self.conn, "BLPOP", SIGNAL, 1);
                }
            }
            Rival::BareToken => {
                self.commands += 1;
                cmd!(self.conn, "BLPOP", SIGNAL, 0);
            }
        }
    }

    fn try_set(&mut self) -> bool {
        self.commands += 1;
        let (owner, lease) = (&self.owner, &self.lease);
        !is_nil(&cmd!(self.conn, "SET", KEY, owner, "NX", "PX", lease))
    }

    /// Subscribes, tries again because a release may have come first, and then after each message.
    fn acquire_by_messages(&mut self) {
        if self.try_set() {
            return;
        }
        let Some(mut subscriber) = self.subscriber.take() else {
            return;
        };
        self.commands += 1;
        cmd!(subscriber, "SUBSCRIBE", CHANNEL);
        while !self.try_set() {
            // A missed message costs a second, as in what people build.
            subscriber.recv_within(Duration::from_secs(1));
        }
        self.commands += 1;
        subscriber.send(&["UNSUBSCRIBE", CHANNEL]);
        // Messages published meanwhile come before the confirmation.
        while text(&array(&subscriber.recv())[0]) != "unsubscribe" {}
        self.subscriber = Some(subscriber);
    }

    pub(crate) fn release(&mut self) {
        self.commands += 1;
        let owner = &self.owner;
        match self.rival {
            Rival::Mortise => {
                let left = int(&cmd!(self.conn, "LOCK.RELEASE", KEY, owner));
                assert_eq!(left, 0, "held once");
            }
            Rival::Poll(_) => {
                cmd!(self.conn, "EVALSHA", &self.script, 1, KEY, owner);
            }
            Rival::PubSub => {
                cmd!(self.conn, "EVALSHA", &self.script, 1, KEY, owner, CHANNEL);
            }
            Rival::Signal => {
                let (script, lease) = (&self.script, &self.lease);
                cmd!(self.conn, "EVALSHA", script, 2, KEY, SIGNAL, owner, lease);
            }
            Rival::BareToken => {
                cmd!(self.conn, "RPUSH", SIGNAL, "token");
            }
        }
    }
}
