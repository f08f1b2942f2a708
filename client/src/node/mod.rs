//! One server as this client sees it: a connection that all short commands share, and connections for waiting.

mod check;
#[cfg(feature = "cluster")]
mod detour;
mod opening;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared as SharedFuture};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::config::Config;
use crate::connector::{Closing, Connector};
use crate::error::{Error, is_passing};
use crate::link::{Link, within};
use crate::sync::lock;
use crate::wire;

use check::{At, Heard};
#[cfg(feature = "cluster")]
use detour::Detour;
use opening::{Opened, Opening, Shared};

/// The number of a connection whose failure says nothing of the shared one.
pub(crate) const NOT_SHARED: u64 = u64::MAX;

/// One server, or what counts as one: a Sentinel group, a cluster.
pub(crate) struct Node {
    name: String,
    connector: Connector,
    config: Config,
    shared: Mutex<Shared>,
    idle: Mutex<Vec<(Way, Link)>>,
    waits: AtomicUsize,
    /// By place.
    heard: Mutex<HashMap<Option<String>, Heard>>,
    /// It let the time for an answer pass, and has answered nothing since.
    silent: AtomicBool,
}

/// What many wait for, and is done once.
type Once<T> = SharedFuture<BoxFuture<'static, T>>;

/// Where a connection to wait on leads, and what kind it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    place: Option<String>,
    closing: Closing,
}

/// A connection to wait on, and the right to one more wait; gone when dropped.
#[derive(Debug)]
pub(crate) struct WaitLink {
    pub(crate) link: Link,
    /// It was kept from an earlier wait, and may have died since.
    pub(crate) reused: bool,
    way: Way,
    permit: WaitPermit,
}

/// One of the requests that may wait at once.
#[derive(Debug)]
pub(crate) struct WaitPermit(Arc<Node>);

impl Node {
    pub(crate) fn new(
        name: String,
        connector: Connector,
        config: Config,
        given: Option<Link>,
    ) -> Node {
        Node {
            name,
            connector,
            config,
            shared: Mutex::new(Shared {
                link: given,
                ..Shared::default()
            }),
            idle: Mutex::new(Vec::new()),
            waits: AtomicUsize::new(0),
            heard: Mutex::default(),
            silent: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What went wrong with this server's connection, as an error.
    pub(crate) fn failure(&self, error: RedisError) -> Error {
        Error::Connection {
            server: self.name.clone(),
            error,
        }
    }

    /// Takes note of whether the server has answered in time.
    pub(crate) fn note_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// Whether the server has kept silent when it was asked last.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether another server may take over when this one fails.
    pub(crate) fn fails_over(&self) -> bool {
        self.connector.fails_over()
    }

    /// Whether there are several servers, each with keys of its own.
    pub(crate) fn is_cluster(&self) -> bool {
        self.connector.is_cluster()
    }

    /// The shared connection, opened if there is none, and its number; waited for as long as a reply may take.
    ///
    /// Opening may take longer than that. It then goes on by itself, for whoever asks next.
    pub(crate) async fn link(self: &Arc<Self>) -> Opened {
        let limit = self.config.response_timeout;
        let opening = {
            let mut shared = lock(&self.shared);
            if let Some(link) = &shared.link {
                return Ok((link.clone(), shared.number));
            }
            let number = shared.number + 1;
            let open = || {
                let work = Opening(self.clone(), number).run();
                (number, once(work, Err(crate::link::silence(limit))))
            };
            shared.opening.get_or_insert_with(open).1.clone()
        };
        within(limit, opening).await
    }

    /// Opens a connection that many can share.
    async fn open(&self) -> RedisResult<Link> {
        let Config {
            connect_timeout: limit,
            response_timeout,
            ..
        } = self.config;
        // The connection's own limit leaves out what Sentinel or a name server takes.
        within(limit, self.connector.shared(limit, response_timeout)).await
    }

    /// Sends a command over the shared connection and waits for its reply up to the configured limit; sends it again
    /// if the connection turns out to be dead. Only for what may be carried out twice.
    pub(crate) async fn ask(self: &Arc<Self>, cmd: &Cmd) -> Result<Value, Error> {
        match self.ask_once(cmd).await {
            Err(Error::Connection { error, .. }) if !error.is_timeout() => self.ask_once(cmd).await,
            reply => reply,
        }
    }

    /// Like [`Node::ask`], but sends it once.
    pub(crate) async fn ask_once(self: &Arc<Self>, cmd: &Cmd) -> Result<Value, Error> {
        let (link, number) = self.link().await.map_err(|error| self.failure(error))?;
        self.ask_on(&link, number, cmd).await
    }

    /// Like [`Node::ask`], over what [`Node::link`] returned.
    pub(crate) async fn ask_on(
        self: &Arc<Self>,
        link: &Link,
        number: u64,
        cmd: &Cmd,
    ) -> Result<Value, Error> {
        let reply = link.ask(cmd, self.config.response_timeout).await;
        match &reply {
            Ok(_) => self.note_silent(false),
            Err(error) => self.report(number, error, wire::key(cmd)),
        }
        let value = wire::value(reply, &self.name);
        if let Err(Error::Refused(line)) = &value
            && self.fails_over()
            && is_passing(line)
        {
            self.rediscover(wire::key(cmd));
        }
        value
    }

    /// Sends commands over the shared connection in one go, and waits up to `limit` for their replies; sends them again if
    /// the connection turns out to be dead. Only for what may be carried out twice.
    pub(crate) async fn ask_all(
        self: &Arc<Self>,
        cmds: &Pipeline,
        limit: Duration,
    ) -> Result<Vec<RedisResult<Value>>, Error> {
        match self.ask_all_once(cmds, limit).await {
            Err(Error::Connection { error, .. }) if !error.is_timeout() => {
                self.ask_all_once(cmds, limit).await
            }
            replies => replies,
        }
    }

    async fn ask_all_once(
        self: &Arc<Self>,
        cmds: &Pipeline,
        limit: Duration,
    ) -> Result<Vec<RedisResult<Value>>, Error> {
        let link = within(limit, self.link()).await;
        let (link, number) = link.map_err(|error| self.failure(error))?;
        let replies = link.ask_all(cmds, limit).await;
        let replies = replies.inspect_err(|error| self.report(number, error, None));
        for (cmd, reply) in cmds.cmd_iter().zip(replies.iter().flatten()) {
            if let Err(error) = reply {
                self.report(number, error, wire::key(cmd));
            }
            if self.fails_over()
                && let Err(Error::Refused(line)) = wire::value(reply.clone(), &self.name)
                && is_passing(&line)
            {
                self.rediscover(wire::key(cmd));
            }
        }
        replies.map_err(|error| self.failure(error))
    }

    /// Takes note that the shared connection `number` has failed, asked about `key`: the next command opens another.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    fn report(self: &Arc<Self>, number: u64, error: &RedisError, key: Option<&[u8]>) {
        if !(error.is_io_error() || error.is_unrecoverable_error() || error.is_timeout()) {
            return;
        }
        let mut shared = lock(&self.shared);
        if shared.number != number {
            return;
        }
        #[cfg(feature = "cluster")]
        if let Some(Link::Cluster(_)) = &shared.link {
            Detour::start(self, shared, key);
            return;
        }
        shared.link = None;
        drop(shared);
        // Whatever it died of, they may have died of as well.
        lock(&self.idle).clear();
    }

    /// Lets go of every connection that leads to a server which is no primary any more; of a cluster, looks for another
    /// way to the one with `key`.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub(crate) fn rediscover(self: &Arc<Self>, key: Option<&[u8]>) {
        let opening = {
            let mut shared = lock(&self.shared);
            #[cfg(feature = "cluster")]
            if let Some(Link::Cluster(_)) = &shared.link {
                Detour::start(self, shared, key);
                return;
            }
            shared.link = None;
            shared.opening.take().inspect(|(number, _)| {
                // What is being opened may lead there, too; nobody is given its number again.
                shared.number = *number;
            })
        };
        drop(opening);
        lock(&self.idle).clear();
    }

    /// A connection to wait on for `key`, another than the shared one. Never waited for: whoever holds the lock may
    /// need one to go on.
    pub(crate) async fn wait_link(
        self: &Arc<Self>,
        key: &[u8],
        fresh: bool,
        closing: Closing,
    ) -> Result<WaitLink, Error> {
        let permit = self.permit()?;
        let (shared, _) = self.link().await.map_err(|error| self.failure(error))?;
        let place = within(
            self.config.response_timeout,
            self.connector.place(&shared, key),
        )
        .await
        .map_err(|error| self.failure(error))?;
        let way = Way { place, closing };
        if !fresh && let Some(link) = self.take_idle(&way) {
            return Ok(WaitLink {
                link,
                reused: true,
                way,
                permit,
            });
        }
        let limit = self.config.connect_timeout;
        let opening = self.connector.open(way.place.as_deref(), limit, closing);
        let link = within(limit, opening).await;
        let link = link.map_err(|error| self.failure(error))?;
        Ok(WaitLink {
            link: Link::One(link),
            reused: false,
            way,
            permit,
        })
    }

    fn permit(self: &Arc<Self>) -> Result<WaitPermit, Error> {
        let limit = self.config.max_waits;
        self.waits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waits| {
                (waits < limit).then_some(waits + 1)
            })
            .map(|_| WaitPermit(self.clone()))
            .map_err(|_| Error::TooManyWaits { limit })
    }

    fn take_idle(&self, way: &Way) -> Option<Link> {
        let mut idle = lock(&self.idle);
        let at = idle.iter().rposition(|(other, _)| other == way)?;
        Some(idle.swap_remove(at).1)
    }
}

/// What goes on by itself once somebody waits for it; `gone` if its runtime ends.
fn once<T>(work: impl Future<Output = T> + Send + 'static, gone: T) -> Once<T>
where
    T: Clone + Send + 'static,
{
    async move { tokio::spawn(work).await.unwrap_or(gone) }
        .boxed()
        .shared()
}

impl WaitLink {
    /// Whether the server that this leads to still answers, on another connection than this.
    pub(crate) async fn check_alive(&self, key: &[u8]) -> Result<(), Error> {
        let at = self.way.place.as_deref().map(|place| At { place, key });
        self.permit.0.check_alive(at).await
    }

    /// Keeps the connection for the next wait. Only for one on which every command has been answered.
    pub(crate) fn keep(self) {
        let node = &self.permit.0;
        let mut idle = lock(&node.idle);
        if idle.len() < node.config.idle_connections {
            idle.push((self.way, self.link));
        }
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.name)
            .field("connector", &self.connector)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
