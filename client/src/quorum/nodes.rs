//! The servers of a quorum.

use std::sync::{Arc, Mutex};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, FromRedisValue, InfoDict, RedisError, RedisResult};

use crate::connect::Connect;
use crate::node::Node;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::sync::lock;

/// What each server of a quorum calls its process, once that is known.
type RunIds = Arc<[Arc<Mutex<Option<String>>>]>;

/// Connects to these. Each server is identified when it is connected to.
pub(crate) fn nodes(
    servers: Vec<Connect>,
    settings: &Settings,
    runtime: &Runtime,
) -> Vec<Arc<Node>> {
    let run_ids: RunIds = servers.iter().map(|_| Arc::default()).collect();
    let node = |(number, connect): (usize, Connect)| {
        let run_id = run_ids[number].clone();
        let run_ids = run_ids.clone();
        let connect = connect.then(move |connection| identify(connection, number, run_ids.clone()));
        let node = Node::new(connect, settings, runtime);
        Arc::new(Node { run_id, ..node })
    };
    servers.into_iter().enumerate().map(node).collect()
}

/// Finds out which process a connection leads to, which must not be one of the others of the quorum. A user without the right to
/// `INFO` may take locks all the same.
async fn identify(
    mut connection: MultiplexedConnection,
    number: usize,
    run_ids: RunIds,
) -> RedisResult<()> {
    let mut command = redis::cmd("INFO");
    command.arg("server");
    let info = connection.send_packed_command(&command).await?;
    let info = InfoDict::from_redis_value(info).ok();
    let run_id = info.and_then(|info| info.get::<String>("run_id"));
    lock(&run_ids[number]).clone_from(&run_id);
    let same = run_ids.iter().filter(|id| *lock(id) == run_id);
    match run_id.is_some() && same.count() > 1 {
        true => Err(RedisError::from((
            ErrorKind::InvalidClientConfig,
            "it is the same server as another one of this quorum, and would vote twice",
        ))),
        false => Ok(()),
    }
}
