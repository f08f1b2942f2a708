//! The pages, by their paths.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use crate::address::Address;
use crate::args::Options;
use crate::discovery::Found;
use crate::http::{Request, Response};
use crate::metrics::{self, ServerAnswer, Sources};
use crate::server::{self, Failure};

/// For at most this many servers the exporter remembers whether they answered.
const REMEMBERED: usize = 10_000;

/// The log's words for a failure, and for its end.
type LogWords = [&'static str; 2];
const OF_SERVER: LogWords = ["does not report its locks", "reports its locks"];
const OF_SOURCE: LogWords = ["does not name the servers", "names the servers"];

/// The pages, and what they are made from.
#[derive(Debug)]
pub(crate) struct Pages {
    options: Options,
    /// Why each server, and each source of servers, failed last; `None` if it answered.
    state: Mutex<HashMap<String, Option<String>>>,
}

impl Pages {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            state: Mutex::default(),
        }
    }

    pub(crate) fn answer(&self, request: &Request) -> Response {
        match &*request.path {
            "/metrics" => self.metrics(),
            "/scrape" => self.scrape_target(request),
            "/health" => Response::ok("ok\n".to_owned()),
            "/" => Response::ok(
                "mortise-exporter: see /metrics and /scrape?target=host:port\n".to_owned(),
            ),
            _ => Response::new(
                404,
                "the pages are /metrics and /scrape?target=host:port\n".to_owned(),
            ),
        }
    }

    /// The page of the servers that the exporter was started for.
    pub(crate) fn metrics(&self) -> Response {
        let (access, limit) = (&self.options.access, self.options.timeout);
        let discoveries = &self.options.sources;
        let found = at_once(discoveries, |discovery| discovery.find(access, limit));
        let mut servers: Vec<Address> = Vec::new();
        let mut sources = Sources::new();
        for (discovery, found) in discoveries.iter().zip(found) {
            let found = found.unwrap_or_else(|| Found {
                servers: Vec::new(),
                failure: Some(Failure::bug().text),
            });
            if let Some(name) = discovery.name() {
                if sources.iter().all(|(known, _)| *known != name) {
                    sources.push((name.clone(), found.failure.is_none()));
                }
                self.remember(&name, OF_SOURCE, found.failure);
            }
            for server in found.servers {
                // Two sources may know the same one.
                if servers.iter().all(|known| known.name != server.name) {
                    servers.push(server);
                }
            }
        }
        self.scrape(&servers, &sources)
    }

    fn scrape_target(&self, request: &Request) -> Response {
        let Some(target) = request.parameter("target") else {
            let text = "which server? /scrape?target=host:port\n".to_owned();
            return Response::new(400, text);
        };
        let address = match Address::parse(&target) {
            Ok(address) => address,
            Err(why) => return Response::new(400, format!("{why}\n")),
        };
        let allowed = &self.options.allowed;
        if !allowed
            .iter()
            .any(|pattern| matches(pattern, &address.name))
        {
            let text = format!("{} is not allowed: see --allow-target\n", address.name);
            return Response::new(403, text);
        }
        self.scrape(&[address], &Sources::new())
    }

    /// Asks all servers at once.
    fn scrape(&self, servers: &[Address], sources: &Sources) -> Response {
        let Options {
            access,
            timeout,
            names,
            ..
        } = &self.options;
        let answers = at_once(servers, |server| {
            server::ask(server, access, *timeout, *names)
        });
        let answers: Vec<ServerAnswer> = servers
            .iter()
            .zip(answers)
            .map(|(server, answer)| {
                let answer = answer.unwrap_or_else(|| Err(Failure::bug()));
                (server.name.clone(), answer)
            })
            .collect();
        for (server, answer) in &answers {
            let failure = answer.as_ref().err();
            self.remember(
                server,
                OF_SERVER,
                failure.map(|failure| failure.text.clone()),
            );
        }
        Response::metrics(metrics::page(&answers, sources, *names))
    }

    /// Logs when a server or source fails, or fails for another reason than before, and when it
    /// answers again.
    fn remember(&self, who: &str, [not, again]: LogWords, failure: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{who} {again}");
        if state.len() >= REMEMBERED && !state.contains_key(&key) {
            return;
        }
        let before = state.insert(key, failure.clone());
        if before.as_ref() == Some(&failure) {
            return;
        }
        match (before, failure) {
            (_, Some(why)) => eprintln!("mortise-exporter: {who} {not}: {why}"),
            (Some(_), None) => eprintln!("mortise-exporter: {who} {again} again"),
            (None, None) => {}
        }
    }
}

/// Runs `work` for all at the same time; `None` where it panicked.
fn at_once<T: Sync, R: Send>(of: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    thread::scope(|scope| {
        let each = &each;
        let begun: Vec<ScopedJoinHandle<'_, R>> = of
            .iter()
            .map(|one| scope.spawn(move || each(one)))
            .collect();
        let ended = begun.into_iter().map(ScopedJoinHandle::join);
        ended.map(Result::ok).collect()
    })
}

/// True if `text` matches `pattern`, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_matches_anything_and_all_else_itself() {
        for (pattern, text) in [
            ("a:1", "a:1"),
            ("*", ""),
            ("*", "a:1"),
            ("redis-*:6379", "redis-0:6379"),
            ("*:63*9", "10.0.0.1:6379"),
            ("a*b*c", "aXbbc"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a:1", "a:10"),
            ("a:1", "b:a:1"),
            ("redis-*:6379", "evil:6379"),
            ("redis-*:6379", "redis-0:6379.evil:1"),
            ("ab*bc", "abc"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
