//! The network: a request reaches its server later, and so does the reply its client, unless they are lost. Each direction of a
//! connection keeps its order.

use crate::parts::{Conn, ConnId, Event, Life, Micros, NodeId, ProcessId, Words, ms};
use crate::world::World;

/// What happens to a request. Its connection breaks, except for `Through`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Through,
    RequestLost,
    ReplyLost,
    /// It arrives this many milliseconds later, outside its connection, when the client no longer waits for it.
    Late(u64),
    /// It arrives, and again this many milliseconds later.
    Doubled(u64),
}

/// The outcome of connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialled {
    Open,
    Refused,
    /// No reply comes.
    Silence,
}

/// A command as the client writes it, `*n` and then `$length` and the bytes of each word, and how many bytes it takes.
struct Command {
    words: Words,
    length: usize,
}

impl Command {
    /// The first of these bytes; `None` while a part is missing.
    fn first(bytes: &[u8]) -> Option<Command> {
        let mut at = 0;
        let count = number(bytes, &mut at)?;
        let mut words = Words::new();
        for _ in 0..count {
            let length = number(bytes, &mut at)?;
            words.push(bytes.get(at..at + length)?.to_vec());
            at += length + 2;
        }
        (at <= bytes.len()).then_some(Command { words, length: at })
    }
}

/// The number in the line that begins at `at`, behind its first character. Moves `at` to the next line.
fn number(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let line = bytes.get(*at + 1..)?;
    let end = line.windows(2).position(|it| it == b"\r\n")?;
    *at += 1 + end + 2;
    std::str::from_utf8(&line[..end]).ok()?.parse().ok()
}

impl World {
    fn latency(&mut self) -> Micros {
        let most = self.fates.latency;
        ms(self.dice.within(0..=most))
    }

    fn is_well(&self) -> bool {
        self.now() >= self.fates.until
    }

    pub(crate) fn dial(&mut self, process: ProcessId, node: NodeId) -> (ConnId, Micros) {
        self.conns.push(Conn {
            process,
            node,
            ..Conn::default()
        });
        (self.conns.len() - 1, self.latency() + ms(1))
    }

    pub(crate) fn dialled(&mut self, id: ConnId) -> Dialled {
        let conn = &self.conns[id];
        let (process, node) = (conn.process, conn.node);
        if self.parted.contains(&(process, node)) {
            return Dialled::Silence;
        }
        match self.nodes[node].is_down {
            true => Dialled::Refused,
            false => {
                self.note(|| format!("process {process} has connection {id} to node {node}"));
                Dialled::Open
            }
        }
    }

    pub(crate) fn write(&mut self, id: ConnId, bytes: &[u8]) {
        let conn = &mut self.conns[id];
        if self.processes[conn.process].life == Life::Dead || conn.is_severed || conn.is_cut {
            return;
        }
        conn.out.extend_from_slice(bytes);
        loop {
            let conn = &mut self.conns[id];
            let Some(Command { words, length }) = Command::first(&conn.out) else {
                return;
            };
            conn.out.drain(..length);
            self.send(id, words);
        }
    }

    fn send(&mut self, id: ConnId, words: Words) {
        self.messages += 1;
        let (now, conn) = (self.now(), &self.conns[id]);
        if conn.is_severed {
            return;
        }
        let node = conn.node;
        self.note(|| format!("  {id}> {}", line(&words)));
        let arrives = |world: &mut World, words| {
            let arrival = (now + world.latency()).max(world.conns[id].last_arrival);
            world.conns[id].last_arrival = arrival;
            world.at(arrival, Event::Arrive(id, words));
        };
        let fate = self.fate();
        if fate != Fate::Through {
            self.note(|| format!("  {id}: {fate:?}"));
        }
        match fate {
            Fate::Through => return arrives(self, words),
            Fate::RequestLost => {}
            Fate::ReplyLost => arrives(self, words),
            Fate::Late(delay) => self.at(now + ms(delay), Event::Late(node, words)),
            Fate::Doubled(delay) => {
                arrives(self, words.clone());
                self.at(now + ms(delay), Event::Late(node, words));
            }
        }
        self.sever(id);
    }

    fn fate(&mut self) -> Fate {
        if self.is_well() {
            return Fate::Through;
        }
        let (fates, mut thrown) = (self.fates, self.dice.within(0..=999));
        let delay = self.dice.within(1..=fates.latest);
        let all = [
            (fates.request_lost, Fate::RequestLost),
            (fates.reply_lost, Fate::ReplyLost),
            (fates.late, Fate::Late(delay)),
            (fates.doubled, Fate::Doubled(delay)),
        ];
        for (chances, fate) in all {
            match thrown.checked_sub(chances) {
                None => return fate,
                Some(left) => thrown = left,
            }
        }
        Fate::Through
    }

    /// The connection breaks. The client notices at once, or by itself later.
    fn sever(&mut self, id: ConnId) {
        let now = self.now();
        let (is_noticed, delay) = (self.dice.percent(50), self.dice.within(0..=2_000));
        let conn = &mut self.conns[id];
        if std::mem::replace(&mut conn.is_severed, true) {
            return;
        }
        // Requests that were sent still arrive.
        let closed = conn.last_arrival.max(now) + if is_noticed { 0 } else { ms(delay) };
        if is_noticed {
            let noticed = now + self.latency();
            self.at(noticed, Event::Cut(id));
        }
        self.at(closed, Event::Closed(id));
    }

    pub(crate) fn part(&mut self, process: ProcessId, node: NodeId) {
        self.note(|| format!("process {process} does not reach node {node} any more"));
        self.parted.insert((process, node));
        for id in 0..self.conns.len() {
            let conn = &mut self.conns[id];
            if (conn.process, conn.node) == (process, node) {
                conn.is_severed = true;
            }
        }
    }

    pub(crate) fn arrive(&mut self, id: ConnId, words: Words, now: Micros) {
        let conn = &mut self.conns[id];
        let node = &self.nodes[conn.node];
        if conn.is_closed || node.is_down {
            return;
        }
        if node.stalled_until > now {
            let unread = &mut self.nodes[conn.node].unread;
            return unread.push_back(Event::Arrive(id, words));
        }
        if conn.is_busy {
            return conn.behind.push_back(words);
        }
        self.run(id, &words, now);
    }

    fn run(&mut self, id: ConnId, words: &Words, now: Micros) {
        let number = self.conns[id].node;
        // Time-outs and expiries happen before the command.
        self.run_due(number, now);
        let server = &mut self.nodes[number].server;
        let reply = server.command(Some(id), words, server.clock.at(now));
        match reply {
            Some(reply) => self.answer(id, reply, now),
            None => self.conns[id].is_busy = true,
        }
        self.run_due(number, now);
    }

    pub(crate) fn arrive_late(&mut self, number: NodeId, words: Words, now: Micros) {
        let node = &self.nodes[number];
        if node.is_down {
            return;
        }
        if node.stalled_until > now {
            let unread = &mut self.nodes[number].unread;
            return unread.push_back(Event::Late(number, words));
        }
        self.run_due(number, now);
        let server = &mut self.nodes[number].server;
        let reply = server.command(None, &words, server.clock.at(now));
        self.note(|| {
            let reply = reply.as_deref().map_or("nothing".into(), shown);
            format!("  late at node {number}: {} < {reply}", line(&words))
        });
        self.run_due(number, now);
    }

    /// A server replies to the oldest command of a connection.
    pub(crate) fn answer(&mut self, id: ConnId, reply: Vec<u8>, now: Micros) {
        let is_slow = !self.is_well() && self.dice.per_mille(self.fates.slow);
        let mut delay = self.latency();
        if is_slow {
            delay += ms(self.dice.within(1..=1_500));
        }
        let conn = &mut self.conns[id];
        let was_busy = std::mem::replace(&mut conn.is_busy, false);
        if !conn.is_severed {
            let delivery = (now + delay).max(conn.last_delivery);
            conn.last_delivery = delivery;
            self.at(delivery, Event::Deliver(id, reply));
        }
        while was_busy
            && !self.conns[id].is_busy
            && let Some(words) = self.conns[id].behind.pop_front()
        {
            self.run(id, &words, now);
        }
    }

    pub(crate) fn deliver(&mut self, id: ConnId, bytes: Vec<u8>) {
        let conn = &mut self.conns[id];
        if conn.is_severed || conn.is_cut {
            return;
        }
        let reader = conn.reader.take();
        conn.inbox.extend(&bytes);
        self.note(|| format!("  {id}< {}", shown(&bytes)));
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(crate) fn cut(&mut self, id: ConnId) {
        self.note(|| format!("  {id}: is cut"));
        let conn = &mut self.conns[id];
        (conn.is_severed, conn.is_cut) = (true, true);
        if let Some(reader) = conn.reader.take() {
            reader.wake();
        }
    }

    /// Closes all connections of a server that goes down.
    pub(crate) fn cut_all_of(&mut self, node: NodeId) {
        let now = self.now();
        for id in 0..self.conns.len() {
            let conn = &mut self.conns[id];
            if conn.node == node && !conn.is_closed {
                conn.is_closed = true;
                if !conn.is_severed {
                    conn.is_severed = true;
                    let noticed = now + self.latency();
                    self.at(noticed, Event::Cut(id));
                }
            }
        }
    }

    /// The client closes a connection: what it has written arrives first.
    pub(crate) fn close(&mut self, id: ConnId) {
        let (now, latency) = (self.now(), self.latency());
        let conn = &mut self.conns[id];
        conn.is_severed = true;
        let closed = conn.last_arrival.max(now + latency);
        self.at(closed, Event::Closed(id));
    }

    pub(crate) fn close_all_of(&mut self, process: ProcessId) {
        for id in 0..self.conns.len() {
            if self.conns[id].process == process && !self.conns[id].is_severed {
                self.close(id);
            }
        }
    }

    pub(crate) fn on_closed(&mut self, id: ConnId) {
        let conn = &mut self.conns[id];
        if !std::mem::replace(&mut conn.is_closed, true) {
            self.nodes[conn.node].server.on_closed(id);
        }
    }
}

/// A command as readable text.
fn line(words: &Words) -> String {
    let words: Vec<_> = words.iter().map(|it| String::from_utf8_lossy(it)).collect();
    words.join(" ")
}

fn shown(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply)
        .trim_end()
        .replace("\r\n", " ")
}
