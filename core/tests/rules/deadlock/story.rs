//! Steps of a few owners at a few keys, as text.

use mortise_core::{How, Mode, WaiterId};

use crate::queues::server::{Answer, Asked, Patience, Server, key_id, owner};

pub(crate) const A: usize = 0;

/// A server on which steps run, separated by `; `:
///
/// ```text
/// A takes w0           A asks to write key 0, and is granted that at once. B, C and D are other owners.
/// T1 waits r1          T1 asks to read key 1, and waits: it closes no cycle. T1 and T2 are one task, and so are U1, U2 and V1, V2.
/// B closes w0 by 0 1   B is refused because its wait would close a cycle through the keys 0 and 1.
/// A leaves 1           A's first request at key 1 leaves.
/// B frees 0 for 2      B releases key 0, and 2 requests are granted.
/// key 0 is settled for 2
/// time passes 10       10 ms
/// grace begins         … and `grace ends`: nothing is granted meanwhile.
/// ```
pub(crate) struct Story {
    pub(crate) server: Server,
    /// The patience of all requests.
    pub(crate) patience: Patience,
}

impl Default for Story {
    fn default() -> Self {
        Self {
            server: Server::default(),
            patience: Patience::Endless,
        }
    }
}

fn number(who: &str) -> usize {
    let all = ["A", "B", "C", "D", "T1", "T2", "U1", "U2", "V1", "V2"];
    let found = all.iter().position(|name| *name == who);
    found.unwrap_or_else(|| panic!("nobody is called {who}"))
}

fn parse<T: std::str::FromStr>(text: &str) -> T {
    let parsed = text.parse().ok();
    parsed.unwrap_or_else(|| panic!("{text} is no number"))
}

impl Story {
    pub(crate) fn tell(&mut self, steps: &str) {
        for step in steps.split("; ") {
            let words: Vec<&str> = step.split(' ').collect();
            match words[..] {
                ["time", "passes", ms] => self.server.now = self.server.now.after(parse(ms)),
                ["grace", change] => self.server.grace = change == "begins",
                ["key", key, "is", "settled", "for", count] => {
                    self.settles(parse(key), parse(count), step);
                }
                [who, "leaves", key] => {
                    let id = self.request(who, parse(key));
                    self.server.remove(id).expect("it waits");
                    self.server.settle(parse(key));
                }
                [who, "frees", key, "for", count] => {
                    let released = self.server.release(parse(key), number(who), How::All);
                    released.expect("it holds");
                    self.settles(parse(key), parse(count), step);
                }
                [who, "takes", what] => {
                    let answer = self.ask(who, what);
                    assert!(matches!(answer, Answer::Granted(_)), "{step}: {answer:?}");
                }
                [who, "waits", what] => {
                    let answer = self.ask(who, what);
                    assert!(matches!(answer, Answer::Waits { .. }), "{step}: {answer:?}");
                }
                [who, "closes", what, "by", ref keys @ ..] => {
                    let before = self.server.queues.len();
                    let keys = keys.iter().map(|key| parse(key)).collect();
                    assert_eq!(self.ask(who, what), Answer::Deadlock(keys), "{step}");
                    assert_eq!(self.server.queues.len(), before, "nothing is queued");
                }
                _ => panic!("{step} is no step"),
            }
        }
    }

    fn ask(&mut self, who: &str, what: &str) -> Answer {
        let (mode, key) = what.split_at(1);
        let mode = match mode {
            "w" => Mode::Write,
            _ => Mode::Read,
        };
        let asked = Asked::plain(number(who), mode, 1_000);
        self.server.ask(parse(key), asked, self.patience)
    }

    fn settles(&mut self, key: usize, count: usize, step: &str) {
        let decided = self.server.settle(key).decided;
        assert_eq!(decided.len(), count, "{step}");
    }

    /// The owner's first request at the key.
    pub(crate) fn request(&self, who: &str, key: usize) -> WaiterId {
        let (key, owner) = (key_id(key), owner(number(who)));
        let queues = &self.server.queues;
        let request = queues.first_request_of(key.as_ref(), owner.as_ref());
        request.expect("it waits")
    }
}
