//! A primary, its replica and the replica's replica have the same holds, whatever clients do and however links and replicas fail, and
//! `INFO lock` counts exactly what is held. Runs once, or twenty times with `MORTISE_LONG=1`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Link, Server, Snapshot, array, assert_same_data, cmd, eventually, eventually_within, int,
    is_long_run, lock_info, text, wait_for_sync, wait_for_sync_over,
};

use super::EndsOnDrop;
use super::player::{DATABASES, Player, Players, Playground};

const CLIENTS: Players = Players {
    count: 12,
    owners: 20,
    long_leases: true,
};

/// How long writes are paused for a comparison.
const PAUSE: Duration = Duration::from_secs(20);

/// A chain of three.
struct Chain {
    link: Link,
    middle: Server,
    last: Server,
}

impl Chain {
    fn behind(primary: &Server) -> Chain {
        let link = Link::to(primary);
        let middle = Server::builder().replica_over(&link).start();
        wait_for_sync_over(&link, primary, &middle);
        // It saves when it is terminated, so that it comes back with data and may continue with a partial sync.
        let last = Server::builder()
            .replica_of(&middle)
            .config("save", "3600 1")
            .start();
        wait_for_sync(&middle, &last);
        Chain { link, middle, last }
    }

    #[track_caller]
    fn catch_up(&self, primary: &Server) {
        wait_for_sync_over(&self.link, primary, &self.middle);
        wait_for_sync(&self.middle, &self.last);
    }
}

/// Pauses all changes and compares all three.
#[track_caller]
fn assert_agree(crowd: &Playground<'_>, primary: &Server, chain: &Chain) {
    let _alone = crowd.turn.write().expect("nobody fails in its turn");
    let mut conn = primary.connect();
    eventually_within(5 * PAUSE, "a comparison is done within a pause", || {
        let began = Instant::now();
        // No lease is swept in the pause, either.
        cmd!(conn, "CLIENT", "PAUSE", PAUSE.as_millis() as u64, "WRITE");
        chain.catch_up(primary);
        let servers = [primary, &chain.middle, &chain.last];
        let digests = servers.map(|server| text(&cmd!(server.connect(), "DEBUG DIGEST")));
        let locks = servers.map(Snapshot::take);
        let in_time = began.elapsed() < PAUSE;
        if in_time {
            assert!(
                digests.iter().all(|digest| *digest == digests[0]),
                "they differ: {locks:#?}"
            );
            for replica in &locks[1..] {
                replica.assert_keeps(&locks[0]);
            }
        }
        in_time
    });
    cmd!(conn, "CLIENT UNPAUSE");
}

/// What `INFO lock` counts: locks and holders.
fn counted(server: &Server) -> [i64; 2] {
    ["locks", "holders"].map(|name| server.gauge(name))
}

/// What `LOCK.INFO` shows of all keys.
fn shown(server: &Server) -> [i64; 2] {
    let mut conn = server.connect();
    let mut shown = [0, 0];
    for db in 0..DATABASES {
        cmd!(conn, "SELECT {db}");
        for key in array(&cmd!(conn, "SCAN 0 COUNT 1000 TYPE mort-lock"))[1..]
            .iter()
            .flat_map(array)
        {
            if let Some(lock) = lock_info(&mut conn, text(key)) {
                shown[0] += i64::from(lock.holders > 0);
                shown[1] += lock.holders;
            }
        }
    }
    shown
}

/// Stops all clients, and checks that the server counts exactly what is held.
#[track_caller]
fn assert_counts(crowd: &Playground<'_>, primary: &Server) {
    let _alone = crowd.turn.write().expect("nobody fails in its turn");
    // `shown` names every lock, so that those that were renamed count, too. Short leases may end meanwhile.
    eventually("INFO counts what is held", || {
        let (before, now) = (shown(primary), counted(primary));
        if before == now && shown(primary) == now {
            Ok(())
        } else {
            Err((before, now))
        }
    });
}

/// How many partial and full syncs `server` has served.
fn syncs(server: &Server) -> [i64; 2] {
    ["sync_partial_ok", "sync_full"].map(|name| server.info("stats")[name].parse().unwrap())
}

/// Waits until the clients have made progress during `what`.
#[track_caller]
fn amid_changes(primary: &Server) {
    let granted = primary.gauge("total_grants");
    eventually("much has happened", || {
        primary.gauge("total_grants") > granted + 200
    });
}

/// Kills the connections of `of`'s replicas, and waits for their partial sync.
#[track_caller]
fn cut_off_replicas(primary: &Server, of: &Server) {
    for _ in 0..2 {
        let [partial, full] = syncs(of);
        cmd!(of.connect(), "CLIENT KILL TYPE replica");
        amid_changes(primary);
        eventually("the replica has a partial sync", || {
            let now = syncs(of);
            now[0] > partial && now[1] == full
        });
    }
}

/// Stops `replica` by `down`, starts it again, and waits until `of` has synchronised it.
#[track_caller]
fn restart(primary: &Server, of: &Server, replica: &mut Server, down: fn(&mut Server)) {
    let synced: i64 = syncs(of).iter().sum();
    down(replica);
    amid_changes(primary);
    replica.start_again();
    eventually("it is attached again", || {
        syncs(of).iter().sum::<i64>() > synced
    });
    amid_changes(primary);
}

/// A server with a file of its primary's data, or of its own, may continue from there.
fn lose_everything(server: &mut Server) {
    server.sigkill();
    let _ = fs::remove_file(server.dir().join("dump.rdb"));
}

#[track_caller]
fn disturb(crowd: &Playground<'_>, primary: &Server, chain: &mut Chain) {
    cut_off_replicas(primary, primary);
    assert_agree(crowd, primary, chain);
    cut_off_replicas(primary, &chain.middle);
    assert_agree(crowd, primary, chain);
    // Nothing passes for a while, and then everything at once.
    chain.link.cut();
    amid_changes(primary);
    chain.link.mend();
    assert_agree(crowd, primary, chain);
    for down in [lose_everything, Server::sigkill, Server::terminate] {
        restart(primary, primary, &mut chain.middle, down);
        assert_agree(crowd, primary, chain);
        restart(primary, &chain.middle, &mut chain.last, down);
        assert_agree(crowd, primary, chain);
        assert_counts(crowd, primary);
    }
    let [_, full] = syncs(primary);
    let another = Server::builder().replica_of(primary).start();
    amid_changes(primary);
    wait_for_sync(primary, &another);
    assert!(syncs(primary)[1] > full, "everything was sent amid changes");
    drop(another);
    assert_agree(crowd, primary, chain);
}

#[test]
fn a_chain_of_replicas_agrees_after_random_commands_lost_links_and_restarts() {
    let rounds = if is_long_run() { 20 } else { 1 };
    // It sends all its data by way of a file, and its replica without.
    let builder = Server::builder().config("repl-diskless-sync", "no");
    let primary = builder.start();
    let mut chain = Chain::behind(&primary);
    let crowd = &Playground::new(&primary, CLIENTS);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS.count)
            .map(|place| scope.spawn(move || Player::new(place, crowd, 1).play()))
            .collect();
        let over = EndsOnDrop(&crowd.over);
        for _ in 0..rounds {
            disturb(crowd, &primary, &mut chain);
        }
        drop(over);
        for client in clients {
            client.join().expect("the client saw nothing wrong");
        }
    });
    println!("{:#?}", primary.info("lock"));
    let [partial, full] = syncs(&primary);
    assert!(
        partial >= 2 && full >= 3,
        "{partial} in part, {full} in full"
    );
    for total in ["handoffs", "reentries", "expiries", "timeouts", "deadlocks"] {
        assert!(primary.gauge(&format!("total_{total}")) > 0, "{total}");
    }
    cmd!(primary.connect(), "FLUSHALL");
    for server in [&chain.middle, &chain.last] {
        eventually("the locks are gone there, too", || {
            int(&cmd!(server.connect(), "DBSIZE")) == 0 && server.gauge("holders") == 0
        });
    }
    wait_for_sync_over(&chain.link, &primary, &chain.middle);
    assert_same_data(&chain.middle, &chain.last);
}
