//! Another module's callback changes a key while several are granted: nothing is left half granted, and all clients continue.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, cmd, command, eventually, hold_of, holders_of, int, is_nil, lock_info, mail,
    text, waiter,
};

use super::{A, B, C, several};

const KEYS: [&str; 3] = [A, B, C];

/// What a callback does to a key.
const DEEDS: [&str; 12] = [
    "DEL ?",
    "UNLINK ?",
    "SET ? text",
    "PEXPIRE ? 1",
    "RENAME ? {k}away",
    "MOVE ? 1",
    "FLUSHALL",
    "LOCK.ACQUIRE ? thief 60000",
    "LOCK.RLOCK ? thief 60000",
    "LOCK.MACQUIRE thief 60000 2 {k}a ?",
    "LOCK.LEAVE ? m",
    "LOCK.RELEASE ? m",
];

/// How the three keys are granted to `m`.
#[derive(Clone, Copy, Debug)]
enum Way {
    AtOnce,
    FromTheQueues,
    ByMail,
}

struct Case {
    way: Way,
    event: &'static str,
    /// The key of the event.
    at: &'static str,
    /// The key that the callback changes.
    key: &'static str,
    deed: &'static str,
}

impl Case {
    fn name(&self) -> String {
        let (way, deed, key) = (self.way, self.deed, self.key);
        let (event, at) = (self.event, self.at);
        format!("{way:?}: {deed} of {key} within {event} of {at}")
    }

    /// Redis itself stops, or frees a value twice, if a key is removed while a module sets it.
    fn breaks_the_server(&self) -> bool {
        self.event == "new"
            && !self.deed.contains("thief")
            && (self.at == self.key || self.deed == "FLUSHALL")
    }

    fn run(&self, server: &Server) {
        let mut conn = server.connect();
        let mut m = server.connect();
        // Another owner holds a key, so that the request has to wait.
        let held = (!matches!(self.way, Way::AtOnce)).then(|| {
            cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
            cmd!(conn, "DEL {{k}}other");
        });
        let mail: &[&str] = match self.way {
            Way::ByMail => &["WAIT", "0", "MAIL", "{k}box"],
            _ => &["WAIT", "0"],
        };
        let fired = int(&cmd!(conn, "ACTOR.FIRED"));
        if held.is_some() {
            m.submit(&several("m", &KEYS, mail));
            match self.way {
                Way::ByMail => drop(m.recv()),
                _ => server.await_blocked(&m),
            }
        }
        let (event, at, deed) = (self.event, self.at, self.deed.replace('?', self.key));
        cmd!(conn, "ACTOR.ON {event} {at} 1 {deed}");
        let reply = match held {
            None => m.try_run(&several("m", &KEYS, mail)),
            Some(()) => {
                cmd!(conn, "LOCK.RELEASE {B} h");
                match self.way {
                    Way::ByMail => Ok(Value::Nil),
                    _ => m.try_recv(),
                }
            }
        };
        if matches!(self.way, Way::ByMail) {
            eventually(&self.name(), || {
                server.gauge("letters") == 1 || server.gauge("waiters_by_mail") == 0
            });
        }
        eventually(&self.name(), || int(&cmd!(conn, "ACTOR.FIRED")) > fired);
        self.assert_whole(&mut conn, &reply);
        eventually(&self.name(), || {
            server.gauge("marked") == 0 && server.gauge("waiters") == 0
        });
        self.assert_whole(&mut conn, &reply);
        cmd!(conn, "FLUSHALL");
        for key in KEYS {
            cmd!(conn, "LOCK.LEAVE {key} m");
        }
        let told = mail!(conn, "{{k}}box");
        if let Some(last) = told.letters.last() {
            mail!(conn, "{k}box", "AFTER", told.since, last.number);
        }
        eventually(&self.name(), || {
            (server.gauge("locks"), server.gauge("letters")) == (0, 0)
        });
        // Checks that the keys still work.
        int(&conn.run(&several("last", &KEYS, &[])));
        cmd!(conn, "FLUSHALL");
    }

    /// Checks that `m` holds all keys that the callback did not touch, or none.
    #[track_caller]
    fn assert_whole(&self, conn: &mut Conn, reply: &Result<Value, String>) {
        let mut holds = Vec::new();
        for key in KEYS.iter().filter(|key| *key != &self.key) {
            if text(&cmd!(conn, "TYPE {key}")) != "string" {
                holds.push(hold_of(conn, key, "m").is_some());
            }
        }
        // LEAVE ends an undelivered grant at all keys, and FLUSHALL everything.
        let all = holds.iter().all(|holds| *holds);
        let none = holds.iter().all(|holds| !holds);
        assert!(all || none, "{}: {holds:?}, {reply:?}", self.name());
        match reply {
            Err(_) => assert!(none, "{}: {reply:?}", self.name()),
            Ok(Value::Int(_)) => assert!(all || self.deed == "FLUSHALL", "{}", self.name()),
            Ok(Value::Nil) if matches!(self.way, Way::ByMail) => {}
            Ok(_) => assert!(none, "{}: {reply:?}", self.name()),
        }
    }
}

/// Runs all cases, with as many on one server as the other module can store.
fn whatever_a_callback_does(way: Way, event: &'static str) {
    let mut cases = Vec::new();
    for deed in DEEDS {
        for (at, key) in KEYS.iter().flat_map(|at| KEYS.map(|key| (*at, key))) {
            cases.push(Case {
                way,
                event,
                at,
                key,
                deed,
            });
        }
    }
    cases.retain(|case| !case.breaks_the_server());
    for cases in cases.chunks(60) {
        let server = Server::builder()
            .alone()
            .module_arg("mail-timeout", "60000")
            .start();
        server.load_actor();
        cases.iter().for_each(|case| case.run(&server));
    }
}

#[test]
fn a_callback_while_keys_are_set_at_once_leaves_no_part_of_a_grant() {
    whatever_a_callback_does(Way::AtOnce, "new");
}

#[test]
fn a_callback_while_keys_are_set_from_the_queues_leaves_no_part_of_a_grant() {
    whatever_a_callback_does(Way::FromTheQueues, "new");
}

#[test]
fn a_callback_after_a_grant_at_once_leaves_no_part_of_it() {
    whatever_a_callback_does(Way::AtOnce, "lock.acquire");
}

#[test]
fn a_callback_after_a_grant_from_the_queues_leaves_no_part_of_it() {
    whatever_a_callback_does(Way::FromTheQueues, "lock.acquire");
}

#[test]
fn a_callback_after_a_grant_by_mail_leaves_no_part_of_it() {
    whatever_a_callback_does(Way::ByMail, "lock.acquire");
}

#[test]
fn a_grant_that_is_undone_half_way_lets_the_waiters_behind_in() {
    let server = Server::start_alone();
    server.load_actor();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let mut m = server.waiter(&several("m", &KEYS, &["WAIT", "0"]));
    let mut behind = KEYS.map(|key| waiter!(server, "LOCK.ACQUIRE {key} w 60000 WAIT 0"));
    // While one key is set, another becomes a string.
    cmd!(conn, "ACTOR.ON new {C} 1 SET {A} text");
    cmd!(conn, "LOCK.RELEASE {B} h");
    let error = m.try_recv().unwrap_err();
    assert!(
        error.starts_with("TRYAGAIN ") || error.starts_with("WRONGTYPE "),
        "{error}"
    );
    assert!(behind[0].try_recv().unwrap_err().starts_with("WRONGTYPE "));
    for (key, waiter) in [B, C].iter().zip(&mut behind[1..]) {
        assert!(!is_nil(&waiter.recv()));
        assert_eq!(holders_of(&mut conn, key), ["w"]);
    }
    cmd!(conn, "DEL {A}");
    assert!(lock_info(&mut conn, A).is_none());
    conn.pipeline(&[command!("PING")]);
}
