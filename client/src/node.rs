//! One server process, and a key on it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Pipeline};

use crate::connect::Connect;
use crate::error::{Error, Failed};
use crate::link::{Link, Reply};
use crate::mail::Mail;
use crate::name::Bytes;
use crate::replicas::Replicas;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::sync::lock;

/// One server process: a connection for commands, and one for letters.
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) link: Arc<Link>,
    pub(crate) mail: Arc<Mail>,
    /// What confirms holds, if replicas have to.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// What the process calls itself, once that is known.
    pub(crate) run_id: Arc<Mutex<Option<String>>>,
}

impl Node {
    /// A server, which is connected to when it is first used.
    pub(crate) fn new(mut connect: Connect, settings: &Settings, runtime: &Runtime) -> Node {
        if let Some(name) = &settings.name {
            connect = connect.named(name);
        }
        let open = || Link::new(connect.clone(), settings, runtime);
        let (link, letters) = (open(), open());
        let replicas = || Replicas::new(connect.clone(), link.clone());
        Node {
            name: connect.server.clone(),
            replicas: (settings.replicas > 0).then(replicas).map(Arc::new),
            mail: Mail::new(letters, link.clone()),
            link,
            run_id: Arc::default(),
        }
    }

    /// What sorts servers in the same way for all clients: the server's own name for itself.
    pub(crate) fn rank(&self) -> String {
        let run_id = lock(&self.run_id).clone();
        run_id.unwrap_or_else(|| self.name.to_string())
    }
}

/// A key on a server.
#[derive(Clone)]
pub(crate) struct Place {
    /// The server that granted it; in a cluster the key may have moved since.
    pub(crate) node: Arc<Node>,
    pub(crate) key: Bytes,
    /// The key's slot is on its way there: `ASKING` precedes a request.
    pub(crate) is_asking: bool,
}

impl Place {
    pub(crate) fn new(node: Arc<Node>, key: Bytes) -> Place {
        Place {
            node,
            key,
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
        let no_reply = || Err(Failed::Unknown(Error::unexpected(&"no reply")));
        replies.pop().unwrap_or_else(no_reply)
    }
}
