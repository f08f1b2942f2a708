//! The running show: puts the lines of the ten and the server's answers into the scene, and draws
//! it.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{Conn, Server, array, cmd, lock_info, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cast::{Cast, Event, What};
use crate::ledger::{LEDGER, LOCK, Sale};
use crate::options::{Pace, Settings};
use crate::scene::{Holder, Scene, State};
use crate::stage::Stage;

/// The time from one question to the server to the next.
const BEAT: Duration = Duration::from_millis(100);
/// How long the show may take to end after a signal.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long any step may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// All participants.
pub(crate) struct Show {
    // Dropped in this order: the terminal is given back first, and the server ends last.
    stage: Stage,
    cast: Cast,
    conn: Conn,
    _server: Server,
    scene: Scene,
    pace: Pace,
    stopped: Arc<AtomicBool>,
    /// When the narrator's line began.
    said_at: Instant,
}

impl Show {
    pub(crate) fn open(settings: &Settings) -> Result<Show, String> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let stopped = Arc::clone(&stopped);
            signal_hook::flag::register(signal, stopped).map_err(in_words)?;
        }
        end_for_certain(Arc::clone(&stopped));
        let server = Server::builder().alone().try_start();
        let server = server.map_err(|error| error.to_string())?;
        let cast = Cast::start(&server.url(), settings.pace).map_err(in_words)?;
        let pids = (0..crate::cast::NAMES.len()).map(|who| cast.pid(who));
        let lease_ms = settings.pace.lease.as_millis();
        let scene = Scene::new(pids, u64::try_from(lease_ms).unwrap_or(u64::MAX));
        Ok(Show {
            stage: Stage::open(settings.svg.is_some()).map_err(in_words)?,
            cast,
            conn: server.connect(),
            _server: server,
            scene,
            pace: settings.pace,
            stopped,
            said_at: Instant::now(),
        })
    }

    pub(crate) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Shows the narrator's next line, after time to read the last one.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), String> {
        while self.said_at.elapsed() < self.pace.reading && !self.scene.said.is_empty() {
            self.listen()?;
        }
        self.scene.said = text.to_owned();
        self.said_at = Instant::now();
        self.stage.say(text);
        self.draw()
    }

    /// Goes on until some more tickets are sold.
    pub(crate) fn sell_some(&mut self) -> Result<(), String> {
        let enough = self.scene.sales.len() as u64 + self.pace.tickets;
        self.until("tickets are sold", |show, _| {
            (show.scene.sales.len() as u64 >= enough).then_some(())
        })
    }

    /// Goes on until another one than `who` holds the lock.
    pub(crate) fn until_another_holds(&mut self, who: usize) -> Result<(usize, u64), String> {
        self.until("another one holds the lock", |_, event| match event?.what {
            What::Holds(token) if event?.who != who => Some((event?.who, token)),
            _ => None,
        })
    }

    /// Goes on until `who` has tried to sell by `token`: false if the server let it.
    pub(crate) fn until_refused(&mut self, who: usize, token: u64) -> Result<bool, String> {
        self.until("it has tried to write", |_, event| match event? {
            Event { who: by, what } if by == who => match what {
                What::Refused(of, _) if of == token => Some(true),
                What::Sold(of, _) if of == token => Some(false),
                What::Ended => Some(false),
                _ => None,
            },
            _ => None,
        })
    }

    /// Freezes a process that has just been granted the lock, and makes sure that this was in time: it holds, and has not sold.
    pub(crate) fn freeze_a_holder(&mut self) -> Result<(usize, u64), String> {
        loop {
            let (who, token) =
                self.until("somebody holds the lock", |_, event| match event?.what {
                    What::Holds(token) => Some((event?.who, token)),
                    _ => None,
                })?;
            self.cast.freeze(who).map_err(in_words)?;
            self.ask_server();
            let holds = self
                .scene
                .holder
                .as_ref()
                .is_some_and(|holder| holder.token == token);
            let sold = self.scene.sales.iter().any(|sale| sale.token == token);
            if holds && !sold {
                self.scene.actors[who].state = State::Frozen;
                return Ok((who, token));
            }
            self.wake(who)?;
        }
    }

    pub(crate) fn wake(&mut self, who: usize) -> Result<(), String> {
        self.cast.wake(who).map_err(in_words)
    }

    pub(crate) fn kill(&mut self, who: usize) -> Result<(), String> {
        self.cast.kill(who).map_err(in_words)?;
        self.scene.actors[who].state = State::Killed;
        self.draw()
    }

    /// Shows the scene long enough to read it.
    pub(crate) fn linger(&mut self) -> Result<(), String> {
        while self.said_at.elapsed() < self.pace.reading {
            self.listen()?;
        }
        Ok(())
    }

    /// Ends the show, and returns the recorded picture.
    pub(crate) fn close(self) -> Result<Option<String>, String> {
        let Show { stage, .. } = self;
        stage.close().map_err(in_words)
    }

    fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&Show, Option<Event>) -> Option<T>,
    ) -> Result<T, String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let event = self.listen()?;
            if let Some(found) = found(self, event) {
                return Ok(found);
            }
        }
        Err(format!("waited {PATIENCE:?} in vain until {what}"))
    }

    /// The next line of one of the ten, if there is one soon.
    fn listen(&mut self) -> Result<Option<Event>, String> {
        if self.stopped.load(Ordering::Relaxed) || self.stage.wants_to_end().map_err(in_words)? {
            return Err("stopped".to_owned());
        }
        let event = match self.cast.events.recv_timeout(BEAT) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err("all ten have ended".to_owned()),
        };
        if let Some(event) = event {
            self.scene.take(event);
        }
        self.ask_server();
        self.draw()?;
        Ok(event)
    }

    /// Asks the server who holds, who waits and what was sold.
    fn ask_server(&mut self) {
        let lock = lock_info(&mut self.conn, LOCK);
        let hold = lock.as_ref().and_then(|lock| lock.holds.first());
        self.scene.holder = hold.map(|hold| Holder {
            name: name_of(&hold.owner),
            token: u64::try_from(hold.token).unwrap_or(0),
            lease_ms: u64::try_from(hold.lease).unwrap_or(0),
        });
        let queue = lock.iter().flat_map(|lock| &lock.queue);
        self.scene.queue = queue.map(|waiter| name_of(&waiter.owner)).collect();
        let known = self.scene.sales.len();
        let new = cmd!(self.conn, "LRANGE", LEDGER, known, -1);
        let new = array(&new)
            .iter()
            .filter_map(|line| Sale::read(&text(line)));
        for sale in new {
            self.stage.sold(&sale);
            self.scene.sales.push(sale);
        }
    }

    fn draw(&mut self) -> Result<(), String> {
        self.stage.draw(&self.scene).map_err(in_words)
    }
}

/// Waiting for the keys of a terminal that is gone would spin for ever: its signal ends the show.
/// The ten and the server end with this process.
fn end_for_certain(stopped: Arc<AtomicBool>) {
    thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            thread::sleep(BEAT);
        }
        thread::sleep(FAREWELL);
        process::exit(1);
    });
}

/// An owner's name is `eve##` and what makes it the only one.
fn name_of(owner: &[u8]) -> String {
    let owner = String::from_utf8_lossy(owner);
    let name = owner.split("##").next();
    name.unwrap_or_default().to_owned()
}

fn in_words(error: io::Error) -> String {
    error.to_string()
}
