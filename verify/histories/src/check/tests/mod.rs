//! For each rule a bad history, and a similar one that is good.

mod bundles;
mod inside;
mod queues;
mod seen;
mod tokens;
mod writes;

use super::*;
use crate::history::{
    Answer, Ask, Break, Granted, Mark, Mode, Outcome, Record, Seen, SeenHold, SeenRequest, Way,
    Write,
};

const PROMISES: Promises = Promises {
    one_token_clock: true,
    loses_nothing: true,
    grants_at_once: true,
};

/// One acquisition, and its result.
fn hold(owner: &str, mode: Mode, token: u64, time: (u64, u64, u64)) -> Vec<Record> {
    let (asked, from, until) = time;
    vec![
        ask(owner, Way::Blocked, asked),
        Record::Granted(grant(owner, mode, token, (from, until))),
        answer(owner, from),
    ]
}

fn ask(owner: &str, way: Way, at: u64) -> Record {
    Record::Ask(Ask {
        ask: owner.to_owned(),
        owner: owner.to_owned(),
        key: "k".to_owned(),
        way,
        at,
    })
}

fn answer(owner: &str, at: u64) -> Record {
    answered(owner, Outcome::Granted, at)
}

fn answered(owner: &str, outcome: Outcome, at: u64) -> Record {
    Record::Answer(Answer {
        ask: owner.to_owned(),
        outcome,
        text: String::new(),
        at,
    })
}

fn grant(owner: &str, mode: Mode, token: u64, (from, until): (u64, u64)) -> Granted {
    Granted {
        ask: owner.to_owned(),
        owner: owner.to_owned(),
        key: "k".to_owned(),
        mode,
        weight: 1,
        limit: 0,
        token,
        from,
        until,
        together: Vec::new(),
    }
}

fn found(files: Vec<Vec<Record>>) -> Vec<Rule> {
    let found = all(&History::new(files), PROMISES);
    found.into_iter().map(|violation| violation.rule).collect()
}

fn mark(owner: &str, token: u64, at: u64) -> Mark {
    let (owner, key) = (owner.to_owned(), "k".to_owned());
    Mark {
        owner,
        key,
        token,
        at,
    }
}

fn wrote(owner: &str, mode: Mode, token: u64, sent: u64) -> Record {
    Record::Write(Write {
        owner: owner.to_owned(),
        key: "k".to_owned(),
        mode,
        token,
        sent,
        at: sent + 1,
        done: Some(true),
    })
}

fn broken(token: u64, (from, to): (u64, u64), may_return: bool) -> Vec<Record> {
    vec![Record::Break(Break {
        token,
        from,
        to,
        may_return,
    })]
}

fn fault((from, to): (u64, u64), is_of_client: bool) -> Record {
    Record::Fault {
        what: "a fault".to_owned(),
        is_of_client,
        from,
        to,
    }
}

fn seen(at: u64, holds: &[(&str, Mode, u64)], queue: &[&str]) -> Record {
    let hold = |(owner, mode, token): &(&str, Mode, u64)| SeenHold {
        owner: (*owner).to_owned(),
        mode: *mode,
        weight: 1,
        token: *token,
    };
    Record::Seen(Seen {
        key: "k".to_owned(),
        sent: at - 1,
        at,
        holds: holds.iter().map(hold).collect(),
        queue: queue
            .iter()
            .map(|owner| SeenRequest {
                owner: (*owner).to_owned(),
                waited: 0,
            })
            .collect(),
    })
}
