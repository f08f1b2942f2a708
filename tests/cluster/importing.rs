//! Cluster: requests at the node to which a slot is moving, key by key. Clients follow an ASK there.

use std::time::Duration;

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Cluster, Conn, Server, asking, begin_migration, cmd, command, end_migration, granted,
    holders_of, int, mail, node_id,
};

const KEY: &str = "key";

/// Two nodes. The slot of `key` is moving from one to the other, and nobody holds `key` at the first.
struct Scene {
    cluster: Cluster,
    home: usize,
}

impl Scene {
    fn new() -> Scene {
        let cluster = Cluster::start(2, Server::builder);
        let home = cluster.home_of(KEY);
        let scene = Scene { cluster, home };
        begin_migration(scene.cluster.slot_of(KEY), scene.from(), scene.to());
        scene
    }

    fn from(&self) -> &Server {
        &self.cluster.primaries[self.home]
    }

    fn to(&self) -> &Server {
        &self.cluster.primaries[1 - self.home]
    }

    /// A connection to the second node that is blocked by the command.
    fn waiter(&self, command: &Cmd) -> Conn {
        let mut conn = self.to().connect();
        cmd!(conn, "ASKING");
        conn.submit(command);
        self.to().await_blocked(&conn);
        conn
    }

    fn ends(&self) {
        end_migration(self.cluster.slot_of(KEY), self.from(), self.to());
    }
}

#[test]
fn requests_wait_where_their_slot_is_moving_to() {
    let scene = Scene::new();
    let mut conn = scene.to().connect();
    int(&asking(&mut conn, &command!("LOCK.ACQUIRE key a 60000")).unwrap());
    let mut b = scene.waiter(&command!("LOCK.ACQUIRE key b 60000 WAIT 0"));
    // The node looks several times a second which slots it has.
    assert!(b.recv_within(Duration::from_millis(500)).is_none());
    int(&asking(&mut conn, &command!("LOCK.RELEASE key a")).unwrap());
    granted(&mut b);
    scene.ends();
    assert_eq!(holders_of(&mut conn, KEY), ["b"]);
}

/// The server lets no timer write to a key of a slot that is moving to it.
#[test]
fn a_lost_grant_that_could_not_be_undone_is_undone_once_the_slot_has_moved() {
    let scene = Scene::new();
    let mut conn = scene.to().connect();
    int(&asking(&mut conn, &command!("LOCK.ACQUIRE key a 60000")).unwrap());
    let lost = scene.waiter(&command!("LOCK.RLOCK key u 60000 WAIT 0"));
    let mut reader = scene.waiter(&command!("LOCK.RLOCK key r 60000 WAIT 0"));
    let mut writer = scene.waiter(&command!("LOCK.WLOCK key w 60000 WAIT 0"));
    conn.pipeline(&[
        command!("ASKING"),
        command!("LOCK.RELEASE key a"),
        command!("CLIENT", "KILL", "ID", lost.client_id()),
    ]);
    granted(&mut reader);
    scene.ends();
    int(&cmd!(conn, "LOCK.RELEASE key r"));
    granted(&mut writer);
    assert_eq!(holders_of(&mut conn, KEY), ["w"]);
}

/// The node asks the server for its slots at most every 20 ms, so a request may come to wait just after its slot began to move.
#[test]
fn a_macquire_that_waits_where_its_slot_is_moving_to_gets_tryagain() {
    let cluster = Cluster::start(2, Server::builder);
    let home = cluster.home_of(KEY);
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[1 - home]);
    let mut names = (0..).map(|n| format!("name{n}"));
    let mailbox = names.find(|name| cluster.home_of(name) != home).unwrap();
    let mut conn = to.connect();
    let keys = names.filter(|name| cluster.home_of(name) == home);
    let moving = keys.take(20).find(|key| {
        let slot = cluster.slot_of(key);
        let replies = conn.pipeline(&[
            // It asks for the slots.
            command!("LOCK.MACQUIRE other 60000 1 {mailbox}"),
            command!("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(from)),
            command!("ASKING"),
            command!("LOCK.ACQUIRE {key} a 60000"),
            command!("ASKING"),
            command!("LOCK.MACQUIRE m 60000 1 {key} WAIT 0 MAIL {mailbox}"),
        ]);
        int(replies[3].as_ref().unwrap());
        cmd!(conn, "LOCK.LEAVE {mailbox} other");
        replies[5].is_ok()
    });
    let key = moving.expect("one comes to wait");
    let letters = mail!(conn, &mailbox, "WAIT", 2_000);
    let error = letters.only().error.clone().expect("it is refused");
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    assert_eq!(
        int(&asking(&mut conn, &command!("LOCK.RELEASE {key} a")).unwrap()),
        0
    );
}
