//! A long haul: acquires and releases locks at an even rate for a long time, and measures the cost throughout.

mod load;
mod probe;
mod queue;
mod report;
mod scheme;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{Cluster, Server};

use load::Load;
use probe::Probe;
use report::{Row, Sampler};
use scheme::{Scheme, Tag};

pub(crate) use report::Journey;

/// The plan of a haul.
pub(crate) struct Haul {
    pub(crate) length: Duration,
    /// Pairs of acquire and release, a minute.
    pub(crate) rate: u64,
    /// Those journeys only whose names begin so; all, if there are none.
    pub(crate) names: Vec<String>,
}

/// How many rows the table of a haul has.
const ROWS: u32 = 60;

/// One server with locks, a cluster of three with locks, and one server with `SET` and `DEL` for comparison.
pub(crate) fn run(haul: &Haul) -> Result<(), String> {
    let plans = [
        ("one server", Scheme::Locks, 1, haul.length),
        ("cluster of three", Scheme::Locks, 3, haul.length),
        ("SET and DEL", Scheme::Strings, 1, haul.length / 3),
    ];
    let names = &haul.names;
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|it| name.starts_with(it));
    let mut journeys = Vec::new();
    for (name, scheme, nodes, length) in plans {
        if !is_wanted(name) {
            continue;
        }
        let journey = travel(name, scheme, nodes, length, haul.rate);
        println!("{journey}");
        journeys.push(journey);
    }
    let wrong = journeys.iter().filter(|it| !it.counts_agree());
    match wrong.map(|it| it.name).collect::<Vec<_>>().as_slice() {
        [] => Ok(()),
        names => Err(format!(
            "clients and servers counted differently: {names:?}"
        )),
    }
}

fn travel(
    name: &'static str,
    scheme: Scheme,
    nodes: usize,
    length: Duration,
    rate: u64,
) -> Journey {
    let servers = start(nodes);
    let tags = tags(&servers);
    let over = AtomicBool::new(false);
    let load = Load::new(scheme, rate);
    let probe = Probe::new(scheme);
    let mut rows: Vec<Row> = Vec::new();
    let mut version = String::new();
    thread::scope(|scope| {
        let ends = Ends(&over);
        for number in 0..load::THREADS {
            let (load, tags, over) = (&load, &tags, &over);
            scope.spawn(move || load.run(number, tags, over));
        }
        if scheme == Scheme::Locks {
            for number in 0..queue::WAITERS {
                let (load, tags, over) = (&load, &tags, &over);
                scope.spawn(move || queue::run(number, load, tags, over));
            }
        }
        let (probe, tags, over) = (&probe, &tags, &over);
        let counts = &load.counts;
        scope.spawn(move || probe.run(&tags[0], counts, over));
        let mut sampler = Sampler::new(&servers, &load.counts, probe);
        version = sampler.version();
        let began = Instant::now();
        let step = length / ROWS;
        for number in 1..=ROWS {
            thread::sleep((step * number).saturating_sub(began.elapsed()));
            rows.push(sampler.row(began.elapsed()));
        }
        drop(ends);
    });
    Journey::new(name, version, rows, &load.counts, &servers, scheme)
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn start(nodes: usize) -> Vec<Server> {
    let builder = || Server::builder().config("maxclients", "4000");
    match nodes {
        1 => vec![builder().alone().start()],
        nodes => Cluster::start(nodes, builder).primaries,
    }
}

/// For each server, a hash tag whose keys are on it.
fn tags(servers: &[Server]) -> Vec<Tag> {
    let is_cluster = servers.len() > 1;
    let tag = |(number, server): (usize, &Server)| Tag {
        port: server.port(),
        text: match is_cluster {
            true => scheme::tag_of(server, number),
            false => "haul".to_owned(),
        },
    };
    servers.iter().enumerate().map(tag).collect()
}
