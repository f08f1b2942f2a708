//! What a queue costs, counted in allocations: little for each step, however many wait.

use allocation_counter::measure;

use mortise_core::{How, Mode, WaiterId};

use super::server::{Answer, Asked, Patience, Server};

const CROWD: usize = 10_000;

/// The most that a step may allocate: a few nodes and lists, however many wait.
const FEW: u64 = 40;

fn asked(owner: usize, write: bool) -> Asked {
    let mode = if write { Mode::Write } else { Mode::Read };
    Asked::plain(owner, mode, 1_000)
}

/// Key 0 held by owner 0, and owners 1 to [`CROWD`] waiting for it.
fn crowd(write: bool) -> Server {
    let mut server = Server::default();
    let granted = server.ask(0, asked(0, true), Patience::None);
    assert!(matches!(granted, Answer::Granted(_)));
    for owner in 1..=CROWD {
        let patience = Patience::Millis(owner as u64);
        let mut answer = Answer::Denied;
        let count = measure(|| answer = server.ask(0, asked(owner, write), patience));
        assert!(matches!(answer, Answer::Waits { .. }));
        // Hash tables are copied as they grow, which does not count.
        assert!(count.count_total < FEW, "{count:?}");
    }
    server
}

fn release(server: &mut Server, owner: usize) {
    let released = server.release(0, owner, How::All);
    assert!(released.is_ok());
}

#[test]
fn a_hand_off_costs_little_however_many_wait() {
    let mut server = crowd(true);
    for owner in 0..CROWD {
        release(&mut server, owner);
        let mut decided = Vec::new();
        let count = measure(|| decided = server.settle(0).decided);
        assert_eq!(decided.len(), 1);
        assert!(count.count_total < FEW, "{count:?}");
    }
}

#[test]
fn a_waiter_that_leaves_costs_little_wherever_it_stands() {
    let mut server = crowd(true);
    for number in 1..=CROWD as u64 / 2 {
        for id in [CROWD as u64 + 1 - number, number] {
            let count = measure(|| {
                assert!(server.queues.remove(WaiterId(id)).is_some());
                assert!(server.settle(0).decided.is_empty());
            });
            assert!(count.count_total < FEW, "{count:?}");
        }
    }
    assert!(server.queues.is_empty());
}

#[test]
fn a_batch_of_readers_costs_its_size() {
    let mut server = crowd(false);
    release(&mut server, 0);
    let mut decided = Vec::new();
    let count = measure(|| decided = server.settle(0).decided);
    assert_eq!(decided.len(), CROWD);
    assert!(count.count_total < FEW * CROWD as u64, "{count:?}");
}
