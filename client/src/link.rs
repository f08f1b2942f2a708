//! An open connection. Commands sent through clones of one link reach the server in the order they were sent.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::info;

/// When nothing that was sent comes any more: TCP has given it up by then (`connector`).
const LATEST: Duration = Duration::from_secs(30);

/// An open connection; clones share it.
#[derive(Clone)]
pub(crate) enum Link {
    One(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Link {
    /// Sends a command and waits for its reply as long as it takes.
    ///
    /// Dropped before the command is written, it is not sent; dropped later, its reply is thrown away.
    pub(crate) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        match self {
            Link::One(link) => link.clone().send_packed_command(cmd).await,
            #[cfg(feature = "cluster")]
            Link::Cluster(link) => crate::cluster::send(link, cmd).await,
        }
    }

    /// Waits until all that was sent for `key` on this connection before is answered, or nothing of it can come any more.
    pub(crate) async fn settle(&self, key: &[u8]) {
        // About the key, so that in a cluster it goes the same way.
        let look = info::look(key);
        let settling = async {
            // A connection that was given may have a time limit of its own.
            while self
                .send(&look)
                .await
                .is_err_and(|error| error.is_timeout())
            {}
        };
        let _ = tokio::time::timeout(LATEST, settling).await;
    }

    /// Sends a command and waits up to `limit` for its reply.
    pub(crate) async fn ask(&self, cmd: &Cmd, limit: Duration) -> RedisResult<Value> {
        within(limit, self.send(cmd)).await
    }

    /// Sends commands in one go; a reply for each, errors among them. Each may take up to `limit`.
    pub(crate) async fn ask_all(
        &self,
        cmds: &Pipeline,
        limit: Duration,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            Link::One(link) => {
                let mut link = link.clone();
                let asking = link.req_packed_commands(cmds, 0, cmds.len());
                let replies = within(limit, asking).await?;
                Ok(replies.into_iter().map(Ok).collect())
            }
            // Keys of different slots cannot share a pipeline: the connection sends them side by side, and a server that
            // hangs fails its own.
            #[cfg(feature = "cluster")]
            Link::Cluster(_) => {
                let asking = cmds.cmd_iter().map(|cmd| self.ask(cmd, limit));
                Ok(futures_util::future::join_all(asking).await)
            }
        }
    }
}

pub(crate) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match tokio::time::timeout(limit, request).await {
        Ok(reply) => reply,
        Err(_) => Err(silence(limit)),
    }
}

/// The error of a server that has not answered within `limit`.
pub(crate) fn silence(limit: Duration) -> RedisError {
    std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        format!("no reply within {limit:?}"),
    )
    .into()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::One(_) => "Link",
            #[cfg(feature = "cluster")]
            Link::Cluster(_) => "ClusterLink",
        })
    }
}
