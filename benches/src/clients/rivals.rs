//! The crates that are compared, each used as its own documentation shows, behind one interface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_client::redis::Client as Redis1;
use mortise_client::{Client as Mortise, Lock, Quorum};
use redis_0_27::Client as Redis27;
use redis_0_27::aio::MultiplexedConnection as Connection27;
use tokio::runtime::Handle;

use crate::clients::room::Room;

/// Errors, in the words of each crate.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crate {
    Mortise,
    Rslock,
    Redlock,
    RedisLock,
    Distkit,
    AsyncRedisLock,
}

/// How often a crate that polls does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// By the crate's default.
    Usual,
    /// Every ten milliseconds, or a random time up to twice that.
    Fast,
}

const FAST: Duration = Duration::from_millis(10);

/// A crate, and how it is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rival {
    pub(crate) of: Crate,
    pub(crate) pace: Pace,
}

impl Rival {
    /// The crates that lock on one server, Mortise first.
    pub(crate) const ON_ONE_SERVER: [Rival; 6] = [
        Rival::usual(Crate::Mortise),
        Rival::usual(Crate::Rslock),
        Rival::usual(Crate::Redlock),
        Rival::usual(Crate::RedisLock),
        Rival::usual(Crate::Distkit),
        Rival::usual(Crate::AsyncRedisLock),
    ];

    /// The crates that lock over several servers, Mortise first.
    pub(crate) const ON_A_QUORUM: [Rival; 4] = [
        Rival::usual(Crate::Mortise),
        Rival::usual(Crate::Rslock),
        Rival::usual(Crate::Redlock),
        Rival::usual(Crate::RedisLock),
    ];

    const fn usual(of: Crate) -> Rival {
        Rival {
            of,
            pace: Pace::Usual,
        }
    }

    /// The same, polling fast; `None` if the crate does not poll.
    pub(crate) fn fast(self) -> Option<Rival> {
        (self.of != Crate::Mortise).then_some(Rival {
            pace: Pace::Fast,
            ..self
        })
    }

    pub(crate) fn name(self) -> String {
        let name = match self.of {
            Crate::Mortise => "mortise-client",
            Crate::Rslock => "rslock 0.10",
            Crate::Redlock => "redlock 2.0",
            Crate::RedisLock => "redis-lock 0.5",
            Crate::Distkit => "distkit 0.7",
            Crate::AsyncRedisLock => "async-redis-lock 0.4",
        };
        match self.pace {
            Pace::Usual => name.to_owned(),
            Pace::Fast => format!("{name}, polling fast"),
        }
    }
}

/// One client of a rival, with its own connections, for one lock.
pub(crate) struct Visitor {
    key: String,
    lease: Duration,
    by: By,
}

enum By {
    Mortise(Lock),
    Rslock(rslock::LockManager),
    Redlock(Arc<redlock::RedLock>),
    RedisLock(Vec<Arc<tokio::sync::Mutex<Connection27>>>, Pace),
    Distkit(Arc<distkit::lock::Mutex>),
    AsyncRedisLock(Box<async_redis_lock::Locker>, async_redis_lock::Options),
}

/// The times from the request to the grant, and to the release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) wait: Duration,
    pub(crate) whole: Duration,
}

impl Visitor {
    pub(crate) async fn connect(
        rival: Rival,
        servers: &[String],
        key: &str,
        lease: Duration,
    ) -> Result<Visitor, Failure> {
        let by = match rival.of {
            Crate::Mortise => By::Mortise(match servers {
                [server] => Mortise::connect(server).await?.lock(key).lease(lease),
                _ => Quorum::connect(servers).await?.lock(key).lease(lease),
            }),
            Crate::Rslock => {
                let mut manager =
                    rslock::LockManager::new(servers.iter().map(String::as_str).collect());
                if rival.pace == Pace::Fast {
                    manager.set_retry(3, 2 * FAST);
                }
                By::Rslock(manager)
            }
            Crate::Redlock => {
                let mut manager =
                    redlock::RedLock::new(servers.iter().map(String::as_str).collect());
                if rival.pace == Pace::Fast {
                    manager.set_retry(3, 2 * FAST.as_millis() as u32);
                }
                By::Redlock(Arc::new(manager))
            }
            Crate::RedisLock => {
                let mut connections = Vec::new();
                for server in servers {
                    let client = Redis27::open(server.as_str())?;
                    let connection = client.get_multiplexed_async_connection().await?;
                    connections.push(Arc::new(tokio::sync::Mutex::new(connection)));
                }
                By::RedisLock(connections, rival.pace)
            }
            Crate::Distkit => By::Distkit(distkit_mutex(rival, servers, key, lease).await?),
            Crate::AsyncRedisLock => {
                let mut options = async_redis_lock::Options::new()
                    .ttl(lease)
                    .extend(lease / 3);
                if rival.pace == Pace::Fast {
                    options = options.retry(FAST);
                }
                let locker = async_redis_lock::Locker::from_redis_url(&servers[0]).await?;
                By::AsyncRedisLock(Box::new(locker), options)
            }
        };
        Ok(Visitor {
            key: key.to_owned(),
            lease,
            by,
        })
    }

    /// Takes the lock, enters the critical section, and releases the lock.
    pub(crate) async fn visit(&self, room: &Arc<Room>) -> Result<Visit, Failure> {
        let (key, lease) = (self.key.as_str(), self.lease);
        let asked = Instant::now();
        let came = match &self.by {
            By::Mortise(lock) => {
                let guard = lock.clone().acquire().await?;
                let came = room.stay().await;
                guard.release().await?;
                came
            }
            By::Rslock(manager) => {
                let guard = manager.acquire(key, lease).await?;
                let came = room.stay().await;
                guard.release().await;
                came
            }
            By::Redlock(manager) => {
                let (manager, key, room) = (manager.clone(), self.key.clone(), room.clone());
                tokio::task::spawn_blocking(move || {
                    let guard = manager.acquire(key.as_bytes(), lease.as_millis() as usize)?;
                    // Sleeps by the same clock as all others: the sleeps of two clocks differ by up to a millisecond.
                    let came = Handle::current().block_on(room.stay());
                    drop(guard);
                    Ok::<_, Failure>(came)
                })
                .await??
            }
            By::RedisLock(connections, pace) => {
                let mut options = redis_lock::LockAcrossOptions {
                    ttl: lease,
                    ..Default::default()
                };
                if *pace == Pace::Fast {
                    options.retry = FAST;
                }
                let room = room.clone();
                let stay = async move { room.stay().await };
                redis_lock::lock_across(connections, key, stay, options)
                    .await
                    .map_err(|error| error.to_string())?
            }
            By::Distkit(mutex) => {
                let guard = mutex.lock().await?;
                let came = room.stay().await;
                guard.release().await?;
                came
            }
            By::AsyncRedisLock(locker, options) => {
                let guard = locker.acquire_with_options(options, key).await?;
                let came = room.stay().await;
                guard.release().await?;
                came
            }
        };
        Ok(Visit {
            wait: came - asked,
            whole: asked.elapsed(),
        })
    }
}

async fn distkit_mutex(
    rival: Rival,
    servers: &[String],
    key: &str,
    lease: Duration,
) -> Result<Arc<distkit::lock::Mutex>, Failure> {
    let client = Redis1::open(servers[0].as_str())?;
    let connection = client.get_connection_manager().await?;
    let key = distkit::DistkitRedisKey::try_from(key.to_owned())?;
    let mut options = distkit::lock::LockOptions::builder(key, connection).ttl(lease);
    if rival.pace == Pace::Fast {
        options = options.retry_interval(FAST);
    }
    Ok(distkit::lock::Mutex::new(options.build()))
}
