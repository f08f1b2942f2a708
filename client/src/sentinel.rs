//! Connections to the primary that Sentinel names.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};

use crate::connect::{Connect, at};
use crate::error::Error;

/// Opens connections to the primary that these sentinels name. They are asked each time: after a failover it is another one.
pub(crate) fn primary(sentinels: Vec<ConnectionInfo>, name: &str) -> Result<Connect, Error> {
    let Some(first) = sentinels.first().cloned() else {
        return Err(Error::Invalid("Sentinel needs at least one address".into()));
    };
    let (sentinels, name): (Arc<[ConnectionInfo]>, Arc<str>) = (sentinels.into(), name.into());
    let server = format!("the primary {name:?} that Sentinel names");
    Ok(Connect::new(server, move || {
        let (first, sentinels, name) = (first.clone(), sentinels.clone(), name.clone());
        async move {
            // The first answer counts, because others may be silent.
            let asking = sentinels.iter().map(|sentinel| ask(sentinel, &name));
            let mut answers: FuturesUnordered<_> = asking.collect();
            let unknown = "no Sentinel knows this primary";
            let mut error = RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, unknown));
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(Some((host, port))) => {
                        return (Connect::to(at(&first, host, port)).open)().await;
                    }
                    Ok(None) => {}
                    Err(failed) => error = failed,
                }
            }
            Err(error)
        }
    }))
}

/// Asks a sentinel for the primary's host and port.
async fn ask(sentinel: &ConnectionInfo, name: &str) -> RedisResult<Option<(String, u16)>> {
    // Sentinel has no databases.
    let settings = sentinel.redis_settings().clone().set_db(0);
    let sentinel = sentinel.clone().set_redis_settings(settings);
    let mut connection = (Connect::to(sentinel).open)().await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    command.query_async(&mut connection).await
}
