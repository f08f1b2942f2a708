//! Replies as the model's samples. A reply of an unexpected shape counts as nothing.

use std::collections::BTreeMap;

use redis::Value;

use crate::model::{
    Deployment, Detail, Facts, Hold, Limits, Mode, Role, Times, Totals, Waiter, Wanted,
};
use crate::text;

/// The line of an error, for people.
pub(super) fn error_text(error: &redis::ServerError) -> String {
    let text = match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    };
    text::escaped(text.as_bytes())
}

pub(super) fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) => text.clone().into_bytes(),
        Value::VerbatimString { text, .. } => text.clone().into_bytes(),
        _ => Vec::new(),
    }
}

pub(super) fn string(value: &Value) -> String {
    String::from_utf8_lossy(&bytes(value)).into_owned()
}

pub(super) fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}

/// A map, or the flat array that it is in RESP2.
struct Fields<'a>(Vec<(Vec<u8>, &'a Value)>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Fields<'a> {
        Fields(match value {
            Value::Map(pairs) => pairs
                .iter()
                .map(|(name, value)| (bytes(name), value))
                .collect(),
            _ => {
                let pairs = items(value).chunks_exact(2);
                pairs.map(|pair| (bytes(&pair[0]), &pair[1])).collect()
            }
        })
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.0.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| *value)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.get(name).map(bytes).unwrap_or_default()
    }

    fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        }
    }

    /// Negative is none.
    fn number(&self, name: &str) -> u64 {
        u64::try_from(self.int(name)).unwrap_or(0)
    }

    fn mode(&self) -> Mode {
        match &*self.bytes("mode") {
            b"write" => Mode::Write,
            b"read" => Mode::Read,
            _ => Mode::None,
        }
    }

    fn list<T>(&self, name: &str, read: fn(&Value) -> T) -> Vec<T> {
        let list = self.get(name).map_or(&[][..], items);
        list.iter().map(read).collect()
    }
}

/// The reply of LOCK.TOP.
pub(super) fn wanted(value: &Value) -> Vec<Wanted> {
    let read = |entry: &Value| {
        let fields = Fields::of(entry);
        Wanted {
            db: u32::try_from(fields.int("db")).unwrap_or(0),
            key: fields.bytes("key"),
            mode: fields.mode(),
            holders: fields.number("holders"),
            waiters: fields.number("waiters"),
            oldest_ms: fields.number("oldest"),
            detail: None,
        }
    };
    items(value).iter().map(read).collect()
}

/// The reply of LOCK.INFO: None where nobody holds and nobody waits.
pub(super) fn detail(value: &Value) -> Option<Detail> {
    if matches!(value, Value::Nil) {
        return None;
    }
    let fields = Fields::of(value);
    Some(Detail {
        mode: fields.mode(),
        holders: fields.number("holders"),
        waiters: fields.number("waiters"),
        holds: fields.list("holds", hold),
        queue: fields.list("queue", waiter),
    })
}

fn hold(value: &Value) -> Hold {
    let fields = Fields::of(value);
    Hold {
        owner: fields.bytes("owner"),
        write: fields.number("write"),
        read: fields.number("read"),
        token: fields.number("token"),
        lease_ms: fields.number("lease"),
        held_ms: fields.number("held"),
        client: fields.number("client"),
    }
}

fn waiter(value: &Value) -> Waiter {
    let fields = Fields::of(value);
    Waiter {
        owner: fields.bytes("owner"),
        mode: fields.mode(),
        lease_ms: fields.number("lease"),
        waited_ms: fields.number("waited"),
        left_ms: u64::try_from(fields.int("left")).ok(),
        client: fields.number("client"),
    }
}

/// The settings of `CONFIG GET`.
pub(super) fn limits(value: &Value) -> Limits {
    let fields = Fields::of(value);
    let setting = |name| {
        let text = fields.get(name).map(string)?;
        text.parse().ok()
    };
    Limits {
        waiters: setting("lock.max-waiters"),
        queued: setting("lock.max-queued"),
    }
}

/// `name:value` lines of `INFO`.
pub(super) struct Info(BTreeMap<String, String>);

impl Info {
    pub(super) fn of(sections: &[&Value]) -> Info {
        let mut lines = BTreeMap::new();
        for section in sections {
            for line in string(section).lines() {
                if let Some((name, value)) = line.split_once(':') {
                    lines.insert(name.to_owned(), value.trim_end().to_owned());
                }
            }
        }
        Info(lines)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    fn lock(&self, name: &str) -> u64 {
        self.number(&format!("lock_{name}"))
    }

    fn times(&self, what: &str) -> Times {
        let of = |name: &str| self.lock(&format!("{what}_ms_{name}"));
        Times {
            p50: of("p50"),
            p95: of("p95"),
            p99: of("p99"),
            max: of("max"),
        }
    }

    pub(super) fn has_module(&self) -> bool {
        self.0.contains_key("lock_locks")
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.text("cluster_enabled") == "1"
    }

    pub(super) fn facts(&self, limits: Limits) -> Facts {
        let total = |name: &str| self.lock(&format!("total_{name}"));
        Facts {
            deployment: Deployment {
                role: match self.text("role") {
                    "slave" => Role::Replica,
                    _ => Role::Primary,
                },
                cluster: self.is_cluster(),
                replicas: self.number("connected_slaves"),
            },
            locks: self.lock("locks"),
            holders: self.lock("holders"),
            waiters: self.lock("waiters"),
            by_mail: self.lock("waiters_by_mail"),
            blocked: self.lock("blocked_clients"),
            boxes: self.lock("boxes"),
            letters: self.lock("letters"),
            held_back: self.lock("held_back"),
            evictable: self.lock("evictable") == 1,
            totals: Totals {
                grants: total("grants"),
                reentries: total("reentries"),
                handoffs: total("handoffs"),
                releases: total("releases"),
                renewals: total("renewals"),
                expiries: total("expiries"),
                timeouts: total("timeouts"),
                deadlocks: total("deadlocks"),
                denied: total("denied"),
            },
            grace_left_ms: self.lock("grace_left_ms"),
            suspect_left_ms: self.lock("suspect_left_ms"),
            replicas_late: self.lock("replicas_late") == 1,
            last_token: self.lock("last_token"),
            wait: self.times("wait"),
            hold: self.times("hold"),
            failover_safe: self.lock("failover_safe") == 1,
            failover_missing: self.text("lock_failover_missing").to_owned(),
            limits,
        }
    }
}
