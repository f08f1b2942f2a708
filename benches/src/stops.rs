//! Guards with short leases in a process that does not run for a while, because it was stopped or the machine has too much to do: how
//! many are lost, and for how long the process did not run.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mortise_client::{Client, Error};
use mortise_harness::Server;

use crate::report::{Figure, Report};
use crate::samples::Samples;
use crate::scale::Scale;

/// This program with this argument, and the URL of a server, holds guards until it is killed.
pub(crate) const HOLD: &str = "--hold-guards";

/// Milliseconds.
const LEASES: [u64; 4] = [500, 1_000, 1_500, 2_000];
const GUARDS: u64 = 10;
const LOST: [&str; 4] = [
    "lost, lease 0.5 s",
    "lost, lease 1 s",
    "lost, lease 1.5 s",
    "lost, lease 2 s",
];
/// Between two stops: all guards are renewed.
const PAUSE: Duration = Duration::from_millis(2_730);
/// How often the process looks for how long it did not run.
const LOOK: Duration = Duration::from_millis(5);

/// What keeps the process from running.
struct Trouble {
    name: &'static str,
    stop: Duration,
    busy_processes: usize,
}

impl Trouble {
    const fn stop(name: &'static str, millis: u64) -> Trouble {
        let stop = Duration::from_millis(millis);
        Trouble {
            name,
            stop,
            busy_processes: 0,
        }
    }

    const fn busy(name: &'static str, busy_processes: usize) -> Trouble {
        Trouble {
            name,
            stop: Duration::ZERO,
            busy_processes,
        }
    }
}

const TROUBLES: [Trouble; 6] = [
    Trouble::busy("nothing else", 0),
    Trouble::busy("20 busy processes", 20),
    Trouble::busy("100 busy processes", 100),
    Trouble::stop("stopped for 0.3 s", 300),
    Trouble::stop("stopped for 0.6 s", 600),
    Trouble::stop("stopped for 1 s", 1_000),
];

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let mut lost: [Vec<Samples>; 4] = Default::default();
    let mut late = Vec::new();
    for trouble in &TROUBLES {
        let lines = under(trouble, scale.stalls);
        let counts = |line: &str| lines.iter().filter(|it| *it == line).count();
        for (samples, lease) in lost.iter_mut().zip(LEASES) {
            samples.push(sample(counts(&format!("lost {lease}")) as f64));
        }
        let times = lines.iter().filter_map(|it| it.strip_prefix("late "));
        late.push(sample(
            times.filter_map(|it| it.parse().ok()).fold(0.0, f64::max),
        ));
    }
    let names = TROUBLES.map(|it| it.name.to_owned());
    let figure = |name, unit, samples| Figure {
        name,
        unit,
        compared: false,
        samples,
    };
    let mut figures = vec![figure(
        "longest time that it did not run",
        "ms",
        late.iter().collect(),
    )];
    figures.extend(
        LOST.iter()
            .zip(&lost)
            .map(|(name, samples)| figure(name, "", samples.iter().collect())),
    );
    let title = format!(
        "{GUARDS} guards of each lease in one process, {} times",
        scale.stalls
    );
    report.table(title, &names, &figures);
}

fn sample(value: f64) -> Samples {
    let mut samples = Samples::default();
    samples.push(value);
    samples
}

/// What a process with guards printed while it was in this trouble.
fn under(trouble: &Trouble, times: usize) -> Vec<String> {
    let server = Server::start();
    let program = env::current_exe().expect("this program has a path");
    let mut holder = Ended(piped(Command::new(program).args([HOLD, &server.url()])));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (output, kept) = (holder.0.stdout.take().expect("it is piped"), lines.clone());
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            kept.lock().expect("nobody panics with it").push(line);
        }
    });
    let all = LEASES.len() * GUARDS as usize;
    while lines
        .lock()
        .expect("nobody panics with it")
        .iter()
        .filter(|it| *it == "held")
        .count()
        < all
    {
        thread::sleep(LOOK);
    }
    let busy = (0..trouble.busy_processes).map(|_| {
        Ended(piped(
            Command::new("sh").args(["-c", "while :; do :; done"]),
        ))
    });
    let busy: Vec<Ended> = busy.collect();
    for _ in 0..times {
        if !trouble.stop.is_zero() {
            signal("-STOP", &holder.0);
            thread::sleep(trouble.stop);
            signal("-CONT", &holder.0);
        }
        thread::sleep(PAUSE);
    }
    drop((busy, holder));
    reader.join().expect("it does not panic");
    Arc::into_inner(lines)
        .and_then(|it| it.into_inner().ok())
        .unwrap_or_default()
}

fn piped(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn signal(signal: &str, process: &Child) {
    let sent = Command::new("kill")
        .args([signal, &process.id().to_string()])
        .status();
    assert!(sent.is_ok_and(|it| it.success()), "{signal} is sent");
}

/// A process that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Holds the guards, and prints each that is taken or lost, and each new longest time in which this process did not run.
pub(crate) fn hold(url: &str) -> Result<(), Error> {
    thread::spawn(|| {
        let mut longest = Duration::ZERO;
        loop {
            let began = Instant::now();
            thread::sleep(LOOK);
            let late = began.elapsed() - LOOK;
            if late > longest {
                longest = late;
                println!("late {}", late.as_secs_f64() * 1e3);
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime starts").block_on(async {
        let client = Client::connect(url).await?;
        let guards = (0..GUARDS).flat_map(|number| LEASES.map(|lease| (number, lease)));
        let holding: Vec<_> = guards
            .map(|(number, lease)| tokio::spawn(hold_one(client.clone(), number, lease)))
            .collect();
        for one in holding {
            one.await.expect("it does not panic")?;
        }
        Ok(())
    })
}

async fn hold_one(client: Client, number: u64, lease: u64) -> Result<(), Error> {
    loop {
        let lock = client
            .lock(format!("{lease}:{number}"))
            .lease(Duration::from_millis(lease));
        let guard = lock.acquire().await?;
        println!("held");
        guard.lost().await;
        println!("lost {lease}");
    }
}
