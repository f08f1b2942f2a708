//! A network between two servers that can fail without either of them being told.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::server::Server;

/// How often a cut link looks whether it has been mended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A port that leads to a server, until it is cut.
///
/// A cut link is a black hole: connections stay open, nothing arrives, in neither direction, and nobody hears of the
/// other's end. What was under way arrives when it is mended, as TCP would send it again.
#[derive(Debug)]
pub struct Link {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    target: u16,
    cut: AtomicBool,
    closed: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// A link to `server`.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn to(server: &Server) -> Link {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port can be had");
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();
        let state = Arc::new(State {
            target: server.port(),
            cut: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || shared.serve(&listener));
        Link { port, state }
    }

    /// The port on 127.0.0.1 that leads to the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From here on nothing passes.
    pub fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
    }

    /// What is sent passes again, and so does what was held up.
    pub fn mend(&self) {
        self.state.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        for stream in self.state.streams().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Lets the thread that accepts look at `closed`.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
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
            let state = Arc::clone(self);
            thread::spawn(move || state.join(stream));
        }
    }

    /// Connects one client with the server, once the link lets it.
    fn join(self: &Arc<State>, client: TcpStream) {
        if !self.passes() {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target)) else {
            return;
        };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
        }
        let copy = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
        self.streams().extend([copy(&client), copy(&server)]);
        let back = (copy(&server), copy(&client));
        let state = Arc::clone(self);
        thread::spawn(move || state.pump(back.0, back.1));
        self.pump(client, server);
    }

    /// Carries bytes, and the end of the stream, one way.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            if !self.passes() || read == 0 || to.write_all(&buffer[..read]).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// Waits while the link is cut. False if it is no more.
    fn passes(&self) -> bool {
        while self.cut.load(Ordering::SeqCst) && !self.closed.load(Ordering::SeqCst) {
            thread::sleep(LOOK_EVERY);
        }
        !self.closed.load(Ordering::SeqCst)
    }
}
