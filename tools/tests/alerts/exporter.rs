//! A running redis_exporter, and the series that it serves.

use std::collections::BTreeMap;
use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use mortise_harness::eventually;

use crate::{path_of, read};

/// How often another port is tried.
const PORT_ATTEMPTS: u32 = 20;

/// A redis_exporter that runs `mortise.lua`; dropping this value ends it.
pub(crate) struct Exporter {
    child: Child,
    port: u16,
}

impl Exporter {
    /// Starts an exporter that asks servers without a password.
    pub(crate) fn start() -> Exporter {
        Exporter::with("", &[])
    }

    /// Starts an exporter by the command on the page.
    pub(crate) fn of_the_page() -> Exporter {
        let page = read("docs/monitoring.md");
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("REDIS_PASSWORD="))
            .expect("the page starts the exporter");
        let words: Vec<&str> = line.split(' ').collect();
        let [password, _, "-script", "mortise.lua", options @ ..] = &words[..] else {
            panic!("{line}");
        };
        Exporter::with(password, options)
    }

    fn with(password: &str, options: &[&str]) -> Exporter {
        let program = env::var("REDIS_EXPORTER").unwrap_or("prometheus-redis-exporter".to_owned());
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port();
            let mut child = Command::new(&program)
                .arg("-web.listen-address")
                .arg(format!("127.0.0.1:{port}"))
                .arg("-script")
                .arg(path_of("tools/prometheus/mortise.lua"))
                .args(options)
                .env("REDIS_PASSWORD", password)
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{program}: {error}"));
            // It ends if another program has taken the port meanwhile.
            let runs = eventually("the exporter listens or has ended", || {
                let ended = child.try_wait().unwrap().is_some();
                let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
                (ended || listens).then_some(!ended)
            });
            if runs {
                return Exporter { child, port };
            }
        }
        panic!("{program} does not start");
    }

    /// The page that Prometheus fetches for the server at `address`, as the relabelling of `prometheus.yml` asks for it.
    fn page(&self, address: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head =
            format!("GET /scrape?target=redis://{address} HTTP/1.0\r\nHost: exporter\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{head}");
        body.to_owned()
    }

    /// The series of the server at `address`.
    pub(crate) fn scrape(&self, address: &str) -> Samples {
        Samples::read(&self.page(address))
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of each series by its name and labels, as the exporter writes them.
#[derive(Debug)]
pub(crate) struct Samples(pub(crate) BTreeMap<String, f64>);

impl Samples {
    fn read(page: &str) -> Samples {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        });
        Samples(samples.collect())
    }

    /// The value that the script has returned for `name`.
    #[track_caller]
    pub(crate) fn of(&self, name: &str) -> f64 {
        let series = format!("redis_script_values{{key=\"{name}\"}}");
        let value = self.0.get(&series);
        *value.unwrap_or_else(|| panic!("no {series} in {:?}", self.0))
    }

    /// The value of a series of the exporter's own.
    #[track_caller]
    pub(crate) fn own(&self, series: &str) -> f64 {
        let value = self.0.get(series);
        *value.unwrap_or_else(|| panic!("no {series} in {:?}", self.0))
    }
}
