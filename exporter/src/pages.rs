//! What is served under which path.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use crate::args::Options;
use crate::http::{Request, Response};
use crate::metrics::{self, Heard};
use crate::server::{Failure, Server};

/// Of so many servers it is remembered whether they answered.
const REMEMBERED: usize = 10_000;

/// The pages, and what they are made from.
#[derive(Debug)]
pub(crate) struct Pages {
    options: Options,
    /// Why each server failed last; `None` if it answered.
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
                "there is /metrics and /scrape?target=host:port\n".to_owned(),
            ),
        }
    }

    /// The page of the servers that the exporter was started for.
    pub(crate) fn metrics(&self) -> Response {
        self.scrape(&self.options.servers)
    }

    fn scrape_target(&self, request: &Request) -> Response {
        let Some(target) = request.parameter("target") else {
            let text = "which server? /scrape?target=host:port\n".to_owned();
            return Response::new(400, text);
        };
        let name = target.split_once("://").map_or(&*target, |(_, name)| name);
        let name = name.trim_end_matches('/');
        let allowed = self.options.allowed.iter();
        if !allowed.into_iter().any(|pattern| matches(pattern, name)) {
            let text = format!("{name} is not allowed: see --allow-target\n");
            return Response::new(403, text);
        }
        self.scrape(&[target])
    }

    /// Asks all servers at once.
    fn scrape(&self, addresses: &[String]) -> Response {
        let mut servers = Vec::new();
        for address in addresses {
            match Server::new(address, &self.options.login) {
                Ok(server) => servers.push(server),
                Err(why) => return Response::new(400, format!("{why}\n")),
            }
        }
        let (limit, names) = (self.options.timeout, self.options.names);
        let heard: Vec<Heard> = thread::scope(|scope| {
            let asked: Vec<_> = servers
                .iter()
                .map(|server| scope.spawn(move || server.ask(limit, names)))
                .collect();
            let answers = asked.into_iter().map(ScopedJoinHandle::join);
            let broken = |_| Err(Failure::bug());
            let names = servers.iter().map(|server| server.name.clone());
            names
                .zip(answers.map(|answer| answer.unwrap_or_else(broken)))
                .collect()
        });
        for (server, answer) in &heard {
            let failure = answer.as_ref().err();
            self.remember(server, failure.map(|failure| failure.text.clone()));
        }
        Response::metrics(metrics::page(&heard, names))
    }

    /// Says in the log when a server ceases to answer, or fails for another reason than before, and when it answers again.
    fn remember(&self, server: &str, failure: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.len() >= REMEMBERED && !state.contains_key(server) {
            return;
        }
        let before = state.insert(server.to_owned(), failure.clone());
        if before.as_ref() == Some(&failure) {
            return;
        }
        match (before, failure) {
            (_, Some(why)) => {
                eprintln!("mortise-exporter: {server} does not tell of its locks: {why}")
            }
            (Some(_), None) => eprintln!("mortise-exporter: {server} tells of its locks again"),
            (None, None) => {}
        }
    }
}

/// `pattern` with `*` for anything is `text`.
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
    fn a_star_is_anything_and_all_else_is_itself() {
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
