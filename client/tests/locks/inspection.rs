//! Holders and waiters, shown through one trait for a single server and for each server of a quorum; and which types are `Send`.

use mortise_client::{
    BootInstant, Client, Error, Guard, Held, Lock, Locks, Owner, Quorum, Server, ServerAnswer,
};

use crate::support::quorum::Servers;
use crate::support::{await_waiters, client, eventually};

/// The number of servers where the key is held, where it is free, and that do not answer.
async fn seen(locks: &dyn Locks, key: &str) -> (usize, usize, usize) {
    let answers = locks.info_on_each(key.as_bytes()).await;
    let count = |is: fn(&Result<Option<u64>, Error>) -> bool| {
        let holders = answers.iter().map(|there| match &there.answer {
            Ok(info) => Ok(info.as_ref().map(|info| info.holders)),
            Err(error) => Err(error.clone()),
        });
        holders.filter(is).count()
    };
    (
        count(|it| matches!(it, Ok(Some(1)))),
        count(|it| matches!(it, Ok(None))),
        count(|it| it.is_err()),
    )
}

#[tokio::test]
async fn info_of_a_quorum_shows_the_holder_on_each_server_and_which_server_is_silent() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum().await;
    assert_eq!(seen(&quorum, "k").await, (0, 3, 0));
    let guard = quorum.lock("k").acquire().await.unwrap();
    eventually("all have granted", || async {
        seen(&quorum, "k").await == (3, 0, 0)
    })
    .await;
    let answers = quorum.info("k").await;
    for (there, server) in answers.iter().zip(&servers.0) {
        assert_eq!(there.server, server.addr());
        let info = there.answer.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(info.holds[0].owner, guard.owner());
    }
    servers.0[1].sigkill();
    let answers = quorum.info("k").await;
    assert!(answers[0].answer.is_ok() && answers[2].answer.is_ok());
    assert!(
        matches!(answers[1].answer, Err(Error::Connection { .. })),
        "{answers:?}"
    );
    assert_eq!(answers[1].server, servers.0[1].addr());
}

#[tokio::test]
async fn the_queues_of_a_quorum_are_listed_for_each_server() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = quorum.lock("k");
        async move { lock.acquire().await.map(drop) }
    });
    // On the first server that replied: any, on a busy machine.
    let queue = || servers.0.iter().position(|it| it.gauge("waiters") > 0);
    eventually("it queues", || async { queue().is_some() }).await;
    let queue = queue().unwrap();
    let top = quorum.top(5).await;
    assert_eq!(top.len(), 3);
    for (server, there) in top.iter().enumerate() {
        let locks = there.answer.as_ref().unwrap().iter();
        let locks: Vec<_> = locks.map(|it| (it.key.as_slice(), it.waiters)).collect();
        let expected = [(b"k".as_slice(), 1)];
        assert_eq!(locks, expected[..usize::from(server == queue)]);
    }
    drop(guard);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_same_code_inspects_one_server_and_a_quorum() {
    async fn holders(locks: &impl Locks) -> (usize, usize) {
        let guard = locks.lock("job").acquire().await.unwrap();
        eventually("every server shows the hold", || async {
            seen(locks, "job").await.1 == 0
        })
        .await;
        let (held, _, silent) = seen(locks, "job").await;
        guard.release().await.unwrap();
        let top: Vec<ServerAnswer<_>> = locks.top_on_each(1).await;
        assert_eq!(top.len(), held);
        (held, silent)
    }
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    assert_eq!(holders(&quorum).await, (3, 0));
    servers.await_free("job").await;
    let one = client(&servers.0[0]).await;
    assert_eq!(holders(&one).await, (1, 0));
}

#[cfg(feature = "blocking")]
#[test]
fn the_blocking_api_has_the_same_trait() {
    use mortise_client::blocking::Wait;

    fn look(locks: &dyn Locks) -> usize {
        let guard = locks.lock_of(b"job").acquire().wait_guard().unwrap();
        let answers = locks.info_on_each(b"job").wait();
        guard.release().unwrap();
        assert_eq!(locks.top_on_each(1).wait().len(), answers.len());
        let held = |it: &&ServerAnswer<_>| matches!(it.answer, Ok(Some(_)));
        answers.iter().filter(held).count()
    }
    let servers = Servers::start(3);
    let quorum = servers
        .builder()
        .node_timeout(crate::support::ms(500))
        .connect()
        .wait();
    assert!(look(&quorum.unwrap()) >= 2);
    let one = mortise_client::Client::connect(servers.0[0].url()).wait();
    assert_eq!(look(&one.unwrap()), 1);
}

/// Runs nothing: the test is that this compiles.
#[test]
fn all_types_and_futures_can_be_sent_to_other_threads() {
    fn both<T: Send + Sync + 'static>() {}
    fn future<F: Future + Send>(_: &F) {}
    both::<(Client, Quorum, Lock, Guard, Held, Owner, Error, BootInstant)>();
    both::<Box<dyn Locks>>();
    fn send<T: Send + 'static>() {}
    send::<(
        Server,
        mortise_client::Builder,
        mortise_client::QuorumBuilder,
    )>();
    #[cfg(feature = "blocking")]
    both::<(mortise_client::blocking::Guard,)>();
    let _ = |client: Client, lock: Lock, mut guard: Guard| {
        future(&client.info("k"));
        future(&client.top(1));
        future(&lock.acquire());
        future(&lock.try_acquire());
        future(&lock.read());
        future(&lock.run(|_| async { Ok::<_, mortise_client::Error>(()) }));
        future(&lock.run_read(|_| async { Ok::<_, mortise_client::Error>(()) }));
        future(&guard.lost());
        future(&guard.renew());
        future(&guard.downgrade());
        future(&guard.upgrade());
        future(&guard.release());
    };
}

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn top_of_a_cluster_lists_the_longest_queues_of_all_primaries() {
    let cluster = mortise_harness::Cluster::start(3, mortise_harness::Server::builder);
    let seeds = cluster.nodes().map(mortise_harness::Server::url);
    let client = Client::connect(Server::cluster(seeds).unwrap()).await;
    let client = client.unwrap();
    // One, two and three wait, for a lock of each primary.
    let keys: [String; 3] = std::array::from_fn(|home| {
        let mut keys = (0..).map(|n| format!("key{n}"));
        keys.find(|key| cluster.home_of(key) == home).unwrap()
    });
    let (mut guards, mut waiting) = (Vec::new(), tokio::task::JoinSet::new());
    for (key, waiters) in keys.iter().zip(1..) {
        let lock = client.lock(key).lease(std::time::Duration::from_secs(60));
        guards.push(lock.acquire().await.unwrap());
        for _ in 0..waiters {
            let lock = lock.clone();
            waiting.spawn(async move { lock.acquire().await.map(drop) });
        }
        await_waiters(&client, key, waiters).await;
    }
    let top = client.top(2).await.unwrap();
    let top: Vec<_> = top.iter().map(|it| (&*it.key, it.waiters)).collect();
    assert_eq!(top, [(keys[2].as_bytes(), 3), (keys[1].as_bytes(), 2)]);
    assert_eq!(client.top(10).await.unwrap().len(), 3);
    let on_each = client.top_on_each(1).await.remove(0);
    assert_eq!(on_each.answer.unwrap()[0].key, keys[2].as_bytes());
}

#[tokio::test]
async fn a_client_and_a_guard_are_shown_by_what_tells_them_apart() {
    let server = mortise_harness::Server::start();
    let client = client(&server).await;
    assert!(format!("{client:?}").contains(&server.addr()), "{client:?}");
    let owner = Owner::named("billing").unwrap();
    let lock = client.lock("stock").owner(&owner);
    assert_eq!(lock.key(), b"stock");
    let guard = lock.acquire().await.unwrap();
    let (shown, token) = (format!("{guard:?}"), format!("{:?}", guard.token()));
    for part in ["Guard", "stock", "billing##", "Write", &token] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let held = guard.held();
    assert!(format!("{held:?}").starts_with("Held { key: \"stock\""));
}
