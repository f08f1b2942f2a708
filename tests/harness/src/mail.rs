//! The replies of LOCK.MAIL.

use redis::Value;

use crate::conn::Conn;
use crate::value::{array, as_map, int, text};

/// The reply of LOCK.MAIL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Another number than before: a new box.
    pub since: i64,
    /// Milliseconds from the call's arrival to its reply.
    pub waited: i64,
    /// Oldest first.
    pub letters: Vec<Letter>,
}

/// The result of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Grows from letter to letter.
    pub number: i64,
    /// The requested key, the first of several.
    pub key: String,
    /// All requested keys, if there are several.
    pub keys: Option<Vec<String>>,
    /// Its database.
    pub db: i64,
    /// The owner that asked.
    pub owner: String,
    /// `read` or `write`.
    pub mode: String,
    /// `granted`, `denied` or `refused`.
    pub result: String,
    /// Where it was granted: the token, the lease in milliseconds, and how long ago.
    pub grant: Option<(i64, i64, i64)>,
    /// Where it was refused.
    pub error: Option<String>,
}

impl Mail {
    /// Reads a reply.
    ///
    /// # Panics
    /// If it is not one of LOCK.MAIL, to the letter.
    #[track_caller]
    pub fn read(reply: &Value) -> Mail {
        let [since, waited, letters] = array(reply) else {
            panic!("expected since, waited and letters, got {reply:?}");
        };
        Mail {
            since: int(since),
            waited: int(waited),
            letters: array(letters).iter().map(Letter::read).collect(),
        }
    }

    /// The only letter.
    ///
    /// # Panics
    /// If there is none, or another one.
    #[track_caller]
    pub fn only(&self) -> &Letter {
        match &self.letters[..] {
            [letter] => letter,
            others => panic!("expected one letter, got {others:?}"),
        }
    }

    /// Owner and result of each letter.
    pub fn results(&self) -> Vec<(&str, &str)> {
        let letters = self.letters.iter();
        letters
            .map(|letter| (&*letter.owner, &*letter.result))
            .collect()
    }
}

impl Letter {
    #[track_caller]
    fn read(reply: &Value) -> Letter {
        let map = as_map(reply);
        let result = text(&map["result"]);
        let grant = (result == "granted")
            .then(|| (int(&map["token"]), int(&map["lease"]), int(&map["age"])));
        let error = (result == "refused").then(|| text(&map["error"]));
        let keys = map.get("keys");
        let keys: Option<Vec<_>> = keys.map(|keys| array(keys).iter().map(text).collect());
        let fields = 6 + 3 * usize::from(grant.is_some()) + usize::from(error.is_some());
        assert_eq!(map.len(), fields + usize::from(keys.is_some()), "{reply:?}");
        Letter {
            number: int(&map["number"]),
            key: text(&map["key"]),
            keys,
            db: int(&map["db"]),
            owner: text(&map["owner"]),
            mode: text(&map["mode"]),
            result,
            grant,
            error,
        }
    }

    /// The token that was granted.
    ///
    /// # Panics
    /// If nothing was.
    #[track_caller]
    pub fn token(&self) -> i64 {
        match self.grant {
            Some((token, _, _)) => token,
            None => panic!("expected a grant, got {self:?}"),
        }
    }
}

/// The box's `since`, out of the reply to a request that was queued by mail.
///
/// # Panics
/// If the request was not queued.
#[track_caller]
pub fn queued(reply: &Value) -> i64 {
    match array(reply) {
        [word, since] if text(word) == "QUEUED" => int(since),
        _ => panic!("expected QUEUED and a number, got {reply:?}"),
    }
}

impl Conn {
    /// Runs LOCK.MAIL.
    ///
    /// # Panics
    /// If the reply is an error.
    #[track_caller]
    pub fn mail(&mut self, command: &redis::Cmd) -> Mail {
        Mail::read(&self.run(command))
    }
}

/// LOCK.MAIL with its arguments: `mail!(conn, "box WAIT 1000")`.
#[macro_export]
macro_rules! mail {
    ($conn:expr, $line:literal $(,)?) => {
        $conn.mail(&$crate::command_of(&::std::format!("LOCK.MAIL {}", ::std::format!($line))))
    };
    ($conn:expr, $($arg:expr),+ $(,)?) => {
        $conn.mail(&$crate::command!("LOCK.MAIL", $($arg),+))
    };
}

/// A request that may wait by mail, with its limit in milliseconds: `request!("box", 0, "LOCK.ACQUIRE key a 1000")`.
#[macro_export]
macro_rules! request {
    ($mailbox:expr, $wait:expr, $($command:tt)+) => {{
        let mut command = $crate::command!($($command)+);
        command.arg("WAIT").arg($wait).arg("MAIL").arg($mailbox).arg("HOLDS").arg(1);
        command
    }};
}

/// A request that has to wait by mail, and the `since` that it is answered:
/// `queue!(conn, "box", "LOCK.ACQUIRE key a 1000")`.
#[macro_export]
macro_rules! queue {
    ($conn:expr, $mailbox:expr, $($command:tt)+) => {
        $crate::queued(&$conn.run(&$crate::request!($mailbox, 0, $($command)+)))
    };
}
