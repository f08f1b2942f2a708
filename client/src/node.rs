//! One server as this client sees it: a connection that all short commands share, and connections for waiting.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::{Cmd, RedisError, RedisResult, Value};

use crate::clock::BootInstant;
use crate::config::Config;
use crate::connector::Connector;
use crate::error::{Error, is_passing};
use crate::link::Link;
use crate::wire;

/// The number of a connection whose failure says nothing of the shared one.
pub(crate) const NOT_SHARED: u64 = u64::MAX;

/// One server, or what counts as one: a Sentinel group, a cluster.
pub(crate) struct Node {
    name: String,
    connector: Connector,
    config: Config,
    shared: tokio::sync::Mutex<Shared>,
    idle: Mutex<Vec<(Option<String>, Link)>>,
    waits: AtomicUsize,
    /// When a check last found the server there; locked while one is going on.
    heard: tokio::sync::Mutex<Option<BootInstant>>,
    /// It let the time for an answer pass, and has answered nothing since.
    silent: AtomicBool,
}

/// The shared connection, numbered so that a report of its failure cannot take down its successor.
struct Shared {
    link: Option<Link>,
    number: u64,
}

/// A connection to wait on, and the right to one more wait; gone when dropped.
#[derive(Debug)]
pub(crate) struct WaitLink {
    pub(crate) link: Link,
    /// It was kept from an earlier wait, and may have died since.
    pub(crate) reused: bool,
    place: Option<String>,
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
            shared: tokio::sync::Mutex::new(Shared {
                link: given,
                number: 0,
            }),
            idle: Mutex::new(Vec::new()),
            waits: AtomicUsize::new(0),
            heard: tokio::sync::Mutex::new(None),
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

    /// The shared connection, opened if there is none, and its number; waited for as long as a reply may take.
    ///
    /// Opening may take longer than that. It then goes on by itself, for whoever asks next.
    pub(crate) async fn link(self: &Arc<Self>) -> RedisResult<(Link, u64)> {
        if let Ok(shared) = self.shared.try_lock()
            && let Some(link) = &shared.link
        {
            return Ok((link.clone(), shared.number));
        }
        let node = self.clone();
        let opening = tokio::spawn(async move { node.open().await });
        let limit = self.config.response_timeout;
        match tokio::time::timeout(limit, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) | Err(_) => Err(crate::link::silence(limit)),
        }
    }

    async fn open(&self) -> RedisResult<(Link, u64)> {
        let mut shared = self.shared.lock().await;
        if let Some(link) = &shared.link {
            return Ok((link.clone(), shared.number));
        }
        let limit = self.config.connect_timeout;
        // The connection's own limit leaves out what Sentinel or a name server takes.
        let link = match tokio::time::timeout(limit, self.connector.shared(limit)).await {
            Ok(link) => link?,
            Err(_) => return Err(crate::link::silence(limit)),
        };
        shared.number += 1;
        shared.link = Some(link.clone());
        Ok((link, shared.number))
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
    pub(crate) async fn ask_on(&self, link: &Link, number: u64, cmd: &Cmd) -> Result<Value, Error> {
        let reply = link.ask(cmd, self.config.response_timeout).await;
        match &reply {
            Ok(_) => self.note_silent(false),
            Err(error) => self.report(number, error).await,
        }
        let value = wire::value(reply, &self.name);
        if let Err(Error::Refused(line)) = &value
            && self.fails_over()
            && is_passing(line)
        {
            self.rediscover().await;
        }
        value
    }

    /// Whether the server still answers, asked on the shared connection; however many ask, one command is sent.
    pub(crate) async fn check_alive(self: &Arc<Self>) -> Result<(), Error> {
        let asked = BootInstant::now();
        let mut heard = self.heard.lock().await;
        let fresh = asked.back(self.config.response_timeout / 2);
        if heard.is_some_and(|at| at >= fresh) {
            return Ok(());
        }
        match self.ask(&redis::cmd("PING")).await {
            // A server that may not be pinged, or is loading, is there all the same.
            Ok(_) | Err(Error::Refused(_)) => {
                *heard = Some(BootInstant::now());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends commands over the shared connection in one go.
    pub(crate) async fn ask_all(
        self: &Arc<Self>,
        cmds: Vec<Cmd>,
    ) -> Result<Vec<RedisResult<Value>>, Error> {
        let (link, number) = self.link().await.map_err(|error| self.failure(error))?;
        let replies = link.ask_all(cmds, self.config.response_timeout).await;
        if let Err(error) = &replies {
            self.report(number, error).await;
        }
        replies.map_err(|error| self.failure(error))
    }

    /// Takes note that the shared connection `number` has failed: the next command opens another.
    async fn report(&self, number: u64, error: &RedisError) {
        if !(error.is_io_error() || error.is_unrecoverable_error() || error.is_timeout()) {
            return;
        }
        let mut shared = self.shared.lock().await;
        if shared.number == number {
            shared.link = None;
        }
    }

    /// Lets go of every connection that leads to a server which is no primary any more.
    pub(crate) async fn rediscover(&self) {
        self.shared.lock().await.link = None;
        self.lock_idle().clear();
    }

    /// A connection to wait on for `key`, another than the shared one. Never waited for: whoever holds the lock may
    /// need one to go on.
    pub(crate) async fn wait_link(
        self: &Arc<Self>,
        key: &[u8],
        fresh: bool,
    ) -> Result<WaitLink, Error> {
        let permit = self.permit()?;
        let (shared, _) = self.link().await.map_err(|error| self.failure(error))?;
        let place = self
            .connector
            .place(&shared, key)
            .await
            .map_err(|error| self.failure(error))?;
        if !fresh && let Some(link) = self.take_idle(place.as_deref()) {
            return Ok(WaitLink {
                link,
                reused: true,
                place,
                permit,
            });
        }
        let limit = self.config.connect_timeout;
        let opening = self.connector.dedicated(place.as_deref(), limit);
        let link = match tokio::time::timeout(limit, opening).await {
            Ok(link) => link.map_err(|error| self.failure(error))?,
            Err(_) => return Err(self.failure(crate::link::silence(limit))),
        };
        Ok(WaitLink {
            link: Link::One(link),
            reused: false,
            place,
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

    fn take_idle(&self, place: Option<&str>) -> Option<Link> {
        let mut idle = self.lock_idle();
        let at = idle
            .iter()
            .rposition(|(there, _)| there.as_deref() == place)?;
        Some(idle.swap_remove(at).1)
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<(Option<String>, Link)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitLink {
    /// Keeps the connection for the next wait. Only for one on which every command has been answered.
    pub(crate) fn keep(self) {
        let node = &self.permit.0;
        let mut idle = node.lock_idle();
        if idle.len() < node.config.idle_connections {
            idle.push((self.place, self.link));
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
