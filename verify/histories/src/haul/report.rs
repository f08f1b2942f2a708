//! The report of a haul: a row for each part of it, and whether the servers' counts agree with the clients'.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mortise_harness::{Server, eventually};

use super::load::Counts;
use super::probe::{Probe, Times};
use super::scheme::Scheme;

/// A part of the haul.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    seconds: f64,
    /// Locks acquired, a second.
    rate: f64,
    /// Microseconds of a command, and of a PING.
    p50: f64,
    p99: f64,
    ping50: f64,
    ping99: f64,
    /// The servers' memory for data, in megabytes.
    memory: f64,
    /// Microseconds of the servers' processor time for each lock.
    cpu: f64,
}

/// The whole of it.
#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) name: &'static str,
    server: String,
    rows: Vec<Row>,
    /// What clients counted, and what servers counted.
    counts: BTreeMap<&'static str, [u64; 2]>,
}

pub(crate) struct Sampler<'a> {
    servers: &'a [Server],
    counts: &'a Counts,
    probe: &'a Probe,
    last: (f64, u64, f64),
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(servers: &'a [Server], counts: &'a Counts, probe: &'a Probe) -> Sampler<'a> {
        let mut sampler = Sampler {
            servers,
            counts,
            probe,
            last: (0.0, 0, 0.0),
        };
        sampler.last = (0.0, get(&counts.grants), sampler.cpu());
        sampler
    }

    pub(crate) fn version(&self) -> String {
        self.servers[0].version().to_string()
    }

    fn sum(&self, section: &str, names: &[&str]) -> f64 {
        let of = |server: &Server| {
            let info = server.info(section);
            let values = names.iter().map(|name| info[*name].parse().unwrap_or(0.0));
            values.sum::<f64>()
        };
        self.servers.iter().map(of).sum()
    }

    fn cpu(&self) -> f64 {
        self.sum("cpu", &["used_cpu_user", "used_cpu_sys"])
    }

    pub(crate) fn row(&mut self, at: Duration) -> Row {
        let Times { locks, pings } = self.probe.take();
        let (seconds, grants, cpu) = (at.as_secs_f64(), get(&self.counts.grants), self.cpu());
        let (before, granted, used) = self.last;
        self.last = (seconds, grants, cpu);
        let done = (grants - granted).max(1) as f64;
        Row {
            seconds,
            rate: done / (seconds - before),
            p50: part(&locks, 0.5),
            p99: part(&locks, 0.99),
            ping50: part(&pings, 0.5),
            ping99: part(&pings, 0.99),
            memory: self.sum("memory", &["used_memory"]) / 1e6,
            cpu: (cpu - used) * 1e6 / done,
        }
    }
}

impl Journey {
    /// # Panics
    /// If locks are left when all leases are over.
    pub(crate) fn new(
        name: &'static str,
        server: String,
        rows: Vec<Row>,
        clients: &Counts,
        servers: &[Server],
        scheme: Scheme,
    ) -> Journey {
        let mut counts = BTreeMap::new();
        if scheme == Scheme::Locks {
            for server in servers {
                eventually("the last leases are over", || server.gauge("holders") == 0);
            }
            let total = |name: &str| {
                let field = format!("total_{name}");
                let all = servers.iter().map(|server| server.gauge(&field));
                all.sum::<i64>().cast_unsigned()
            };
            let pairs = [
                ("grants", get(&clients.grants)),
                ("handoffs", get(&clients.letters)),
                ("releases", get(&clients.releases)),
                ("expiries", get(&clients.left)),
            ];
            for (name, counted) in pairs {
                counts.insert(name, [counted, total(name)]);
            }
        }
        counts.insert("odd replies", [get(&clients.odd), 0]);
        Journey {
            name,
            server,
            rows,
            counts,
        }
    }

    /// Whether the servers' counts agree with the clients'.
    pub(crate) fn counts_agree(&self) -> bool {
        self.counts.values().all(|[one, other]| one == other)
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn part(times: &[f64], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let last = times.len().saturating_sub(1) as f64;
    times.get((last * part) as usize).copied().unwrap_or(0.0)
}

fn middle(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    part(&rows.iter().map(of).collect::<Vec<_>>(), 0.5)
}

impl fmt::Display for Journey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = &self.rows;
        let end = rows.last().map_or(0.0, |row| row.seconds);
        let ends = |of: fn(&Row) -> f64| {
            let at = |row: Option<&Row>| row.map_or(0.0, of);
            (at(rows.get(1)), at(rows.last()))
        };
        let (begin_memory, end_memory) = ends(|row| row.memory);
        writeln!(f, "{}, {}, {end:.0} s", self.name, self.server)?;
        writeln!(
            f,
            "  {:.0} locks a minute; a command p50 {:.0} µs, p99 {:.0} µs; PING p50 {:.0} µs, p99 {:.0} µs",
            middle(rows, |row| row.rate) * 60.0,
            middle(rows, |row| row.p50),
            middle(rows, |row| row.p99),
            middle(rows, |row| row.ping50),
            middle(rows, |row| row.ping99),
        )?;
        writeln!(
            f,
            "  {:.1} µs of the server's processor for each; memory {begin_memory:.2} MB, at the end {end_memory:.2} MB",
            middle(rows, |row| row.cpu)
        )?;
        write!(f, "  counted by clients and servers: {:?}", self.counts)
    }
}
