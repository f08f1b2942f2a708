//! The ways to reach a server: a connection that the application has, a Unix socket, Sentinel, Redis Cluster, TLS.

use mortise_client::Client;
use mortise_harness::Server;

use crate::support::{self, ms};

/// Acquires a lock, at once and after a wait, and releases it.
async fn exercise(client: &Client, key: &str) {
    let guard = client.lock(key).acquire().await.unwrap();
    assert!(
        client
            .lock(key)
            .wait(ms(20))
            .acquire()
            .await
            .unwrap_err()
            .is_busy()
    );
    let waiting = tokio::spawn({
        let lock = client.lock(key);
        async move { lock.clone().acquire().await.unwrap() }
    });
    support::await_waiters(client, key, 1).await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn locks_work_over_a_unix_socket() {
    let server = Server::builder().unix_socket().start();
    let client = Client::connect(format!("unix://{}", server.socket().display()))
        .await
        .unwrap();
    exercise(&client, "k").await;
}

#[tokio::test]
async fn locks_work_over_connections_that_the_application_opens() {
    let server = Server::start();
    let redis = mortise_client::redis::Client::open(server.url()).unwrap();
    let client = Client::with(move || {
        let redis = redis.clone();
        async move { redis.get_multiplexed_async_connection().await }
    });
    exercise(&client.connect().await.unwrap(), "k").await;
}

#[tokio::test]
async fn locks_work_with_a_database_a_password_and_either_protocol() {
    let server = Server::builder().config("requirepass", "secret").start();
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://:secret@{}/3?protocol={protocol}", server.addr());
        let client = Client::connect(url).await.unwrap();
        exercise(&client, "k").await;
    }
}

#[cfg(feature = "cluster")]
mod cluster {
    use mortise_harness::{Server, cmd, text};

    use super::*;

    fn start(slots: [u16; 2]) -> Server {
        let server = Server::builder().config("cluster-enabled", "yes").start();
        cmd!(
            server.connect(),
            "CLUSTER",
            "ADDSLOTSRANGE",
            slots[0],
            slots[1]
        );
        server
    }

    #[tokio::test]
    async fn in_a_cluster_each_wait_goes_to_the_node_with_the_key() {
        let servers = [start([0, 8191]), start([8192, 16383])];
        cmd!(
            servers[0].connect(),
            "CLUSTER",
            "MEET",
            "127.0.0.1",
            servers[1].port()
        );
        for server in &servers {
            mortise_harness::eventually("the cluster is complete", || {
                text(&cmd!(server.connect(), "CLUSTER", "INFO")).contains("cluster_state:ok")
                    && text(&cmd!(server.connect(), "CLUSTER", "INFO"))
                        .contains("cluster_known_nodes:2")
            });
        }
        let plain = Client::connect(servers[1].url()).await.unwrap();
        let error = plain.lock("b").acquire().await.unwrap_err();
        assert!(error.to_string().contains("Client::cluster"), "{error}");
        let client = Client::cluster([servers[0].url()])
            .unwrap()
            .connect()
            .await
            .unwrap();
        // Slots 7186, 15891, 12182 and 3300: two on each node.
        for key in ["d", "e", "foo", "b"] {
            exercise(&client, key).await;
        }
        // All are renewed, whatever their slots.
        let mut guards = Vec::new();
        for key in ["d", "e", "foo", "b"] {
            let lock = client.lock(key).lease(ms(3_000));
            guards.push(lock.clone().acquire().await.unwrap());
        }
        let deadlines: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
        support::eventually("all are renewed", || async {
            let mut held = guards.iter().zip(&deadlines);
            held.all(|(guard, before)| guard.deadline() > *before)
        })
        .await;
        assert!(guards.iter().all(|guard| guard.is_valid()));
    }
}

mod sentinel {
    use std::process::{Child, Command};

    use mortise_harness::{Server, wait_for_sync};

    use super::*;

    struct Sentinel(Child);

    impl Drop for Sentinel {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn start(primary: &Server) -> (Sentinel, u16) {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let file = primary.dir().join("sentinel.conf");
        let lines = [
            format!("port {port}"),
            format!("sentinel monitor locks 127.0.0.1 {} 1", primary.port()),
            // Sentinel promotes no replica that has missed its primary for ten times as long, and may do nothing for half a minute
            // after a machine has stood still.
            "sentinel down-after-milliseconds locks 4000".to_owned(),
            "sentinel failover-timeout locks 2000".to_owned(),
        ];
        std::fs::write(&file, lines.join("\n")).unwrap();
        let server = std::env::var_os("MORTISE_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(server)
            .arg(&file)
            .args(["--sentinel", "--logfile", "sentinel.log", "--dir"])
            .arg(primary.dir())
            .spawn()
            .unwrap();
        (Sentinel(child), port)
    }

    #[tokio::test]
    async fn locks_follow_sentinel_to_the_primary_and_after_a_failover_to_the_next_one() {
        let mut primary = Server::start();
        let replica = Server::builder().replica_of(&primary).start();
        wait_for_sync(&primary, &replica);
        let (_sentinel, port) = start(&primary);
        let url = format!("redis://127.0.0.1:{port}/");
        mortise_harness::eventually("the sentinel knows the replica", || {
            let client = mortise_client::redis::Client::open(url.as_str()).ok()?;
            let mut connection = client.get_connection().ok()?;
            let replicas: Vec<Vec<String>> = mortise_client::redis::cmd("SENTINEL")
                .arg("REPLICAS")
                .arg("locks")
                .query(&mut connection)
                .ok()?;
            (replicas.len() == 1).then_some(())
        });
        let client = Client::sentinel([url], "locks").unwrap().build().unwrap();
        // Sentinel takes a primary that replies late to be down for a moment.
        let is_up = async || client.info("k").await.is_ok();
        support::eventually("the sentinel names the primary", is_up).await;
        exercise(&client, "k").await;
        primary.sigkill();
        // The failover happens during these attempts.
        let lock = client.lock("k").wait(ms(15_000));
        let guard = loop {
            match lock.clone().acquire().await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            tokio::time::sleep(ms(50)).await;
        };
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }

    #[tokio::test]
    async fn the_next_sentinel_names_the_primary_when_the_first_is_silent() {
        let primary = Server::start();
        let (_sentinel, port) = start(&primary);
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = format!("redis://{}/", silent.local_addr().unwrap());
        let urls = vec![silent, format!("redis://127.0.0.1:{port}/")];
        let builder = Client::sentinel(urls, "locks").unwrap();
        // The primary may take this long. The silent Sentinel takes longer.
        let client = builder.connect_timeout(ms(1_500)).build().unwrap();
        let is_up = async || client.info("k").await.is_ok();
        support::eventually("a Sentinel names the primary", is_up).await;
        exercise(&client, "k").await;
    }
}
