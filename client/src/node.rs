//! One server process, and where requests go.

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
    pub(crate) link: Link,
    pub(crate) mail: Mail,
    /// What confirms holds, if replicas have to.
    pub(crate) replicas: Option<Arc<Replicas>>,
    pub(crate) run_id: RunId,
}

/// What a server process calls itself, once it is known.
pub(crate) type RunId = Arc<Mutex<Option<String>>>;

impl Node {
    /// A server, which is connected to when it is first used.
    pub(crate) fn new(connect: Connect, settings: &Settings, runtime: &Runtime) -> Node {
        let open = || Link::new(connect.clone(), settings.clone(), runtime.clone());
        let (link, letters) = (open(), open());
        let replicas = || Replicas::new(connect.clone(), link.clone(), settings, runtime);
        let replicas = (settings.replicas > 0).then(replicas);
        Node {
            name: connect.server.clone(),
            replicas: replicas.map(Arc::new),
            mail: Mail::new(letters, settings.clone(), runtime.clone()),
            link,
            run_id: RunId::default(),
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
        let is_asking = false;
        Route { node, is_asking }
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
