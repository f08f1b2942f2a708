//! A crowd of readers whose leases end together: every rule ignores them at once, and they are dropped a few at a time.

use allocation_counter::measure;
use mortise_core::{
    AcquireError, Busy, Count, Grant, How, Instant, Lease, Lock, Mode, Release, ReleaseError,
    Sharing, TokenClock, Turn,
};

use crate::requests::{NOW, WALL, owner, request};

const CROWD: usize = 1_000;

struct Crowd {
    lock: Lock,
    tokens: TokenClock,
    ended: usize,
}

impl Crowd {
    /// `crowd` readers for 10 ms, and `others` for a second.
    fn new(crowd: usize, others: &[&[u8]]) -> Self {
        let mut this = Self {
            lock: Lock::free(),
            tokens: TokenClock::new(),
            ended: 0,
        };
        for number in 0..crowd {
            let name = format!("reader {number}");
            this.acquire(NOW, name.as_bytes(), Mode::Read, 10)
                .expect("compatible");
        }
        for name in others {
            this.acquire(NOW, name, Mode::Read, 1_000)
                .expect("compatible");
        }
        this
    }

    fn acquire(
        &mut self,
        now: Instant,
        name: &[u8],
        mode: Mode,
        ms: u64,
    ) -> Result<Grant, AcquireError> {
        let ended = &mut self.ended;
        let mut live = self.lock.at(now, |_, _| *ended += 1);
        let outcome = live.acquire(
            &request(name, mode, ms),
            Turn::First,
            &mut self.tokens,
            WALL,
        );
        self.ended += live.take_remains().map_or(0, |remains| remains.len());
        outcome
    }
}

#[test]
fn a_crowd_that_has_ended_is_taken_out_in_one_piece_and_the_lock_is_free() {
    let mut crowd = Crowd::new(CROWD, &[]);
    let mut live = crowd
        .lock
        .at(NOW.after(10), |_, _| panic!("reported one by one"));
    assert!(live.is_empty());
    let mut remains = live.take_remains().expect("a crowd has ended");
    assert!(!remains.is_empty());
    assert!(crowd.lock.is_free());
    assert_eq!(remains.len(), CROWD);
    let mut dropped = 0;
    while let Some((_, stake)) = remains.pop() {
        assert_eq!(stake.deadline, NOW.after(10));
        dropped += 1;
    }
    assert_eq!((dropped, remains.is_empty()), (CROWD, true));
}

#[test]
fn the_only_reader_left_of_a_crowd_upgrades_at_once() {
    let mut crowd = Crowd::new(CROWD, &[b"left"]);
    let then = NOW.after(10);
    let upgraded = crowd.acquire(then, b"left", Mode::Write, 10);
    assert!(matches!(upgraded, Ok(Grant::Upgrade(_))), "{upgraded:?}");
    assert_eq!((crowd.lock.len(), crowd.ended), (1, CROWD));
}

#[test]
fn a_crowd_is_dropped_a_few_at_a_time_while_several_others_hold() {
    let mut crowd = Crowd::new(CROWD, &[b"left", b"too"]);
    let then = NOW.after(10);
    let mut steps = 0;
    while crowd.lock.has_ended_holds(then) {
        let before = crowd.ended;
        let ended = &mut crowd.ended;
        let live = crowd.lock.at(then, |_, _| *ended += 1);
        assert_eq!(live.next_deadline(), Some(NOW.after(1_000)));
        assert_eq!(live.len(), 2);
        assert!((1..=64).contains(&(crowd.ended - before)));
        steps += 1;
    }
    assert!(steps > 10);
    assert_eq!((crowd.lock.len(), crowd.ended), (2, CROWD));
}

#[test]
fn permits_of_a_crowd_that_has_ended_are_free_before_they_are_dropped() {
    let mut crowd = Crowd::new(CROWD, &[b"left", b"too"]);
    let mut request = request(b"new", Mode::Read, 1_000);
    request.terms.sharing = Sharing::within(Count::new(3).expect("a count"));
    let mut live = crowd.lock.at(NOW.after(10), |_, _| {});
    let granted = live.acquire(&request, Turn::First, &mut crowd.tokens, WALL);
    assert!(matches!(granted, Ok(Grant::New(_))), "{granted:?}");
    request.owner = owner(b"one too many");
    let busy = live.acquire(&request, Turn::First, &mut crowd.tokens, WALL);
    assert_eq!(busy, Err(AcquireError::Busy(Busy::Held)));
    assert!(
        live.lock().len() > 3,
        "some have ended and are not dropped yet"
    );
}

#[test]
fn a_hold_that_has_ended_grants_nothing_before_it_is_dropped() {
    let mut crowd = Crowd::new(CROWD, &[b"left", b"too"]);
    let then = NOW.after(10);
    let mut dropped = 0;
    crowd.lock.at(then, |_, _| dropped += 1);
    // Those that end together are dropped in the order of their names.
    let ended = |(_, stake): &(_, mortise_core::Stake)| stake.is_over(then);
    let last = crowd.lock.holds().filter(ended).last();
    let (last, old) = last.expect("not all are dropped at once");
    let last = last.text().to_vec();
    let lock = &mut crowd.lock;
    assert_eq!(
        (lock.live_len(then), lock.live_holds(then, 100).len()),
        (2, 2)
    );
    let mut live = lock.at(then, |_, _| dropped += 1);
    assert!(live.hold(owner(&last)).is_none());
    assert!(!live.confirm(owner(&last), old.token));
    let lease = Lease::from_millis(1_000).expect("at least 1");
    assert!(live.renew(owner(&last), lease, None).is_none());
    let release = Release {
        owner: owner(&last),
        how: How::All,
        token: None,
    };
    assert_eq!(live.release(&release), Err(ReleaseError::NotHeld));
    let raised = live.fence(owner(&last), old.token, &mut crowd.tokens, WALL);
    assert_eq!(raised, Ok(None));
    assert_eq!(lock.hold(owner(&last)), Some(old), "it is not dropped yet");
    let busy = crowd.acquire(then, &last, Mode::Write, 1_000);
    assert!(
        matches!(busy, Err(AcquireError::Busy(Busy::Held))),
        "{busy:?}"
    );
    let granted = crowd.acquire(then, &last, Mode::Read, 1_000);
    assert!(
        matches!(granted, Ok(Grant::New(_))),
        "no hold is revived: {granted:?}"
    );
    let stake = crowd.lock.hold(owner(&last)).expect("granted");
    assert_eq!((stake.read, stake.since), (1, then));
    assert_eq!(crowd.lock.live_len(then), 3);
    while crowd.lock.has_ended_holds(then) {
        crowd.lock.at(then, |_, _| dropped += 1);
    }
    assert_eq!((crowd.lock.len(), crowd.ended + dropped), (3, CROWD));
    assert_eq!(crowd.lock.hold(owner(&last)), Some(stake), "it stays");
}

#[test]
fn live_holds_are_counted_correctly_at_any_moment() {
    let mut crowd = Crowd::new(0, &[]);
    for number in 0..200_u64 {
        let name = format!("reader {number}");
        for _ in 0..=number % 3 {
            crowd
                .acquire(NOW, name.as_bytes(), Mode::Read, 10 + number % 20)
                .expect("compatible");
        }
    }
    let lock = &mut crowd.lock;
    for after in [15, 12, 28, 29, 9, 20, 30, 0] {
        let now = NOW.after(after);
        let (mut expected, mut permits) = (0, 0);
        for (_, stake) in lock.holds().filter(|(_, stake)| !stake.is_over(now)) {
            (expected, permits) = (expected + 1, permits + stake.read);
        }
        let fits = |limit: u32| {
            let limit = Count::new(limit).expect("a count");
            let mut lock = lock.clone();
            let live = lock.at(now, |_, _| {});
            live.admits(&request(b"new", Sharing::within(limit), 10))
        };
        assert!(fits(permits + 1) && (permits == 0 || !fits(permits)));
        assert_eq!(lock.live_len(now), expected, "after {after} ms");
        let live = lock.live_holds(now, 1_000);
        assert!(live.is_sorted_by(|(one, _), (other, _)| one < other));
        assert_eq!(live.len(), expected);
        for some in [1, 7] {
            let first = lock.live_holds(now, some);
            assert_eq!(first, live[..expected.min(some)], "in byte order");
        }
        if let Some((name, _)) = live.first() {
            lock.remove(name.as_ref());
        }
    }
}

#[test]
fn no_command_on_a_crowd_frees_more_than_a_few_holds() {
    for others in [&[][..], &[&b"left"[..]], &[&b"left"[..], b"too"]] {
        let mut crowd = Crowd::new(20 * CROWD, others);
        let count = measure(|| {
            let mut live = crowd.lock.at(NOW.after(10), |_, _| {});
            std::mem::forget(live.take_remains());
        });
        // A few nodes of two trees, or none if all are dropped in one piece.
        assert!(
            (-128..=2).contains(&count.count_current),
            "{count:?} beside {others:?}"
        );
    }
}

#[test]
fn as_many_as_are_dropped_at_a_time_do_not_leave_in_one_piece() {
    let mut crowd = Crowd::new(64, &[b"left"]);
    let ended = &mut crowd.ended;
    let mut live = crowd.lock.at(NOW.after(10), |_, _| *ended += 1);
    assert!(live.take_remains().is_none());
    assert_eq!((crowd.lock.len(), crowd.ended), (1, 64));
}

#[test]
fn the_only_holder_is_the_first_and_its_lease_the_next_to_end() {
    let mut crowd = Crowd::new(0, &[b"only"]);
    let end = NOW.after(1_000);
    assert_eq!(crowd.lock.next_live_deadline(NOW.after(999)), Some(end));
    assert_eq!(crowd.lock.next_live_deadline(end), None);
    let live = crowd.lock.at(NOW, |_, _| {});
    let (first, _) = live.first().expect("a holder");
    assert_eq!(first.as_ref(), owner(b"only"));
}
