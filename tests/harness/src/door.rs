//! A proxy to a server, which a test can close.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How often a held connection checks whether it may continue.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Carries connections to a server; dropping it closes all of them.
///
/// A closed door is a black hole: connections stay open, nothing arrives, in neither direction, and
/// neither side notices the end of the other. Data in flight arrives later, as TCP would send it
/// again.
#[derive(Debug)]
pub(crate) struct Door {
    port: u16,
    state: Arc<State>,
}

/// Through a door.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// To the server.
    In,
    /// From the server.
    Out,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy)]
struct Course {
    /// Of the connection, in the order in which they came.
    number: u64,
    from: IpAddr,
    way: Way,
}

struct State {
    target: AtomicU16,
    /// How long it delays data, in milliseconds.
    delay_in: AtomicU64,
    delay_out: AtomicU64,
    /// Holds back all data that the server has sent, but so many bytes.
    held_out: AtomicBool,
    let_out: AtomicU64,
    /// Connections with smaller numbers carry nothing, in neither direction.
    held_before: AtomicU64,
    closed: AtomicBool,
    lets_through: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// For these addresses no data is delayed or held back.
    spared: Mutex<BTreeSet<IpAddr>>,
    /// Both ends of each connection that is carried.
    streams: Mutex<BTreeMap<u64, [TcpStream; 2]>>,
    connections: AtomicU64,
}

impl Door {
    /// A door that repeatedly asks `lets_through` about the address a connection comes from.
    ///
    /// # Panics
    /// If no port can be had.
    pub(crate) fn new(lets_through: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Door {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port can be had");
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();
        let state = Arc::new(State {
            target: AtomicU16::new(0),
            delay_in: AtomicU64::new(0),
            delay_out: AtomicU64::new(0),
            held_out: AtomicBool::new(false),
            let_out: AtomicU64::new(0),
            held_before: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            lets_through: Box::new(lets_through),
            spared: Mutex::default(),
            streams: Mutex::default(),
            connections: AtomicU64::new(0),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || shared.serve(&listener));
        Door { port, state }
    }

    /// From here on it leads to `port` of 127.0.0.1; before that, to nothing.
    pub(crate) fn lead_to(&self, port: u16) {
        self.state.target.store(port, Ordering::SeqCst);
    }

    /// Delays and holds back nothing for connections from `address`.
    pub(crate) fn spare(&self, address: IpAddr) {
        let mut spared = self.state.spared.lock();
        spared
            .as_mut()
            .expect("nobody panics with the set in hand")
            .insert(address);
    }

    /// Delays data to the server by this much from now on.
    pub(crate) fn delay_in(&self, by: Duration) {
        self.state.delay_in.store(millis(by), Ordering::SeqCst);
    }

    /// Delays data from the server by this much from now on.
    pub(crate) fn delay_out(&self, by: Duration) {
        self.state.delay_out.store(millis(by), Ordering::SeqCst);
    }

    /// Whether what the server has sent is held back, to arrive all together later.
    pub(crate) fn hold_out(&self, held: bool) {
        self.state.held_out.store(held, Ordering::SeqCst);
    }

    /// Lets so many bytes arrive of those that are held back.
    pub(crate) fn let_out(&self, bytes: u64) {
        self.state.let_out.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Whether data of the connections that there are now is held back, both ways. New ones carry theirs.
    pub(crate) fn hold_older(&self, held: bool) {
        let before = match held {
            true => self.state.connections.load(Ordering::SeqCst),
            false => 0,
        };
        self.state.held_before.store(before, Ordering::SeqCst);
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        for stream in self.state.streams().values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the accepting thread to check `closed`.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<u64, [TcpStream; 2]>> {
        self.streams
            .lock()
            .expect("no thread panics with the list in hand")
    }

    fn serve(self: &Arc<State>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let Ok(from) = stream.peer_addr() else {
                continue;
            };
            let state = Arc::clone(self);
            thread::spawn(move || state.join(stream, from.ip()));
        }
    }

    /// Connects one client with the server, once the door lets it through.
    fn join(self: &Arc<State>, client: TcpStream, from: IpAddr) {
        if !self.await_passage(from) {
            return;
        }
        let target = self.target.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
            return;
        };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
        }
        let copy = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
        let number = self.connections.fetch_add(1, Ordering::SeqCst);
        let ends = [copy(&client), copy(&server)];
        self.streams().insert(number, ends);
        let back = (copy(&server), copy(&client));
        let state = Arc::clone(self);
        let course = move |way| Course { number, from, way };
        thread::spawn(move || state.pump(back.0, back.1, course(Way::Out)));
        self.pump(client, server, course(Way::In));
        self.streams().remove(&number);
    }

    /// Carries bytes, and the end of the stream, one way, each as late as that way is when it is sent.
    fn pump(self: &Arc<State>, mut source: TcpStream, mut sink: TcpStream, course: Course) {
        let (sender, under_way) = mpsc::channel::<(Instant, Vec<u8>)>();
        let reader = source.try_clone().expect("a socket can be shared");
        let state = Arc::clone(self);
        thread::spawn(move || state.carry(&under_way, &mut sink, &reader, course));
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = source.read(&mut buffer).unwrap_or(0);
            let arrives = Instant::now() + self.delay(course);
            let sent = sender.send((arrives, buffer[..read].to_vec()));
            if read == 0 || sent.is_err() {
                return;
            }
        }
    }

    /// The other end of the way. No bytes are the end of the stream.
    fn carry(
        &self,
        under_way: &Receiver<(Instant, Vec<u8>)>,
        sink: &mut TcpStream,
        source: &TcpStream,
        course: Course,
    ) {
        let mut listens = true;
        for (arrives, bytes) in under_way {
            while (Instant::now() < arrives || self.holds(course))
                && !self.closed.load(Ordering::SeqCst)
            {
                let left = arrives.saturating_duration_since(Instant::now());
                thread::sleep(left.clamp(LOOK_EVERY, 10 * LOOK_EVERY));
            }
            if !self.await_passage(course.from) || bytes.is_empty() {
                break;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(self.passing(course, rest.len()));
                // A peer that no longer reads does not cut off what it has sent before, which may still
                // be in flight.
                listens = listens && sink.write_all(now).is_ok();
                rest = later;
            }
        }
        let _ = source.shutdown(Shutdown::Both);
        let _ = sink.shutdown(Shutdown::Both);
    }

    fn spares(&self, from: IpAddr) -> bool {
        let spared = self.spared.lock();
        spared
            .expect("nobody panics with the set in hand")
            .contains(&from)
    }

    fn holds(&self, course: Course) -> bool {
        let is_older = course.number < self.held_before.load(Ordering::SeqCst);
        is_older || self.is_held(course) && self.let_out.load(Ordering::SeqCst) == 0
    }

    fn is_held(&self, course: Course) -> bool {
        let is_out = matches!(course.way, Way::Out);
        is_out && self.held_out.load(Ordering::SeqCst) && !self.spares(course.from)
    }

    /// How many of so many bytes may pass, once any may.
    fn passing(&self, course: Course, bytes: usize) -> usize {
        while self.holds(course) && !self.closed.load(Ordering::SeqCst) {
            thread::sleep(LOOK_EVERY);
        }
        if !self.is_held(course) || self.closed.load(Ordering::SeqCst) {
            return bytes;
        }
        let passing = self.let_out.load(Ordering::SeqCst).min(bytes as u64);
        self.let_out.fetch_sub(passing, Ordering::SeqCst);
        passing as usize
    }

    fn delay(&self, course: Course) -> Duration {
        if self.spares(course.from) {
            return Duration::ZERO;
        }
        let delay = match course.way {
            Way::In => &self.delay_in,
            Way::Out => &self.delay_out,
        };
        Duration::from_millis(delay.load(Ordering::SeqCst))
    }

    /// Waits until data from that side may pass. False if the door is gone.
    fn await_passage(&self, from: IpAddr) -> bool {
        while !(self.lets_through)(from) && !self.closed.load(Ordering::SeqCst) {
            thread::sleep(LOOK_EVERY);
        }
        !self.closed.load(Ordering::SeqCst)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a delay of less than an age")
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
