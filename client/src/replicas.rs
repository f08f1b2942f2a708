//! Confirmed holds: a renewal counts once so many replicas have it. One write renews holds and waits for the replicas, on a connection
//! of its own, because `WAIT` blocks it. While one is on its way, the next renewals collect.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::oneshot;

use crate::connect::Connect;
use crate::error::{Error, Failed};
use crate::link::{Link, Reply};
use crate::request;
use crate::settings::Settings;
use crate::sync::lock;

/// How long replicas may take.
const LONGEST: Duration = Duration::from_secs(1);
/// The code of the error of a new connection to a server that has too few replicas.
const TOO_FEW: &str = "TOOFEW";

/// The replicas of a server.
pub(crate) struct Replicas {
    link: Arc<Link>,
    /// What grants.
    grants: Arc<Link>,
    /// What the next write sends.
    pending: Mutex<Vec<Pending>>,
    turn: tokio::sync::Mutex<()>,
}

/// A renewal without an answer, or what precedes it.
struct Pending {
    command: Cmd,
    answered: oneshot::Sender<Result<Reply, Failed>>,
}

impl Replicas {
    pub(crate) fn new(connect: Connect, grants: Arc<Link>) -> Replicas {
        let (settings, runtime) = (&grants.settings, &grants.runtime);
        let (wait, needed) = (wait(settings), settings.replicas.into());
        let connect = connect.then(move |connection| check(connection, wait.clone(), needed));
        Replicas {
            link: Link::new(connect, settings, runtime),
            grants,
            pending: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Sends a renewal, after `ASKING` where its slot is on its way here. Returns its reply once enough replicas have it.
    pub(crate) async fn confirm(
        self: &Arc<Self>,
        renewal: Cmd,
        is_asking: bool,
    ) -> Result<Reply, Failed> {
        let (answered, answer) = oneshot::channel();
        {
            let mut pending = lock(&self.pending);
            if is_asking {
                pending.push(Pending {
                    command: redis::cmd("ASKING"),
                    // Nobody waits for its reply.
                    answered: oneshot::channel().0,
                });
            }
            pending.push(Pending {
                command: renewal,
                answered,
            });
        }
        let replicas = self.clone();
        let runtime = &self.link.runtime;
        runtime.spawn(async move { replicas.send().await });
        let gone = || Err(Failed::Unknown(Error::RuntimeGone));
        // Without the runtime nobody sends it any more.
        let answer = runtime.limited(Duration::MAX, answer).await;
        answer.and_then(Result::ok).unwrap_or_else(gone)
    }

    /// Sends all that is pending, unless that was done.
    async fn send(&self) {
        let _turn = self.turn.lock().await;
        let pending = std::mem::take(&mut *lock(&self.pending));
        if pending.is_empty() {
            return;
        }
        let mut commands = Pipeline::new();
        for Pending { command, .. } in &pending {
            commands.add_command(command.clone());
        }
        commands.add_command(wait(&self.link.settings));
        let limit = LONGEST.saturating_add(self.link.settings.reply);
        let sent = self.link.call_all(&commands, limit).await;
        let answers = match sent.map_err(|failed| self.unopened(failed)) {
            Ok(replies) => self.counted(replies),
            Err(failed) => pending.iter().map(|_| Err(failed.clone())).collect(),
        };
        for (Pending { answered, .. }, answer) in pending.into_iter().zip(answers) {
            let _ = answered.send(answer);
        }
    }

    /// The replies to renewals, of which the last one says how many replicas have them. A hold that is gone is gone everywhere.
    fn counted(&self, mut replies: Vec<Result<Reply, Failed>>) -> Vec<Result<Reply, Failed>> {
        let none = || Err(Failed::Unknown(Error::unexpected(&"no reply")));
        let last = replies.pop().unwrap_or_else(none);
        let had = last.and_then(|reply| request::number(reply.value));
        let had = had.and_then(|had| match had >= self.link.settings.replicas.into() {
            true => Ok(()),
            false => Err(self.too_few(had)),
        });
        let counted = |reply: Result<Reply, Failed>| match reply {
            Ok(reply) if reply.value != Value::Nil => had.clone().map(|()| reply),
            reply => reply,
        };
        replies.into_iter().map(counted).collect()
    }

    /// A primary that has lost its replicas may have a successor.
    fn too_few(&self, had: u64) -> Failed {
        self.link.doubt();
        self.grants.doubt();
        let needed = self.link.settings.replicas;
        Failed::Refused(Error::Unconfirmed { needed, had })
    }

    /// The failure of a new connection, which may be that there are too few replicas.
    fn unopened(&self, failed: Failed) -> Failed {
        match &failed {
            Failed::Refused(Error::Connection { error, .. }) if error.code() == Some(TOO_FEW) => {
                let had = error.detail().and_then(|had| had.parse().ok());
                self.too_few(had.unwrap_or_default())
            }
            _ => failed,
        }
    }
}

/// Waits for replicas.
fn wait(settings: &Settings) -> Cmd {
    let mut wait = redis::cmd("WAIT");
    let limit = LONGEST.min(settings.reply).as_millis().max(1);
    wait.arg(settings.replicas).arg(limit as u64);
    wait
}

/// Checks that the server has as many replicas as are needed. On a new connection, `WAIT` counts those that are attached, whatever they
/// have.
async fn check(mut connection: MultiplexedConnection, wait: Cmd, needed: u64) -> RedisResult<()> {
    let had: u64 = wait.query_async(&mut connection).await?;
    match had >= needed {
        true => Ok(()),
        false => Err(redis::make_extension_error(
            TOO_FEW.to_owned(),
            Some(had.to_string()),
        )),
    }
}
