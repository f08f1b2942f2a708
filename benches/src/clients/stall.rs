//! One of three servers is frozen for longer than the lease during an acquisition. A client that only counts replies reports a
//! lock whose lease is over on the servers that replied first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mortise_harness::{Conn, Server, array, cmd};
use tokio::runtime::Runtime;

use crate::clients::load::{expect, within};
use crate::clients::quorum::Hanging;
use crate::clients::rivals::{Rival, Visitor};
use crate::clients::room::Room;
use crate::clients::{millis, server, urls};
use crate::report::{Figure, Report};
use crate::samples::Samples;
use crate::scale::Scale;

const LEASE: Duration = Duration::from_millis(300);
const STALL: Duration = Duration::from_millis(700);

/// Counts the running servers that have the lock.
struct Witness {
    conns: Vec<Mutex<Conn>>,
    /// A frozen server does not reply, and has granted nothing since.
    still: AtomicBool,
    stopped: usize,
    seen: AtomicUsize,
}

impl Witness {
    fn look(&self) {
        let asked =
            self.conns.iter().enumerate().filter(|(number, _)| {
                *number != self.stopped || !self.still.load(Ordering::SeqCst)
            });
        let seen = asked.filter(|(_, conn)| {
            let mut conn = conn.lock().expect("nobody panics with it");
            !array(&cmd!(conn, "KEYS", "*")).is_empty()
        });
        self.seen.store(seen.count(), Ordering::SeqCst);
    }
}

pub(crate) fn run(runtime: &Runtime, scale: &Scale, report: &mut Report) {
    let servers = [server(), server(), server()];
    let mut seen: Vec<(Rival, Figures)> = Rival::ON_A_QUORUM
        .iter()
        .map(|rival| (*rival, Figures::default()))
        .collect();
    for number in 0..scale.stalls {
        for (rival, figures) in &mut seen {
            for server in &servers {
                cmd!(server.connect(), "FLUSHALL");
            }
            runtime.block_on(stall(*rival, &servers, number, scale.patience, figures));
        }
    }
    let names: Vec<String> = seen.iter().map(|(rival, _)| rival.name()).collect();
    let figure = |name, unit, pick: fn(&Figures) -> &Samples| Figure {
        name,
        unit,
        compared: false,
        samples: seen.iter().map(|(_, figures)| pick(figures)).collect(),
    };
    report.table(
        "3 servers, one stalls for longer than the lease",
        &names,
        &[
            figure("handed out (1 is yes)", "", |it| &it.handed_out),
            figure("then held by no majority (1 is yes)", "", |it| &it.over),
            figure("wait", "ms", |it| &it.wait),
        ],
    );
}

/// Of each round.
#[derive(Debug, Default)]
struct Figures {
    handed_out: Samples,
    over: Samples,
    wait: Samples,
}

async fn stall(
    rival: Rival,
    servers: &[Server],
    number: usize,
    patience: Duration,
    figures: &mut Figures,
) {
    let key = format!("stall-{number}");
    let witness = Arc::new(Witness {
        conns: servers.iter().map(|it| Mutex::new(it.connect())).collect(),
        still: AtomicBool::new(false),
        // The last one, because some crates go through them in order.
        stopped: servers.len() - 1,
        seen: AtomicUsize::new(0),
    });
    let room = Arc::new(Room::watched(Box::new({
        let witness = witness.clone();
        move || witness.look()
    })));
    let visitor = expect(
        rival,
        Visitor::connect(rival, &urls(servers), &key, LEASE).await,
    );
    expect(rival, visitor.visit(&room).await);

    let hanging = Hanging::new(&servers[witness.stopped]);
    witness.still.store(true, Ordering::SeqCst);
    let (visit, ()) = tokio::join!(within(patience, visitor.visit(&room)), async {
        tokio::time::sleep(STALL).await;
        drop(hanging);
        witness.still.store(false, Ordering::SeqCst);
    });
    match visit {
        Some(Ok(visit)) => {
            let majority = servers.len() / 2 + 1;
            let over = witness.seen.load(Ordering::SeqCst) < majority;
            figures.handed_out.push(1.0);
            figures.over.push(f64::from(u8::from(over)));
            figures.wait.push(millis(visit.wait));
        }
        Some(Err(_)) | None => {
            figures.handed_out.push(0.0);
            figures.over.push(0.0);
            figures.wait.push(millis(patience));
        }
    }
}
