//! The events that the client reports to an application's subscriber.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mortise_client::Guard;
use mortise_harness::cmd;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::proxy::Traffic;
use crate::support::{await_free, eventually, ms, start, start_behind_proxy};

/// Calls a function with every event, as `LEVEL message key=value …`, and every span, as `SPAN name key=value …`.
struct Listener<F>(F);

impl<F: Fn(String) + Send + Sync + 'static> Listener<F> {
    /// Receives the events of this test's tasks, which all run on its thread.
    fn of_this_thread(listen: F) -> DefaultGuard {
        // With a single subscriber, `tracing` disables an event for good if a thread without it emits the event first. Two avoid that.
        let _ = tracing::subscriber::set_global_default(NoSubscriber::default());
        tracing::subscriber::set_default(Listener(listen))
    }
}

impl<F: Fn(String) + Send + Sync + 'static> Subscriber for Listener<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mortise_client") && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("SPAN {}", span.metadata().name()));
        span.record(&mut line);
        self.0(line.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        use std::fmt::Write;
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

/// Keeps every event and span. Panics at a loss if the flag is set.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>, Arc<AtomicBool>);

impl Events {
    fn of_this_thread() -> (Events, DefaultGuard) {
        let events = Events::default();
        let kept = events.clone();
        let guard = Listener::of_this_thread(move |line: String| {
            let is_loss = line.contains("lock lost");
            kept.0.lock().unwrap().push(line);
            assert!(!is_loss || !kept.1.load(Ordering::Relaxed), "of this test");
        });
        (events, guard)
    }

    fn find(&self, parts: &[&str]) -> Option<String> {
        let events = self.0.lock().unwrap();
        let all = |line: &&String| parts.iter().all(|part| line.contains(part));
        events.iter().find(all).cloned()
    }

    #[track_caller]
    fn expect(&self, parts: &[&str]) -> String {
        let found = self.find(parts);
        found.unwrap_or_else(|| panic!("no {parts:?} in {:#?}", self.0.lock().unwrap()))
    }
}

#[tokio::test]
async fn a_release_is_an_event_with_key_and_token() {
    let (events, _guard) = Events::of_this_thread();
    let (_server, client) = start().await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let token = format!("token={}", guard.token());
    guard.release().await.unwrap();
    events.expect(&["DEBUG lock released", "key=orders", &token]);
    assert_eq!(events.find(&["lost"]), None);
}

#[tokio::test]
async fn a_lock_that_is_passed_on_is_an_event_and_no_warning() {
    let (events, _guard) = Events::of_this_thread();
    let (_server, client) = start().await;
    let guard = client.lock("orders").acquire().await.unwrap();
    let token = format!("token={}", guard.token());
    guard.pass_to("heir", ms(60_000)).await.unwrap();
    events.expect(&["DEBUG lock passed on", "key=orders", &token]);
    assert_eq!(events.find(&["WARN"]), None);
}

#[tokio::test]
async fn a_loss_is_a_warning_with_its_reason() {
    let (events, _guard) = Events::of_this_thread();
    let (server, client) = start().await;
    let lock = client.lock("k").lease(ms(300));
    let expired = lock.clone().auto_renew(false).acquire().await.unwrap();
    let _ = expired.lost().await;
    events.expect(&["WARN lock lost", "key=k", "may have run out"]);
    drop(expired);
    await_free(&client, "k").await;
    let denied = lock.clone().acquire().await.unwrap();
    cmd!(server.connect(), "DEL", "k");
    let _ = denied.lost().await;
    events.expect(&["WARN lock lost", "key=k", "no longer holds it"]);
}

#[tokio::test]
async fn a_failed_renewal_and_an_abandoned_release_are_warnings_that_name_the_server() {
    let (events, _guard) = Events::of_this_thread();
    let (_server, proxy, client) = start_behind_proxy().await;
    let guard = client.lock("k").lease(ms(900)).acquire().await.unwrap();
    proxy.set(Traffic::Cut);
    let address = proxy.url();
    let address = address.trim_start_matches("redis://").trim_end_matches('/');
    let server = format!("server=\"{address}\"");
    eventually("a renewal has failed", || async {
        events
            .find(&["WARN renewal failed", &server, "key=k", "error="])
            .is_some()
    })
    .await;
    assert!(guard.release().await.is_err());
    eventually("the release is given up", || async {
        events
            .find(&["WARN a release could not be delivered", &server, "key=k"])
            .is_some()
    })
    .await;
}

#[tokio::test]
async fn a_subscriber_may_use_the_guard_that_an_event_is_about() {
    let asked = Arc::new(Mutex::new(None::<Guard>));
    let count = Arc::new(AtomicUsize::new(0));
    let (about, counted) = (asked.clone(), count.clone());
    let _guard = Listener::of_this_thread(move |_: String| {
        let held = about.lock().unwrap().as_ref().map(Guard::reenter);
        if let Some(held) = held {
            let _ = (held.is_valid(), held.deadline(), format!("{held:?}"));
            drop(held.lost());
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(400));
    let guard = lock.clone().auto_renew(false).acquire().await.unwrap();
    *asked.lock().unwrap() = Some(guard.reenter());
    let _ = guard.lost().await;
    let after_the_loss = count.load(Ordering::Relaxed);
    assert!(after_the_loss > 0);
    drop((asked.lock().unwrap().take(), guard));
    await_free(&client, "k").await;
    let guard = lock.clone().acquire().await.unwrap();
    *asked.lock().unwrap() = Some(guard.reenter());
    client.close(ms(10_000)).await;
    assert!(guard.loss().is_some());
    assert!(count.load(Ordering::Relaxed) > after_the_loss);
    asked.lock().unwrap().take();
}

#[tokio::test]
async fn a_subscriber_that_panics_at_a_loss_does_not_stop_the_renewal_of_other_guards() {
    let (events, _guard) = Events::of_this_thread();
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(3_000)).acquire().await.unwrap();
    let short = |key: &str| client.lock(key).lease(ms(1_500));
    let _denied = short("denied").acquire().await.unwrap();
    let _expired = short("expired").auto_renew(false).acquire().await.unwrap();
    events.1.store(true, Ordering::Relaxed);
    cmd!(server.connect(), "DEL", "denied");
    for key in ["key=denied", "key=expired"] {
        let is_lost = async || events.find(&["lock lost", key]).is_some();
        eventually("the loss", is_lost).await;
    }
    let shown = guard.deadline();
    eventually("a renewal", async || guard.deadline() > shown).await;
    assert!(guard.is_valid());
}
