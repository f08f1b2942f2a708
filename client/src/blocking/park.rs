//! Where the blocking API's work is done, and how a thread waits for it.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::api::client::{Client, sealed::Locks};
use crate::api::settings::Settings;
use crate::run::Core;
use crate::value::{Error, lock};

/// One value for each process: a process that was forked makes its own, and does not touch its parent's, whose threads and
/// sockets it does not have.
#[derive(Debug)]
struct PerProcess<T>(Mutex<Option<(u32, T)>>);

impl<T: Clone> PerProcess<T> {
    fn get(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let mut made = lock(&self.0);
        let process = std::process::id();
        if let Some((made_in, value)) = &*made
            && *made_in == process
        {
            return Ok(value.clone());
        }
        let value = make()?;
        mem::forget(made.replace((process, value.clone())));
        Ok(value)
    }
}

/// The settings, with the runtime that all blocking clients of this process share.
fn settled(settings: &Settings) -> Result<Settings, Error> {
    static RUNTIME: PerProcess<Handle> = PerProcess(Mutex::new(None));
    let runtime = RUNTIME.get(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("mortise");
        let runtime = builder.enable_all().build();
        let runtime = runtime.map_err(|error| Error::NoThread(error.to_string()))?;
        let handle = runtime.handle().clone();
        mem::forget(runtime);
        Ok(handle)
    });
    let mut settings = settings.clone();
    settings.runtime = Some(runtime?);
    Ok(settings)
}

/// Where locks are taken from, a server or a quorum; in each process anew.
#[derive(Debug)]
pub struct Source {
    client: PerProcess<Client>,
    settings: Settings,
}

impl Source {
    pub(super) fn connect(settings: Settings) -> Result<Arc<Source>, Error> {
        Ok(Source::of(wait(settled(&settings)?.connect())?, settings))
    }

    pub(super) fn build(settings: Settings) -> Result<Arc<Source>, Error> {
        Ok(Source::of(settled(&settings)?.build()?, settings))
    }

    fn of(core: Arc<Core>, mut settings: Settings) -> Arc<Source> {
        // A connection that was given is this process's alone.
        settings.given = None;
        let made = (std::process::id(), Client::of(core));
        let client = PerProcess(Mutex::new(Some(made)));
        Arc::new(Source { client, settings })
    }

    /// This process's.
    pub(super) fn here(&self) -> Result<Client, Error> {
        let build = || settled(&self.settings)?.build().map(Client::of);
        self.client.get(build)
    }

    pub(super) fn close(&self) {
        if let Ok(client) = self.here() {
            wait(client.close());
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until the future is done. What the futures here wait for happens on the background thread, so no
/// runtime is needed, and one that is there is not in the way.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let Some(value) = wait_until(future, None) else {
        unreachable!("a wait without a limit has come to its limit");
    };
    value
}

pub(super) fn wait_until<F: Future>(future: F, until: Option<Instant>) -> Option<F::Output> {
    // In a task the runtime would have it yield now and then, which here would be for ever.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}
