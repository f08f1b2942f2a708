//! Asks one server, and reads its answers.

use redis::{Cmd, Value, cmd};

use super::dial::{Address, Link};
use super::members;
use super::reply::{self, Info, error_text};
use crate::model::{Broken, Detail, LockId, Opened, Sample, Wanted, When};
use crate::options::Asking;

/// How many holders and waiters of each lock in the list to ask for.
const GLANCE: u32 = 10;
/// The same for the lock that is open.
const OPENED: u32 = 200;
/// With a filter, it searches this many locks for it…
const SOUGHT: u32 = 10_000;
/// …and of those without it in their names, the holders of this many.
const HOLDERS_SOUGHT: usize = 1_000;

/// A server's answer, and its cluster, if it is in one.
pub(super) struct Answer {
    pub(super) sample: Sample,
    pub(super) members: Option<Vec<Address>>,
}

/// What to show of a server besides its numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// The lock that is open.
    pub(super) opened: Option<LockId>,
    /// Only locks that have this in their names, or in their holders'.
    pub(super) filter: String,
}

/// Asks a server for everything that is shown of it.
pub(super) fn ask(
    link: &mut Link,
    address: &Address,
    asking: Asking,
    view: &View,
) -> Result<Answer, String> {
    let count = if view.filter.is_empty() {
        asking.count
    } else {
        asking.count.max(SOUGHT)
    };
    let commands = [
        words(&["INFO", "lock"]),
        words(&["INFO", "replication"]),
        words(&["INFO", "cluster"]),
        words(&["CONFIG", "GET", "lock.max-waiters", "lock.max-queued"]),
        cmd("LOCK.TOP").arg("COUNT").arg(count).to_owned(),
    ];
    let replies = link.ask(&commands, asking.timeout)?;
    let [lock, replication, cluster, limits, top] = &replies[..] else {
        return Err("too few replies".to_owned());
    };
    if let Value::ServerError(error) = lock {
        return Err(error_text(error));
    }
    let info = Info::of(&[lock, replication, cluster]);
    if !info.has_module() {
        return Err("it has not loaded the module".to_owned());
    }
    let node = address.name();
    let mut sample = Sample {
        facts: info.facts(reply::limits(limits)),
        wanted: candidates(reply::wanted(top), &view.filter, &node, asking),
        refused: refusal(top),
        opened: None,
    };
    let opened = view.opened.as_ref();
    let members = ask_details(link, address, asking, &info, &mut sample, opened)?;
    let wanted = &mut sample.wanted;
    wanted.retain(|wanted| wanted.has(&view.filter, &node));
    wanted.truncate(asking.count as usize);
    Ok(Answer { sample, members })
}

/// Those that have the filter in their names, as many as are shown, and those whose holders may have it.
fn candidates(all: Vec<Wanted>, filter: &str, node: &str, asking: Asking) -> Vec<Wanted> {
    let (mut named, mut others) = (0, 0);
    let candidates = all.into_iter().filter(|wanted| {
        let (so_far, limit) = if wanted.has(filter, node) {
            (&mut named, asking.count as usize)
        } else {
            (&mut others, HOLDERS_SOUGHT)
        };
        *so_far += 1;
        *so_far <= limit
    });
    candidates.collect()
}

/// Fills in who holds and who waits, and asks who else is in the cluster.
fn ask_details(
    link: &mut Link,
    address: &Address,
    asking: Asking,
    info: &Info,
    sample: &mut Sample,
    opened: Option<&LockId>,
) -> Result<Option<Vec<Address>>, String> {
    let mut batch = Batch::default();
    if info.is_cluster() {
        batch.commands.push(words(&["CLUSTER", "NODES"]));
    }
    let wanted = sample.wanted.iter();
    let questions: Vec<Question> = wanted
        .map(|wanted| batch.add(wanted.db, &wanted.key, GLANCE, link))
        .collect();
    let last = opened.map(|id| batch.add(id.db, &id.key, OPENED, link));
    let replies = link.ask(&batch.commands, asking.timeout)?;
    if batch.is_lost(&replies) {
        link.lose_db();
    }
    for (wanted, question) in sample.wanted.iter_mut().zip(&questions) {
        if let Ok(Some(detail)) = question.answer(&replies) {
            fill(wanted, detail);
        }
    }
    sample.opened = opened
        .zip(last)
        .map(|(id, question)| -> Opened { (id.clone(), question.answer(&replies)) });
    let nodes = replies.first().filter(|_| info.is_cluster());
    Ok(nodes.map(|nodes| members::of(&reply::string(nodes), address)))
}

/// Commands that are sent together, some of them about locks of other databases.
#[derive(Default)]
struct Batch {
    commands: Vec<Cmd>,
    /// The places of SELECTs.
    selects: Vec<usize>,
}

/// A LOCK.INFO in a batch: where its reply will be, and that of the SELECT on which it depends.
struct Question {
    select: Option<usize>,
    info: usize,
}

impl Batch {
    fn add(&mut self, db: u32, key: &[u8], count: u32, link: &mut Link) -> Question {
        // A user who stays in one database needs no right to select another.
        if link.db() != Some(i64::from(db)) {
            self.selects.push(self.commands.len());
            self.commands.push(cmd("SELECT").arg(db).to_owned());
            link.set_db(db);
        }
        let info = cmd("LOCK.INFO").arg(key).arg("COUNT").arg(count).to_owned();
        self.commands.push(info);
        Question {
            select: self.selects.last().copied(),
            info: self.commands.len() - 1,
        }
    }

    /// It is not known which database the connection is in now.
    fn is_lost(&self, replies: &[Value]) -> bool {
        let refused = |at: &usize| matches!(replies.get(*at), Some(Value::ServerError(_)));
        self.selects.iter().any(refused)
    }
}

impl Question {
    fn answer(&self, replies: &[Value]) -> Result<Option<Detail>, String> {
        for at in self.select.iter().chain([&self.info]) {
            if let Some(Value::ServerError(error)) = replies.get(*at) {
                return Err(error_text(error));
            }
        }
        Ok(replies.get(self.info).and_then(reply::detail))
    }
}

/// The numbers of LOCK.TOP are from the last command that read the key: these are newer.
fn fill(wanted: &mut Wanted, detail: Detail) {
    wanted.mode = detail.mode;
    wanted.holders = detail.holders;
    wanted.detail = Some(detail);
}

fn refusal(top: &Value) -> Option<String> {
    match top {
        Value::ServerError(error) => Some(format!("LOCK.TOP: {}", error_text(error))),
        _ => None,
    }
}

/// Ends the hold of that owner by that token, or revokes it. An error is one of the connection.
pub(super) fn break_hold(
    link: &mut Link,
    lock: &LockId,
    owner: &[u8],
    token: u64,
    when: When,
    asking: Asking,
) -> Result<Broken, String> {
    if link.db() != Some(i64::from(lock.db)) {
        let select = cmd("SELECT").arg(lock.db).to_owned();
        // Nothing is ended before the database is certain.
        if let Value::ServerError(error) = &link.ask(&[select], asking.timeout)?[0] {
            return Ok(Broken::Refused(error_text(error)));
        }
        link.set_db(lock.db);
    }
    let mut end = match when {
        When::Now => cmd("LOCK.RELEASE"),
        When::WithItsLease => cmd("LOCK.REVOKE"),
    };
    end.arg(&lock.key).arg(owner);
    if when == When::Now {
        end.arg("ALL");
    }
    end.arg("TOKEN").arg(token);
    Ok(match (&link.ask(&[end], asking.timeout)?[0], when) {
        (Value::ServerError(error), _) => Broken::Refused(error_text(error)),
        (Value::Int(left), When::WithItsLease) => {
            Broken::Revoked(u64::try_from(*left).unwrap_or(0))
        }
        (Value::Nil, _) => Broken::Nothing,
        _ => Broken::Ended,
    })
}

fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command
}
