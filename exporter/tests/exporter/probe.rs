//! A running exporter, and the pages it serves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A running exporter; dropping this value ends it.
pub(crate) struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    /// Starts an exporter for these servers.
    pub(crate) fn of(servers: &[String]) -> Exporter {
        let args: Vec<&str> = servers
            .iter()
            .flat_map(|server| ["--server", server])
            .collect();
        Exporter::with(&args)
    }

    pub(crate) fn with(args: &[&str]) -> Exporter {
        Exporter::with_password(args, None)
    }

    pub(crate) fn with_password(args: &[&str], password: Option<&str>) -> Exporter {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mortise-exporter"));
        command.args(["--listen", "127.0.0.1:0"]).args(args);
        if let Some(password) = password {
            command.env("MORTISE_EXPORTER_PASSWORD", password);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.split('/').nth(2);
        let address = address
            .unwrap_or_else(|| panic!("no address in {line:?}"))
            .to_owned();
        Exporter { child, address }
    }

    /// Sends `head` as it is; returns status and body of the answer.
    pub(crate) fn ask(&self, head: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: exporter\r\n\r\n"))
    }

    /// The samples of a page.
    #[track_caller]
    pub(crate) fn samples(&self, path: &str) -> Samples {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{body}");
        Samples::read(&body)
    }

    pub(crate) fn scrape(&self) -> Samples {
        self.samples("/metrics")
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page: the value of each sample by its name and labels, as they are written.
#[derive(Debug)]
pub(crate) struct Samples(pub(crate) BTreeMap<String, f64>);

impl Samples {
    /// Reads a page, strictly by the format.
    #[track_caller]
    fn read(page: &str) -> Samples {
        let mut samples = BTreeMap::new();
        let (mut described, mut typed) = (Vec::new(), Vec::<(String, String)>::new());
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                assert!(!text.is_empty() && !described.contains(&name), "{line}");
                described.push(name);
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(described.last(), Some(&name), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                typed.push((name.to_owned(), kind.to_owned()));
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let (of, kind) = typed.last().unwrap();
                let parts = ["", "_sum", "_count"].map(|part| format!("{of}{part}"));
                let own = if kind == "summary" {
                    &parts[..]
                } else {
                    &parts[..1]
                };
                assert!(own.iter().any(|own| own == name), "{line} is no {of}");
                let value = value.parse().unwrap();
                let twice = samples.insert(series.to_owned(), value);
                assert_eq!(twice, None, "{line}");
            }
        }
        Samples(samples)
    }

    /// The names of the metrics.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0
            .keys()
            .map(|series| series.split('{').next().unwrap())
            .collect()
    }

    /// The value of the only sample of `name`, whatever its labels.
    #[track_caller]
    pub(crate) fn one(&self, name: &str) -> f64 {
        let begin = format!("{name}{{");
        let mut found = self
            .0
            .iter()
            .filter(|(series, _)| series.starts_with(&begin));
        match (found.next(), found.next()) {
            (Some((_, value)), None) => *value,
            _ => panic!("not one {name} in {:?}", self.0),
        }
    }

    /// The value of `name` with exactly these `labels`.
    #[track_caller]
    pub(crate) fn of(&self, name: &str, labels: &str) -> f64 {
        let series = format!("{name}{{{labels}}}");
        match self.0.get(&series) {
            Some(value) => *value,
            None => panic!("no {series} in {:?}", self.0),
        }
    }
}
