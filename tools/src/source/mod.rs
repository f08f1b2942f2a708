//! The connections: a thread for each server, so that one that hangs delays no other, and one thread that keeps the list of servers.

mod ask;
mod dial;
mod directory;
mod members;
mod message;
mod poll;
mod reply;
mod sentinels;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use self::ask::View;
use self::dial::Address;
use self::directory::Directory;
use self::message::Message;
use self::poll::{Poller, Work};
use crate::model::{Broken, LockId, Order, Report};
use crate::options::{Asking, Target};
use crate::tls;

/// The servers, asked in the background.
#[derive(Debug)]
pub struct Source {
    inbox: Sender<Message>,
    /// What they say.
    pub reports: Receiver<Report>,
}

impl Source {
    /// Begins to ask for locks that have `filter` in their names, or their holders'. Times are counted from `began`.
    pub fn start(target: &Target, asking: Asking, filter: &str, began: Instant) -> Source {
        tls::bring_cryptography();
        let (inbox, messages) = channel();
        let (reports, out) = channel();
        let addresses = target.urls.iter().map(|info| {
            let info = info.clone();
            Address::new(info, target.certificates.clone())
        });
        let addresses: Vec<Address> = addresses.collect();
        let seeds = match &target.sentinel {
            None => addresses,
            Some(name) => {
                watch_sentinels(addresses, name.clone(), asking, inbox.clone());
                Vec::new()
            }
        };
        let supervisor = Supervisor {
            directory: Directory::new(seeds),
            pollers: BTreeMap::new(),
            opened: Opened::Nothing,
            filter: filter.to_owned(),
            asking,
            began,
            inbox: inbox.clone(),
            reports,
        };
        thread::spawn(move || supervisor.run(&messages));
        Source {
            inbox,
            reports: out,
        }
    }

    /// Sends a request; its result is reported.
    pub fn order(&self, order: Order) {
        // The receiving thread ends only with this value.
        let _ = self.inbox.send(Message::Order(order));
    }
}

fn watch_sentinels(sentinels: Vec<Address>, name: String, asking: Asking, inbox: Sender<Message>) {
    thread::spawn(move || {
        sentinels::run(&sentinels, &name, asking, |primary| {
            inbox.send(Message::Primary(primary)).is_ok()
        });
    });
}

/// What is open.
enum Opened {
    Nothing,
    Lock(LockId),
    /// The lock of this name, wherever it is.
    Named(Vec<u8>),
}

impl Opened {
    /// The lock to ask this server about.
    fn at(&self, server: &Address) -> Option<LockId> {
        let node = server.name();
        match self {
            Opened::Nothing => None,
            Opened::Lock(lock) => (lock.node == node).then(|| lock.clone()),
            Opened::Named(key) => Some(LockId {
                node,
                db: server.db(),
                key: key.clone(),
            }),
        }
    }
}

/// Knows which servers there are, and has a thread for each.
struct Supervisor {
    directory: Directory,
    pollers: BTreeMap<String, (Address, Sender<Work>)>,
    opened: Opened,
    filter: String,
    asking: Asking,
    began: Instant,
    inbox: Sender<Message>,
    reports: Sender<Report>,
}

impl Supervisor {
    fn run(mut self, messages: &Receiver<Message>) {
        self.follow_directory();
        for message in messages {
            let report = match message {
                Message::Order(order) => self.obey(order),
                Message::Members(node, members) => {
                    self.directory.heard(node, members);
                    self.follow_directory();
                    None
                }
                Message::Report(report) => {
                    if let Report::Silent { node, .. } = &report {
                        self.directory.silent(node);
                    }
                    Some(report)
                }
                Message::Primary(Ok(primary)) => {
                    self.directory.only(primary);
                    self.follow_directory();
                    Some(self.nodes())
                }
                Message::Primary(Err(why)) => Some(Report::Lost {
                    at: self.began.elapsed(),
                    why,
                }),
            };
            if let Some(report) = report
                && self.reports.send(report).is_err()
            {
                return;
            }
        }
    }

    fn obey(&mut self, order: Order) -> Option<Report> {
        match order {
            Order::Watch(lock) => self.open(lock.map_or(Opened::Nothing, Opened::Lock)),
            Order::Seek(key) => self.open(Opened::Named(key)),
            Order::Filter(filter) => {
                self.filter = filter;
                self.send_all(|_| Work::Filter(self.filter.clone()));
                None
            }
            Order::Break {
                lock,
                owner,
                token,
                when,
            } => {
                let work = Work::Break(lock.clone(), owner.clone(), token, when);
                let poller = self.pollers.get(&lock.node);
                let sent = poller.is_some_and(|(_, poller)| poller.send(work).is_ok());
                (!sent).then(|| Report::Broken {
                    at: self.began.elapsed(),
                    outcome: Broken::Refused(format!("{} is not watched any more", lock.node)),
                    lock,
                    owner,
                })
            }
            Order::Quit => None,
        }
    }

    fn open(&mut self, opened: Opened) -> Option<Report> {
        self.opened = opened;
        self.send_all(|server| Work::Watch(self.opened.at(server)));
        None
    }

    fn send_all(&self, what: impl Fn(&Address) -> Work) {
        for (server, poller) in self.pollers.values() {
            // A thread that has ended needs no message.
            let _ = poller.send(what(server));
        }
    }

    /// Starts a thread for each new server; that of one that has gone ends by itself.
    fn follow_directory(&mut self) {
        let servers = self.directory.servers();
        let names: Vec<String> = servers.iter().map(Address::name).collect();
        let before: Vec<String> = self.pollers.keys().cloned().collect();
        self.pollers.retain(|name, _| names.contains(name));
        for address in servers {
            let name = address.name();
            if !self.pollers.contains_key(&name) {
                let work = (address.clone(), self.start_poller(address));
                self.pollers.insert(name, work);
            }
        }
        if !self.pollers.keys().eq(&before) {
            // The next report shows whether the receiver is gone.
            let _ = self.reports.send(self.nodes());
        }
    }

    fn nodes(&self) -> Report {
        Report::Nodes(self.pollers.keys().cloned().collect())
    }

    fn start_poller(&self, address: Address) -> Sender<Work> {
        let (sender, work) = channel();
        let poller = Poller {
            view: View {
                opened: self.opened.at(&address),
                filter: self.filter.clone(),
            },
            address,
            asking: self.asking,
            began: self.began,
            work,
            outbox: self.inbox.clone(),
        };
        thread::spawn(move || poller.run());
        sender
    }
}
