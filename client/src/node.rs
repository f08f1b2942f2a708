//! One server process, and where requests go.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Pipeline};

use crate::error::{Error, Failed};
use crate::link::{Link, Reply};
use crate::mail::Mail;
use crate::name::Bytes;
use crate::sync::lock;

/// One server process: a connection for commands, and one for letters.
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) link: Link,
    pub(crate) mail: Mail,
    pub(crate) identity: Identity,
}

/// The `run_id` of a server process, once it is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity(Arc<Mutex<Option<String>>>);

impl Identity {
    pub(crate) fn id(&self) -> Option<String> {
        lock(&self.0).clone()
    }

    /// Reads it out of a reply to `INFO server`.
    pub(crate) fn set(&self, info: &str) {
        let id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        *lock(&self.0) = id.map(|id| id.trim().to_owned());
    }
}

/// A key on a server.
#[derive(Clone)]
pub(crate) struct Place {
    /// The server that granted it; in a cluster the key may have moved since.
    pub(crate) node: Arc<Node>,
    pub(crate) key: Bytes,
}

/// Where a request goes.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) node: Arc<Node>,
    /// The key's slot is on its way there: `ASKING` precedes the request.
    pub(crate) is_asking: bool,
}

impl Route {
    pub(crate) fn to(node: Arc<Node>) -> Route {
        Route {
            node,
            is_asking: false,
        }
    }

    pub(crate) async fn call(&self, command: &Cmd, limit: Duration) -> Result<Reply, Failed> {
        if !self.is_asking {
            return self.node.link.call(command, limit).await;
        }
        let mut commands = Pipeline::new();
        commands.cmd("ASKING").add_command(command.clone());
        let mut replies = self.node.link.call_all(&commands, limit).await?;
        match replies.values.pop() {
            Some(Ok(value)) => Ok(Reply {
                value,
                sent: replies.sent,
            }),
            Some(Err(error)) => Err(Failed::Refused(error)),
            None => Err(Failed::Unknown(Error::unexpected(&"no replies"))),
        }
    }
}
