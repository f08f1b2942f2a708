//! The servers of a quorum.

use std::sync::{Arc, Mutex};

use redis::{ErrorKind, FromRedisValue, RedisError};

use crate::connect::Connect;
use crate::node::Node;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::sync;

/// Connects to these. Each server is identified when it is connected to.
pub(crate) fn nodes(
    servers: Vec<Connect>,
    settings: &Settings,
    runtime: &Runtime,
) -> Vec<Arc<Node>> {
    let run_ids: Arc<[_]> = servers.iter().map(|_| Arc::default()).collect();
    let node = |(number, connect)| {
        let connect = identified(connect, number, run_ids.clone());
        let run_id = run_ids[number].clone();
        let node = Node::new(connect, settings, runtime);
        Arc::new(Node { run_id, ..node })
    };
    servers.into_iter().enumerate().map(node).collect()
}

/// Has connections find out which process they lead to, which must not be one of the others of the quorum. A user without the right
/// to `INFO` may take locks all the same.
fn identified(
    connect: Connect,
    number: usize,
    run_ids: Arc<[Arc<Mutex<Option<String>>>]>,
) -> Connect {
    let (open, advice) = (connect.open, connect.advice);
    let identified = Connect::new(connect.server, move || {
        let (opening, run_ids) = (open(), run_ids.clone());
        async move {
            let mut connection = opening.await?;
            let mut command = redis::cmd("INFO");
            command.arg("server");
            let info = connection.send_packed_command(&command).await?;
            let info = String::from_redis_value(info).unwrap_or_default();
            let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
            let run_id = run_id.map(|run_id| run_id.trim().to_owned());
            sync::lock(&run_ids[number]).clone_from(&run_id);
            let same = run_ids.iter().filter(|id| *sync::lock(id) == run_id);
            match run_id.is_some() && same.count() > 1 {
                true => Err(RedisError::from((
                    ErrorKind::InvalidClientConfig,
                    "it is the same server as another one of this quorum, and would vote twice",
                ))),
                false => Ok(connection),
            }
        }
    });
    Connect {
        advice,
        ..identified
    }
}
