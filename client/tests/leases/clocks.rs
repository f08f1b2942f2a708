//! A guard measures its lease on the boot-time clock: steps of the wall clock do not change it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mortise_client::BootInstant;
use mortise_harness::{ClockStep, Server, eventually};

use crate::holder::Holder;
use crate::support::process::url;
use crate::support::{LATE, client_of, ms};

const HOUR: Duration = Duration::from_secs(3600);
const LEASE: Duration = Duration::from_secs(5);

#[test]
fn a_guard_lasts_exactly_its_lease_when_the_wall_clock_steps() {
    let server = Server::builder().clock_shim().start();
    let mut holder = Holder::start("clocks::holder_process", &server);
    let mut offset = 0;
    for (step, hours) in [
        (ClockStep::Forward(HOUR), 1),
        (ClockStep::Back(2 * HOUR), -2),
    ] {
        server.step_clock(step);
        offset += hours * 3600;
        let before = server.calls("LOCK.RENEW");
        eventually("the lock is renewed", || {
            server.calls("LOCK.RENEW") > before + 1
        });
        let Reading { left, wall } = read_clocks(&mut holder);
        assert!(left > Duration::ZERO && left <= LEASE, "{left:?}");
        let off = wall - wall_seconds();
        assert!((off - offset).abs() < 60, "its clock is off by {off} s");
    }
    let (stopped, held) = (Instant::now(), read_clocks(&mut holder).left);
    server.stop_signal();
    server.step_clock(ClockStep::Forward(HOUR));
    assert_eq!(holder.ask("lost"), "lost Expired, at the deadline: true");
    let took = stopped.elapsed();
    assert!(took >= held && took < LEASE + LATE, "{took:?}");
    server.cont_signal();
}

fn wall_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs().try_into().unwrap()
}

/// The process's clocks.
struct Reading {
    /// Time until its guard's deadline.
    left: Duration,
    /// The wall clock, in seconds.
    wall: i64,
}

fn read_clocks(holder: &mut Holder) -> Reading {
    let answer = holder.ask("clocks");
    let mut numbers = answer.split(' ').skip(1).map(|it| it.parse().unwrap());
    let mut number = || numbers.next().unwrap();
    Reading {
        left: ms(u64::try_from(number()).unwrap()),
        wall: number(),
    }
}

/// The test above runs this in another process, and reads its clocks.
#[test]
#[ignore = "the other half of a test"]
fn holder_process() {
    let Some(url) = url() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(async {
        let client = client_of(&url).await;
        client.lock("k").lease(LEASE).acquire().await.unwrap()
    });
    // The test runner may have begun a line.
    println!("\nholding");
    for line in std::io::stdin().lines().map(Result::unwrap) {
        if line == "clocks" {
            assert!(guard.is_valid(), "lost: {:?}", guard.loss());
            let left = guard.deadline().remaining().as_millis();
            println!("clocks {left} {}", wall_seconds());
        } else {
            let loss = runtime.block_on(guard.lost());
            let in_time = BootInstant::now() >= guard.deadline();
            println!("lost {loss:?}, at the deadline: {in_time}");
        }
    }
}
